// `lockstep selftest`: does communication work at all, step by step: one process, two, one node, all nodes. Each stage
// is a `lockstep run` of a small program (selftest.py, or `lockstep-train selftest` where no Python torch is).
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/environment.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/own_program.h"
#include "base/process.h"
#include "base/sockets.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/flag_engine.h"
#include "cli/run_flags.h"
#include "cli/selftest_view.h"
#include "cli/train_program.h"
#include "launch/plan.h"
#include "place/machine.h"

namespace lockstep {
// Named by cmake/embed.cmake.
extern const unsigned char selftest_program[];  // NOLINT(readability-identifier-naming)
extern const size_t selftest_program_size;      // NOLINT(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::cli {
namespace {

using Json = nlohmann::json;

constexpr char kSelftestHelp[] =
    "usage: lockstep selftest [options] [any flag of `lockstep run` that says how many and where]\n\n"
    "Tests communication in stages: one process, two, all of this node, all nodes. Every stage checks collectives "
    "with\n"
    "known answers and measures bandwidth, under the Python, torch and NCCL the job itself would load. The stage that\n"
    "fails names the rank, the pair or the node. With several nodes, start it on each, as the job.\n\n"
    "options:\n"
    "  --scale              also: efficiency of steps at 1, 2, 4, ... ranks, and where it is lost\n"
    "  --backend B          auto (NCCL with GPUs, else Gloo), gloo, nccl, or engine: lockstep-train's own "
    "communicator\n"
    "  --sizes LIST         sizes of the all-reduce to measure: 8,1MiB,256MiB\n"
    "  --limit SECONDS      a collective that takes longer has failed (15)\n"
    "  --program PROGRAM    a train program of your own for the backend engine, instead of lockstep-train\n"
    "  --json               one JSON document\n"
    "  --keep               keep the logs of stages that succeeded, too\n"
    "  --help\n\n"
    "examples:\n"
    "  lockstep selftest --nproc-per-node 4\n"
    "  srun --nodes 2 --ntasks-per-node 1 lockstep selftest --scale\n"
    "  lockstep selftest --venv ~/env --nnodes 2 --node-rank 0 --master-addr 10.0.0.1      and on the other: "
    "--node-rank 1\n";

constexpr char kNoTorch[] = "selftest: No module named 'torch'";

struct SelftestFlags {
  bool scale = false, json = false, keep = false, help = false;
  std::string backend = "auto", sizes, limit = "15";
  std::string program;           // of the backend `engine`; empty: lockstep-train
  std::vector<std::string> run;  // for `lockstep run`
};

volatile sig_atomic_t child_of_stage = 0;
volatile sig_atomic_t stopped_by = 0;

void PassOn(int signal) {
  stopped_by = signal;
  if (child_of_stage > 0) kill(static_cast<pid_t>(child_of_stage), signal);
}

int FailSelftest(const Status& status, bool json) {
  fmt::print(stderr, "lockstep selftest: {}\n", status.ToString());
  if (json) {
    const Json document = {
        {"ok", false}, {"error", status.message()}, {"do", status.hint()}, {"stages", Json::array()}};
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
  }
  return ExitCode(status);
}

Result<std::string> ParseSizes(const std::string& list) {
  std::vector<std::string> out;
  for (const std::string& word : Split(list, ',')) {
    char* end = nullptr;
    double value = std::strtod(word.c_str(), &end);
    const std::string unit(Trim(end));
    const std::pair<const char*, double> units[] = {{"", 1},          {"B", 1},       {"KiB", 1 << 10}, {"K", 1 << 10},
                                                    {"MiB", 1 << 20}, {"M", 1 << 20}, {"GiB", 1 << 30}, {"G", 1 << 30}};
    const auto found =
        std::find_if(std::begin(units), std::end(units), [&](const auto& row) { return unit == row.first; });
    if (end == word.c_str() || found == std::end(units) || value * found->second < 4 || value * found->second > 64e9) {
      return Status(
          Code::kUsage,
          fmt::format("--sizes: expected sizes of 4 B to 64 GB such as 8,1MiB,256MiB, found '{}'", Printable(word)));
    }
    out.push_back(fmt::format("{:.0f}", value * found->second));
  }
  return Join(out, ",");
}

// The options that `run` does not have.
const std::vector<FlagSpec>& OwnFlags() {
  static const std::vector<FlagSpec> flags = {
      {.name = "--scale", .first_class = true},
      {.name = "--backend", .takes_value = true, .first_class = true},
      {.name = "--sizes", .takes_value = true, .first_class = true},
      {.name = "--limit", .takes_value = true, .first_class = true},
      {.name = "--program", .takes_value = true, .first_class = true},
      {.name = "--json", .first_class = true},
      {.name = "--keep", .first_class = true},
  };
  return flags;
}

Status Take(const std::string& name, const std::string& value, SelftestFlags* out) {
  if (name == "--scale") {
    out->scale = true;
  } else if (name == "--json") {
    out->json = true;
  } else if (name == "--keep") {
    out->keep = true;
  } else if (name == "--backend") {
    out->backend = value;
    const std::vector<std::string> known = {"auto", "gloo", "nccl", "engine"};
    if (std::find(known.begin(), known.end(), value) == known.end()) {
      return Status(Code::kUsage, fmt::format("--backend: expected {}, found '{}'{}", Join(known, ", "),
                                              Printable(value), DidYouMean(value, known)));
    }
  } else if (name == "--sizes") {
    auto sizes = ParseSizes(value);
    if (!sizes.ok()) return sizes.status();
    out->sizes = *sizes;
  } else if (name == "--program") {
    const Result<std::string> program = FindTrainProgram(value);
    if (!program.ok()) return program.status();
    out->program = *program;
  } else if (name == "--limit") {
    out->limit = value;
    char* end = nullptr;
    const double seconds = std::strtod(value.c_str(), &end);
    if (end == value.c_str() || *end != '\0' || seconds < 1 || seconds > 3600) {
      return Status(Code::kUsage, fmt::format("--limit: expected 1 to 3600 seconds, found '{}'", Printable(value)));
    }
  }
  return Status::Ok();
}

Result<SelftestFlags> Parse(int argc, char** argv) {
  auto line = SplitRunFlags(OwnFlags(), {argv + 1, argv + argc}, "see lockstep selftest --help");
  if (!line.ok()) return line.status();
  SelftestFlags out;
  out.help = line->help;
  for (const ScannedFlag& flag : line->own) {
    LOCKSTEP_RETURN_IF_ERROR(Take(OwnFlags()[flag.index].name, flag.value, &out));
  }
  out.run = std::move(line->run);
  if (line->program && !out.help) {
    return Status(Code::kUsage, fmt::format("selftest brings its own program, found '{}'", Printable(*line->program)),
                  "lockstep selftest [options] [flags of lockstep run]");
  }
  return out;
}

bool HasFlagAnySpelling(const std::vector<std::string>& words, const std::string& flag) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    std::string name = word.substr(0, word.find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    return name == flag;
  });
}

