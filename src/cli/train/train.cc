// `lockstep-train train RECIPE`: one rank of a training. Who it is comes from the environment its launcher made.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/digits.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/train/commands.h"
#include "cli/train/own_run.h"
#include "cli/train/place.h"
#include "cli/train/rank_error.h"
#include "cli/train/settings.h"
#include "cli/train/unused_gpus.h"
#include "comm/torch/tensor_comm.h"
#include "engine/ranks.h"
#include "engine/stop.h"
#include "engine/trainer.h"
#include "hardware/cpu_share.h"
#include "record/run_dir.h"

namespace lockstep::cli {
namespace {

// By RunEnd.
constexpr const char* kHow[] = {"finished", "ended early: no further improvement", "stopped with its state saved"};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What a launcher counts; 0 where it does not.
int LauncherCount(const char* name) { return ParseDigits(Variable(name)).value_or(0); }

struct TrainFlags {
  std::string recipe, resume = "auto", name, max_time, preset;
  ConfigFiles files;
  std::vector<std::string> overrides, command;
  std::optional<uint64_t> smoke;

  PresetRequest PresetFor(const comm::Bootstrap& who) const {
    if (preset.empty()) return {};
    return {.gpus = preset == "auto" ? who.size : ParseDigits(preset).value_or(0),
            .gpus_per_node = who.local_size,
            .cores = static_cast<int>(std::thread::hardware_concurrency())};
  }
};

int Fail(const Status& status, bool say, bool refused) { return FailRank("train", status, say, refused); }
int Refuse(const Status& status, bool say) { return Fail(status, say, /*refused=*/true); }

// The ranks meet before anything that can fail on some of them only (a missing file, no GPU), and leave together.
// `threads`: what is this rank's part of the CPUs.
Status MeetOver(const Status& mine, const comm::Bootstrap& who, int* threads) {
  std::vector<hardware::CpuRights> rights = {hardware::ReadCpuRights()};
  if (who.size > 1) {
    comm::Options options;
    options.group = "start";
    auto all = comm::Communicator::Connect(who, options);
    if (!all.ok()) return mine.ok() ? all.status() : mine;
    LOCKSTEP_RETURN_IF_ERROR(engine::AgreeOver(**all, mine));
    const auto texts = (*all)->Gather(hardware::ToText(rights.front()));
    if (!texts.ok()) return texts.status();
    rights.clear();
    for (const std::string& text : *texts) {
      Result<hardware::CpuRights> one = hardware::CpuRightsFromText(text);
      if (!one.ok()) return one.status();
      rights.push_back(std::move(*one));
    }
  }
  *threads = hardware::FairThreads(rights, static_cast<size_t>(who.rank));
  return mine;
}

// The launcher's run directory, or one of our own when none launched us.
// What this rank writes to, and which attempt it is.
struct RunPlace {
  std::string run_dir, metrics_path;
  int attempt = 0;
  bool restarted = false;
  std::unique_ptr<OwnRun> own;  // rank 0, without a launcher
};

Status FindPlace(const TrainFlags& asked, const comm::Bootstrap& who, engine::Ranks& ranks, RunPlace* place) {
  place->run_dir = Variable("LOCKSTEP_RUN_DIR");
  place->metrics_path = Variable("LOCKSTEP_METRICS");
  place->attempt = LauncherCount("LOCKSTEP_ATTEMPT");
  place->restarted = LauncherCount("LOCKSTEP_RESTART_COUNT") > 0;
  if (!place->run_dir.empty()) return Status::Ok();
  // torchrun counts restarts too.
  place->restarted = LauncherCount("TORCHELASTIC_RESTART_COUNT") > 0;
  Status made;
  std::string told;
  if (ranks.is_main()) {
    const std::string name = asked.name.empty() ? record::DefaultName(asked.recipe) : asked.name;
    Result<std::unique_ptr<OwnRun>> run = OwnRun::Start(name, asked.command, ranks.size());
    made = run.status();
    if (run.ok()) {
      place->own = std::move(*run);
      place->attempt = place->own->attempt();
      told = fmt::format("{}\n{}", place->attempt, place->own->path());
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks.Agree(made));
  Result<std::vector<std::string>> all = ranks.host().Gather(told);
  if (!all.ok()) return all.status();
  const size_t line = all->front().find('\n');
  place->attempt = LeadingDigits(all->front()).value_or(0);
  place->run_dir = all->front().substr(line + 1);
  place->metrics_path = fmt::format("{}/metrics/rank-{}.jsonl", place->run_dir, who.rank);
  return Status::Ok();
}

Result<engine::RunEnd> TrainOnce(const Settings& settings, engine::Ranks& ranks, at::Device device,
                                 const engine::TrainerOptions& options, bool* begun, double* loss) {
  engine::Trainer trainer(settings.config, settings.recipe.get(), &ranks, device, options);
  LOCKSTEP_RETURN_IF_ERROR(trainer.Setup());
  *begun = true;
  // Not before: what is refused must not describe the checkpoints of an earlier launch.
  if (ranks.is_main()) {
    const Status written = WriteFileAtomic(options.run_dir + "/train.yaml", trainer.effective_config());
    if (!written.ok()) LogWarn("{}", written.message());
  }
  Result<engine::RunEnd> end = trainer.Run();
  if (trainer.last_loss()) *loss = *trainer.last_loss();
  return end;
}

// What a later phase needs, before the first one has run for days.
Status CheckPhase(const Settings& phase, engine::Ranks& ranks) {
  Status ready = engine::PlanBatch(phase.config.train, ranks.size()).status();
  if (ready.ok() && ranks.is_main()) {
    Result<std::string> index = phase.recipe->IndexData();
    ready = index.status();
    if (ready.ok() && !index->empty()) phase.recipe->UseIndex(std::make_shared<const std::string>(std::move(*index)));
    if (ready.ok()) ready = phase.recipe->Open(phase.config).status();
  }
  return ranks.Agree(ready.Context(fmt::format("phase {}", phase.phase.index + 1)));
}

// One phase after the other. Which one a run is in follows from the steps of its checkpoint.
Result<engine::RunEnd> TrainAll(const Settings& settings, engine::Ranks& ranks, at::Device device,
                                engine::TrainerOptions options, bool* begun, double* loss) {
  if (settings.phases.empty()) return TrainOnce(settings, ranks, device, options, begun, loss);
  for (const Settings& phase : settings.phases) LOCKSTEP_RETURN_IF_ERROR(CheckPhase(phase, ranks));
  if (settings.config.run.max_time) options.deadline = Now() + *settings.config.run.max_time;
  const Result<engine::StartPoint> start = engine::Trainer::FindStart(options, &ranks);
  if (!start.ok()) return start.status();
  uint64_t done = start->step;
  for (const Settings& phase : settings.phases) {
    const uint64_t end = phase.config.train.steps;
    if (done >= end && &phase != &settings.phases.back()) continue;
    options.phase = phase.phase;
    options.phase.takes_over = phase.phase.index > 0 && done == phase.phase.begin;
    options.steps_before = done - start->step;
    Result<engine::RunEnd> outcome = TrainOnce(phase, ranks, device, options, begun, loss);
    if (!outcome.ok() || *outcome != engine::RunEnd::kFinished || &phase == &settings.phases.back()) return outcome;
    done = end;
    options.resume = "auto";  // what it has just saved
  }
  return engine::RunEnd::kFinished;
}

void SayWhere(const RunPlace& place, engine::RunEnd end) {
  fmt::print("{}: {}\n", kHow[static_cast<int>(end)], place.run_dir);
  std::error_code ignored;
  for (const char* part : {"checkpoints", "tensorboard", "loss.png", "pictures"}) {
    const std::string path = place.run_dir + "/" + part;
    if (std::filesystem::exists(path, ignored)) fmt::print("  {}\n", path);
  }
}

// What follows from an option file. The rest is a long list, which `lockstep config` prints.
void SayTranslated(const char* label, const foreign::Translation& made) {
  const std::string command = made.command.substr(0, made.command.rfind(' '));
  fmt::print("{:<11} {} of {} honoured, {} mapped, {} ignored: `{} {}` lists them\n", label, made.honoured.size(),
             made.file, made.mapped.size(), made.ignored.size(), command, made.file);
  for (const foreign::Note& note : made.mapped) {
    if (note.value == "auto") fmt::print("{:<11} {}: {}\n", label, note.key, note.reason);
  }
  for (const foreign::Derived& one : made.derived) {
    fmt::print("{:<11} {} = {}: {}\n", label, one.name, one.value, one.reason);
  }
  std::fflush(stdout);
}

// A dry run beside a training of the same name must not touch it: it has a folder of its own, empty at first.
Status MoveToSmoke(engine::Ranks& ranks, int rank, RunPlace* place) {
  place->run_dir += "/smoke";
  place->metrics_path = fmt::format("{}/metrics/rank-{}.jsonl", place->run_dir, rank);
  Status made;
  if (ranks.is_main()) made = RemoveAll(place->run_dir);
  LOCKSTEP_RETURN_IF_ERROR(ranks.Agree(made));
  return ranks.Agree(MakeDirs(place->run_dir + "/metrics"));
}

// Half the steps, a checkpoint, and the rest from it, as a restarted run would.
Result<engine::RunEnd> Smoke(const recipes::Registry& recipes, const Settings& settings, const TrainFlags& asked,
                             const comm::Bootstrap& who, engine::Ranks& ranks, at::Device device,
                             engine::TrainerOptions options, bool* begun, double* loss) {
  options.resume = "none";
  options.stop_at = *asked.smoke / 2;
  Result<engine::RunEnd> half = TrainAll(settings, ranks, device, options, begun, loss);
  if (!half.ok()) return half;
  auto again =
      ReadSettings(recipes, asked.recipe, asked.files, asked.overrides, true, *asked.smoke, asked.PresetFor(who));
  if (!again.ok()) return again.status();
  options.resume = "auto";
  options.stop_at.reset();
  return TrainAll(*again, ranks, device, options, begun, loss);
}

// --smoke asks a question, and this is its answer.
Status Verdict(const TrainFlags& asked, const Status& status) {
  return asked.smoke ? status.Context("not ready") : status;
}

int Train(const Program& program, TrainFlags asked) {
  // From here on a request to stop is remembered and answered after a step, or by the exit code of what failed.
  engine::StopRequests::Listen();
  Result<comm::Bootstrap> who = FindIdentity();
  if (!who.ok()) return Refuse(who.status(), true);
  const bool first = who->rank == 0;
  asked.files.ranks = who->size;
  Result<Settings> settings = ReadSettings(program.recipes, asked.recipe, asked.files, asked.overrides,
                                           asked.smoke.has_value(), asked.smoke.value_or(0), asked.PresetFor(*who));
  Result<at::Device> device = at::Device(at::kCPU);
  if (settings.ok()) {
    device = engine::ChooseDevice(settings->config.train.device, who->local_rank, who->local_size,
                                  settings->config.comm.backend);
  }
  if (first && settings.ok() && device.ok() && device->is_cpu() && settings->config.train.device == "auto") {
    if (const std::string note = UnusedGpus(); !note.empty()) fmt::print("{}\n", note);
  }
  int threads = 1;
  const Status ready = MeetOver(settings.ok() ? device.status() : settings.status(), *who, &threads);
  if (!ready.ok()) return Refuse(Verdict(asked, ready), first);
  engine::PrepareTorch(settings->config, Variable("OMP_NUM_THREADS").empty() ? threads : 0);
  comm::Options options;
  options.timeout = settings->config.comm.timeout;
  auto connected = comm::TensorCommunicator::Create(*who, options, settings->config.comm.backend, *device);
  if (!connected.ok()) return Refuse(connected.status(), true);
  engine::Ranks ranks(*connected);
  RunPlace place;
  if (Status found = FindPlace(asked, *who, ranks, &place); !found.ok())
    return Refuse(found, first || !ranks.agreed_to_fail());
  if (asked.smoke) {
    if (Status moved = MoveToSmoke(ranks, who->rank, &place); !moved.ok())
      return Refuse(moved, first || !ranks.agreed_to_fail());
  }
  if (first) {
    for (const std::string& note : settings->renamed) fmt::print("note        {}\n", note);
  }
  if (first && settings->options) SayTranslated("options", *settings->options);
  if (first && settings->deepspeed) {
    SayTranslated(asked.files.accelerate.empty() ? "deepspeed" : "accelerate", *settings->deepspeed);
  }
  if (first && settings->preset) {
    fmt::print("{}", settings->preset->Table("preset      ",
                                             asked.files.config.empty() ? "the defaults" : asked.files.config));
  }
  engine::TrainerOptions trainer;
  trainer.run_dir = place.run_dir;
  trainer.metrics_path = place.metrics_path;
  trainer.resume = asked.resume;
  trainer.attempt = place.attempt;
  trainer.restarted = place.restarted;
  trainer.effective_config = settings->effective;
  double loss = 0;
  bool begun = false;
  Result<engine::RunEnd> end =
      asked.smoke ? Smoke(program.recipes, *settings, asked, *who, ranks, *device, trainer, &begun, &loss)
                  : TrainAll(*settings, ranks, *device, trainer, &begun, &loss);
  if (!end.ok()) {
    const int code = Fail(Verdict(asked, end.status()), first || !ranks.agreed_to_fail(), /*refused=*/!begun);
    if (!begun && asked.smoke && first) (void)RemoveAll(place.run_dir);
    if (place.own && (begun || !place.own->Discard())) {
      place.own->End(code, end.status().message(), end.status().hint());
    }
    return code;
  }
  if (first && asked.smoke) {
    fmt::print(
        "ready: {} steps of a small version on the CPU, with validation, checkpoint and resume; last loss {:.4g}\n",
        *asked.smoke, loss);
  } else if (first) {
    SayWhere(place, *end);
  }
  const int code = *end == engine::RunEnd::kStopped ? kExitResume : 0;
  if (place.own)
    place.own->End(code, kHow[static_cast<int>(*end)], code == 0 ? "" : "start it again with the same name");
  return code;
}

}  // namespace

int TrainMain(const Program& program, int argc, char** argv) {
  Arguments args("One rank of a training.", program.name + " train");
  TrainFlags asked;
  std::string smoke;
  args.Option("RECIPE", &asked.recipe, "name of the recipe").Required();
  args.Option("--config", &asked.files.config, "configuration file, YAML or JSON with comments").Named("FILE");
  args.Option("--opt", &asked.files.options, "option file of KAIR or S-VRT, instead of --config (recipe vrt)")
      .Named("FILE");
  args.Option("--deepspeed", &asked.files.deepspeed, "configuration of DeepSpeed, over --config").Named("FILE");
  args.Option("--accelerate", &asked.files.accelerate, "configuration of accelerate, over --config").Named("FILE");
  args.Option("--set", &asked.overrides, "path.of.key=value, wins over the file; may be repeated")
      .Named("KEY=VALUE")
      .Repeated();
  args.Option("--preset", &asked.preset,
              "auto, or a number of GPUs: batch, micro-batch, learning rate and intervals derived from the "
              "configuration by "
              "the batch rule (`lockstep config RECIPE --gpus N` shows it)")
      .Named("N|auto")
      .Check([](const std::string& text) {
        const int gpus = ParseDigits(text).value_or(0);
        if (text == "auto" || (gpus > 0 && gpus < 1'000'000)) return std::string();
        return fmt::format("expected auto or a number of GPUs, found '{}'", text);
      });
  args.Option("--resume", &asked.resume,
              "auto: from the newest good checkpoint of this run; none; or a checkpoint or run, by path or name")
      .Named("auto|none|RUN|PATH");
  args.Option("--max-time", &asked.max_time, "save and stop after this long, with exit code 75")
      .Named("DURATION")
      .Check([](const std::string& text) {
        const auto duration = ParseDuration(text);
        return duration.ok() ? std::string() : duration.status().message();
      });
  std::string cache;
  args.Option("--cache", &cache, "policy of the feature cache: auto, read, or require (nothing is encoded live)")
      .Named("POLICY")
      .OneOf({"auto", "read", "require"});
  args.Option("--name", &asked.name, "of the run, when no launcher gives one").Named("NAME");
  const Argument smoke_flag =
      args.Option("--smoke", &smoke,
                  "dry run of that many steps (100) on the CPU with tiny data, checkpoint and resume")
          .ValueOptional();
  const Result<bool> parsed = args.Read(argc, argv);
  const bool main = Variable("RANK").empty() || Variable("RANK") == "0";
  if (!parsed.ok()) return Refuse(parsed.status(), main);
  if (!*parsed) {
    fmt::print("{}", args.Help(""));
    return 0;
  }
  if (smoke_flag.given()) {
    const uint64_t steps = smoke.empty() ? 100 : ParseDigits<uint64_t>(smoke).value_or(0);
    if (steps < 4) {
      return Refuse(
          Status(Code::kUsage, fmt::format("--smoke: expected a number of steps, at least 4, found '{}'", smoke)),
          main);
    }
    asked.smoke = steps;
  }
  asked.command.assign(argv, argv + argc);
  if (!cache.empty()) {
    // Mistakes of the configuration itself are reported by Train.
    const Result<Settings> settings =
        ReadSettings(program.recipes, asked.recipe, asked.files, asked.overrides, false, 0);
    if (settings.ok()) {
      const Result<std::vector<std::string>> policies = CachePolicy(*settings, cache);
      if (!policies.ok()) return Refuse(policies.status(), main);
      asked.overrides.insert(asked.overrides.end(), policies->begin(), policies->end());
    }
  }
  if (!asked.max_time.empty()) asked.overrides.push_back("run.max_time=" + asked.max_time);
  const int code = Train(program, asked);
  std::fflush(nullptr);
  return code;
}

}  // namespace lockstep::cli
