#include "preflight/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "base/text.h"
#include "preflight/rows.h"

namespace lockstep::preflight {

const char* Name(State state) {
  switch (state) {
    case State::kOk:
      return "ok";
    case State::kSkipped:
      return "skipped";
    case State::kWarn:
      return "warn";
    case State::kFail:
      return "fail";
  }
  return "";
}

State CheckOutcome::state() const {
  State worst = skipped ? State::kSkipped : State::kOk;
  for (const Problem& problem : problems) worst = std::max(worst, problem.state);
  return worst;
}

Json CheckOutcome::ToJson() const {
  Json list = Json::array();
  for (const Problem& problem : problems) {
    Json entry = {{"state", Name(problem.state)}, {"text", problem.text}, {"do", problem.remedy}};
    if (!problem.nodes.empty()) entry["nodes"] = problem.nodes;
    list.push_back(std::move(entry));
  }
  return {{"state", Name(state())}, {"note", note}, {"problems", list}};
}

CheckOutcome CheckOutcome::FromJson(const Json& json) {
  CheckOutcome outcome;
  outcome.note = GetString(json, "note");
  outcome.skipped = GetString(json, "state") == "skipped";
  if (auto list = json.find("problems"); list != json.end() && list->is_array()) {
    for (const Json& problem : *list) {
      outcome.problems.push_back({GetString(problem, "state") == "warn" ? State::kWarn : State::kFail,
                                  GetString(problem, "text"),
                                  GetString(problem, "do"),
                                  {}});
      if (auto nodes = problem.find("nodes"); nodes != problem.end() && nodes->is_array()) {
        for (const Json& node : *nodes) {
          if (node.is_number_integer()) outcome.problems.back().nodes.push_back(node.get<int>());
        }
      }
    }
  }
  return outcome;
}

const std::vector<Check>& Checks() {
  static const std::vector<Check> checks = {
      {"gpu-count", Needs::kOneNode, "there is a GPU for every rank", CheckGpuCount},
      {"gpu-unique", Needs::kOneNode, "no GPU is counted twice", CheckGpuUnique},
      {"gpu-memory", Needs::kOneNode, "no uncorrected ECC errors, no row remapping pending or failed", CheckGpuMemory},
      {"gpu-recovery", Needs::kOneNode, "the driver asks for no reset, drain or reboot", CheckGpuRecovery},
      {"gpu-xid", Needs::kOneNode, "no Xid in the kernel log that calls for a reset", CheckGpuXid},
      {"gpu-throttle", Needs::kOneNode, "no GPU is slowed down by heat or power", CheckGpuThrottle},
      {"gpu-processes", Needs::kOneNode, "nobody else, and nothing left of earlier runs, uses the GPUs",
       CheckGpuProcesses},
      {"gpu-links", Needs::kOneNode, "NVLink is up, the NVSwitch fabric is ready, PCIe has its width", CheckGpuLinks},
      {"driver", Needs::kOneNode, "kernel module and library agree and serve PyTorch's CUDA", CheckDriver},
      {"ib-ports", Needs::kOneNode, "RDMA ports are active, at one rate, with a subnet manager", CheckIbPorts},
      {"interface", Needs::kOneNode, "the interface to the master exists, is up and fast enough", CheckInterface},
      {"host-name", Needs::kOneNode, "this host's own name is an address others can use", CheckHostName},
      {"ports", Needs::kOneNode, "the master's port and a port of the range are free", CheckPorts},
      {"memlock", Needs::kOneNode, "RDMA may lock memory", CheckMemlock},
      {"nofile", Needs::kOneNode, "enough open files are allowed", CheckNofile},
      {"pids", Needs::kOneNode, "enough processes and threads are allowed", CheckPids},
      {"memory", Needs::kOneNode, "enough host memory, also inside the control group", CheckMemory},
      {"shm", Needs::kOneNode, "/dev/shm has 1 GiB for every rank", CheckShm},
      {"log-dir", Needs::kOneNode, "logs can be written: space, inodes, a file made and removed", CheckLogDir},
      {"checkpoint-dir", Needs::kOneNode, "checkpoints can be written", CheckCheckpointDir},
      {"tmp", Needs::kOneNode, "the temporary folder can be written", CheckTmp},
      {"data", Needs::kOneNode, "the data can be read", CheckData},
      {"clock", Needs::kOneNode, "the clock is synchronised", CheckClock},
      {"python", Needs::kOneNode, "the program is there and its interpreter starts", CheckPython},
      {"torch", Needs::kOneNode, "the interpreter finds PyTorch", CheckTorch},
      {"nccl", Needs::kOneNode, "the NCCL library that will be loaded", CheckNccl},
      {"environment", Needs::kOneNode, "no variable that is misspelt, ignored, contradictory or harmful",
       CheckEnvironment},
      {"same-machine", Needs::kAllNodes, "no machine and no GPU has joined twice"},
      {"same-gpus", Needs::kAllNodes,
       "every node has as many GPUs, of one model, in one NVLink domain where there is one"},
      {"same-code", Needs::kAllNodes, "the program and the files beside it are the same"},
      {"same-config", Needs::kAllNodes, "the configuration file is the same"},
      {"same-data", Needs::kAllNodes, "the data holds the same files with the same sizes"},
      {"same-software", Needs::kAllNodes, "interpreter, PyTorch, CUDA, NCCL and driver are the same"},
      {"same-env", Needs::kAllNodes, "variables that must agree do"},
      {"clock-skew", Needs::kAllNodes, "the clocks agree"},
      {"dns", Needs::kAllNodes, "every node finds every other by its name, at its address"},
      {"reach", Needs::kAllNodes, "every node reaches every other on ports the kernel chooses"},
      {"port-range", Needs::kAllNodes, "every node reaches every other on the ports of --port-range"},
      {"mtu", Needs::kAllNodes, "a packet of the interface's size gets through unfragmented"},
      {"rate", Needs::kAllNodes, "no pair of nodes is much slower than the others or than its link"},
  };
  return checks;
}

namespace {

bool Names(const std::string& word, const std::string& id) { return id == word || id.starts_with(word + "-"); }

Status CheckWords(const std::vector<std::string>& words, const char* flag) {
  std::vector<std::string> ids;
  for (const Check& check : Checks()) ids.emplace_back(check.id);
  for (const std::string& word : words) {
    if (std::any_of(ids.begin(), ids.end(), [&](const std::string& id) { return Names(word, id); })) continue;
    return Status(Code::kUsage, fmt::format("{}: no check is called '{}'{}", flag, word, DidYouMean(word, ids)),
                  "lockstep doctor preflight --help lists them");
  }
  return {};
}

struct Running {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<CheckOutcome>> outcomes;
  size_t left = 0;
};

}  // namespace

bool Selection::Has(const std::string& id) const {
  const auto any = [&](const std::vector<std::string>& words) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return Names(word, id); });
  };
  return (only.empty() || any(only)) && !any(skip);
}