// The user's flags without those that say how many and where: a stage of this node alone says that itself.
std::vector<std::string> LocalFlags(const std::vector<std::string>& words) {
  const std::vector<std::string> placing = {"--nnodes",       "--nproc-per-node", "--nproc",         "--node-rank",
                                            "--master-addr",  "--master-port",    "--rdzv-endpoint", "--rdzv-id",
                                            "--rdzv-backend", "--rdzv-conf",      "--local-addr",    "--level",
                                            "--join-timeout", "--token-file"};
  std::vector<std::string> out;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i].substr(0, words[i].find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    if (std::find(placing.begin(), placing.end(), name) == placing.end()) {
      if (name != "--standalone") out.push_back(words[i]);
    } else if (name.size() == words[i].size()) {
      ++i;
    }
  }
  return out;
}

class Selftest {
 public:
  Selftest(SelftestFlags options, place::Placement placement, std::string host)
      : options_(std::move(options)), placement_(std::move(placement)), host_(std::move(host)) {}
  int Run();

 private:
  bool RunStage(const Stage& stage, bool local);
  Stage RunOnce(Stage stage, bool local, const std::string& join_timeout);
  int Start(const std::vector<std::string>& words, const Stage& stage, const std::string& folder);
  void ShowProgress(const Stage& stage, const std::string& path);
  std::vector<std::string> Program(const std::string& folder) const;
  std::string Why(const Stage& stage, int code, const std::string& runs) const;
  void Show(const Stage& stage);
  std::string Master() const;
  // Of the backend `engine`.
  Result<std::string> Engine() const {
    return options_.program.empty() ? FindEngine() : Result<std::string>(options_.program);
  }

