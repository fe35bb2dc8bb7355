// `lockstep logs`: what the ranks of a run wrote, whole or as it comes.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "base/columns.h"
#include "base/digits.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/job_logs.h"
#include "cli/job_lookup.h"
#include "record/log_tail.h"
#include "record/reader.h"
#include "record/run_dir.h"
#include "submit/client.h"

namespace lockstep::cli {
namespace {

using record::LogFile;
using record::RunState;

struct LogRequest {
  std::string run;              // path
  std::set<int> ranks;          // empty: all
  std::optional<int> node;      // empty: all
  std::optional<int> attempt;   // empty: the last, and later ones when following
  std::optional<size_t> lines;  // the last so many of each rank
  bool follow = false;
  bool prefix = false;
};

Result<std::set<int>> ParseRanks(const std::vector<std::string>& texts) {
  std::set<int> ranks;
  for (const std::string& text : texts) {
    for (const std::string& part : Split(text, ',')) {
      const std::optional<int> rank = ParseDigits(part);
      if (!rank) {
        return Status(Code::kUsage,
                      fmt::format("--rank: expected a rank or a list such as 0,3, found '{}'", Printable(text)));
      }
      ranks.insert(*rank);
    }
  }
  return ranks;
}

// One rank's log on its way to stdout. Lines of several ranks are never mixed: a part of a line waits for its end.
class Printer {
 public:
  // `lines`: only the last so many of what is there at the first Pump.
  Printer(const LogFile& file, bool prefix, bool colour, std::optional<size_t> lines)
      : tail_(file.path), skip_to_last_(lines) {
    if (!prefix) return;
    // Bright enough on dark and light ground, and the same for a rank every time.
    constexpr int kColours[] = {36, 33, 35, 32, 34, 31};
    std::string text = fmt::format("{}:{}| ", file.node, file.rank);
    prefix_ = colour ? fmt::format("\x1b[{}m{}\x1b[0m", kColours[file.rank % 6], text) : text;
  }

  // True when there was something.
  bool Pump() {
    if (skip_to_last_) tail_.SkipToLast(*skip_to_last_);
    skip_to_last_.reset();
    std::string data;
    if (!tail_.Read(&data)) return false;
    if (prefix_.empty()) {
      Put(data);
      return true;
    }
    partial_ += data;
    size_t begin = 0;
    for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      Put(prefix_);
      Put(std::string_view(partial_).substr(begin, end + 1 - begin));
    }
    partial_.erase(0, begin);
    if (partial_.size() > kLongestLine) Flush();
    return true;
  }

  void Flush() {
    if (partial_.empty()) return;
    Put(prefix_);
    Put(partial_);
    Put("\n");
    partial_.clear();
  }

  void SayGaps() {
    if (tail_.gaps() == gaps_said_) return;
    gaps_said_ = tail_.gaps();
    fmt::print(stderr,
               "lockstep logs: lines of '{}' are missing here: they were rotated away before they could be read\n",
               tail_.path());
  }

 private:
  static constexpr size_t kLongestLine = 1u << 20;
  static void Put(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

  record::LogTail tail_;
  std::optional<size_t> skip_to_last_;
  std::string prefix_;
  std::string partial_;
  uint64_t gaps_said_ = 0;
};

class LogShow {
 public:
  explicit LogShow(LogRequest request) : request_(std::move(request)), colour_(UseColour(STDOUT_FILENO)) {}

  Status Run() {
    std::vector<int> attempts = record::LogAttempts(request_.run);
    if (!request_.attempt && !attempts.empty()) first_attempt_ = attempts.back();
    if (request_.attempt) first_attempt_ = *request_.attempt;
    Discover(/*at_start=*/true);
    if (request_.follow) return Follow();
    if (printers_.empty()) return NothingThere(attempts);
    for (auto& [path, printer] : printers_) {
      while (printer->Pump()) {
        if (std::ferror(stdout)) return Status::Ok();
      }
      printer->Flush();
      printer->SayGaps();
      printer.reset();  // a thousand ranks are more files than a process may hold open
    }
    std::fflush(stdout);
    return Status::Ok();
  }

