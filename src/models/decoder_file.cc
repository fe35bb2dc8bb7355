#include "models/decoder_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "models/weights.h"

namespace lockstep::models {
namespace {

constexpr char kWholeFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kHeadTensor[] = "lm_head.weight";
constexpr size_t kTensorsShown = 4;

struct WeightType {
  Dtype dtype;
  at::ScalarType scalar;
  const char* name;  // in config.json
};
constexpr WeightType kWeightTypes[] = {{Dtype::kF32, at::kFloat, "float32"},
                                       {Dtype::kBF16, at::kBFloat16, "bfloat16"},
                                       {Dtype::kF16, at::kHalf, "float16"}};

const WeightType* FindWeightType(Dtype dtype) {
  const auto* found = std::find_if(std::begin(kWeightTypes), std::end(kWeightTypes),
                                   [&](const WeightType& t) { return t.dtype == dtype; });
  return found == std::end(kWeightTypes) ? nullptr : found;
}

// "2 tensors are missing: a, b"; nothing for none.
void SayTensors(std::string& text, const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kTensorsShown));
  text += fmt::format("{}{} tensor{} {}: {}", text.empty() ? "" : "; ", names.size(), names.size() == 1 ? "" : "s",
                      what, fmt::join(shown, ", "));
  if (names.size() > shown.size()) text += fmt::format(" and {} more", names.size() - shown.size());
}

// Not weights, or weights that the model has under another name.
bool MayBeLeft(const std::string& name, const DecoderConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tied && name == kHeadTensor);
}

Status CheckDecoderTensors(const DecoderConfig& config, const lockstep::Weights& weights) {
  std::map<std::string, const TensorInfo*> found;
  for (const TensorInfo& tensor : weights.tensors()) found[tensor.name] = &tensor;
  std::vector<std::string> missing, unfit, unexpected;
  for (const DecoderTensor& tensor : DecoderTensors(config)) {
    const auto at = found.find(tensor.name);
    if (at == found.end()) {
      missing.push_back(tensor.name);
      continue;
    }
    if (at->second->shape != tensor.shape || FindWeightType(at->second->dtype) == nullptr) {
      unfit.push_back(fmt::format("{} is {}, expected F32, BF16 or F16 [{}]", tensor.name,
                                  DescribeTensor(at->second->dtype, at->second->shape), fmt::join(tensor.shape, ", ")));
    }
    found.erase(at);
  }
  for (const auto& [name, tensor] : found) {
    if (!MayBeLeft(name, config)) unexpected.push_back(name);
  }
  std::string problems;
  SayTensors(problems, "missing", missing);
  SayTensors(problems, "of another shape or type", unfit);
  SayTensors(problems, "not in this model", unexpected);
  if (problems.empty()) return Status::Ok();
  return Status(Code::kUsage, fmt::format("'{}' does not fit its config.json: {}", weights.path(), problems),
                "fetch the folder again, or correct its config.json");
}

}  // namespace

std::vector<DecoderTensor> DecoderTensors(const DecoderConfig& config) {
  std::vector<DecoderTensor> tensors;
  const Decoder shape(config, 0, Decoder::Weights::kUnallocated);
  for (const auto& item : shape.named_parameters()) tensors.push_back({item.key(), item.value().sizes().vec()});
  return tensors;
}

Result<DecoderFile> DecoderFile::Open(const std::string& folder) {
  Result<nlohmann::json> json = ReadJsonFile(folder + "/config.json");
  if (!json.ok()) return json.status();
  Result<DecoderConfig> config = DecoderConfig::FromJson(*json);
  if (!config.ok()) return config.status().Context(folder);
  auto weights = OpenWeights(folder);
  if (!weights.ok()) return weights.status();
  LOCKSTEP_RETURN_IF_ERROR(CheckDecoderTensors(*config, **weights));
  DecoderFile file;
  file.config_ = *config;
  file.weights_ = std::move(*weights);
  return file;
}