  SelftestFlags options_;
  place::Placement placement_;
  std::string host_, folder_, script_, master_;
  bool engine_ = false;
  bool torchless_ = false;  // this node's Python has no torch
  bool speaks_ = true;      // of many launchers on one console the first shows the results
  hardware::Hardware here_;
  std::vector<Stage> stages_;
  std::string local_failure_, shown_;
  TimePoint shown_at_{};
};

std::vector<std::string> Selftest::Program(const std::string& folder) const {
  std::vector<std::string> out;
  if (engine_) {
    const Result<std::string> engine = Engine();  // not found: `run` says so
    out = {"--no-python", engine.ok() ? *engine : kEngineName, "selftest"};
  } else {
    out = {script_, "--backend", options_.backend == "engine" ? "auto" : options_.backend};
  }
  out.insert(out.end(), {"--out", folder, "--progress", folder + "/progress", "--limit", options_.limit});
  if (!options_.sizes.empty()) out.insert(out.end(), {"--sizes", options_.sizes});
  if (!local_failure_.empty()) out.insert(out.end(), {"--failed", local_failure_});
  return out;
}

void Selftest::ShowProgress(const Stage& stage, const std::string& path) {
  if (options_.json || SecondsSince(shown_at_) < 1) return;
  auto text = ReadFile(path, 1 << 16);
  if (!text.ok()) return;
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || *text == shown_) return;
  shown_ = *text;
  shown_at_ = Now();
  fmt::print(stderr, "selftest: {}: {} ({} of {}), ETA {:.0f}s\n", stage.name, json.value("doing", ""),
             json.value("done", 0), json.value("of", 0), json.value("eta", 0.0));
}

int Selftest::Start(const std::vector<std::string>& words, const Stage& stage, const std::string& folder) {
  const std::string log = folder + "/launcher.log";
  const int out = open(log.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
  std::vector<std::string> copy = words;
  std::vector<char*> argv;
  for (std::string& word : copy) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, 0);
    dup2(out, 1);
    dup2(out, 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  if (out >= 0) close(out);
  if (pid < 0) return 127;
  child_of_stage = pid;
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) break;
    ShowProgress(stage, folder + "/progress");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  child_of_stage = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : ExitOfSignal(WTERMSIG(status));
}

// "lockstep run: what" and "  do: how" of a launcher that never came to a report, as one sentence.
std::string LastWords(const std::string& log) {
  std::string what, how;
  for (const std::string& line : Split(log, '\n')) {
    const std::string text(Trim(line));
    if (text.starts_with("lockstep")) {
      what = text.substr(text.find(": ") == std::string::npos ? 0 : text.find(": ") + 2);
      how.clear();
    } else if (text.starts_with("do: ") || (what.empty() && !text.empty())) {
      how = text;
    }
  }
  if (what.empty() || how.empty()) return Printable(what + how, 400);
  return fmt::format("{}; {}", Printable(what, 400), Printable(how, 400));
}

