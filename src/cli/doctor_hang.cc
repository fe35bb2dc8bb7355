// `lockstep doctor hang`: where does every rank of a running job stand, and which one is not where the others are. Asks
// the job's launcher, which asks every node; looks at the processes of this machine itself where that is not possible.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "diagnose/hang.h"
#include "diagnose/stacks.h"
#include "launch/inspect.h"
#include "record/lock.h"
#include "record/reader.h"
#include "record/run_dir.h"

namespace lockstep::cli {
namespace {

using diagnose::ProcessStacks;
using diagnose::StackTarget;
using nlohmann::json;

constexpr Millis kPatience{30000};

void Print(const json& document) { fmt::print("{}\n", document.dump(2, ' ', false, json::error_handler_t::replace)); }

int Examine(const std::vector<StackTarget>& targets, bool pause, bool as_json, bool stacks) {
  diagnose::StackOptions options;
  options.pause = pause;
  const std::vector<ProcessStacks> found = diagnose::CollectStacks(targets, options);
  const diagnose::HangVerdict verdict = diagnose::JudgeHang(found, {});
  if (as_json) {
    json document = verdict.ToJson();
    document["stacks"] = json::array();
    for (const ProcessStacks& process : found) document["stacks"].push_back(diagnose::ToJson(process));
    Print(document);
    return 0;
  }
  fmt::print("{}\n", verdict.Text());
  if (stacks) {
    for (const ProcessStacks& process : found) fmt::print("\n{}", diagnose::StacksText(process));
  }
  return 0;
}

// The ranks of the last attempt that were started on this machine and still live, from the events of the run.
std::vector<StackTarget> LocalRanks(const std::string& path) {
  std::vector<StackTarget> targets;
  int64_t attempt = -1;
  std::vector<std::string> files = {path + "/events.jsonl"};
  for (int node = 1; node < 4096; ++node) {
    const std::string file = fmt::format("{}/nodes/node-{}.jsonl", path, node);
    if (access(file.c_str(), R_OK) == 0) files.push_back(file);
  }
  for (const std::string& file : files) {
    const auto events = ReadJsonLines(file);
    if (!events.ok()) continue;
    for (const json& event : events->lines) {
      if (GetString(event, "type") != "rank_started") continue;
      const int64_t number = GetInt(event, "attempt");
      if (number > attempt) {
        attempt = number;
        targets.clear();
      }
      if (number < attempt) continue;
      targets.push_back({static_cast<int>(GetInt(event, "rank", -1)), static_cast<int>(GetInt(event, "node", -1)),
                         static_cast<pid_t>(GetInt(event, "pid"))});
    }
  }
  std::erase_if(targets, [](const StackTarget& target) { return ProcessState(target.pid) == 0; });
  return targets;
}

}  // namespace

int DoctorHangMain(int argc, char** argv) {
  Arguments args(
      "Shows where every rank of a running job stands and names the one that is not where the others are. Changes "
      "nothing: the job goes on.",
      "doctor hang");
  std::string root = record::kDefaultRoot;
  std::string which;
  std::vector<int> pids;
  bool as_json = false, no_pause = false, stacks = false;
  args.Option("RUN", &which, "name, unique beginning of a name, path, or 'latest'");
  args.Option("--pid", &pids, "look at these processes instead, in the order of their ranks").SplitAt(',');
  args.Option("--root,--log-dir", &root, "folder that holds the runs").ShowDefault();
  args.Flag("--no-pause", &no_pause, "no tool that stops a process while it looks (gdb, eu-stack)");
  args.Flag("--stacks", &stacks, "print the stacks too");
  args.Flag("--json", &as_json, "one JSON document");
  args.Footer(
      "Python stacks are read from the interpreter's memory (or by py-spy), native ones by eu-stack or gdb where they\n"
      "are installed, the rest from /proc. The stacks of all ranks are kept in RUN/hang-<time>/.\n\n"
      "Examples:\n"
      "  lockstep doctor hang latest\n"
      "  lockstep doctor hang exp7 --stacks\n"
      "  lockstep doctor hang --pid 4711,4712 --json");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  const auto complain = [&](const Status& status) {
    if (as_json) Print({{"error", status.message()}, {"do", status.hint()}});
    return Complain("doctor hang", status);
  };
  if (which.empty() == pids.empty()) {
    return complain(Status(Code::kUsage, "expected a run or --pid", "lockstep doctor hang latest"));
  }
  if (!pids.empty()) {
    std::vector<StackTarget> targets;
    for (size_t i = 0; i < pids.size(); ++i) {
      if (ProcessState(pids[i]) == 0) {
        return complain(Status(Code::kEnvironment, fmt::format("there is no process {}", pids[i])));
      }
      targets.push_back({static_cast<int>(i), -1, pids[i]});
    }
    return Examine(targets, !no_pause, as_json, stacks);
  }

  const auto path = record::FindRun(root, which);
  if (!path.ok()) return complain(path.status());
  const record::LockView lock = record::ReadLock(*path + "/lock");
  std::string reason = "it is not running";
  if (lock.state == record::LockState::kLive && lock.owner) {
    if (lock.owner->IsHere()) {
      auto answer = launch::AskLauncher(lock.owner->pid, lock.owner->start_time,
                                        {{"type", "stacks"}, {"pause", !no_pause}}, kPatience);
      if (answer.ok() && !answer->contains("error")) {
        const std::string folder = launch::Text(*answer, "folder");
        if (as_json) {
          json document = (*answer)["hang"];
          document["folder"] = folder;
          Print(document);
          return 0;
        }
        fmt::print("{}\n", launch::Text(*answer, "text"));
        if (!folder.empty()) fmt::print("  stacks: {}\n", folder);
        if (stacks && !folder.empty()) {
          auto whole = ReadFile(folder + "/hang.json", 512u << 20);
          const json document = whole.ok() ? json::parse(*whole, nullptr, false) : json();
          if (document.is_object() && document.contains("stacks")) {
            for (const json& row : document["stacks"]) {
              fmt::print("\n{}", diagnose::StacksText(diagnose::StacksFromJson(row)));
            }
          }
        }
        return 0;
      }
      reason = answer.ok() ? launch::Text(*answer, "error") : answer.status().message();
    } else {
      reason = fmt::format("its launcher is elsewhere: {}", lock.owner->ToString());
    }
  }
  // The launcher cannot be asked: what is on this machine can still be looked at.
  const std::vector<StackTarget> targets = LocalRanks(*path);
  if (lock.state != record::LockState::kLive || targets.empty()) {
    return complain(Status(Code::kEnvironment,
                           fmt::format("run '{}' cannot be examined from here: {}", Printable(which), reason),
                           "run this on the machine of node 0 as the same user, or give --pid"));
  }
  fmt::print(stderr, "lockstep doctor hang: {}; looking at the ranks of this machine only\n", reason);
  return Examine(targets, !no_pause, as_json, stacks);
}

}  // namespace lockstep::cli
