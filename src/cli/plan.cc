// `lockstep plan`: parse, plan, print.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/digits.h"
#include "base/env_file.h"
#include "base/environment.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/plan_flags.h"
#include "cli/train_program.h"
#include "hardware/cpu_share.h"
#include "hardware/hardware.h"
#include "launch/capture.h"
#include "plan/scale.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

// What the train program prints as one JSON line.
Result<json> Ask(const PlanFlags& flags, std::vector<std::string> words, std::chrono::seconds limit) {
  const Result<std::string> engine = FindTrainProgram(flags.program);
  if (!engine.ok()) return engine.status();
  hardware::LetWaitingThreadsSleep();
  words.insert(words.begin(), *engine);
  const auto told = launch::Capture(words, ToStrings(CurrentEnvironment()), limit);
  if (!told.ok()) return told.status();
  if (told->exit.code != 0) {
    // It has said why, in the form of this command.
    std::string text(Trim(told->err));
    const std::string prefix = "lockstep plan: ";
    if (text.starts_with(prefix)) text = text.substr(prefix.size());
    return Status(told->exit.code == kExitUsage ? Code::kUsage : Code::kEnvironment,
                  text.empty() ? "the train program ended without an answer" : text);
  }
  return ParseJson(Trim(told->out), "the train program");
}

struct Clip {
  int frames = 0, height = 0, width = 0;
};

Result<Clip> ParseClip(const std::string& text) {
  const std::vector<std::string> parts = Split(text, 'x');
  std::vector<int> numbers;
  for (const std::string& part : parts) numbers.push_back(ParseDigits(part).value_or(0));
  if (numbers.size() != 3 || *std::min_element(numbers.begin(), numbers.end()) < 1) {
    return Status(Code::kUsage, fmt::format("--clip {}: expected frames, height and width", Printable(text)),
                  "write 12x480x480");
  }
  return Clip{numbers[0], numbers[1], numbers[2]};
}

// Flags that stand for keys of the recipe.
Result<std::vector<std::string>> KeysOf(const PlanFlags& f) {
  std::vector<std::string> keys = f.overrides;
  const auto set = [&](const char* key, int value) {
    if (value > 0) keys.push_back(fmt::format("{}={}", key, value));
  };
  set("train.batch", f.batch);
  set("train.micro_batch", f.micro_batch);
  set("data.length", f.sequence);
  if (!f.clip.empty()) {
    const Result<Clip> clip = ParseClip(f.clip);
    if (!clip.ok()) return clip.status();
    set("data.frames", clip->frames);
    set("data.height", clip->height);
    set("data.width", clip->width);
  }
  return keys;
}

Status OfRecipe(const PlanFlags& f, plan::Plan* out) {
  const Result<std::vector<std::string>> keys = KeysOf(f);
  if (!keys.ok()) return keys.status();
  std::vector<std::string> words = {"plan-model", f.recipe};
  for (const auto& [flag, value] : {std::pair("--config", &f.config),
                                    {"--opt", &f.options},
                                    {"--deepspeed", &f.deepspeed},
                                    {"--accelerate", &f.accelerate}}) {
    if (!value->empty()) words.push_back(fmt::format("{}={}", flag, *value));
  }
  for (const std::string& key : *keys) words.push_back("--set=" + key);
  if (f.cpu) words.emplace_back("--cpu");
  words.push_back(fmt::format("--ranks={}", out->base.ranks));
  const Result<json> said = Ask(f, words, std::chrono::seconds(120));
  if (!said.ok()) return said.status();
  Result<plan::Workload> workload = plan::WorkloadFromJson((*said)["workload"]);
  if (!workload.ok()) return workload.status();
  const Result<plan::Setting> setting = plan::SettingFromJson((*said)["setting"]);
  if (!setting.ok()) return setting.status();
  out->workload = std::move(*workload);
  const plan::Setting here = std::exchange(out->base, *setting);
  out->base.ranks = here.ranks;
  out->base.gpu = here.gpu;
  out->base.compute_capability = here.compute_capability;
  return Status::Ok();
}

Status OfParameters(const PlanFlags& f, plan::Plan* out) {
  const Result<int64_t> count = ParseParameterCount(f.parameters);
  if (!count.ok()) return count.status();
  if (!f.clip.empty()) {
    return Status(Code::kUsage, "--clip: --parameters plans a decoder, whose samples are sequences",
                  "use --sequence N");
  }
  const plan::LmSample sample =
      plan::LmOfSize(*count, f.vocabulary > 0 ? f.vocabulary : 32000, f.sequence > 0 ? f.sequence : 2048);
  out->workload = plan::LmWorkload(fmt::format("a decoder of {} layers of {}", sample.layers, sample.width), sample);
  out->base.batch = static_cast<uint64_t>(f.batch > 0 ? f.batch : 32);
  out->base.micro_batch = static_cast<uint64_t>(f.micro_batch);
  if (f.type == "bf16") out->base.parameter_bytes = 2;
  if (f.cpu) out->base.compute_bytes = out->base.parameter_bytes;
  return Status::Ok();
}

