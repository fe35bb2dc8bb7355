// `lockstep train` and the commands that the engine answers itself (`config`, `reconstruct`, ...): find the train
// program (`lockstep-train`, or what --program names), then start it, as ranks under `lockstep run` or in our place. It
// needs LibTorch and so is a program of its own, looked up git-style.
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
#include "base/env_file.h"
#include "base/environment.h"
#include "base/exit_codes.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/flag_values.h"
#include "cli/key_flag.h"
#include "cli/run_flags.h"
#include "cli/train_program.h"
#include "hardware/cpu_share.h"
#include "launch/capture.h"
#include "place/machine.h"
#include "place/placement.h"

namespace lockstep::cli {
namespace {

constexpr char kTrainHelp[] =
    "usage: lockstep train RECIPE [options] [any flag of `lockstep run`]\n\n"
    "Trains a recipe with the native engine. Ranks are started as by `lockstep run`: one for each visible GPU, or one "
    "on a\n"
    "machine without, unless --nproc-per-node or the platform says otherwise.\n\n"
    "options:\n"
    "  --config FILE        configuration, YAML or JSON with comments (see `lockstep config RECIPE`)\n"
    "  --opt FILE           an option file of KAIR or S-VRT instead (recipe vrt; see `lockstep config vrt --opt "
    "FILE`)\n"
    "  --deepspeed FILE     DeepSpeed's configuration, over --config (see `lockstep config RECIPE --deepspeed FILE`)\n"
    "  --accelerate FILE    accelerate's configuration, over --config\n"
    "  --set KEY=VALUE      one value of it, wins over the file; may be repeated\n"
    "  --preset N|auto      batch, micro-batch, learning rate and intervals for N GPUs (auto: those it runs on), "
    "derived\n"
    "                       from the configuration by the batch rule: `lockstep config RECIPE --gpus N` shows it\n"
    "  --resume WHAT        auto: the newest good checkpoint of this run (default); none; or the path of a checkpoint\n"
    "  --max-time DURATION  save and stop after this long, exit code 75\n"
    "  --cache POLICY       of the feature cache that the configuration names: auto, read, or require: nothing is "
    "encoded\n"
    "                       live (docs/feature-cache.md)\n"
    "  --profile A..B       trace these steps of every rank, into profile/ of the run directory\n"
    "  --smoke[=STEPS]      test (100 steps) of a small version on the CPU: data, validation, checkpoint, resume\n"
    "  --program PROGRAM    a train program of your own, with recipes of your own, instead of lockstep-train: a path, "
    "or\n"
    "                       a name in PATH; built against an installation (docs/write-a-recipe.md)\n"
    "  --licenses           notices and license texts of the software inside the engine\n"
    "  --version            the engine, its torch and CUDA, the GPUs it sees\n"
    "  --help\n\n"
    "examples:\n"
    "  lockstep train taehv --smoke\n"
    "  lockstep train taehv --nproc-per-node 2 --set recipe.model=taehv-small --set train.steps=200\n"
    "  lockstep train taehv --config taehv.yaml --name night-1 --max-restarts 3\n"
    "  lockstep train taehv --config taehv.yaml --name night-1 --resume auto      continues it\n"
    "  lockstep train vrt --opt options/006.json --nproc-per-node 2\n"
    "  lockstep train lm --deepspeed ds.json --nproc-per-node 2\n"
    "  lockstep train taehv --profile 10..12 --set train.steps=20\n"
    "  lockstep train --program ./my-train spirals --nproc-per-node 2\n\n"
    "`lockstep run --help` lists the flags for nodes, restarts, logs and names.\n";

// Options of the engine, beside those of `run`.
const std::vector<FlagSpec>& EngineFlags() {
  static const std::vector<FlagSpec> flags = {
      {.name = "--config", .takes_value = true, .first_class = true},
      {.name = "--opt", .takes_value = true, .first_class = true},
      {.name = "--deepspeed", .takes_value = true, .first_class = true},
      {.name = "--accelerate", .takes_value = true, .first_class = true},
      {.name = "--set", .takes_value = true, .first_class = true},
      {.name = "--preset", .takes_value = true, .first_class = true},
      {.name = "--resume", .takes_value = true, .first_class = true},
      {.name = "--max-time", .takes_value = true, .first_class = true},
      {.name = "--cache", .takes_value = true, .first_class = true},
      {.name = "--program", .takes_value = true, .first_class = true},
      {.name = "--smoke", .optional_value = true, .first_class = true},
  };
  return flags;
}

// --profile of the launcher as keys of the engine, which traces by itself.
Status AddProfile(const std::vector<std::string>& run, std::vector<std::string>* engine) {
  for (size_t i = 0; i < run.size(); ++i) {
    std::string steps;
    if (run[i].starts_with("--profile=")) steps = run[i].substr(std::strlen("--profile="));
    if (run[i] == "--profile" && i + 1 < run.size()) steps = run[i + 1];
    const Result<std::pair<int, int>> range = ParseSteps(steps);
    if (steps.empty()) continue;
    if (!range.ok()) return range.status().Context("--profile");
    engine->push_back(fmt::format("--set=track.profile.start={}", range->first - 1));
    engine->push_back(fmt::format("--set=track.profile.steps={}", range->second - range->first + 1));
  }
  return Status::Ok();
}

int FailTrain(const char* command, const Status& status) {
  fmt::print(stderr, "lockstep {}: {}\n", command, status.ToString());
  return ExitCode(status);
}

bool HasFlag(const std::vector<std::string>& words, const std::string& flag) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
}

constexpr char kCacheBuildHelp[] =
    "usage: lockstep cache build [RECIPE] [options] [any flag of `lockstep run`]\n\n"
    "Encodes data with a frozen encoder into a feature cache. With a recipe: its training and validation samples with "
    "its\n"
    "frozen encoder. Without: the configuration names an encoder (TorchScript file or program), data and the cache\n"
    "(docs/feature-cache.md). Any number of ranks, also of several jobs, share the work; what is published stays, so "
    "a\n"
    "build that was killed is started again and goes on.\n\n"
    "options:\n"
    "  --config FILE        configuration of the training that shall use the cache, or of the encoder\n"
    "  --set KEY=VALUE      one value of it; may be repeated\n"
    "  --program PROGRAM    a train program of your own instead of lockstep-train\n"
    "  --help\n\n"
    "examples:\n"
    "  lockstep cache build taehv --config cached.yaml\n"
    "  lockstep cache build taehv --config cached.yaml --nproc-per-node 2\n"
    "  lockstep cache build --config vggt.yaml --set data.path=/data/clips\n\n"
    "`lockstep run --help` lists the flags for nodes, restarts, logs and names.\n";

struct TrainLine {
  std::string recipe, program;
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
std::string MeantKey(const std::string& program, const std::string& recipe, const std::string& flag,
                     const std::string& value) {
  const Result<std::string> engine = FindTrainProgram(program);
  if (!engine.ok()) return "";
  const auto told =
      launch::Capture({*engine, "config", recipe, "--json"}, ToStrings(CurrentEnvironment()), std::chrono::seconds(10));
  if (!told.ok() || told->exit.code != 0) return "";
  const auto document = nlohmann::ordered_json::parse(told->out, nullptr, /*allow_exceptions=*/false);
  return document.contains("config") ? KeyFlag(document["config"], flag, value) : "";
}

// Flags and the recipe in any order; nothing else. `without_recipe`: a configuration alone will do.
Result<TrainLine> ReadTrainLine(const char* name, std::vector<std::string> words, bool without_recipe) {
  TrainLine line;
  const auto program = [&] {  // for a mistake in the other flags
    std::vector<std::string> copy = words;
    const Result<std::string> named = TakeProgramFlag(&copy);
    return line.program.empty() && named.ok() ? *named : line.program;
  };
  while (!words.empty()) {
    const std::string recipe = line.recipe.empty() ? words.back() : line.recipe;  // it may come after the flags
    Result<SplitLine> part = SplitRunFlags(
        EngineFlags(), words, "see lockstep train --help",
        [&](const std::string& flag, const std::string& value) { return MeantKey(program(), recipe, flag, value); });
    if (!part.ok()) return part.status();
    line.help = line.help || part->help;
    if (line.help) return line;
    for (const ScannedFlag& flag : part->own) {
      const FlagSpec& spec = EngineFlags()[flag.index];
      if (spec.name == "--program") {
        if (flag.value.empty()) return Status(Code::kUsage, "--program: expected a value", "--program PATH");
        line.program = flag.value;
        continue;
      }
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
  if (resume != line.engine.end() && HasFlag(line.engine, "--smoke")) {
    return Status(Code::kUsage,
                  fmt::format("--resume {}: --smoke tests a small version that begins anew",
                              Printable(resume->substr(std::strlen("--resume=")))),
                  "drop one of the two");
  }
  const bool configured = HasFlag(line.engine, "--config") || HasFlag(line.engine, "--set");
  if (line.recipe.empty() && without_recipe && configured) return line;
  if (line.recipe.empty()) {
    return Status(Code::kUsage, "expected the name of a recipe, found only flags",
                  fmt::format("lockstep {} RECIPE [options]", name));
  }
  if (const std::string meant = MeantFlag(line.recipe, {"--config", "--set"}); !meant.empty()) {
    return Status(Code::kUsage, fmt::format("expected the name of a recipe, found '{}'", Printable(line.recipe)),
                  fmt::format("lockstep {} RECIPE {}", name, meant));
  }
  return line;
}

// The train program answers in our place.
int Answer(const char* command, std::vector<std::string> words) {
  const Result<std::string> named = TakeProgramFlag(&words);
  if (!named.ok()) return FailTrain(command, named.status());
  Result<std::string> engine = FindTrainProgram(*named);
  if (!engine.ok()) return FailTrain(command, engine.status());
  hardware::LetWaitingThreadsSleep();
  std::vector<char*> arguments = {engine->data()};
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(engine->c_str(), arguments.data());
  return FailTrain(command, Status(Code::kEnvironment, fmt::format("cannot start {}: {}", *engine, ErrnoText(errno))));
}

// Starts `command` of the train program as ranks.
int StartRanks(const char* name, const char* command, const char* help, const std::vector<std::string>& words,
               bool without_recipe = false) {
  Result<TrainLine> line = ReadTrainLine(name, words, without_recipe);
  if (!line.ok()) return FailTrain(name, line.status());
  if (line->help) {
    fmt::print("{}", help);
    return 0;
  }
  Result<std::string> engine = FindTrainProgram(line->program);
  if (!engine.ok()) return FailTrain(name, engine.status());
  hardware::LetWaitingThreadsSleep();  // of the ranks
  std::vector<std::string> run = {"run"};
  run.insert(run.end(), line->run.begin(), line->run.end());
  const Environment env = CurrentEnvironment();
  if (!HasFlag(run, "--nproc-per-node") && !env.contains("PET_NPROC_PER_NODE") && !HasFlag(line->engine, "--smoke")) {
    // Where the platform starts one process per rank, or says how many, it has the word.
    const place::Machine machine = place::ReadMachine(env);
    const place::Placement placement = place::Resolve(env, {}, machine);
    if (machine.gpus > 0 && placement.level == place::Level::kNode && !placement.nproc_explicit) {
      run.insert(run.end(), {"--nproc-per-node", "gpu"});
    }
  }
  run.insert(run.end(), {"--train-program", "--no-python", *engine, command});
  if (!line->recipe.empty()) run.push_back(line->recipe);
  if (std::strcmp(command, "train") == 0) {
    if (const Status added = AddProfile(line->run, &line->engine); !added.ok()) return FailTrain(name, added);
  }
  run.insert(run.end(), line->engine.begin(), line->engine.end());
  std::vector<char*> arguments;
  for (std::string& word : run) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return RunMain(static_cast<int>(run.size()), arguments.data());
}

}  // namespace

int TrainMain(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", kTrainHelp);
    return kExitUsage;
  }
  std::vector<std::string> words(argv + 1, argv + argc);
  if (TakeProgramFlag(&words).ok() && !words.empty() && (words[0] == "--licenses" || words[0] == "--version")) {
    return Answer("train", {argv + 1, argv + argc});
  }
  return StartRanks("train", "train", kTrainHelp, {argv + 1, argv + argc});
}

int CacheBuildMain(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", kCacheBuildHelp);
    return kExitUsage;
  }
  return StartRanks("cache build", "cache-build", kCacheBuildHelp, {argv + 1, argv + argc},
                    /*without_recipe=*/true);
}

int EngineMain(int argc, char** argv) { return Answer(argv[0], {argv, argv + argc}); }

}  // namespace lockstep::cli
