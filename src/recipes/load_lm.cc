#include "recipes/load_lm.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "data/corpus.h"
#include "engine/state.h"
#include "models/decoder_file.h"
#include "models/weights.h"
#include "record/checkpoint.h"
#include "record/checkpoint_folder.h"

namespace lockstep::recipes {
namespace {

constexpr const char* kTokenizerKey = "lockstep_tokenizer";
constexpr const char* kEndKey = "eos_token_id";

bool HasConfig(const std::string& folder) {
  struct stat info{};
  return ::stat((folder + "/config.json").c_str(), &info) == 0;
}

Result<nlohmann::json> ReadConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  Result<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Status(Code::kUsage, fmt::format("'{}': expected a JSON object", path));
  return json;
}

Result<LoadedLm> FromCheckpoint(const std::string& path) {
  Result<record::CheckpointReader> reader = record::CheckpointReader::Open(path);
  if (!reader.ok()) return reader.status();
  if (reader->recipe() != "lm") {
    return Status(Code::kUsage,
                  fmt::format("'{}' is a checkpoint of recipe '{}', expected lm", path, reader->recipe()));
  }
  const nlohmann::json identity = reader->state().value("identity", nlohmann::json::object());
  Result<models::DecoderConfig> config =
      models::DecoderConfig::FromJson(identity.value("config", nlohmann::json::object()));
  if (!config.ok()) return config.status().Context(path);
  LoadedLm loaded;
  loaded.path = path;
  loaded.step = reader->step();
  loaded.tokenizer = identity.value("tokenizer", "");
  loaded.end = identity.value("end", int64_t{-1});
  auto weights = engine::CheckpointWeights(*reader, &loaded.averaged);
  if (!weights.ok()) return weights.status();
  loaded.model = std::make_shared<models::Decoder>(*config, 0, models::Decoder::Weights::kAllocated);
  if (identity.contains("lora")) {
    Result<models::LoraConfig> lora = models::LoraConfig::FromJson(identity["lora"]);
    if (!lora.ok()) return lora.status().Context(path);
    LOCKSTEP_RETURN_IF_ERROR(loaded.model->AddLora(*lora).Context(path));
    loaded.base = GetString(reader->state().value("recipe", nlohmann::json::object()), "base");
  }
  LOCKSTEP_RETURN_IF_ERROR(models::LoadWeights(*loaded.model, *weights).Context(path));
  return loaded;
}

Result<LoadedLm> FromFolder(const std::string& path) {
  Result<nlohmann::json> json = ReadConfig(path);
  if (!json.ok()) return json.status();
  Result<models::DecoderFile> file = models::DecoderFile::Open(path);
  if (!file.ok()) return file.status();
  LoadedLm loaded;
  loaded.path = path;
  loaded.tokenizer = GetString(*json, kTokenizerKey);
  if (const auto end = json->find(kEndKey); end != json->end() && end->is_number_integer()) loaded.end = *end;
  loaded.model = std::make_shared<models::Decoder>(file->config(), 0, models::Decoder::Weights::kAllocated);
  LOCKSTEP_RETURN_IF_ERROR(file->Load(*loaded.model));
  return loaded;
}

}  // namespace

bool LoadedLm::writes_text() const { return tokenizer == data::kByteTokenizer; }

bool IsLm(const std::string& path) {
  const Result<std::string> folder = record::FindCheckpoint(path);
  if (!folder.ok()) return false;
  if (folder->empty()) return HasConfig(path);
  const Result<record::CheckpointReader> reader = record::CheckpointReader::Open(*folder);
  return reader.ok() && reader->recipe() == "lm";
}

Result<LoadedLm> LoadLm(const std::string& path) {
  Result<std::string> folder = record::FindCheckpoint(path);
  if (!folder.ok()) return folder.status();
  if (folder->empty() && !HasConfig(path)) {
    return Status(Code::kUsage,
                  fmt::format("'{}': expected a run, a checkpoint or a folder with config.json, found {}", path,
                              ::access(path.c_str(), F_OK) == 0 ? "none of them" : "nothing"),
                  "`lockstep runs` lists the runs");
  }
  Result<LoadedLm> loaded = folder->empty() ? FromFolder(path) : FromCheckpoint(*folder);
  if (!loaded.ok()) return loaded;
  loaded->model->eval();
  for (at::Tensor& parameter : loaded->model->parameters()) parameter.set_requires_grad(false);
  return loaded;
}

Status ExportLm(const LoadedLm& lm, const std::string& folder, Dtype dtype) {
  models::DecoderWriteOptions options;
  options.dtype = dtype;
  LOCKSTEP_RETURN_IF_ERROR(models::WriteDecoder(*lm.model, folder, options));
  Result<nlohmann::json> json = ReadConfig(folder);
  if (!json.ok()) return json.status();
  if (!lm.tokenizer.empty()) (*json)[kTokenizerKey] = lm.tokenizer;
  if (lm.end >= 0) (*json)[kEndKey] = lm.end;
  return WriteFileAtomic(folder + "/config.json", json->dump(2) + "\n");
}

Status ExportAdapter(const LoadedLm& lm, const std::string& folder, Dtype dtype) {
  return models::WriteAdapter(*lm.model, lm.base, folder, dtype);
}

}  // namespace lockstep::recipes