 private:
  bool Wanted(const LogFile& file) const {
    return (request_.ranks.empty() || request_.ranks.count(file.rank) > 0) &&
           (!request_.node || *request_.node == file.node);
  }

  // Adds the logs that have appeared, oldest attempt first.
  void Discover(bool at_start) {
    for (int attempt : record::LogAttempts(request_.run)) {
      if (attempt < first_attempt_ || (request_.attempt && attempt != *request_.attempt)) continue;
      for (const LogFile& file : record::LogFiles(request_.run, attempt)) {
        if (!Wanted(file) || !known_.insert(file.path).second) continue;
        if (!at_start && attempt > last_attempt_) fmt::print(stderr, "lockstep logs: attempt {}\n", attempt);
        last_attempt_ = std::max(last_attempt_, attempt);
        auto printer =
            std::make_unique<Printer>(file, request_.prefix, colour_, at_start ? request_.lines : std::nullopt);
        printers_.emplace_back(file.path, std::move(printer));
      }
    }
  }

  bool PumpAll() {
    bool any = false;
    for (auto& [path, printer] : printers_) {
      any = printer->Pump() || any;
      printer->SayGaps();
    }
    return any;
  }

  Status Follow() {
    for (;;) {
      // The state is looked at before the last reading: what a rank wrote before the end is then on disk.
      record::LockView lock = record::ReadLock(request_.run + "/lock");
      bool ended =
          lock.state != record::LockState::kLive && record::Summarise(request_.run).state != RunState::kNodeOnly;
      Discover(/*at_start=*/false);
      while (PumpAll()) {
        if (std::fflush(stdout) != 0) return Status::Ok();  // whoever read us has gone
      }
      if (ended) break;
      ::poll(nullptr, 0, 100);
    }
    for (auto& [path, printer] : printers_) printer->Flush();
    record::RunSummary run = record::Summarise(request_.run);
    std::fflush(stdout);
    fmt::print(stderr, "lockstep logs: run '{}' has ended: {}{}{}\n", Printable(run.name), ToString(run.state),
               run.reason.empty() ? "" : ", ", OneLine(run.reason, 400));
    return Status::Ok();
  }

  Status NothingThere(const std::vector<int>& attempts) const {
    std::string name = Printable(request_.run.substr(request_.run.rfind('/') + 1));
    if (attempts.empty()) {
      return Status(Code::kUsage, fmt::format("run '{}' has no logs here", name),
                    "without shared storage each node keeps the logs of its own ranks");
    }
    std::vector<std::string> here;
    for (const LogFile& file : record::LogFiles(request_.run, first_attempt_)) {
      here.push_back(fmt::format("{}:{}", file.node, file.rank));
    }
    if (here.size() > 16) here.resize(16), here.emplace_back("...");
    std::vector<std::string> numbers;
    for (int attempt : attempts) numbers.push_back(std::to_string(attempt));
    const std::string others =
        numbers.size() > 1 ? fmt::format("choose among attempts {}; ", Join(numbers, " ")) : "choose one of these; ";
    return Status(Code::kUsage,
                  fmt::format("run '{}' has no such log; attempt {} has node:rank {}", name, first_attempt_,
                              here.empty() ? "none" : Join(here, " ")),
                  others + "ranks of other nodes may be on their disks");
  }

