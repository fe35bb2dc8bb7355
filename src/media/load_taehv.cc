#include "media/load_taehv.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/weights.h"
#include "engine/state.h"
#include "models/taehv_file.h"
#include "record/checkpoint.h"
#include "record/checkpoint_folder.h"

namespace lockstep::media {
namespace {

struct Found {
  models::NamedTensors tensors;
  std::map<std::string, std::string> metadata;
  nlohmann::json identity;  // of a checkpoint: what the recipe says its model is
};

Status ReadCheckpoint(const std::string& path, Found* found, LoadedTaehv* loaded) {
  Result<record::CheckpointReader> reader = record::CheckpointReader::Open(path);
  if (!reader.ok()) return reader.status();
  if (reader->recipe() != "taehv") {
    return Status(Code::kUsage,
                  fmt::format("'{}' is a checkpoint of recipe '{}', expected taehv", path, reader->recipe()));
  }
  auto tensors = engine::CheckpointWeights(*reader, &loaded->averaged);
  if (!tensors.ok()) return tensors.status();
  found->tensors = std::move(*tensors);
  found->identity = reader->state().value("identity", nlohmann::json::object());
  loaded->step = reader->step();
  return Status::Ok();
}

// Its shapes and the name it says decide; what shapes do not show is taken from what the recipe wrote down.
Result<models::TaehvConfig> FromIdentity(const Found& found, const std::string& path) {
  const nlohmann::json& said = found.identity;
  const nlohmann::json& whole = said.contains("model") && said["model"].is_object() ? said["model"] : said;
  if (Result<models::TaehvConfig> exact = models::TaehvFromJson(whole); exact.ok() && whole.contains("name")) {
    return exact;
  }
  std::string name = path;
  for (const char* key : {"name", "model", "variant"}) {
    if (whole.contains(key) && whole[key].is_string()) name = whole[key].get<std::string>();
  }
  Result<models::TaehvConfig> config = models::RecognizeTaehv(found.tensors, name, {});
  if (!config.ok()) return config.status().Context(path);
  if (whole.contains("cogvideox") && whole["cogvideox"].is_boolean()) config->cogvideox = whole["cogvideox"];
  if (whole.contains("chunk") && whole["chunk"].is_number_integer()) config->chunk = whole["chunk"];
  if (whole.contains("chunk_drop") && whole["chunk_drop"].is_number_integer()) config->chunk_drop = whole["chunk_drop"];
  return config;
}

}  // namespace

Result<LoadedTaehv> LoadTaehv(const std::string& path, const std::string& variant) {
  LoadedTaehv loaded;
  loaded.path = path;
  Found found;
  Result<std::string> folder = record::FindCheckpoint(path);
  if (!folder.ok()) return folder.status();
  const bool checkpoint = !folder->empty();
  if (checkpoint) {
    loaded.path = *folder;
    LOCKSTEP_RETURN_IF_ERROR(ReadCheckpoint(*folder, &found, &loaded));
  }
  if (!checkpoint) {
    Result<std::unique_ptr<Weights>> file = OpenWeights(path);
    if (!file.ok()) return file.status();
    found.metadata = (*file)->metadata();
    auto tensors = engine::ReadWeights(path);
    if (!tensors.ok()) return tensors.status();
    found.tensors = std::move(*tensors);
  }
  Result<models::TaehvConfig> config = !variant.empty() ? models::FindTaehv(variant)
                                       : checkpoint
                                           ? FromIdentity(found, loaded.path)
                                           : models::RecognizeTaehv(found.tensors, path, found.metadata, &loaded.note);
  if (!config.ok()) return config.status();
  loaded.model = std::make_shared<models::Taehv>(*config, 0);
  LOCKSTEP_RETURN_IF_ERROR(loaded.model->Load(found.tensors).Context(loaded.path));
  loaded.model->eval();
  for (at::Tensor& parameter : loaded.model->parameters()) parameter.set_requires_grad(false);
  return loaded;
}

}  // namespace lockstep::media
