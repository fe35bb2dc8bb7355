// `lockstep watch`: how far runs are, how fast, what they wait for; refreshed on a screen, or as text until they end.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/watch_http.h"
#include "record/run_dir.h"
#include "watch/model.h"
#include "watch/plot.h"
#include "watch/screen.h"
#include "watch/screen_loop.h"
#include "watch/table.h"

namespace lockstep::cli {
namespace {

constexpr Millis kStepLimit{3000};  // of a single look, for the next step

// The plain table, over what was shown before on a terminal, else one block after another.
class PlainTable {
 public:
  PlainTable() {
    const char* term = std::getenv("TERM");
    terminal_ = ::isatty(STDOUT_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
    colour_ = UseColour(STDOUT_FILENO);
    utf8_ = watch::TerminalIsUtf8();
  }

  // False: whoever read us has gone.
  bool Show(const std::vector<const watch::RunView*>& views, double now, bool all) {
    watch::TableStyle style{.utf8 = utf8_, .colour = colour_, .all = all};
    winsize window{};
    // A single look may be longer than the terminal: nothing of it is drawn over.
    if (terminal_ && !all && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 &&
        window.ws_row > 0) {
      style.columns = window.ws_col - 1;
      style.rows = std::max<size_t>((window.ws_row - 1) / views.size(), 3);
    }
    std::string text;
    if (terminal_ && height_ > 0) text = fmt::format("\r\x1b[{}A\x1b[J", height_);
    if (!terminal_ && height_ > 0) text = "\n";
    height_ = 0;
    for (const watch::RunView* view : views) {
      for (const std::string& line : watch::Render(*view, now, style)) {
        text += line + "\n";
        ++height_;
      }
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  }

 private:
  bool terminal_, colour_, utf8_;
  size_t height_ = 0;  // lines of the last block
};

using Watches = std::vector<std::unique_ptr<watch::Watch>>;

// Until the interval is over or a run may be.
void Wait(const Watches& watches, Millis interval) {
  const TimePoint until = Now() + interval;
  const auto over = [](const auto& watch) { return !watch->view().ended && watch->MayHaveEnded(); };
  while (Now() < until && std::none_of(watches.begin(), watches.end(), over)) {
    const auto left = std::chrono::duration_cast<Millis>(until - Now()).count();
    ::poll(nullptr, 0, static_cast<int>(std::clamp<int64_t>(left, 1, 500)));
  }
}

// All that is there, also of a long history: what is shown is the newest step.
void ReadAll(watch::Watch* watch) {
  do watch->Poll(UnixSeconds());
  while (watch->view().read < 1);
}

// The first look at a live run, with all of its history. A log without times says how fast its steps are only when a
// further one has come, so that one is waited for a little.
void LookOnce(watch::Watch* watch) {
  const TimePoint until = Now() + kStepLimit;
  const watch::RunView& view = watch->view();
  ReadAll(watch);
  while (view.step && !view.seconds_per_step && !view.ended && !(view.log && view.state != "running") &&
         Now() < until) {
    ::poll(nullptr, 0, 100);
    watch->Poll(UnixSeconds());
  }
}

// One document: an object for one run, a list for several.
int PrintJson(const Watches& watches) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& watch : watches) {
    LookOnce(watch.get());
    list.push_back(watch->view().ToJson(UnixSeconds()));
  }
  const nlohmann::json& document = list.size() == 1 ? list[0] : list;
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  if (std::fflush(stdout) != 0) {
    return Complain("watch", Status(Code::kEnvironment, fmt::format("cannot write: {}", ErrnoText(errno))));
  }
  return 0;
}

// Blocks of text until every run has ended, or one look.
int ShowText(const Watches& watches, Millis interval, bool once) {
  std::vector<const watch::RunView*> views;
  for (const auto& watch : watches) views.push_back(&watch->view());
  for (PlainTable table;;) {
    for (const auto& watch : watches) once ? LookOnce(watch.get()) : ReadAll(watch.get());
    if (!table.Show(views, UnixSeconds(), once)) return 0;
    if (std::all_of(views.begin(), views.end(), [](const watch::RunView* view) { return view->ended; })) {
      for (const watch::RunView* view : views) fmt::print("{}\n", watch::EndText(*view));
      std::fflush(stdout);
      return 0;
    }
    if (once) return 0;
    Wait(watches, interval);
  }
}

// The screen until the user leaves; a signal ends the program as it would without a screen.
int ShowOnScreen(const Watches& watches, Millis interval, std::unique_ptr<watch::Screen> screen) {
  const int signal = watch::ShowRuns(watches, interval, screen.get());
  screen.reset();
  if (signal != 0) ::raise(signal);
  for (const auto& watch : watches) {
    if (watch->view().ended) fmt::print("{}\n", watch::EndText(watch->view()));
  }
  return 0;
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
      "Shows runs while they go on, or after: step, speed, ETA and loss, what every rank waits for, GPUs, nodes, "
      "links, "
      "what is wrong, events and logs. On a terminal a screen with keys (? lists them, q leaves), else one block of "
      "text per interval until the runs end.",
      "watch");
  std::string root = record::kDefaultRoot, interval_text = "2s", http, token_file;
  std::vector<std::string> which;
  bool once = false, json = false, plain = false;
  args.Option("RUN", &which,
              "name, unique beginning of a name, path, 'latest' (the default), or a log file of any launcher; several "
              "are shown together");
  args.Option("--interval", &interval_text, "between two looks: 2s, 500ms, 1m").Named("DURATION").ShowDefault();
  args.Flag("--once", &once, "print the present state with all that is known, and leave");
  args.Flag("--json", &json, "the present state as one JSON document; of several runs a list");
  args.Flag("--plain", &plain, "the table instead of the screen");
  const Argument page = args.Option("--http", &http, "serve a page on this address instead (127.0.0.1:7077)")
                            .Named("ADDRESS:PORT")
                            .ValueOptional();
  args.Option("--token-file", &token_file, "secret of the page, for --http on other addresses than loopback")
      .Named("FILE");
  args.Option("--root,--log-dir", &root, "folder that holds the runs").Named("DIR").ShowDefault();
  args.Footer(
      "Ranks are read from the run's metric lines; those of programs that write none from the progress lines of their "
      "logs\n(tqdm, Hugging Face Trainer, accelerate, Lightning, Megatron, DeepSpeed, torchtitan, KAIR, llm.c, "
      "nanoGPT).\n\n"
      "examples:\n"
      "  lockstep watch\n"
      "  lockstep watch taehv --interval 10s\n"
      "  lockstep watch taehv --once\n"
      "  lockstep watch slurm-4711.out\n"
      "  lockstep watch first second\n"
      "  lockstep watch latest --http\n"
      "  lockstep watch latest --json | jq '.eta, .ranks[].step'");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  Result<Millis> interval = ParseDuration(interval_text, BareNumber::kSeconds);
  if (!interval.ok()) return Complain("watch", interval.status().Context("--interval"));
  if (*interval < Millis(100)) {
    return Complain("watch", Status(Code::kUsage, fmt::format("--interval: expected at least 100ms, found '{}'",
                                                              Printable(interval_text))));
  }
  if (page.given() && (once || json)) {
    return Complain("watch",
                    Status(Code::kUsage, fmt::format("--http and {} exclude each other", once ? "--once" : "--json"),
                           "--http serves a page until Ctrl-C; leave out one of them"));
  }
  AllowManyFiles();
  if (page.given() && !IsHttpAddress(http)) which.insert(which.begin(), std::exchange(http, ""));
  if (which.empty()) which.push_back("latest");
  Watches watches;
  for (const std::string& name : which) {
    Result<std::unique_ptr<watch::Watch>> opened = watch::Watch::Open(root, name);
    if (!opened.ok()) return Complain("watch", opened.status());
    watches.push_back(std::move(*opened));
  }
  watch::TellNamesApart(watches);
  if (page.given()) return WatchHttp(std::move(watches), http, token_file, *interval);
  if (json) return PrintJson(watches);
  if (!once && !plain) {
    std::string why;
    if (std::unique_ptr<watch::Screen> screen = watch::Screen::Open(&why)) {
      return ShowOnScreen(watches, *interval, std::move(screen));
    }
  }
  return ShowText(watches, *interval, once);
}

}  // namespace lockstep::cli
