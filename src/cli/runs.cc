// `lockstep runs`: the runs under a root, with state, duration and why they ended.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/columns.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "record/reader.h"
#include "record/run_dir.h"

namespace lockstep::cli {
namespace {

using record::RunState;
using record::RunSummary;

using RunRow = std::array<std::string, 8>;

constexpr size_t kIndent = 4;
constexpr size_t kLeastReason = 24;

std::string StartText(double seconds) {
  if (seconds <= 0) return "-";
  time_t whole = static_cast<time_t>(seconds);
  tm local{};
  char text[32] = {};
  if (::localtime_r(&whole, &local) == nullptr) return "-";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

std::string RanksText(const RunSummary& run) {
  if (run.world <= 0) return "-";
  return run.nnodes > 1 ? fmt::format("{} on {}", run.world, run.nnodes) : fmt::format("{}", run.world);
}

// Durations beyond any calendar (a damaged file) are not worth converting.
std::string DurationText(const RunSummary& run) {
  if (run.started <= 0 || run.duration > 1e10) return "-";
  return FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(run.duration * 1000)));
}

const char* Colour(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "\x1b[36m";
    case RunState::kSucceeded:
      return "\x1b[32m";
    case RunState::kFailed:
    case RunState::kLost:
      return "\x1b[31m";
    case RunState::kStopped:
    case RunState::kNodeOnly:
      return "\x1b[33m";
  }
  return "";
}

void PrintTable(const std::vector<RunSummary>& runs) {
  std::vector<RunRow> rows = {{"NAME", "STATE", "STARTED", "DURATION", "RANKS", "ATTEMPTS", "EXIT", "REASON"}};
  for (const RunSummary& run : runs) {
    rows.push_back({Printable(run.name), ToString(run.state), StartText(run.started), DurationText(run), RanksText(run),
                    fmt::format("{}", run.attempts), run.exit_code ? fmt::format("{}", *run.exit_code) : "-",
                    OneLine(run.reason, 400)});
  }
  std::array<size_t, 7> widths{};
  size_t before_reason = 0;
  for (size_t column = 0; column < widths.size(); ++column) {
    for (const RunRow& row : rows) widths[column] = std::max(widths[column], TextWidth(row[column]));
    before_reason += widths[column] + 2;
  }
  // Only a terminal wraps lines. Where a long name leaves no room, the reason has a line of its own.
  winsize window{};
  size_t room = std::string::npos;
  bool below = false;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    below = window.ws_col < before_reason + kLeastReason;
    room = window.ws_col - std::min<size_t>(window.ws_col, below ? kIndent : before_reason);
  }
  bool colour = UseColour(STDOUT_FILENO);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string line;
    for (size_t column = 0; column < widths.size(); ++column) {
      std::string cell = PadToWidth(rows[i][column], widths[column]) + "  ";
      line += colour && i > 0 && column == 1 ? Colour(runs[i - 1].state) + cell + "\x1b[0m" : cell;
    }
    if (!below) line += CutToWidth(rows[i].back(), room);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
    if (below && i > 0 && !rows[i].back().empty()) {
      fmt::print("{:{}}{}\n", "", kIndent, CutToWidth(rows[i].back(), room));
    }
  }
}

}  // namespace

int RunsMain(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "clean") return RunsCleanMain(argc - 1, argv + 1);
  Arguments args("Lists runs: name, state, start, duration, ranks, attempts, exit code and why they ended.", "runs");
  std::string root = record::kDefaultRoot;
  bool json = false;
  args.Option("--root,--log-dir", &root, "folder that holds the runs").Named("DIR").ShowDefault();
  args.Flag("--json", &json, "one JSON document instead of a table");
  args.Footer(
      "States: running, succeeded, failed, stopped, lost (its launcher died without a report), node-only.\n\n"
      "examples:\n"
      "  lockstep runs\n"
      "  lockstep runs --root /shared/runs\n"
      "  lockstep runs clean --older-than 30d --keep-last 5     removes old runs; see lockstep runs clean --help\n"
      "  lockstep runs --json | jq '.runs[] | select(.state == \"failed\") | .name'");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;

  Result<std::vector<RunSummary>> runs = record::ListRuns(root);
  if (!runs.ok()) return Complain("runs", runs.status());
  if (json) {
    nlohmann::json document = {{"root", root}, {"runs", nlohmann::json::array()}};
    for (const RunSummary& run : *runs) document["runs"].push_back(run.ToJson());
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (runs->empty()) {
    fmt::print(stderr, "no runs under '{}'\n", root);
  } else {
    PrintTable(*runs);
  }
  if (std::fflush(stdout) != 0) {
    return Complain("runs", Status(Code::kEnvironment, fmt::format("cannot write the list: {}", ErrnoText(errno))));
  }
  return 0;
}

}  // namespace lockstep::cli
