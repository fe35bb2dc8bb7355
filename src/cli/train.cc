// `lockstep train` and the commands that the engine answers itself (`config`, `reconstruct`, ...): find the engine
// (`lockstep-train`), then start it, as ranks under `lockstep run` or in our place. The engine needs LibTorch and so is
// a program of its own, looked up git-style.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/arguments.h"
#include "base/environment.h"
#include "base/exit_codes.h"
#include "base/own_program.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/key_flag.h"
#include "cli/run_flags.h"
#include "hardware/cpu_share.h"
#include "launch/capture.h"
#include "place/machine.h"
#include "place/placement.h"

namespace lockstep::cli {
namespace {

constexpr char kHelp[] =
    "usage: lockstep train RECIPE [options] [any flag of `lockstep run`]\n\n"
    "Trains a recipe with the native engine. Ranks are started as by `lockstep run`: one for each visible GPU, or one "
    "on a\n"
    "machine without, unless --nproc-per-node or the platform says otherwise.\n\n"
    "options:\n"
    "  --config FILE        configuration, YAML or JSON with comments (see `lockstep config RECIPE`)\n"
    "  --set KEY=VALUE      one value of it, wins over the file; may be repeated\n"
    "  --preset N|auto      batch, micro-batch, learning rate and intervals for N GPUs (auto: those it runs on), "
    "derived\n"
    "                       from the configuration by the batch rule: `lockstep config RECIPE --gpus N` shows it\n"
    "  --resume WHAT        auto: the newest good checkpoint of this run (default); none; or the path of a checkpoint\n"
    "  --max-time DURATION  save and stop after this long, exit code 75\n"
    "  --smoke[=STEPS]      test (100 steps) of a small version on the CPU: data, validation, checkpoint, resume\n"
    "  --licenses           notices and license texts of the software inside the engine\n"
    "  --version            the engine, its torch and CUDA, the GPUs it sees\n"
    "  --help\n\n"
    "examples:\n"
    "  lockstep train taehv --smoke\n"
    "  lockstep train taehv --nproc-per-node 2 --set recipe.model=taehv-small --set train.steps=200\n"
    "  lockstep train taehv --config taehv.yaml --name night-1 --max-restarts 3\n"
    "  lockstep train taehv --config taehv.yaml --name night-1 --resume auto      continues it\n\n"
    "`lockstep run --help` lists the flags for nodes, restarts, logs and names.\n";

// Options of the engine, beside those of `run`.
const std::vector<FlagSpec>& EngineFlags() {
  static const std::vector<FlagSpec> flags = {
      {.name = "--config", .takes_value = true, .first_class = true},
      {.name = "--set", .takes_value = true, .first_class = true},
      {.name = "--preset", .takes_value = true, .first_class = true},
      {.name = "--resume", .takes_value = true, .first_class = true},
      {.name = "--max-time", .takes_value = true, .first_class = true},
      {.name = "--smoke", .optional_value = true, .first_class = true},
  };
  return flags;
}

// The engine finds LibTorch by its run path, then in LOCKSTEP_LIBTORCH. Said here, once, instead of by every rank.
Status CheckEngine(const std::string& engine) {
  if (const char* libtorch = std::getenv("LOCKSTEP_LIBTORCH"); libtorch != nullptr && *libtorch != '\0') {
    const char* old = std::getenv("LD_LIBRARY_PATH");
    const std::string path = old == nullptr || *old == '\0' ? libtorch : fmt::format("{}:{}", libtorch, old);
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  }
  // The loader itself says which libraries it misses; the engine does not run.
  const std::string command = fmt::format("LD_TRACE_LOADED_OBJECTS=1 {} 2>&1", ShellQuote(engine));
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return Status::Ok();
  std::string text;
  char block[4096];
  for (size_t n = 0; (n = fread(block, 1, sizeof block, pipe)) > 0;) text.append(block, n);
  pclose(pipe);
  std::vector<std::string> missing;
  for (const std::string& line : Split(text, '\n')) {
    const size_t mark = line.find("=> not found");
    if (mark != std::string::npos) missing.emplace_back(Trim(std::string_view(line).substr(0, mark)));
  }
  if (missing.empty()) return Status::Ok();
  const bool torch = std::any_of(missing.begin(), missing.end(), [](const std::string& name) {
    return name.find("torch") != std::string::npos || name.find("c10") != std::string::npos;
  });
  return Status(Code::kEnvironment, fmt::format("{} misses {}", engine, Join(missing, ", ")),
                torch ? "set LOCKSTEP_LIBTORCH to the lib folder of a torch package (python -c 'import torch; "
                        "print(torch.__path__[0] + \"/lib\")')"
                      : "install the packages these libraries belong to");
}

int Fail(const char* command, const Status& status) {
  fmt::print(stderr, "lockstep {}: {}\n", command, status.ToString());
  return ExitCode(status);
}

bool Says(const std::vector<std::string>& words, const std::string& flag) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
}

struct TrainLine {
  std::string recipe;
  std::vector<std::string> engine, run;  // flags, spelled out
  bool help = false;
};

Status Stray(const std::string& word) {
  const std::string meant = MeantFlag(word, {"--config", "--set"});
  if (!meant.empty()) {
    return Status(Code::kUsage, fmt::format("unexpected argument '{}'", Printable(word)), "write " + meant);
  }
  return Status(Code::kUsage, fmt::format("unexpected argument '{}': a training takes flags only", Printable(word)),
                word.ends_with(".py")
                    ? fmt::format("a program of your own is started by `lockstep run {}`", Printable(word))
                    : "see lockstep train --help");
}

// Only the engine knows the keys of a recipe. Asked when a flag is unknown, and not before.
std::string MeantKey(const std::string& recipe, const std::string& flag, const std::string& value) {
  const Result<std::string> engine = FindEngine();
  if (!engine.ok() || !CheckEngine(*engine).ok()) return "";
  std::vector<std::string> env;
  for (const auto& [name, text] : CurrentEnvironment()) env.push_back(name + "=" + text);
  const auto told = launch::Capture({*engine, "config", recipe, "--json"}, env, std::chrono::seconds(10));
  if (!told.ok() || told->exit.code != 0) return "";
  const auto document = nlohmann::ordered_json::parse(told->out, nullptr, /*allow_exceptions=*/false);
  return document.contains("config") ? KeyFlag(document["config"], flag, value) : "";
}

// Flags and the recipe in any order; nothing else.
Result<TrainLine> ReadTrainLine(std::vector<std::string> words) {
  TrainLine line;
  while (!words.empty()) {
    const std::string recipe = line.recipe.empty() ? words.back() : line.recipe;  // it may come after the flags
    Result<SplitLine> part =
        SplitRunFlags(EngineFlags(), words, "see lockstep train --help",
                      [&](const std::string& flag, const std::string& value) { return MeantKey(recipe, flag, value); });
    if (!part.ok()) return part.status();
    line.help = line.help || part->help;
    if (line.help) return line;
    for (const ScannedFlag& flag : part->own) {
      const FlagSpec& spec = EngineFlags()[flag.index];
      line.engine.push_back(spec.takes_value || !flag.value.empty() ? spec.name + "=" + flag.value : spec.name);
    }
    line.run.insert(line.run.end(), part->run.begin(), part->run.end());
    if (!part->program) break;
    if (!line.recipe.empty()) return Stray(*part->program);
    line.recipe = *part->program;
    words = std::move(part->args);
  }
  const auto resume = std::find_if(line.engine.begin(), line.engine.end(), [](const std::string& flag) {
    return flag.starts_with("--resume=") && flag != "--resume=auto" && flag != "--resume=none";
  });
  if (resume != line.engine.end() && Says(line.engine, "--smoke")) {
    return Status(Code::kUsage,
                  fmt::format("--resume {}: --smoke tests a small version that begins anew",
                              Printable(resume->substr(std::strlen("--resume=")))),
                  "drop one of the two");
  }
  if (line.recipe.empty()) {
    return Status(Code::kUsage, "expected the name of a recipe, found only flags", "lockstep train RECIPE [options]");
  }
  if (const std::string meant = MeantFlag(line.recipe, {"--config", "--set"}); !meant.empty()) {
    return Status(Code::kUsage, fmt::format("expected the name of a recipe, found '{}'", Printable(line.recipe)),
                  fmt::format("lockstep train RECIPE {}", meant));
  }
  return line;
}

}  // namespace