// What is missing is worth more than the exit code of who missed it.
std::string Explained(std::string why) {
  const size_t at = why.find(kNoTorch);
  const std::string code = "failed first: exit code 42";  // NO_TORCH of the program
  if (const size_t known = why.find(code); at == std::string::npos && known != std::string::npos) {
    return why.substr(0, known + code.size()) + ": the job's Python has no torch there";
  }
  if (at == std::string::npos) return why;
  const size_t open = why.find('(', at), close = why.find(')', at);
  const std::string python =
      open == std::string::npos || close == std::string::npos ? "" : why.substr(open + 1, close - open - 1);
  return fmt::format(
      "{}the job's Python has no torch{}; do: install it there, or choose another with --venv, --conda or "
      "PATH (--backend engine tests without)",
      why.substr(0, at), python.empty() ? "" : fmt::format(" ({})", python));
}

// The ranks' own words; the launcher's report where no rank could speak.
std::string Selftest::Why(const Stage& stage, int code, const std::string& runs) const {
  if (stage.result.is_object() && stage.result.contains("error") && stage.result["error"].is_string()) {
    const int speaker = stage.result.value("rank", 0);
    std::string text = stage.result["error"].get<std::string>();
    return speaker == 0 || stage.nnodes > 1 ? text : fmt::format("{} (rank 0 said nothing)", text);
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(runs, error)) {
    auto text = ReadFile((entry.path() / "report.json").string(), 4 << 20);
    if (!text.ok()) continue;
    const Json report = Json::parse(*text, nullptr, false);
    if (!report.is_object()) continue;
    std::string why = report.value("reason", "");
    if (auto first = report.find("first_failure"); first != report.end() && first->is_object()) {
      if (auto lines = first->find("last_lines");
          lines != first->end() && lines->is_array() && !lines->empty() && lines->back().is_string()) {
        why += ": " + Printable(lines->back().get<std::string>());
      }
    }
    if (!why.empty()) return Explained(why);
  }
  auto log = ReadFile(stage.log, 1 << 20);
  const std::string last = log.ok() ? LastWords(*log) : "";
  return last.empty() ? fmt::format("the launcher ended with exit code {}", code) : Explained(last);
}

void Selftest::Show(const Stage& stage) {
  if (options_.json || (stage.ok && !speaks_)) return;
  const auto limit = LimitOf(here_, stage, master_);
  fmt::print("{}", StageLine(stage, limit, UseColour(STDOUT_FILENO)));
  std::fflush(stdout);
}

// Without torch the engine's own collectives are tested; with several nodes only if the others have none either, and
// then all come to that conclusion at the same time. One node without torch among others is a failure that names it.
bool Selftest::RunStage(const Stage& stage, bool local) {
  const bool node_level = placement_.level.value_or(place::Level::kNode) == place::Level::kNode;
  const bool together = !local && torchless_;
  if (together) engine_ = false;
  Stage done = RunOnce(stage, local, "180s");
  const bool may_learn = local || !node_level;  // of many nodes the log may tell another's trouble
  auto log = ReadFile(done.log, 1 << 20);
  const bool no_torch = !done.ok && done.result.is_null() && !engine_ && options_.backend == "auto" &&
                        (together || (may_learn && log.ok() && log->find(kNoTorch) != std::string::npos));
  if (no_torch && Engine().ok()) {
    engine_ = torchless_ = true;
    if (!options_.json && !together) {
      fmt::print(stderr, "selftest: the Python of this job has no torch; testing with lockstep-train instead\n");
    }
    std::filesystem::remove_all(std::filesystem::path(done.log).parent_path());
    const std::string why = done.error;
    // The other nodes, if they have no torch either, begin within moments of this one.
    done = RunOnce(stage, local, together ? fmt::format("{:.0f}s", std::ceil(std::stod(options_.limit))) : "180s");
    if (!done.ok && together) done.error = why;
  }
  stages_.push_back(done);
  if (stopped_by == 0) Show(done);
  return done.ok;
}

