#include "preflight/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "base/env_file.h"
#include "base/exit_codes.h"
#include "base/process.h"
#include "base/sockets.h"
#include "base/version.h"
#include "hardware/gpus.h"
#include "launch/admission.h"
#include "launch/worker_env.h"
#include "place/machine.h"
#include "preflight/all_nodes.h"
#include "preflight/interfaces.h"
#include "preflight/interpreter.h"

namespace lockstep::preflight {
namespace {

constexpr Millis kScanLimit{8000}, kCheckLimit{5000}, kPythonLimit{5000}, kDigestLimit{5000};

// Work on a thread of its own that is left behind when it does not come back.
template <typename Value>
class Later {
 public:
  explicit Later(std::function<Value()> work) : state_(std::make_shared<Shared>()) {
    std::thread([state = state_, work = std::move(work)] {
      Value value = work();
      const std::lock_guard lock(state->mutex);
      state->value = std::move(value);
      state->changed.notify_all();
    }).detach();
  }
  std::optional<Value> Wait(Millis limit) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, limit, [&] { return state_->value.has_value(); });
    return std::move(state_->value);
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Value> value;
  };
  std::shared_ptr<Shared> state_;
};

std::string Absolute(const std::string& path, const std::string& workdir) {
  if (path.empty() || path.front() == '/') return path;
  std::error_code error;
  const std::filesystem::path base =
      workdir.empty() ? std::filesystem::current_path(error) : std::filesystem::path(workdir);
  return (base / path).lexically_normal().string();
}

bool ProcessLevel(const launch::LaunchPlan& plan) {
  return plan.placement.level.value_or(place::Level::kNode) == place::Level::kProcess;
}

// The script itself, when there is one.
std::string ProgramFile(const launch::LaunchPlan& plan) {
  const launch::RunOptions& run = plan.options;
  if (run.program.empty() || run.module) return "";
  const std::string path = Absolute(run.program, plan.program.workdir);
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? path : "";
}

Tree MakeTree(const std::string& path, const TreeOptions& options) {
  Tree tree;
  tree.path = path;
  auto digest = DigestTree(path, options);
  if (!digest.ok()) {
    tree.trouble = digest.status().message();
    return tree;
  }
  tree.digest = digest->digest;
  tree.files = digest->files;
  tree.cut = digest->cut;
  tree.entries = std::move(digest->entries);
  return tree;
}

std::map<std::string, Tree> MakeTrees(const launch::LaunchPlan& plan, const Options& options) {
  std::map<std::string, Tree> trees;
  const std::string& workdir = plan.program.workdir;
  const std::string program = ProgramFile(plan);
  const std::string code = Absolute(options.code, workdir);
  const bool wants_code = options.selection.Has("same-code");
  if (wants_code && (!code.empty() || !program.empty())) {
    const std::string folder = !code.empty() ? code : program.substr(0, program.rfind('/'));
    TreeOptions bounds;
    bounds.code = true;
    if (options.full) bounds.max_files = 50000, bounds.max_bytes = 1ull << 30;
    trees["code"] = MakeTree(folder, bounds);
    trees["code"].commit = GitCommit(folder);
    // The program itself counts, whatever its name and size.
    if (!program.empty()) trees["code:program"] = MakeTree(program, {});
  }
  if (options.selection.Has("same-config")) {
    for (const std::string& config : options.configs) {
      const std::string path = Absolute(config, workdir);
      trees["config:" + config] = MakeTree(path, {});
    }
  }
  if (options.selection.Has("same-data")) {
    for (const std::string& data : options.data) {
      TreeOptions bounds;
      bounds.content = false;
      bounds.max_files = options.full ? 500000 : 5000;
      trees["data:" + data] = MakeTree(Absolute(data, workdir), bounds);
    }
  }
  return trees;
}

NodeFacts MakeNodeFacts(const CheckInput& input, std::vector<CheckResult> checks, std::map<std::string, Tree> trees) {
  NodeFacts facts;
  facts.host = HostName();
  facts.boot_id = BootId();
  facts.checks = std::move(checks);
  for (const hardware::GpuState& gpu : input.visible) {
    facts.gpus.emplace_back(gpu.uuid, gpu.name);
    if (facts.fabric.empty()) facts.fabric = gpu.fabric_cluster;
  }
  const auto say = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.software[name] = value;
  };
  say("lockstep", ThisBuild().version);
  say("Python", input.python.version);
  say("interpreter", input.python.path);
  say("PyTorch", input.python.torch_version);
  say("CUDA of PyTorch", input.python.torch_cuda);
  if (input.here.nccl) say("NCCL", input.here.nccl->version.empty() ? input.here.nccl->path : input.here.nccl->version);
  say("driver", input.here.driver);
  say("CUDA of the driver", input.here.cuda);
  say("kernel", input.here.kernel);
  facts.env = KeyEnvironment(input.env);
  facts.trees = std::move(trees);
  return facts;
}

}  // namespace

State PreflightReport::state() const {
  State worst = State::kOk;
  for (const NodeFacts& node : nodes) {
    for (const CheckResult& check : node.checks) worst = std::max(worst, check.outcome.state());
  }
  for (const CheckResult& check : all) worst = std::max(worst, check.outcome.state());
  return worst == State::kSkipped ? State::kOk : worst;
}

int PreflightReport::exit_code() const {
  if (!rendezvous.ok()) return ExitCode(rendezvous);
  return state() == State::kFail ? kExitEnvironment : kExitOk;
}

