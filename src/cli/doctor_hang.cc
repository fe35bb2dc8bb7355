// `lockstep doctor hang`: where does every rank of a running job stand, and which one is not where the others are.
// Looks twice, a few seconds apart, before it calls anybody stuck. Asks the job's launcher, which asks every node;
// looks at the processes of this machine itself where that is not possible. Of a run that is over it shows what was
// kept.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "hang/hang.h"
#include "hang/movement.h"
#include "hang/stacks.h"
#include "launch/inspect.h"
#include "launch/messages.h"
#include "record/lock.h"
#include "record/reader.h"
#include "record/run_dir.h"
#include "watch/model.h"

namespace lockstep::cli {
namespace {

using hang::HangVerdict;
using hang::ProcessStacks;
using hang::StackPrint;
using hang::StackTarget;
using nlohmann::json;

constexpr Millis kLookLimit{30000};                 // for one look
constexpr double kLeastApart = 2, kMostApart = 10;  // seconds between the two looks
constexpr double kOfUsual = 1.5;                    // of the usual time between steps, within these

void Print(const json& document) { fmt::print("{}\n", document.dump(2, ' ', false, json::error_handler_t::replace)); }

struct Look {
  json document;  // the verdict and what else is known, as --json prints it
  std::vector<StackPrint> prints;
  std::vector<ProcessStacks> stacks;  // where they were asked for
};

// Where the looks come from, and how far the ranks are.
struct Job {
  std::function<Result<Look>(bool keep)> look;
  std::function<std::map<int, uint64_t>()> steps;  // by rank, of those whose steps are recognised
};

bool Advanced(const std::map<int, uint64_t>& before, const std::map<int, uint64_t>& after) {
  return std::any_of(after.begin(), after.end(), [&](const auto& now) {
    const auto then = before.find(now.first);
    return then != before.end() && now.second > then->second;
  });
}

std::optional<double> Seconds(const json& document, const char* key) {
  const auto it = document.find(key);
  return it != document.end() && it->is_number() ? std::optional<double>(it->get<double>()) : std::nullopt;
}

void Show(const Look& look, bool as_json, bool stacks) {
  if (as_json) {
    json document = look.document;
    if (stacks) {
      document["stacks"] = json::array();
      for (const ProcessStacks& process : look.stacks) document["stacks"].push_back(hang::ToJson(process));
    }
    return Print(document);
  }
  fmt::print("{}\n", HangVerdict::FromJson(look.document).Text());
  if (const std::string folder = GetString(look.document, "folder"); !folder.empty()) {
    fmt::print("  stacks: {}\n", folder);
  }
  if (!stacks) return;
  for (const ProcessStacks& process : look.stacks) fmt::print("\n{}", hang::StacksText(process));
}

// Two looks; the second only where no step came in between. Nobody is blamed for standing where he stands by chance.
Result<Look> LookTwice(const Job& job, bool keep) {
  hang::Movement movement;
  movement.before = movement.after = job.steps();
  const TimePoint start = Now();
  Result<Look> first = job.look(keep);
  if (!first.ok()) return first;
  const double apart =
      std::clamp(kOfUsual * Seconds(first->document, "usual_seconds").value_or(0), kLeastApart, kMostApart);
  while (SecondsSince(start) < apart && !Advanced(movement.before, movement.after)) {
    ::poll(nullptr, 0, 100);
    movement.after = job.steps();
  }
  Look found = std::move(*first);
  if (!Advanced(movement.before, movement.after)) {
    Result<Look> second = job.look(/*keep=*/true);
    // It may have ended meanwhile; then the first look is what there is.
    if (second.ok()) {
      movement.after = job.steps();
      movement.stacks_moved = hang::AllMoved(found.prints, second->prints, SecondsSince(start));
      found = std::move(*second);
    }
  }
  movement.seconds = SecondsSince(start);
  movement.quiet = Seconds(found.document, "quiet_seconds");
  movement.usual = Seconds(found.document, "usual_seconds");
  HangVerdict verdict = HangVerdict::FromJson(found.document);
  hang::Consider(movement, &verdict);
  found.document.update(verdict.ToJson());
  found.document["seconds_between_looks"] = movement.seconds;
  return found;
}

Result<Look> LookAt(const std::vector<StackTarget>& targets, bool pause) {
  hang::StackOptions options;
  options.pause = pause;
  Look look;
  look.stacks = hang::CollectStacks(targets, options);
  look.document = hang::JudgeHang(look.stacks, {}).ToJson();
  for (const ProcessStacks& process : look.stacks) look.prints.push_back(hang::PrintOf(process));
  return look;
}

std::vector<ProcessStacks> ReadStacks(const json& document) {
  std::vector<ProcessStacks> stacks;
  if (!document.is_object()) return stacks;
  for (const json& row : document.value("stacks", json::array())) stacks.push_back(hang::StacksFromJson(row));
  return stacks;
}

json ReadHang(const std::string& folder) {
  auto whole = ReadFile(folder + "/hang.json", 512u << 20);
  return whole.ok() ? json::parse(*whole, nullptr, false) : json();
}

Result<Look> AskForLook(const record::LockOwner& launcher, bool pause, bool keep) {
  auto answer = launch::AskLauncher(launcher.pid, launcher.start_time,
                                    launch::ToJson(launch::message::Inspect{pause, keep}), kLookLimit);
  if (!answer.ok()) return answer.status();
  if (answer->contains("error")) return Status(Code::kEnvironment, GetString(*answer, "error"));
  Look look;
  look.document = answer->value("hang", json::object());
  const std::string folder = GetString(*answer, "folder");
  look.document["folder"] = folder;
  for (const json& row : answer->value("prints", json::array())) look.prints.push_back(hang::PrintFromJson(row));
  if (!folder.empty()) look.stacks = ReadStacks(ReadHang(folder));
  return look;
}

// What was kept of a run that is over: the last look that found it standing still, else the last of all.
std::optional<Look> Kept(const std::string& path) {
  Result<std::vector<std::string>> names = ListDir(path);
  if (!names.ok()) return std::nullopt;
  std::sort(names->rbegin(), names->rend());
  std::optional<Look> any;
  for (const std::string& name : *names) {
    if (!name.starts_with("hang-")) continue;
    Look look;
    look.document = ReadHang(path + "/" + name);
    if (!look.document.is_object()) continue;
    look.stacks = ReadStacks(look.document);
    look.document.erase("stacks");
    look.document["folder"] = path + "/" + name;
    look.document["ended"] = true;
    if (!HangVerdict::FromJson(look.document).healthy) return look;
    if (!any) any = std::move(look);
  }
  return any;
}

std::string WhenText(double t) {
  const double ago = UnixSeconds() - t;
  const auto when = static_cast<time_t>(t);
  tm local{};
  if (t <= 0 || localtime_r(&when, &local) == nullptr) return "at a time that was not kept";
  return fmt::format("at {:%Y-%m-%d %H:%M:%S} ({} ago)", local,
                     FormatDuration(std::chrono::seconds(std::max<int64_t>(0, static_cast<int64_t>(ago)))));
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
      "Shows where every rank of a running job is and names the one the others wait for, or says that "
      "the job is healthy: it looks twice, a few seconds apart. Changes nothing: the job goes on. Of a run that has "
      "stalled and ended it shows what was kept.",
      "doctor hang");
  std::string root = record::kDefaultRoot;
  std::string which;
  std::vector<int> pids;
  bool as_json = false, no_pause = false, stacks = false;
  args.Option("RUN", &which, "name, unique beginning of a name, path, or 'latest'");
  args.Option("--pid", &pids, "look at these processes instead, in the order of their ranks").SplitAt(',');
  args.Option("--root,--log-dir", &root, "folder that holds the runs").Named("DIR").ShowDefault();
  args.Flag("--no-pause", &no_pause, "no tool that stops a process while it looks (gdb, eu-stack)");
  args.Flag("--stacks", &stacks, "print the stacks too");
  args.Flag("--json", &as_json, "one JSON document");
  args.Footer(
      "Python stacks are read from the interpreter's memory (or by py-spy), native ones by eu-stack or gdb where they\n"
      "are installed, the rest from /proc. The stacks of all ranks are kept in RUN/hang-<time>/.\n\n"
      "examples:\n"
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
    const auto found =
        LookTwice({[&](bool) { return LookAt(targets, !no_pause); }, [] { return std::map<int, uint64_t>(); }}, false);
    if (!found.ok()) return complain(found.status());
    Show(*found, as_json, stacks || as_json);
    return 0;
  }