int TrainMain(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", kHelp);
    return kExitUsage;
  }
  if (const std::string first = argv[1]; first == "--licenses" || first == "--version")
    return EngineMain(argc - 1, argv + 1);
  Result<TrainLine> line = ReadTrainLine({argv + 1, argv + argc});
  if (!line.ok()) return Fail("train", line.status());
  if (line->help) {
    fmt::print("{}", kHelp);
    return 0;
  }
  Result<std::string> engine = FindEngine();
  if (!engine.ok()) return Fail("train", engine.status());
  if (Status status = CheckEngine(*engine); !status.ok()) return Fail("train", status);
  hardware::LetWaitingThreadsSleep();  // of the ranks
  std::vector<std::string> run = {"run"};
  run.insert(run.end(), line->run.begin(), line->run.end());
  const Environment env = CurrentEnvironment();
  if (!Says(run, "--nproc-per-node") && !env.contains("PET_NPROC_PER_NODE") && !Says(line->engine, "--smoke")) {
    // Where the platform starts one process per rank, or says how many, it has the word.
    const place::Machine machine = place::ReadMachine(env);
    const place::Placement placement = place::Resolve(env, {}, machine);
    if (machine.gpus > 0 && placement.level == place::Level::kNode && !placement.nproc_explicit) {
      run.insert(run.end(), {"--nproc-per-node", "gpu"});
    }
  }
  run.insert(run.end(), {"--no-python", *engine, "train", line->recipe});
  run.insert(run.end(), line->engine.begin(), line->engine.end());
  std::vector<char*> arguments;
  for (std::string& word : run) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return RunMain(static_cast<int>(run.size()), arguments.data());
}

int EngineMain(int argc, char** argv) {
  const char* command = argv[0];
  Result<std::string> engine = FindEngine();
  if (!engine.ok()) return Fail(command, engine.status());
  if (Status status = CheckEngine(*engine); !status.ok()) return Fail(command, status);
  hardware::LetWaitingThreadsSleep();
  std::vector<char*> arguments = {engine->data()};
  arguments.insert(arguments.end(), argv, argv + argc);
  arguments.push_back(nullptr);
  execv(engine->c_str(), arguments.data());
  return Fail(command, Status(Code::kEnvironment, fmt::format("cannot start {}: {}", *engine, ErrnoText(errno))));
}

}  // namespace lockstep::cli