CheckInput MakeCheckInput(const launch::LaunchPlan& plan, const Options& options, hardware::Hardware here,
                          Python python) {
  const place::Placement& placement = plan.placement;
  CheckInput input;
  input.env = launch::RankEnvironment(plan.env, plan.program.env, plan.options);
  std::vector<hardware::Gpu> cards;
  for (const hardware::GpuState& gpu : here.gpus) {
    if (gpu.error.empty()) cards.push_back({gpu.uuid, gpu.mig, gpu.migs, gpu.pci, gpu.name});
  }
  const hardware::Visible visible = hardware::CountVisible(input.env, cards);
  input.visible_because = visible.because;
  if (visible.because.empty()) {
    // CUDA does not see one that is lost.
    for (const hardware::GpuState& gpu : here.gpus) {
      if (gpu.error.empty()) input.visible.push_back(gpu);
    }
  } else {
    for (const std::string& pci : visible.pci) {
      for (const hardware::GpuState& gpu : here.gpus) {
        if (!pci.empty() && gpu.pci == pci && gpu.error.empty()) input.visible.push_back(gpu);
      }
    }
  }
  input.process_level = ProcessLevel(plan);
  input.nnodes = input.process_level ? placement.world_size.value_or(1) : placement.nnodes.value_or(1);
  input.nproc = input.process_level ? placement.local_world_size.value_or(1) : placement.nproc_per_node.value_or(1);
  const launch::Participant self = launch::DescribeParticipant(plan);
  input.first = self.index == 0;
  input.tuned = plan.options.tune == launch::Tune::kApply;
  input.port_range = plan.options.port_range;
  if (input.process_level) input.worker_port = placement.master_port.value_or(0);
  if (input.nnodes > 1) {
    input.master = launch::LauncherHost(plan);
    input.launcher_port = launch::LauncherPort(plan);
    auto addresses = Resolve(input.master, input.launcher_port);
    if (addresses.ok() && !addresses->empty()) {
      input.master_address = addresses->front().Host();
      if (self.index < 0) input.first = IsLocal(addresses->front());
    } else {
      input.master_trouble = addresses.ok() ? "no address" : addresses.status().message();
    }
  } else if (plan.options.place.master_port.value_or(0) > 0) {
    input.launcher_port = *plan.options.place.master_port;
  }
  input.python = std::move(python);
  input.program = ProgramFile(plan);
  input.program_error = plan.program_error;
  const std::string& workdir = plan.program.workdir;
  for (const std::string& path : options.data) input.data.push_back(Absolute(path, workdir));
  input.log_dir = Absolute(plan.options.log_dir.empty() ? "runs" : plan.options.log_dir, "");
  input.checkpoint_dir = Absolute(options.checkpoint_dir, workdir);
  input.here = std::move(here);
  return input;
}

PreflightReport Run(const launch::LaunchPlan& plan, const Options& options, const launch::LauncherGroupEvents& events) {
  const TimePoint start = Now();
  PreflightReport report;
  const Environment env = launch::RankEnvironment(plan.env, plan.program.env, plan.options);
  const std::vector<std::string> complete = ToStrings(env);

  // Three things that take their time, at the same time: the interpreter, the hardware, the files.
  bool asked = false;
  for (const char* id : {"python", "torch", "driver", "nccl", "same-software"})
    asked = asked || options.selection.Has(id);
  const std::string program = ProgramFile(plan);
  InterpreterQuestion question(asked && plan.program_error.ok() ? plan.program.interpreter : "", complete,
                               plan.program.workdir, program.substr(0, program.rfind('/') + 1));
  hardware::HardwareOptions scan;
  scan.env = env;
  scan.interpreter = plan.program.interpreter;
  Later<hardware::Hardware> hardware([scan] { return hardware::ScanHardware(scan); });
  const bool several = (ProcessLevel(plan) ? plan.placement.world_size : plan.placement.nnodes).value_or(1) > 1;
  std::optional<Later<std::map<std::string, Tree>>> trees;
  if (several) trees.emplace([plan, options] { return MakeTrees(plan, options); });

  Python python = question.Answer(Now() + kPythonLimit);
  std::optional<hardware::Hardware> here = hardware.Wait(kScanLimit);
  const bool scanned = here.has_value();
  auto input = std::make_shared<const CheckInput>(
      MakeCheckInput(plan, options, scanned ? std::move(*here) : hardware::Hardware{}, std::move(python)));
  std::vector<CheckResult> checks = RunChecks(input, options.selection, kCheckLimit);
  if (!scanned) {
    CheckOutcome outcome;
    outcome.Fail(fmt::format("the hardware could not be read within {:.0f} s", kScanLimit.count() / 1000.0),
                 "the GPU driver or a file system hangs: try `nvidia-smi` and `df` by hand on that node");
    checks.insert(checks.begin(), {"hardware", outcome});
  }
  std::map<std::string, Tree> found;
  if (trees) {
    auto answer = trees->Wait(kDigestLimit);
    if (answer) {
      found = std::move(*answer);
    } else {
      const std::string slow = fmt::format("not read within {:.0f} s", kDigestLimit.count() / 1000.0);
      if (!input->program.empty()) found["code"].path = input->program, found["code"].trouble = slow;
      for (const std::string& path : options.data)
        found["data:" + path].path = path, found["data:" + path].trouble = slow;
    }
  }
  NodeFacts mine = MakeNodeFacts(*input, std::move(checks), std::move(found));
  if (!several) {
    report.nodes.push_back(std::move(mine));
  } else {
    report = CheckAllNodes(plan, options, *input, std::move(mine), events);
  }
  report.seconds = SecondsSince(start);
  return report;
}

}  // namespace lockstep::preflight