// Speeds of the GPU in this machine, or of its cores.
Status Measure(const PlanFlags& f, plan::Machine* machine) {
  std::vector<std::string> words = {"plan-measure"};
  if (f.cpu) words.emplace_back("--cpu");
  const Result<json> said = Ask(f, words, std::chrono::seconds(60));
  if (!said.ok()) return said.status();
  plan::Gpu& gpu = machine->gpu;
  // What a training reaches of what a plain product or copy does, as on an H200 (docs/plan.md).
  constexpr double kMatmul = 0.92, kPasses = 0.71;
  const plan::Gpu& like = plan::Gpus().front();
  gpu.matmul = kMatmul * GetNumber(*said, "matmul_flops");
  gpu.attention64 = gpu.matmul * like.attention64 / like.matmul;
  gpu.attention128 = gpu.matmul * like.attention128 / like.matmul;
  gpu.convolution = gpu.matmul * like.convolution / like.matmul;
  gpu.bandwidth = kPasses * GetNumber(*said, "copy_bandwidth");
  if (GetNumber(*said, "host_link") > 0) gpu.host_link = GetNumber(*said, "host_link");
  if (GetNumber(*said, "host_bandwidth") > 0) machine->host_bandwidth = GetNumber(*said, "host_bandwidth");
  gpu.source = fmt::format("measured here: products {:.3g} TFLOP/s, copies {:.0f} GB/s",
                           GetNumber(*said, "matmul_flops") / 1e12, GetNumber(*said, "copy_bandwidth") / 1e9);
  return Status::Ok();
}

Status FindMachine(const PlanFlags& f, plan::Plan* out) {
  plan::Machine& machine = out->machine;
  const hardware::Hardware here = hardware::ScanHardware({.env = CurrentEnvironment()});
  const bool has_gpu = !f.cpu && here.gpus_visible > 0 && !here.gpus.empty();
  out->base.gpu = !f.cpu;
  machine.gpu = plan::Gpus().front();
  if (!f.gpu.empty()) {
    const Result<plan::Gpu> preset = plan::FindGpu(f.gpu);
    if (!preset.ok()) return preset.status();
    machine.gpu = *preset;
  } else if (has_gpu) {
    const plan::Gpu* known = plan::GpuNamed(here.gpus[0].name);
    if (known != nullptr) machine.gpu = *known;
    if (known == nullptr)
      out->notes.push_back(here.gpus[0].name + ": its speeds are not known; those of " + machine.gpu.name +
                           " stand for them (--measure takes them)");
    machine.gpu.memory =
        static_cast<int64_t>(here.gpus[0].memory_total.value_or(static_cast<uint64_t>(machine.gpu.memory)));
  } else if (!f.cpu) {
    out->notes.push_back("no GPU here and no --gpu: " + machine.gpu.name);
  }
  if (f.cpu) {
    // Of one core in float32, by the order of magnitude; --measure or --flops say it better.
    machine.gpu = {.name = "cpu",
                   .memory = 0,
                   .matmul = 5e10,
                   .attention64 = 2e10,
                   .attention128 = 3e10,
                   .convolution = 3e10,
                   .bandwidth = 5e9,
                   .host_link = 5e9,
                   .launch = 5e-6,
                   .source = "a guess for one core; --measure takes them"};
  }
  if (!f.memory.empty()) machine.gpu.memory = static_cast<int64_t>(*ParseSize(f.memory));
  // Of another machine's host nothing is known.
  const uint64_t known = f.cpu || (has_gpu && f.gpu.empty()) ? here.memory_total.value_or(0) : 0;
  machine.host_memory = static_cast<int64_t>(f.host_memory.empty() ? known : *ParseSize(f.host_memory));
  const Result<plan::Links> links = plan::FindCluster(!f.links.empty()             ? f.links
                                                      : f.cpu                      ? "cpu"
                                                      : machine.gpu.name == "h100" ? "h100-ib400"
                                                                                   : "h200-ib400");
  if (!links.ok()) return links.status();
  machine.links = *links;
  machine.ring_only = f.ring;
  machine.tree_only = f.tree;
  const int gpus = f.gpus > 0 ? f.gpus : has_gpu ? here.gpus_visible : f.cpu ? 1 : 8;
  out->base.ranks = gpus;
  if (f.nodes > gpus) {
    return Status(Code::kUsage, fmt::format("--nodes {} and --gpus {}: a node has at least one", f.nodes, gpus),
                  "--gpus counts those of the whole job");
  }
  if (f.nodes > 0 && gpus % f.nodes != 0) {
    return Status(Code::kUsage, fmt::format("--nodes {} and --gpus {}: expected as many on every node", f.nodes, gpus),
                  fmt::format("--gpus {}, which counts those of the whole job", (gpus / f.nodes + 1) * f.nodes));
  }
  if (f.nodes > 0) machine.links.gpus_per_node = gpus / f.nodes;
  out->base.compute_capability = machine.gpu.compute_capability;
  if (f.measure) LOCKSTEP_RETURN_IF_ERROR(Measure(f, &machine));
  if (f.flops > 0) {
    const double times = f.flops * 1e12 / machine.gpu.matmul;
    for (double* rate :
         {&machine.gpu.matmul, &machine.gpu.attention64, &machine.gpu.attention128, &machine.gpu.convolution}) {
      *rate *= times;
    }
    machine.gpu.source = "--flops, the others in proportion";
  }
  if (f.bandwidth > 0) machine.gpu.bandwidth = f.bandwidth * 1e9;
  if (f.inside > 0) machine.links.inside = f.inside * 1e9;
  if (f.between > 0) machine.links.between = f.between * 1e9;
  return Status::Ok();
}

