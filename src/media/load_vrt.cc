#include "media/load_vrt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
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
    if (name.ends_with("conv_first.weight") && tensor.dim() == 5 && (tensor.size(1) - more) % 9 == 0) {
      config->in_chans = (tensor.size(1) - more) / 9;
    }
  }
  return config;
}

// The adapter that a file has beside the model, if any. Its names alone do not say its operator and sizes.
Result<std::optional<models::FusionConfig>> FusionOf(const models::NamedTensors& tensors,
                                                     const std::map<std::string, std::string>& metadata,
                                                     const std::string& path) {
  if (const auto said = metadata.find(kFusionKey); said != metadata.end()) {
    Result<models::FusionConfig> read = FusionFromJson(nlohmann::json::parse(said->second, nullptr, false));
    if (!read.ok()) return read.status().Context(path);
    return std::optional(*read);
  }
  const bool has = std::ranges::any_of(
      tensors, [](const auto& tensor) { return tensor.first.find("fusion_adapter.") != std::string::npos; });
  if (!has) return std::optional<models::FusionConfig>();
  return Status(Code::kUsage, fmt::format("'{}' has a fusion adapter and does not say its operator and sizes", path),
                "give the run or checkpoint, or a .safetensors file that `lockstep export` wrote of it");
}

}  // namespace

nlohmann::json FusionToJson(const models::FusionConfig& c) {
  return {{"operator", c.op},
          {"frames", c.frame_contract},
          {"bins", c.spike_bins},
          {"hidden", c.hidden_chans},
          {"kernel", c.kernel_size},
          {"normalize_kernel", c.normalize_kernel},
          {"features", c.feature_chans},
          {"token_dim", c.token_dim},
          {"token_stride", c.token_stride},
          {"layers", c.num_layers},
          {"heads", c.num_heads},
          {"mlp_ratio", c.mlp_ratio},
          {"reducer_index", c.reduce_index}};
}

Result<models::FusionConfig> FusionFromJson(const nlohmann::json& json) {
  if (!json.is_object()) {
    return Status(Code::kUsage, fmt::format("says its fusion adapter as {}, without its sizes", json.dump()),
                  "`lockstep eval vrt` measures it; train it on to save the sizes");
  }
  models::FusionConfig c;
  try {
    json.at("operator").get_to(c.op), json.at("frames").get_to(c.frame_contract), json.at("bins").get_to(c.spike_bins);
    json.at("hidden").get_to(c.hidden_chans), json.at("kernel").get_to(c.kernel_size);
    json.at("normalize_kernel").get_to(c.normalize_kernel), json.at("features").get_to(c.feature_chans);
    json.at("token_dim").get_to(c.token_dim), json.at("token_stride").get_to(c.token_stride);
    json.at("layers").get_to(c.num_layers), json.at("heads").get_to(c.num_heads);
    json.at("mlp_ratio").get_to(c.mlp_ratio), json.at("reducer_index").get_to(c.reduce_index);
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kUsage, fmt::format("fusion adapter: {}", error.what()));
  }
  LOCKSTEP_RETURN_IF_ERROR(c.Check());
  return c;
}

nlohmann::json SpikesToJson(const VrtSpikes& spikes) {
  return {{"form", data::kSpikeKinds[static_cast<size_t>(spikes.form.kind)]},
          {"channels", spikes.form.channels},
          {"half_window", spikes.form.half_window},
          {"middle", spikes.form.middle},
          {"height", spikes.sensor.height},
          {"width", spikes.sensor.width},
          {"flip", spikes.sensor.flip}};
}

std::optional<VrtSpikes> SpikesFromJson(const nlohmann::json& json) {
  const std::string form = GetString(json, "form");
  if (std::ranges::find(data::kSpikeKinds, form) == data::kSpikeKinds.end()) return std::nullopt;
  const auto number = [&](const char* key, int otherwise) { return static_cast<int>(GetInt(json, key, otherwise)); };
  VrtSpikes spikes;
  spikes.form = {data::SpikeKindByName(form), number("channels", 1), number("half_window", 20), number("middle", 44)};
  spikes.sensor = {number("height", 360), number("width", 640), json.value("flip", true)};
  return spikes;
}

