// `lockstep runs clean`: removes runs by age, size and state; keeps the newest and the best. Says first, removes with
// --yes.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/columns.h"
#include "base/exit_codes.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "record/clean.h"
#include "record/run_dir.h"

namespace lockstep::cli {
namespace {

using record::CleanEntry;
using record::CleanRules;

const std::vector<std::string>& EndedStates() {
  static const std::vector<std::string> states = {"succeeded", "failed", "stopped", "lost"};
  return states;
}

Status ReadRules(const std::string& older, const std::string& larger, const std::string& total,
                 const std::string& states, CleanRules* rules) {
  if (!older.empty()) {
    const auto age = ParseDuration(older);
    if (!age.ok()) return age.status().Context("--older-than");
    rules->older_than = *age;
  }
  for (const auto& [flag, text, to] :
       {std::tuple("--larger-than", &larger, &rules->larger_than), {"--total", &total, &rules->total}}) {
    if (text->empty()) continue;
    const auto bytes = ParseSize(*text);
    if (!bytes.ok()) return bytes.status().Context(flag);
    *to = *bytes;
  }
  for (const std::string& state : states.empty() ? std::vector<std::string>() : Split(states, ',')) {
    const auto& known = EndedStates();
    if (std::find(known.begin(), known.end(), state) == known.end()) {
      return Status(
          Code::kUsage, fmt::format("--state: expected {}, found '{}'", Join(known, ", "), Printable(state)),
          state == "running" ? "a running run is never removed; `lockstep stop` ends one" : "see lockstep runs");
    }
    rules->states.push_back(state);
  }
  if (rules->given()) return Status::Ok();
  return Status(Code::kUsage, "nothing says which runs may go",
                "give --older-than, --larger-than, --state or --total; --keep-last and --keep-best say what stays");
}

void PrintRow(const CleanEntry& entry, size_t width) {
  fmt::print("  {}  {:>10}  {}\n", PadToWidth(Printable(entry.run.name), width), FormatSize(entry.bytes), entry.why);
}

}  // namespace

int RunsCleanMain(int argc, char** argv) {
  Arguments args("Removes runs. Without --yes it only says which. Never a run that is running, nor what is no run.",
                 "runs clean");
  std::string root = record::kDefaultRoot, older, larger, total, states;
  CleanRules rules;
  bool yes = false, json = false;
  args.Option("--root,--log-dir", &root, "folder that holds the runs").Named("DIR").ShowDefault();
  args.Option("--older-than", &older, "runs that ended longer ago than this").Named("DURATION");
  args.Option("--larger-than", &larger, "runs with more bytes than this").Named("SIZE");
  args.Option("--state", &states, "runs that ended so: succeeded, failed, stopped, lost").Named("STATE[,STATE]");
  args.Option("--total", &total, "and the oldest, until all others together have at most this").Named("SIZE");
  args.Option("--keep-last", &rules.keep_last, "the newest so many stay").Named("N");
  args.Option("--keep-best", &rules.keep_best, "the best so many stay, by --metric").Named("N");
  args.Option("--metric", &rules.metric, "of the metric lines; the lowest is the best").Named("NAME").ShowDefault();
  args.Flag("--highest", &rules.highest, "the highest is the best");
  args.Flag("--yes", &yes, "remove them");
  args.Flag("--json", &json, "one JSON document instead of text");
  args.Footer(
      "A run goes where it matches --older-than, --larger-than and --state, as far as they are given.\n\n"
      "examples:\n"
      "  lockstep runs clean --older-than 30d --keep-last 5\n"
      "  lockstep runs clean --state failed,lost --older-than 7d --yes\n"
      "  lockstep runs clean --total 500GiB --keep-best 3 --metric val/psnr --highest");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  const Status read = ReadRules(older, larger, total, states, &rules);
  if (!read.ok()) return Complain("runs clean", read.WithCode(Code::kUsage));
  Result<std::vector<CleanEntry>> plan = record::PlanClean(root, rules, UnixSeconds());
  if (!plan.ok()) return Complain("runs clean", plan.status());

  size_t width = 0, going = 0;
  uint64_t bytes = 0;
  for (const CleanEntry& entry : *plan) {
    if (!json) width = std::max(width, TextWidth(Printable(entry.run.name)));
    going += entry.goes ? 1 : 0;
    bytes += entry.goes ? entry.bytes : 0;
  }
  nlohmann::json document = {{"root", root}, {"removed", yes}, {"bytes", bytes}, {"runs", nlohmann::json::array()}};
  Status failed = yes ? record::RemoveLeftovers(root) : Status::Ok();
  if (!failed.ok()) fmt::print(stderr, "lockstep runs clean: {}\n", failed.ToString());
  if (!json && going > 0) fmt::print("{}:\n", yes ? "removing" : "would be removed");
  for (const CleanEntry& entry : *plan) {
    Status removed;
    if (entry.goes && !json) PrintRow(entry, width);
    if (entry.goes && yes) removed = record::RemoveRun(entry.run.path);
    if (!removed.ok()) {
      fmt::print(stderr, "lockstep runs clean: {}: {}\n", Printable(entry.run.name), removed.ToString());
      failed = removed;
    }
    document["runs"].push_back({{"name", entry.run.name},
                                {"state", ToString(entry.run.state)},
                                {"bytes", entry.bytes},
                                {"goes", entry.goes},
                                {"why", entry.why},
                                {"error", removed.ok() ? nlohmann::json() : nlohmann::json(removed.message())}});
  }
  if (json) {
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    if (going < plan->size()) fmt::print("{}:\n", going > 0 ? "stay" : "all stay");
    for (const CleanEntry& entry : *plan) {
      if (!entry.goes) PrintRow(entry, width);
    }
    if (plan->empty()) fmt::print(stderr, "no runs under '{}'\n", root);
    if (going > 0 && !yes) {
      fmt::print("{} with {}; nothing was removed: add --yes\n", Count(static_cast<int64_t>(going), "run"),
                 FormatSize(bytes));
    }
  }
  return failed.ok() ? 0 : kExitEnvironment;
}

}  // namespace lockstep::cli
