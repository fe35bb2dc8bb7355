#include "media/load_vrt.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/weights.h"
#include "engine/state.h"
#include "models/vrt_file.h"
#include "record/checkpoint.h"
#include "record/checkpoint_folder.h"

namespace lockstep::media {
namespace {

using models::VrtConfig;

std::vector<std::string> VariantNames() {
  std::vector<std::string> names;
  for (const VrtConfig& variant : models::VrtVariants()) names.push_back(variant.name);
  return names;
}

Result<VrtConfig> FromCheckpoint(const nlohmann::json& identity, const std::string& path, models::LoraConfig* lora) {
  if (identity.contains("fusion")) {
    return Status(
        Code::kUsage,
        fmt::format("'{}' has a fusion adapter ({}), which is not restored with yet", path, identity["fusion"].dump()),
        "use a model that takes spikes as further channels (recipe.fusion.operator: concat)");
  }
  if (identity.contains("lora")) {
    Result<models::LoraConfig> read = models::LoraConfig::FromJson(identity["lora"]);
    if (!read.ok()) return read.status().Context(path);
    *lora = *read;
  }
  Result<VrtConfig> config = models::VrtFromJson(identity.value("config", nlohmann::json::object()));
  return config.ok() ? config : config.status().Context(path);
}

Result<VrtConfig> FromFile(const models::NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
                           const std::string& path, const std::string& variant) {
  if (variant.empty()) {
    const auto said = metadata.find(models::kVrtKey);
    if (said == metadata.end()) {
      return Status(Code::kUsage, fmt::format("'{}' does not say which VRT it is of", path),
                    fmt::format("say it: --variant {}", Join(VariantNames(), "|")));
    }
    Result<VrtConfig> config = models::VrtFromJson(nlohmann::json::parse(said->second, nullptr, false));
    return config.ok() ? config : config.status().Context(path);
  }
  Result<VrtConfig> config = models::FindVrt(variant);
  if (!config.ok()) return config.status().Context("--variant");
  // 006 is the name of a model with spikes and of one without.
  for (const auto& [name, tensor] : tensors) {
    const int64_t more = config->nonblind_denoising ? 1 : 0;
    if (name == "conv_first.weight" && tensor.dim() == 5 && (tensor.size(1) - more) % 9 == 0) {
      config->in_chans = (tensor.size(1) - more) / 9;
    }
  }
  return config;
}

}  // namespace

Result<LoadedVrt> LoadVrtWeights(const std::string& path, const std::string& variant) {
  LoadedVrt loaded;
  Result<std::string> folder = record::FindCheckpoint(path);
  if (!folder.ok()) return folder.status();
  loaded.path = folder->empty() ? path : *folder;
  models::NamedTensors tensors;
  models::LoraConfig lora;
  Result<VrtConfig> config = VrtConfig{};
  if (!folder->empty()) {
    Result<record::CheckpointReader> reader = record::CheckpointReader::Open(*folder);
    if (!reader.ok()) return reader.status();
    if (reader->recipe() != "vrt") {
      return Status(Code::kUsage,
                    fmt::format("'{}' is a checkpoint of recipe '{}', expected vrt", *folder, reader->recipe()));
    }
    auto weights = engine::CheckpointWeights(*reader, &loaded.averaged);
    if (!weights.ok()) return weights.status();
    tensors = std::move(*weights);
    loaded.step = reader->step();
    config = FromCheckpoint(reader->state().value("identity", nlohmann::json::object()), *folder, &lora);
  } else {
    Result<std::unique_ptr<Weights>> file = OpenWeights(path);
    if (!file.ok()) return file.status();
    Result<models::NamedTensors> read = models::ReadTensorFile(path);
    if (!read.ok()) return read.status();
    Result<models::NamedTensors> own = models::UnwrapVrt(*read, "", &loaded.note);
    if (!own.ok()) return own.status().Context(path);
    tensors = std::move(*own);
    config = FromFile(tensors, (*file)->metadata(), path, variant);
  }
  if (!config.ok()) return config.status();
  LOCKSTEP_RETURN_IF_ERROR(config->Check().Context(loaded.path));
  loaded.model = std::make_shared<models::Vrt>(*config);
  if (lora.on()) LOCKSTEP_RETURN_IF_ERROR(loaded.model->AddLora(lora).Context(loaded.path));
  LOCKSTEP_RETURN_IF_ERROR(models::LoadVrt(*loaded.model, tensors).Context(loaded.path));
  loaded.model->eval();
  for (at::Tensor& parameter : loaded.model->parameters()) parameter.set_requires_grad(false);
  return loaded;
}

}  // namespace lockstep::media
