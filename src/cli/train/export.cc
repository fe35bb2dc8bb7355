// `lockstep export`: trained weights with upstream's names, which upstream's Python loads: one file of a TAEHV or a
// VRT, a folder of a language model.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/arguments.h"
#include "base/files.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/train/commands.h"
#include "data/publish.h"
#include "media/files.h"
#include "media/load_taehv.h"
#include "media/load_vrt.h"
#include "models/taehv_file.h"
#include "models/vrt_file.h"
#include "recipes/load_lm.h"
#include "record/checkpoint_folder.h"

namespace lockstep::cli {
namespace {

struct ExportFlags {
  std::string weights, output, variant, precision = "fp32";
  bool adapter = false, overwrite = false, json = false;
};

constexpr std::pair<const char*, Dtype> kTypes[] = {
    {"fp32", Dtype::kF32}, {"fp16", Dtype::kF16}, {"bf16", Dtype::kBF16}};

Dtype TypeOf(const std::string& precision) {
  for (const auto& [name, type] : kTypes) {
    if (precision == name) return type;
  }
  return Dtype::kF32;
}

void SayExported(const ExportFlags& asked, nlohmann::json summary, std::optional<uint64_t> step) {
  if (step) summary["step"] = *step;
  if (asked.json) {
    fmt::print("{}\n", summary.dump(2));
    return;
  }
  fmt::print("{}: {}, {} parameters in {}, from {}{}\n", asked.output, summary["model"].get<std::string>(),
             summary["parameters"].get<int64_t>(), asked.precision, summary["weights"].get<std::string>(),
             summary["averaged"].get<bool>() ? " (averaged weights)" : "");
}

// A folder, as Hugging Face has it.
Status ExportLanguageModel(const ExportFlags& asked) {
  if (media::IsTensorName(asked.output)) {
    return Status(Code::kUsage, fmt::format("'{}': a language model is written as a folder", asked.output),
                  "give OUTPUT the name of a folder");
  }
  std::error_code ignored;
  if (!asked.overwrite && std::filesystem::exists(asked.output, ignored) &&
      !std::filesystem::is_empty(asked.output, ignored)) {
    return Status(Code::kUsage, fmt::format("'{}' exists", asked.output), "choose another name, or give --overwrite");
  }
  Result<recipes::LoadedLm> loaded = recipes::LoadLm(asked.weights);
  if (!loaded.ok()) return loaded.status();
  int64_t parameters = loaded->model->config().ParameterCount();
  if (asked.adapter) {
    LOCKSTEP_RETURN_IF_ERROR(recipes::ExportAdapter(*loaded, asked.output, TypeOf(asked.precision)));
    parameters = -parameters;
    for (const at::Tensor& p : loaded->model->parameters()) parameters += p.numel();
  } else {
    LOCKSTEP_RETURN_IF_ERROR(recipes::ExportLm(*loaded, asked.output, TypeOf(asked.precision)));
  }
  SayExported(asked,
              {{"output", asked.output},
               {"model", asked.adapter ? "lm adapter" : "lm"},
               {"parameters", parameters},
               {"precision", asked.precision},
               {"averaged", loaded->averaged},
               {"weights", loaded->path}},
              loaded->step);
  return Status::Ok();
}

// Of a TAEHV or a VRT.
template <typename Loaded>
void SayModel(const ExportFlags& asked, const std::string& name, const Loaded& loaded) {
  int64_t parameters = 0;
  for (const at::Tensor& p : loaded.model->parameters()) parameters += p.numel();
  SayExported(asked,
              {{"output", asked.output},
               {"model", name},
               {"parameters", parameters},
               {"precision", asked.precision},
               {"averaged", loaded.averaged},
               {"weights", loaded.path}},
              loaded.step);
}

// One file, LoRA merged: torch.save of {"params": ...} as KAIR has it, or safetensors.
Status ExportVrt(const ExportFlags& asked) {
  const bool torch_save = asked.output.ends_with(".pth") || asked.output.ends_with(".pt");
  if (!torch_save && !asked.output.ends_with(".safetensors")) {
    return Status(Code::kUsage, fmt::format("'{}': a VRT is written as one file", asked.output),
                  "give OUTPUT the ending .pth or .safetensors");
  }
  std::error_code ignored;
  if (!asked.overwrite && std::filesystem::exists(asked.output, ignored)) {
    return Status(Code::kUsage, fmt::format("'{}' exists", asked.output), "choose another name, or give --overwrite");
  }
  Result<media::LoadedVrt> loaded = media::LoadVrtWeights(asked.weights, asked.variant);
  if (!loaded.ok()) return loaded.status();
  if (!loaded->note.empty()) fmt::print(stderr, "{}\n", loaded->note);
  const Dtype wanted = TypeOf(asked.precision);
  const at::ScalarType type = wanted == Dtype::kF16 ? at::kHalf : wanted == Dtype::kBF16 ? at::kBFloat16 : at::kFloat;
  std::map<std::string, std::string> metadata;
  if (loaded->adapter) metadata[media::kFusionKey] = media::FusionToJson(loaded->adapter->config()).dump();
  if (loaded->spikes) metadata[media::kSpikesKey] = media::SpikesToJson(*loaded->spikes).dump();
  LOCKSTEP_RETURN_IF_ERROR(models::WriteVrtFile(*loaded->model, asked.output, "params", type, metadata));
  SayModel(asked, "vrt " + loaded->model->config().name, *loaded);
  return Status::Ok();
}

Status Export(const ExportFlags& asked) {
  const Result<std::string> found = record::FindCheckpoint(asked.weights);
  if (!found.ok()) return found.status().Context("--weights");
  // What cannot be opened has no kind yet, and no ending of OUTPUT is wrong for it.
  if (found->empty() && ::access(asked.weights.c_str(), R_OK) != 0) {
    return FileError("open", asked.weights, errno).Context("--weights");
  }
  if (recipes::IsLm(asked.weights)) return ExportLanguageModel(asked);
  if (asked.adapter) {
    return Status(Code::kUsage, fmt::format("'{}': --adapter is for a language model trained with LoRA", asked.weights),
                  "leave --adapter out");
  }
  if (media::IsVrt(asked.weights)) return ExportVrt(asked);
  if (!media::IsTensorName(asked.output)) {
    return Status(Code::kUsage, fmt::format("'{}': weights are written as safetensors", asked.output),
                  "give OUTPUT the ending .safetensors");
  }
  Result<data::Publication> place = data::Publication::File(asked.output, asked.overwrite);
  if (!place.ok()) return place.status();
  Result<media::LoadedTaehv> loaded = media::LoadTaehv(asked.weights, asked.variant);
  if (!loaded.ok()) return loaded.status();
  if (!loaded->note.empty()) fmt::print(stderr, "{}\n", loaded->note);
  LOCKSTEP_RETURN_IF_ERROR(models::ExportTaehv(*loaded->model, place->temporary(), TypeOf(asked.precision)));
  LOCKSTEP_RETURN_IF_ERROR(place->Publish());
  SayModel(asked, loaded->model->config().name, *loaded);
  return Status::Ok();
}

}  // namespace

int ExportMain(int argc, char** argv) {
  Arguments args(
      "Writes trained weights with upstream's names. A TAEHV becomes one file of safetensors; variant and trimming go "
      "into its metadata. A VRT becomes a .pth file with KAIR's \"params\", or safetensors; LoRA is merged. "
      "Upstream's Python loads it: TAEHV(None, ...).load_state_dict(safetensors.torch.load_file(OUTPUT)). "
      "A language model becomes a folder with config.json, as Hugging Face has it: "
      "AutoModelForCausalLM.from_pretrained(OUTPUT); LoRA is merged into its weights.",
      "lockstep export");
  ExportFlags asked;
  args.Option("--weights", &asked.weights,
              "run (name, 'latest' or directory), checkpoint folder (averaged weights where it has them), or file")
      .Named("RUN|PATH")
      .Required();
  args.Option("OUTPUT", &asked.output,
              "the file to write, NAME.safetensors (of a VRT also .pth); of a language model the folder")
      .Required();
  args.Option("--precision", &asked.precision, "fp32 (default), fp16 or bf16").OneOf({"fp32", "fp16", "bf16"});
  args.Option("--variant", &asked.variant, "of the weights, where the file does not say").Named("NAME");
  args.Flag("--adapter", &asked.adapter, "of a language model trained with LoRA: only that, as PEFT has it");
  args.Flag("--overwrite", &asked.overwrite, "replace OUTPUT");
  args.Flag("--json", &asked.json, "what was written, as JSON");
  args.Footer(
      "examples:\n  lockstep export --weights runs/night-1 taew2_1.safetensors --precision fp16\n"
      "  lockstep export --weights runs/night-1/checkpoints/best tiny.safetensors\n"
      "  lockstep export --weights runs/deblur 006_mine.pth\n"
      "  lockstep export --weights runs/words my-model --precision bf16\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Export(asked);
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep export: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
