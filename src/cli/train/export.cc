// `lockstep export`: trained weights as one safetensors file with upstream's names, which upstream's Python loads.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/arguments.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/train/commands.h"
#include "data/publish.h"
#include "media/files.h"
#include "media/load_taehv.h"
#include "models/taehv_file.h"

namespace lockstep::cli {
namespace {

struct ExportFlags {
  std::string weights, output, variant, precision = "fp32";
  bool overwrite = false, json = false;
};

constexpr std::pair<const char*, Dtype> kTypes[] = {
    {"fp32", Dtype::kF32}, {"fp16", Dtype::kF16}, {"bf16", Dtype::kBF16}};

Status Export(const ExportFlags& asked) {
  if (!media::IsTensorName(asked.output)) {
    return Status(Code::kUsage, fmt::format("'{}': weights are written as safetensors", asked.output),
                  "give OUTPUT the ending .safetensors");
  }
  Result<data::Publication> place = data::Publication::File(asked.output, asked.overwrite);
  if (!place.ok()) return place.status();
  Result<media::LoadedTaehv> loaded = media::LoadTaehv(asked.weights, asked.variant);
  if (!loaded.ok()) return loaded.status();
  if (!loaded->note.empty()) fmt::print(stderr, "{}\n", loaded->note);
  for (const auto& [name, type] : kTypes) {
    if (asked.precision == name) {
      LOCKSTEP_RETURN_IF_ERROR(models::ExportTaehv(*loaded->model, place->temporary(), type));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(place->Publish());
  int64_t parameters = 0;
  for (const auto& p : loaded->model->parameters()) parameters += p.numel();
  const std::string& variant = loaded->model->config().name;
  nlohmann::json summary = {{"output", asked.output},       {"model", variant},
                            {"parameters", parameters},     {"precision", asked.precision},
                            {"averaged", loaded->averaged}, {"weights", loaded->path}};
  if (loaded->step) summary["step"] = *loaded->step;
  if (asked.json) {
    fmt::print("{}\n", summary.dump(2));
  } else {
    fmt::print("{}: {}, {} parameters in {}, from {}{}\n", asked.output, variant, parameters, asked.precision,
               loaded->path, loaded->averaged ? " (averaged weights)" : "");
  }
  return Status::Ok();
}

}  // namespace

int ExportMain(int argc, char** argv) {
  Arguments args(
      "Writes trained weights as one safetensors file with upstream's names; variant and trimming go into its "
      "metadata. "
      "Upstream's Python loads it: TAEHV(None, ...).load_state_dict(safetensors.torch.load_file(OUTPUT)).",
      "lockstep export");
  ExportFlags asked;
  args.Option("--weights", &asked.weights,
              "run (name, 'latest' or directory), checkpoint folder (averaged weights where it has them), or file")
      .Named("RUN|PATH")
      .Required();
  args.Option("OUTPUT", &asked.output, "the file to write: NAME.safetensors").Required();
  args.Option("--precision", &asked.precision, "fp32 (default), fp16 or bf16").OneOf({"fp32", "fp16", "bf16"});
  args.Option("--variant", &asked.variant, "of the weights, where the file does not say").Named("NAME");
  args.Flag("--overwrite", &asked.overwrite, "replace OUTPUT");
  args.Flag("--json", &asked.json, "what was written, as JSON");
  args.Footer(
      "examples:\n  lockstep export --weights runs/night-1 taew2_1.safetensors --precision fp16\n"
      "  lockstep export --weights runs/night-1/checkpoints/best tiny.safetensors\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Export(asked);
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep export: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