Status DecoderFile::Read(const std::string& name, int64_t begin, const at::Tensor& out) const {
  const torch::NoGradGuard no_grad;
  const TensorInfo* info = weights_->Find(name);
  if (info == nullptr) return Status(Code::kUsage, fmt::format("'{}' has no tensor '{}'", weights_->path(), name));
  const at::ScalarType type = FindWeightType(info->dtype)->scalar;
  const at::Tensor flat = out.view({-1});
  const auto size = static_cast<int64_t>(info->bytes / c10::elementSize(type));
  if (begin < 0 || begin + flat.numel() > size) {
    return Status(Code::kInternal, fmt::format("'{}': elements {} to {} were asked for, it has {}", name, begin,
                                               begin + flat.numel(), size));
  }
  const bool direct = flat.is_cpu() && flat.scalar_type() == type && flat.numel() == size;
  const at::Tensor raw = direct ? flat : at::empty({size}, type);
  LOCKSTEP_RETURN_IF_ERROR(weights_->Read(name, raw.data_ptr(), info->bytes));
  if (!direct) flat.copy_(raw.narrow(0, begin, flat.numel()));
  return CheckFinite(name, flat).Context(weights_->path());
}

Status DecoderFile::Load(Decoder& model) const {
  for (const auto& item : model.named_parameters()) {
    const TensorInfo* info = weights_->Find(item.key());
    if (info == nullptr || info->shape != item.value().sizes().vec()) {
      return Status(Code::kUsage,
                    fmt::format("'{}': {} is {}, the model has [{}]", weights_->path(), item.key(),
                                info == nullptr ? "missing" : DescribeTensor(info->dtype, info->shape),
                                fmt::join(item.value().sizes(), ", ")),
                    "build the model from the configuration of the file");
    }
  }
  for (const auto& item : model.named_parameters()) {
    LOCKSTEP_RETURN_IF_ERROR(Read(item.key(), 0, item.value().detach()));
  }
  return Status::Ok();
}

namespace {

using Shards = std::vector<std::vector<TensorSpec>>;

// In order, a new file where the next tensor would pass the limit; as Hugging Face does.
Result<Shards> DivideIntoShards(const DecoderConfig& config, const DecoderWriteOptions& options, uint64_t* total) {
  Shards shards(1);
  uint64_t bytes = 0;
  for (const DecoderTensor& tensor : DecoderTensors(config)) {
    const Result<uint64_t> size = TensorBytes(options.dtype, tensor.shape);
    if (!size.ok()) return size.status().Context(tensor.name);
    if (bytes > 0 && bytes + *size > options.shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += *size;
    *total += *size;
    shards.back().push_back({tensor.name, options.dtype, tensor.shape});
  }
  return shards;
}

Status WriteShard(const std::vector<TensorSpec>& specs, const DecoderSource& source, const WeightType& type,
                  const std::string& path) {
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, specs, {{"format", "pt"}});
  if (!writer.ok()) return writer.status();
  for (const TensorSpec& spec : specs) {
    Result<at::Tensor> tensor = source(spec.name);
    if (!tensor.ok()) return tensor.status();
    if (tensor->sizes() != at::IntArrayRef(spec.shape)) {
      return Status(Code::kInternal, fmt::format("{} is [{}], expected [{}]", spec.name,
                                                 fmt::join(tensor->sizes(), ", "), fmt::join(spec.shape, ", ")));
    }
    const at::Tensor stored = tensor->detach().to(at::kCPU, type.scalar).contiguous();
    if (!stored.isfinite().all().item<bool>()) {
      const bool before = tensor->detach().isfinite().all().item<bool>();
      return Status(Code::kUsage,
                    fmt::format("{}: {} has values that {}", path, spec.name,
                                before ? fmt::format("{} cannot hold", DtypeName(spec.dtype)) : "are not finite"),
                    before ? "write F32 or BF16" : "take a checkpoint from before the training broke");
    }
    LOCKSTEP_RETURN_IF_ERROR(writer->Write(spec.name, stored.data_ptr(), stored.nbytes()));
  }
  return writer->Finish();
}

bool IsModelFile(const std::string& name) {
  return name == kWholeFile || name == kIndexFile ||
         (name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != std::string::npos);
}

}  // namespace