Status CheckBatch(const plan::Setting& s) {
  if (s.batch >= static_cast<uint64_t>(s.ranks)) return Status::Ok();
  return Status(Code::kUsage,
                fmt::format("a batch of {} for {}: a rank would have no sample", s.batch, Count(s.ranks, "rank")),
                fmt::format("--batch {} or more, or fewer --gpus", s.ranks));
}

}  // namespace

Result<plan::Plan> MakePlan(const PlanFlags& f) {
  plan::Plan out;
  out.reliability = f.reliability;
  Result<std::vector<int>> points = std::vector<int>();
  if (!f.scale.empty()) points = plan::ParseScale(f.scale);
  if (!points.ok()) return points.status();
  LOCKSTEP_RETURN_IF_ERROR(FindMachine(f, &out));
  // The batch is what the first of the scaled sizes has.
  if (!points->empty() && f.gpus == 0) out.base.ranks = points->front();
  LOCKSTEP_RETURN_IF_ERROR(f.recipe.empty() ? OfParameters(f, &out) : OfRecipe(f, &out));
  LOCKSTEP_RETURN_IF_ERROR(CheckBatch(out.base));
  out.notes.insert(out.notes.end(), out.workload.notes.begin(), out.workload.notes.end());
  if (f.cpu) out.notes.emplace_back("on a CPU activations are an estimate: its operators choose their own temporaries");
  out.lines = plan::LinesOf(out.workload, out.base, out.machine);
  out.advice = plan::Recommend(out.lines, out.machine);
  out.configured = plan::LineOf(out.workload, out.base, out.machine);
  plan::Setting chosen = out.advice.best ? out.lines[*out.advice.best].setting : out.base;
  out.gains = plan::GainsOf(out.workload, chosen, out.machine, f.around);
  if (points->empty()) return out;
  if (f.stage >= 0) chosen.stage = f.stage;
  if (f.stage < 0 && chosen.ranks == 1) chosen.stage = out.base.stage;
  const auto scaling = f.scaling == "strong" ? plan::Scaling::kStrong : plan::Scaling::kWeak;
  if (scaling == plan::Scaling::kStrong && chosen.batch < static_cast<uint64_t>(points->back())) {
    return Status(Code::kUsage,
                  fmt::format("--scaling strong: a batch of {} on {} GPUs leaves ranks without a sample", chosen.batch,
                              points->back()),
                  fmt::format("--batch {} or more, or --scaling weak", points->back()));
  }
  out.scale = plan::ScaleOf(out.workload, chosen, out.machine, *points, scaling, f.reliability);
  return out;
}

int PlanMain(int argc, char** argv) {
  PlanFlags flags;
  if (const auto code = ReadPlanFlags(argc, argv, &flags)) return *code;
  const auto fail = [](const Status& status) {
    fmt::print(stderr, "lockstep plan: {}\n", status.ToString());
    return ExitCode(status);
  };
  if (!flags.picture.empty() && !flags.picture.ends_with(".svg") && !flags.picture.starts_with("/dev/")) {
    return fail(Status(Code::kUsage, fmt::format("--picture {}: expected a name that ends in .svg", flags.picture),
                       "the picture is an SVG file, which browsers show"));
  }
  const Result<plan::Plan> plan = MakePlan(flags);
  if (!plan.ok()) return fail(plan.status());
  if (!flags.picture.empty()) {
    if (const Status written = WriteFileAtomic(flags.picture, plan::Picture(*plan)); !written.ok()) {
      return fail(written.Context("--picture"));
    }
  }
  fmt::print("{}", flags.json ? plan::ToJson(*plan).dump(2) + "\n" : plan::ToText(*plan));
  return kExitOk;
}

}  // namespace lockstep::cli