  const auto path = record::FindRun(root, which);
  if (!path.ok()) return complain(path.status());
  const record::LockView lock = record::ReadLock(*path + "/lock");
  if (lock.state != record::LockState::kLive) {
    const std::optional<Look> kept = Kept(*path);
    if (!kept) {
      return complain(Status(
          Code::kEnvironment,
          fmt::format("run '{}' is not running, and nothing was kept of where its ranks stood", Printable(which)),
          "stacks are kept when a run stalls (`lockstep run --stall-timeout`) and by this command while it runs"));
    }
    if (!as_json) {
      const record::RunSummary run = record::Summarise(*path);
      fmt::print("run '{}' is not running ({}{}{}); stacks of its ranks, taken {}:\n", Printable(run.name),
                 record::ToString(run.state), run.reason.empty() ? "" : ": ", Printable(run.reason, 300),
                 WhenText(GetNumber(kept->document, "t")));
    }
    Show(*kept, as_json, stacks);
    return 0;
  }

  // How far the ranks are is read from the run directory, as `lockstep watch` does.
  auto watch = watch::Watch::Open(root, *path + "/");
  const auto steps = [&] {
    std::map<int, uint64_t> found;
    if (!watch.ok()) return found;
    (*watch)->Poll(UnixSeconds());
    for (const watch::RankView& rank : (*watch)->view().ranks) {
      if (rank.step) found[rank.rank] = *rank.step;
    }
    return found;
  };
  std::string reason = "its launcher cannot be found";
  if (lock.owner && lock.owner->IsHere()) {
    const auto found =
        LookTwice({[&](bool keep) { return AskForLook(*lock.owner, !no_pause, keep); }, steps}, /*keep=*/stacks);
    if (found.ok()) {
      Show(*found, as_json, stacks);
      return 0;
    }
    reason = found.status().message();
  } else if (lock.owner) {
    reason = fmt::format("its launcher is elsewhere: {}", lock.owner->ToString());
  }
  // The launcher cannot be asked: what is on this machine can still be looked at.
  const std::vector<StackTarget> targets = LocalRanks(*path);
  if (targets.empty()) {
    return complain(Status(Code::kEnvironment,
                           fmt::format("run '{}' cannot be examined from here: {}", Printable(which), reason),
                           "run this on the machine of node 0 as the same user, or give --pid"));
  }
  fmt::print(stderr, "lockstep doctor hang: {}; looking at the ranks of this machine only\n", reason);
  const auto found = LookTwice({[&](bool) { return LookAt(targets, !no_pause); }, steps}, false);
  if (!found.ok()) return complain(found.status());
  Show(*found, as_json, stacks || as_json);
  return 0;
}

}  // namespace lockstep::cli
