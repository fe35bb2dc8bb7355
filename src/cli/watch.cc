// `lockstep watch`: how far a run is, how fast, and how its loss falls; refreshed until it ends.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "record/run_dir.h"
#include "watch/model.h"
#include "watch/plot.h"
#include "watch/table.h"

namespace lockstep::cli {
namespace {

constexpr Millis kStepLimit{3000};  // of a single look, for the next step

class Screen {
 public:
  Screen() {
    const char* term = std::getenv("TERM");
    terminal_ = ::isatty(STDOUT_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
    colour_ = UseColour(STDOUT_FILENO);
    utf8_ = watch::TerminalIsUtf8();
  }

  // On a terminal over what was shown before, else one block after another. False: whoever read us has gone.
  bool Show(const watch::RunView& view, double now) {
    watch::TableStyle style{.utf8 = utf8_, .colour = colour_};
    winsize window{};
    if (terminal_ && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
      style.columns = window.ws_col - 1;
      style.rows = std::max<size_t>(window.ws_row, 3) - 1;
    }
    std::string text;
    if (terminal_ && height_ > 0) text = fmt::format("\r\x1b[{}A\x1b[J", height_);
    if (!terminal_ && height_ > 0) text = "\n";
    const std::vector<std::string> lines = watch::Render(view, now, style);
    for (const std::string& line : lines) text += line + "\n";
    height_ = lines.size();
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  }

 private:
  bool terminal_, colour_, utf8_;
  size_t height_ = 0;  // lines of the last block
};

// Until the interval is over or the run may be.
void Wait(const watch::Watch& watch, Millis interval) {
  const TimePoint until = Now() + interval;
  while (Now() < until && !watch.MayHaveEnded()) {
    const auto left = std::chrono::duration_cast<Millis>(until - Now()).count();
    ::poll(nullptr, 0, static_cast<int>(std::clamp<int64_t>(left, 1, 500)));
  }
}

// The first look at a live run. A log without times says how fast its steps are only when a further one has come, so
// that one is waited for a little.
void LookOnce(watch::Watch* watch) {
  const TimePoint until = Now() + kStepLimit;
  watch->Poll(UnixSeconds());
  const watch::RunView& view = watch->view();
  while (view.step && !view.seconds_per_step && !view.ended && !(view.log && view.state != "running") &&
         Now() < until) {
    ::poll(nullptr, 0, 100);
    watch->Poll(UnixSeconds());
  }
}

// A file stays open for each rank that is read from its log.
void AllowManyFiles() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int WatchMain(int argc, char** argv) {
  Arguments args(
      "Shows how far a run is: step, seconds per step, steps per second, ETA, loss and memory of every rank, and "
      "the loss as a small plot. Refreshes until the run ends and says how it ended.",
      "watch");
  std::string root = record::kDefaultRoot, which, interval_text = "2s";
  bool once = false, json = false;
  args.Option("RUN", &which, "name, unique beginning of a name, path, 'latest', or a log file of any launcher")
      .Required();
  args.Option("--interval", &interval_text, "between two looks: 2s, 500ms, 1m").Named("DURATION").ShowDefault();
  args.Flag("--once", &once, "show the present state and leave");
  args.Flag("--json", &json, "the present state as one JSON document");
  args.Option("--root,--log-dir", &root, "folder that holds the runs").Named("DIR").ShowDefault();
  args.Footer(
      "Ranks are read from the run's metric lines; those of programs that write none from the progress lines of their "
      "logs\n(tqdm, Hugging Face Trainer, Megatron, DeepSpeed, torchtitan, Lightning, llm.c, nanoGPT).\n\n"
      "examples:\n"
      "  lockstep watch latest\n"
      "  lockstep watch taehv --interval 10s\n"
      "  lockstep watch taehv --once\n"
      "  lockstep watch slurm-4711.out\n"
      "  lockstep watch latest --json | jq '.eta, .ranks[].step'");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  Result<Millis> interval = ParseDuration(interval_text, BareNumber::kSeconds);
  if (!interval.ok()) return Complain("watch", interval.status().Context("--interval"));
  if (*interval < Millis(100)) {
    return Complain("watch", Status(Code::kUsage, fmt::format("--interval: expected at least 100ms, found '{}'",
                                                              Printable(interval_text))));
  }
  AllowManyFiles();
  Result<std::unique_ptr<watch::Watch>> opened = watch::Watch::Open(root, which);
  if (!opened.ok()) return Complain("watch", opened.status());
  watch::Watch& watch = **opened;

  if (json) {
    LookOnce(&watch);
    fmt::print("{}\n",
               watch.view().ToJson(UnixSeconds()).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    if (std::fflush(stdout) != 0) {
      return Complain("watch", Status(Code::kEnvironment, fmt::format("cannot write: {}", ErrnoText(errno))));
    }
    return 0;
  }
  for (Screen screen;;) {
    once ? LookOnce(&watch) : watch.Poll(UnixSeconds());
    if (!screen.Show(watch.view(), UnixSeconds())) return 0;
    if (watch.view().ended) {
      fmt::print("{}\n", watch::EndText(watch.view()));
      std::fflush(stdout);
      return 0;
    }
    if (once) return 0;
    Wait(watch, *interval);
  }
}

}  // namespace lockstep::cli