Status WriteDecoder(const DecoderConfig& config, const DecoderSource& source, const std::string& folder,
                    const DecoderWriteOptions& options) {
  const torch::NoGradGuard no_grad;
  const WeightType* type = FindWeightType(options.dtype);
  if (type == nullptr) {
    return Status(Code::kUsage, fmt::format("{}: weights cannot be written as {}", folder, DtypeName(options.dtype)),
                  "use F32, BF16 or F16");
  }
  uint64_t total = 0;
  const Result<Shards> shards = DivideIntoShards(config, options, &total);
  if (!shards.ok()) return shards.status();
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  std::set<std::string> written;
  nlohmann::json map = nlohmann::json::object();
  for (size_t i = 0; i < shards->size(); ++i) {
    const std::string name =
        shards->size() == 1 ? kWholeFile : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards->size());
    LOCKSTEP_RETURN_IF_ERROR(WriteShard((*shards)[i], source, *type, folder + "/" + name));
    written.insert(name);
    for (const TensorSpec& spec : (*shards)[i]) map[spec.name] = name;
  }
  if (shards->size() > 1) {
    const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
    LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(folder + "/" + kIndexFile, index.dump(2) + "\n"));
    written.insert(kIndexFile);
  }
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(folder + "/config.json", config.ToJson(type->name).dump(2) + "\n"));
  // What is left of another model would be read instead of this one.
  const Result<std::vector<std::string>> names = ListDir(folder);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (IsModelFile(name) && !written.contains(name)) LOCKSTEP_RETURN_IF_ERROR(RemoveAll(folder + "/" + name));
  }
  return Status::Ok();
}

Status WriteDecoder(const Decoder& model, const std::string& folder, const DecoderWriteOptions& options) {
  return WriteDecoder(
      model.config(), [&](const std::string& name) -> Result<at::Tensor> { return model.Merged(name); }, folder,
      options);
}

Status WriteAdapter(const Decoder& model, const std::string& base, const std::string& folder, Dtype dtype) {
  const torch::NoGradGuard no_grad;
  const WeightType* type = FindWeightType(dtype);
  if (type == nullptr) {
    return Status(Code::kUsage, fmt::format("{}: weights cannot be written as {}", folder, DtypeName(dtype)),
                  "use F32, BF16 or F16");
  }
  // "model.layers.0.self_attn.q_proj.lora_A" is "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" there.
  std::map<std::string, at::Tensor> tensors;
  std::set<std::string> modules;
  std::vector<TensorSpec> specs;
  for (const auto& item : model.named_parameters()) {
    if (!item.key().ends_with(".lora_A") && !item.key().ends_with(".lora_B")) continue;
    specs.push_back({"base_model.model." + item.key() + ".weight", dtype, item.value().sizes().vec()});
    tensors[specs.back().name] = item.value();
    modules.insert(item.key().substr(0, item.key().rfind('.')));
  }
  if (specs.empty()) {
    return Status(Code::kUsage, "the model has no LoRA, so there is no adapter to write",
                  "export it without --adapter");
  }
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  LOCKSTEP_RETURN_IF_ERROR(WriteShard(
      specs, [&](const std::string& name) -> Result<at::Tensor> { return tensors.at(name); }, *type,
      folder + "/adapter_model.safetensors"));
  const nlohmann::json config = {
      {"base_model_name_or_path", base.empty() ? nlohmann::json(nullptr) : nlohmann::json(base)},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"lora_alpha", model.lora().alpha},
      {"lora_dropout", model.lora().dropout},
      {"modules_to_save", nullptr},
      {"peft_type", "LORA"},
      {"r", model.lora().rank},
      {"target_modules", modules},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", false}};
  return WriteFileAtomic(folder + "/adapter_config.json", config.dump(2) + "\n");
}

}  // namespace lockstep::models