  LogRequest request_;
  bool colour_;
  int first_attempt_ = 0;
  int last_attempt_ = -1;
  std::set<std::string> known_;
  std::vector<std::pair<std::string, std::unique_ptr<Printer>>> printers_;
};

// The run is over, and the job of its name is not: it waits to be queued, or to be started again and resume.
bool WaitsForItsNextStart(const std::string& run, const std::string& which, const Environment& env) {
  if (record::ReadLock(run + "/lock").state == record::LockState::kLive) return false;
  if (record::Summarise(run).state == RunState::kNodeOnly) return false;
  const Result<FoundJob> job = FindJob(which, "", "", env);
  if (!job.ok()) return false;
  const submit::JobState state = submit::Client(*job->platform, env).Show(job->record);
  if (state.ended() || state.state == "unknown") return false;
  fmt::print(stderr, "lockstep logs: run '{}' has ended, and job '{}' of that name is {}: following the job\n",
             Printable(which), Printable(job->record.id), state.state);
  return true;
}

// Who has submitted jobs may have meant one of them.
Status NeitherRunNorJob(const Status& run, const Status& job, const Environment& env) {
  const Result<std::string> root = submit::RecordsRoot(env);
  std::vector<std::string> unreadable;
  if (!root.ok() || (submit::ReadRecords(*root, &unreadable).empty() && unreadable.empty())) return run;
  return Status(run.code(), fmt::format("{}, and {}", run.message(), job.message()), job.hint());
}

}  // namespace

int LogsMain(int argc, char** argv) {
  Arguments args("Shows what the ranks of a run wrote, by default all ranks of the last attempt, or a job's output.",
                 "logs");
  std::string root = record::kDefaultRoot;
  std::string which;
  std::vector<std::string> ranks;
  LogRequest request;
  std::string platform, name_space;
  args.Option("RUN", &which, "run: name, unique beginning of a name, path, or 'latest'; or job: name or id").Required();
  args.Flag("-f,--follow", &request.follow, "go on until the run or job ends, through rotation and new attempts");
  args.Option("--rank", &ranks, "only these ranks: 0 or 0,3; one rank alone is shown as it is, without prefix")
      .Named("RANKS")
      .OneWordEach();
  args.Option("--node", &request.node, "only ranks of this node").NonNegative();
  args.Option("--attempt", &request.attempt, "this attempt instead of the last").NonNegative();
  args.Option("-n,--lines", &request.lines, "only the last so many lines of each rank").NonNegative();
  args.Option("--root,--log-dir", &root, "folder that holds the runs").Named("DIR").ShowDefault();
  args.Option("--platform", &platform, "a job of this platform, not a run").Named("NAME");
  args.Option("--namespace", &name_space, "a job in this namespace of Kubernetes, not a run").Named("NAME");
  args.Footer(
      "Lines of several ranks begin with node:rank|.\n\n"
      "examples:\n"
      "  lockstep logs latest\n"
      "  lockstep logs -f taehv --rank 0\n"
      "  lockstep logs -f --platform slurm 4711\n"
      "  lockstep logs taehv --attempt 0 -n 50");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  Result<std::set<int>> chosen = ParseRanks(ranks);
  if (!chosen.ok()) return Complain("logs", chosen.status());
  request.ranks = *chosen;
  const bool perhaps_a_run = platform.empty() && name_space.empty();
  Result<std::string> path = perhaps_a_run ? record::FindRun(root, which) : Status(Code::kUsage, "");
  const Environment env = CurrentEnvironment();
  const bool for_runs = !ranks.empty() || request.node || request.attempt;
  if (!path.ok() || (request.follow && !for_runs && WaitsForItsNextStart(*path, which, env))) {
    // No run here: perhaps a job, whose runs are on its nodes.
    const Result<FoundJob> job = FindJob(which, platform, name_space, env);
    if (!job.ok()) {
      return Complain("logs", perhaps_a_run ? NeitherRunNorJob(path.status(), job.status(), env) : job.status());
    }
    if (for_runs) {
      return Complain("logs", Status(Code::kUsage, "--rank, --node and --attempt are for runs, and this is a job",
                                     "run it in the folder of the job, where its runs are"));
    }
    const Status status = ShowJobLogs(*job, request.follow, request.lines, env);
    return status.ok() ? 0 : Complain("logs", status);
  }
  request.run = *path;
  request.prefix = request.ranks.size() != 1 && record::Summarise(*path).world != 1;
  Status shown = LogShow(std::move(request)).Run();
  if (!shown.ok()) return Complain("logs", shown);
  return 0;
}

}  // namespace lockstep::cli
