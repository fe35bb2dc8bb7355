#include "cli/plan_flags.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/arguments.h"
#include "base/text.h"
#include "base/units.h"

namespace lockstep::cli {
namespace {

std::string WhyNotSize(const std::string& text) {
  const Result<uint64_t> size = ParseSize(text);
  return size.ok() && *size > 0 ? "" : "expected a size, such as 80GiB";
}

std::string WhyNotPositive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && std::isfinite(value) && value > 0 ? "" : "expected a number above 0";
}

std::string WhyNotNegative(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && std::isfinite(value) && value >= 0 ? ""
                                                                                   : "expected a number, 0 or more";
}

}  // namespace

Result<int64_t> ParseParameterCount(const std::string& text) {
  const auto wrong = [&] {
    return Status(Code::kUsage, fmt::format("--parameters {}: expected a number of parameters", Printable(text)),
                  "write 124M, 7B, 7e9 or all digits");
  };
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string_view unit(end);
  double factor = 0;
  for (const auto& [name, times] : {std::pair("", 1.0), {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}}) {
    if (unit == name) factor = times;
  }
  if (end == text.c_str() || factor == 0 || !std::isfinite(value) || value <= 0) return wrong();
  const double count = value * factor;
  if (count < 1e4 || count > 1e14) return wrong();
  return static_cast<int64_t>(std::llround(count));
}

std::optional<int> ReadPlanFlags(int argc, char** argv, PlanFlags* f) {
  Arguments args(
      "Memory of each rank by component and the expected time of a step, for every choice of ZeRO stage, offload and "
      "recomputing: what fits, and which to take. Nothing is trained.",
      "lockstep plan");
  const Argument recipe = args.Option("RECIPE", &f->recipe, "name of a recipe; or --parameters");
  const Argument parameters =
      args.Option("--parameters", &f->parameters, "a decoder of that many parameters instead: 124M, 7B")
          .Named("N")
          .Excludes(recipe);
  args.Option("--config", &f->config, "configuration of the recipe").Named("FILE").Needs(recipe);
  args.Option("--set", &f->overrides, "one value of it; may be repeated").Named("KEY=VALUE").Repeated().Needs(recipe);
  args.Option("--opt", &f->options, "an option file of KAIR or S-VRT (recipe vrt)").Named("FILE").Needs(recipe);
  args.Option("--deepspeed", &f->deepspeed, "a configuration file of DeepSpeed").Named("FILE").Needs(recipe);
  args.Option("--accelerate", &f->accelerate, "a configuration file of accelerate").Named("FILE").Needs(recipe);
  args.Option("--program", &f->program, "a train program of your own instead of lockstep-train").Needs(recipe);
  args.Option("--gpus", &f->gpus, "of the whole job (those of this machine, else 8)").Between(1, 1 << 20);
  args.Option("--nodes", &f->nodes, "they are in (as many as the links' preset puts into one)").Between(1, 1 << 20);
  const Argument cpu = args.Flag("--cpu", &f->cpu, "ranks on CPUs");
  args.Option("--gpu", &f->gpu, "a preset: h200, h100, a100-80, ... (this machine's, else h200)").Excludes(cpu);
  args.Option("--memory", &f->memory, "of one GPU, instead of the preset's")
      .Named("SIZE")
      .Check(WhyNotSize)
      .Excludes(cpu);
  args.Option("--host-memory", &f->host_memory,
              "of one node (this machine's where its own GPUs or CPUs are planned, else not checked)")
      .Named("SIZE")
      .Check(WhyNotSize);
  args.Option("--flops", &f->flops, "TFLOP/s that matrix products reach on one GPU").Check(WhyNotPositive);
  args.Option("--bandwidth", &f->bandwidth, "GB/s that passes over its memory reach").Check(WhyNotPositive);
  args.Option("--links", &f->links, "a preset: h200-ib400, a100-ib200, roce100, ethernet25, ...");
  args.Option("--inside", &f->inside, "GB/s between the GPUs of a node, bus bandwidth").Check(WhyNotPositive);
  args.Option("--between", &f->between, "GB/s of one GPU between nodes: its share of the node's ports")
      .Check(WhyNotPositive);
  args.Flag("--measure", &f->measure, "take speeds of this machine's GPU and memory first, some seconds");
  args.Option("--batch", &f->batch, "samples of a step over all GPUs").Between(1, 1 << 30);
  args.Option("--micro-batch", &f->micro_batch, "samples of a pass of one GPU").Between(1, 1 << 30);
  args.Option("--sequence", &f->sequence, "tokens of a sample").Between(1, 1 << 24);
  args.Option("--clip", &f->clip, "frames and size of a sample, 12x480x480").Named("TxHxW");
  args.Option("--vocabulary", &f->vocabulary, "with --parameters (32000)").Between(2, 1 << 24).Needs(parameters);
  args.Option("--type", &f->type, "with --parameters: fp32 parameters under bf16, or bf16 with a float32 master")
      .OneOf({"fp32", "bf16"})
      .Needs(parameters);
  const Argument scale =
      args.Option("--scale", &f->scale,
                  "numbers of GPUs, 8..16384 (doubling) or 8,64,512: time, exposed communication, goodput")
          .Named("RANGE");
  args.Option("--scaling", &f->scaling, "weak: the batch grows with the GPUs; strong: it stays")
      .OneOf({"weak", "strong"})
      .ShowDefault()
      .Needs(scale);
  args.Option("--stage", &f->stage, "of the scaled line (the recommended one)").Between(0, 3).Needs(scale);
  const Argument ring = args.Flag("--ring", &f->ring, "all-reduce over rings only");
  args.Flag("--tree", &f->tree, "all-reduce over trees only").Excludes(ring);
  args.Option("--failures", &f->reliability.failures_per_node_hour, "of one node in one hour")
      .Check(WhyNotNegative)
      .Needs(scale);
  args.Option("--save-seconds", &f->reliability.save, "that training stands still for a checkpoint")
      .Check(WhyNotPositive)
      .Needs(scale);
  args.Option("--restart-seconds", &f->reliability.restart, "from a failure to the next step")
      .Check(WhyNotNegative)
      .Needs(scale);
  args.Option("--data-seconds", &f->around.data_seconds, "to prepare a batch of a rank").Check(WhyNotPositive);
  args.Option("--encoder-seconds", &f->around.encoder_seconds, "of a frozen encoder in a step").Check(WhyNotPositive);
  args.Option("--cache-seconds", &f->around.cache_seconds, "to read its features from a cache instead")
      .Check(WhyNotPositive);
  args.Option("--picture", &f->picture, "stacked bars of all choices").Named("FILE.svg");
  args.Flag("--json", &f->json, "one JSON document");
  args.Footer(
      "examples:\n  lockstep plan taehv --gpus 8 --gpu h100\n"
      "  lockstep plan lm --set recipe.model=qwen2.5-7b --set recipe.vocabulary=152064 --sequence 4096 --batch 64 "
      "--gpus 8\n"
      "  lockstep plan --parameters 7B --gpus 8 --gpu a100-80 --batch 64 --picture plan.svg\n"
      "  lockstep plan --parameters 70B --batch 1024 --type bf16 --links h100-ib400 --gpu h100 --scale 64..16384\n"
      "  lockstep plan lm --cpu --gpus 2\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  if (f->recipe.empty() == f->parameters.empty()) {
    fmt::print(stderr,
               "lockstep plan: expected a recipe or --parameters N\n  do: lockstep plan taehv, or lockstep plan "
               "--parameters 7B\n");
    return 2;
  }
  return std::nullopt;
}

}  // namespace lockstep::cli