Stage Selftest::RunOnce(Stage stage, bool local, const std::string& join_timeout) {
  const std::string folder = fmt::format("{}/stage-{}", folder_, stages_.size() + 1);
  const std::string runs = folder + "/runs";
  std::filesystem::create_directories(folder);
  stage.log = folder + "/launcher.log";
  std::vector<std::string> words = {OwnExecutable("lockstep"), "run"};
  const std::vector<std::string> flags = local ? LocalFlags(options_.run) : options_.run;
  words.insert(words.end(), flags.begin(), flags.end());
  if (local) {
    words.insert(words.end(), {"--standalone", "--level=node", "--nproc-per-node", std::to_string(stage.ranks)});
  } else {
    if (!HasFlagAnySpelling(flags, "--nproc-per-node") && !HasFlagAnySpelling(flags, "--nproc") &&
        placement_.level == place::Level::kNode && placement_.nproc_per_node) {
      words.insert(words.end(), {"--nproc-per-node", std::to_string(*placement_.nproc_per_node)});
    }
    if (!HasFlagAnySpelling(flags, "--join-timeout")) words.insert(words.end(), {"--join-timeout", join_timeout});
  }
  words.insert(words.end(), {"--quiet", "--grace", "2s", "--log-dir", runs, "--name", "selftest"});
  const std::vector<std::string> program = Program(folder);
  words.insert(words.end(), program.begin(), program.end());
  if (options_.scale && stage.ranks > 1 && !engine_ && (!local || placement_.nnodes.value_or(1) == 1) &&
      stage.ranks >= placement_.nproc_per_node.value_or(1)) {
    words.emplace_back("--scale");
  }
  const TimePoint began = Now();
  const int code = Start(words, stage, folder);
  stage.seconds = SecondsSince(began);
  stage.result = ReadVerdict(folder);
  // On nodes without rank 0 the launcher's word is all there is.
  stage.ok = code == 0 && (stage.result.is_null() || stage.result.value("ok", false));
  if (!stage.ok) stage.error = Why(stage, code, runs);
  return stage;
}