bool IsVrt(const std::string& path) {
  const Result<std::string> folder = record::FindCheckpoint(path);
  if (!folder.ok()) return false;
  if (!folder->empty()) {
    const Result<record::CheckpointReader> reader = record::CheckpointReader::Open(*folder);
    return reader.ok() && reader->recipe() == "vrt";
  }
  const Result<models::NamedTensors> tensors = models::ReadTensorFile(path);
  return tensors.ok() && std::any_of(tensors->begin(), tensors->end(), [](const auto& tensor) {
           return tensor.first.ends_with("stage1.linear1.weight");
         });
}

Result<LoadedVrt> LoadVrtWeights(const std::string& path, const std::string& variant) {
  LoadedVrt loaded;
  Result<std::string> folder = record::FindCheckpoint(path);
  if (!folder.ok()) return folder.status();
  loaded.path = folder->empty() ? path : *folder;
  if (!folder->empty() && !variant.empty()) {
    return Status(Code::kUsage,
                  fmt::format("--variant {}: '{}' is a checkpoint, which says its own shape", variant, *folder),
                  "leave it out");
  }
  models::NamedTensors tensors;
  models::LoraConfig lora;
  std::optional<models::FusionConfig> fusion;
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
    const nlohmann::json identity = reader->state().value("identity", nlohmann::json::object());
    config = FromCheckpoint(identity, *folder, &lora);
    const nlohmann::json recipe = reader->state().value("recipe", nlohmann::json::object());
    loaded.spikes = SpikesFromJson(recipe.value("spikes", nlohmann::json::object()));
    if (identity.contains("fusion")) {
      Result<models::FusionConfig> read = FusionFromJson(identity["fusion"]);
      if (!read.ok()) return read.status().Context(*folder);
      fusion = *read;
    }
  } else {
    Result<std::unique_ptr<Weights>> file = OpenWeights(path);
    if (!file.ok()) return file.status();
    Result<models::NamedTensors> read = models::ReadTensorFile(path);
    if (!read.ok()) return read.status();
    Result<models::NamedTensors> own = models::UnwrapVrt(*read, "", &loaded.note);
    if (!own.ok()) return own.status().Context(path);
    tensors = std::move(*own);
    config = FromFile(tensors, (*file)->metadata(), path, variant);
    if (const auto said = (*file)->metadata().find(kSpikesKey); said != (*file)->metadata().end()) {
      loaded.spikes = SpikesFromJson(nlohmann::json::parse(said->second, nullptr, false));
    }
    Result<std::optional<models::FusionConfig>> found = FusionOf(tensors, (*file)->metadata(), path);
    if (!found.ok()) return found.status();
    fusion = *found;
  }
  if (!config.ok()) return config.status();
  LOCKSTEP_RETURN_IF_ERROR(config->Check().Context(loaded.path));
  loaded.model = std::make_shared<models::Vrt>(*config);
  if (lora.on()) LOCKSTEP_RETURN_IF_ERROR(loaded.model->AddLora(lora).Context(loaded.path));
  if (fusion) {
    loaded.adapter = std::make_shared<models::FusionAdapter>(*fusion);
    loaded.model->register_module("fusion_adapter", loaded.adapter);
  }
  LOCKSTEP_RETURN_IF_ERROR(models::LoadVrt(*loaded.model, tensors).Context(loaded.path));
  if (lora.on()) {  // merged: a GPU's own kernels take plain matrices
    const models::NamedTensors merged = models::VrtStateDict(*loaded.model);
    loaded.model = std::make_shared<models::Vrt>(*config);
    if (fusion) {
      loaded.adapter = std::make_shared<models::FusionAdapter>(*fusion);
      loaded.model->register_module("fusion_adapter", loaded.adapter);
    }
    LOCKSTEP_RETURN_IF_ERROR(models::LoadVrt(*loaded.model, merged).Context(loaded.path));
  }
  loaded.model->eval();
  for (at::Tensor& parameter : loaded.model->parameters()) parameter.set_requires_grad(false);
  return loaded;
}

}  // namespace lockstep::media