Status CheckSelection(const Selection& selection) {
  LOCKSTEP_RETURN_IF_ERROR(CheckWords(selection.only, "--checks"));
  return CheckWords(selection.skip, "--skip");
}

std::vector<CheckResult> RunChecks(const std::shared_ptr<const CheckInput>& input, const Selection& selection,
                                   Millis deadline) {
  std::vector<const Check*> rows;
  for (const Check& check : Checks()) {
    if (check.needs == Needs::kOneNode && selection.Has(check.id)) rows.push_back(&check);
  }
  auto running = std::make_shared<Running>();
  running->outcomes.resize(rows.size());
  running->left = rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    // A thread each: most are done in microseconds, and one that hangs in the kernel holds up nobody.
    std::thread([running, input, row = rows[i], i] {
      CheckOutcome outcome = row->run(*input);
      const std::lock_guard lock(running->mutex);
      running->outcomes[i] = std::move(outcome);
      --running->left;
      running->changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(running->mutex);
  running->changed.wait_for(lock, deadline, [&] { return running->left == 0; });
  std::vector<CheckResult> results;
  for (size_t i = 0; i < rows.size(); ++i) {
    CheckOutcome outcome;
    if (running->outcomes[i]) {
      outcome = *running->outcomes[i];
    } else {
      outcome.Fail(fmt::format("no answer within {:.0f} s", deadline.count() / 1000.0),
                   "a file system or a name server hangs: try `ls`, `df` and `getent hosts` by hand on that node");
    }
    results.push_back({rows[i]->id, std::move(outcome)});
  }
  return results;
}

}  // namespace lockstep::preflight