int Selftest::Run() {
  folder_ = (std::filesystem::temp_directory_path() / fmt::format("lockstep-selftest-{}", getpid())).string();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error)
    return FailSelftest(Status(Code::kEnvironment, fmt::format("{}: {}", folder_, error.message())), options_.json);
  script_ = folder_ + "/selftest.py";
  const Status written = WriteFileAtomic(
      script_, std::string_view(reinterpret_cast<const char*>(selftest_program), selftest_program_size));
  if (!written.ok()) return FailSelftest(written, options_.json);
  engine_ = options_.backend == "engine";
  here_ = hardware::ScanHardware({.env = CurrentEnvironment()});
  master_ = Master();
  struct sigaction action{};
  action.sa_handler = PassOn;
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);

  const int nnodes = placement_.nnodes.value_or(1);
  const bool node_level = placement_.level.value_or(place::Level::kNode) == place::Level::kNode;
  const int local = node_level ? placement_.nproc_per_node.value_or(1) : placement_.local_world_size.value_or(1);
  speaks_ = placement_.node_rank.value_or(0) == 0 && (node_level || placement_.rank.value_or(0) == 0);
  if (!options_.json && speaks_)
    fmt::print("selftest on {}: {} rank{} here, {} node{}\n", host_, local, local == 1 ? "" : "s", nnodes,
               nnodes == 1 ? "" : "s");
  bool ok = true;
  if (node_level) {
    std::vector<Stage> plan = {{"1 process", 1, 1, false, 0, "", {}, ""}};
    if (local >= 2) plan.push_back({local == 2 ? "one node" : "2 processes", 2, 1, false, 0, "", {}, ""});
    if (local > 2) plan.push_back({"one node", local, 1, false, 0, "", {}, ""});
    for (Stage& stage : plan) {
      ok = ok && stopped_by == 0 && RunStage(stage, /*local=*/true);
      if (!ok && local_failure_.empty())
        local_failure_ = fmt::format("{}: {}", stage.name, stages_.empty() ? "" : stages_.back().error);
    }
  }
  // A node that failed by itself still comes, to say so: the others would wait for it.
  if ((nnodes > 1 || !node_level) && stopped_by == 0) {
    const int world = placement_.world_size.value_or(local * nnodes);
    ok = RunStage({"all nodes", world, nnodes, false, 0, "", {}, ""}, /*local=*/false) && ok;
  }
  if (stopped_by != 0) {
    std::filesystem::remove_all(folder_, error);
    return ExitOfSignal(stopped_by);
  }
  if (options_.scale && engine_) fmt::print(stderr, "selftest: --scale needs torch: efficiency was not measured\n");
  if (options_.json) {
    Json stages = Json::array();
    for (const Stage& stage : stages_) stages.push_back(ToJson(stage, LimitOf(here_, stage, master_)));
    const Json document = {{"ok", ok}, {"host", host_}, {"node", placement_.node_rank.value_or(0)}, {"stages", stages}};
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (speaks_ || !ok) {
    const auto last = std::find_if(stages_.rbegin(), stages_.rend(), [](const Stage& stage) { return stage.ok; });
    if (last != stages_.rend() && speaks_) fmt::print("{}", Details(*last, LimitOf(here_, *last, master_)));
    if (ok) {
      fmt::print("\nall stages passed\n");
    } else {
      const auto first = std::find_if(stages_.begin(), stages_.end(), [](const Stage& stage) { return !stage.ok; });
      fmt::print("\nfailed at stage '{}'; logs: {}\n", first->name, folder_);
    }
  }
  if (ok && !options_.keep) std::filesystem::remove_all(folder_, error);
  return ok ? kExitOk : kExitEnvironment;
}

std::string Selftest::Master() const {
  const std::string master = placement_.master_addr.value_or("");
  if (master.empty() || placement_.nnodes.value_or(1) < 2) return "";
  auto found = Resolve(master, 0);
  return found.ok() ? found->front().Host() : "";
}

}  // namespace

int SelftestMain(int argc, char** argv) {
  const bool json = std::any_of(argv, argv + argc, [](const char* word) { return std::string(word) == "--json"; });
  auto options = Parse(argc, argv);
  if (!options.ok()) return FailSelftest(options.status(), json);
  if (options->help) {
    fmt::print("{}", kSelftestHelp);
    return 0;
  }
  // How many and where is for `lockstep run` to say: the same flags, the same answer.
  const Environment env = CurrentEnvironment();
  std::vector<std::string> words = {"selftest"};
  words.insert(words.end(), options->run.begin(), options->run.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  auto flags = ParseRunFlags(static_cast<int>(words.size()), arguments.data(), env, ParseMode::kExplain);
  if (!flags.ok()) return FailSelftest(flags.status(), json);
  Environment seen = env;
  if (!flags->options.gpus.empty()) seen["CUDA_VISIBLE_DEVICES"] = flags->options.gpus;
  const place::Machine machine = place::ReadMachine(seen);
  place::Placement placement = place::Resolve(env, flags->options.place, machine);
  if (!placement.error.ok()) return FailSelftest(placement.error.WithCode(Code::kUsage), json);
  if (machine.gpus > 0 && placement.level == place::Level::kNode && !placement.nproc_explicit) {
    placement.nproc_per_node = machine.gpus;
    placement.world_size = machine.gpus * placement.nnodes.value_or(1);
  }
  return Selftest(std::move(*options), std::move(placement), machine.host).Run();
}

}  // namespace lockstep::cli
