#include "models/vrt_file.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/weights.h"

namespace lockstep::models {
namespace {

constexpr const char* kFirstConv = "conv_first.weight";
constexpr std::array<const char*, 3> kWrappers = {"params_ema", "params", "state_dict"};

bool IsConstant(const std::string& name) {
  return name.ends_with(".relative_position_index") || name.ends_with(".position_bias") || name == "spynet.mean" ||
         name == "spynet.std";
}

std::optional<at::ScalarType> TypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kBF16:
      return at::kBFloat16;
    case Dtype::kI64:
      return at::kLong;
    case Dtype::kI32:
      return at::kInt;
    default:
      return std::nullopt;
  }
}

// What files call otherwise: those of DataParallel, and those of S-VRT, which wraps SpyNet and matrices with LoRA.
struct OtherName {
  const char *theirs, *ours;
  bool at_end;  // else at the beginning
};
constexpr OtherName kOtherNames[] = {{"module.", "", false},
                                     {"spynet.model.", "spynet.", false},
                                     {"fusion_operator.", "fusion_adapter.operator.", false},
                                     {".base.weight", ".weight", true},
                                     {".base.bias", ".bias", true},
                                     {".lora_A.weight", ".lora_A", true},
                                     {".lora_B.weight", ".lora_B", true}};

NamedTensors WithOurNames(const NamedTensors& tensors) {
  NamedTensors ours;
  std::set<std::string> seen;
  for (const auto& [theirs, tensor] : tensors) {
    std::string name = theirs;
    for (const OtherName& other : kOtherNames) {
      const std::string part = other.theirs;
      if (other.at_end ? !name.ends_with(part) : !name.starts_with(part)) continue;
      name.replace(other.at_end ? name.size() - part.size() : 0, part.size(), other.ours);
    }
    // S-VRT saves the adapter's operator under both names.
    if (name.starts_with("fusion_adapter.operator.") && !seen.insert(name).second) continue;
    ours.emplace_back(std::move(name), tensor);
  }
  return ours;
}

// "RGB", "RGB and 1 spike channel".
std::string InputName(int64_t channels) {
  return channels == 3 ? "RGB" : fmt::format("RGB and {} spike channel{}", channels - 3, channels == 4 ? "" : "s");
}

// Input channels of the clips that a conv_first was made for; 0 where it is none of ours.
int64_t ClipChannels(const VrtConfig& config, int64_t first) {
  const int64_t rest = first - (config.nonblind_denoising ? 1 : 0), times = config.pa_frames > 0 ? 9 : 1;
  return rest > 0 && rest % times == 0 ? rest / times : 0;
}

// New channels, behind the old ones in each of the nine parts (frame, four pixels of each neighbour), with weight 0.
std::optional<at::Tensor> Widened(const VrtConfig& config, const at::Tensor& have, at::IntArrayRef want) {
  if (have.dim() != 5 || want.size() != 5 || have.size(0) != want[0] || have.size(1) >= want[1]) return std::nullopt;
  const int64_t channels = ClipChannels(config, have.size(1)), parts = config.pa_frames > 0 ? 9 : 1;
  if (channels == 0) return std::nullopt;
  const at::Tensor frames = have.narrow(1, 0, parts * channels).unflatten(1, {parts, channels});
  const at::Tensor wide = at::constant_pad_nd(frames, {0, 0, 0, 0, 0, 0, 0, config.in_chans - channels}).flatten(1, 2);
  return at::cat({wide, have.narrow(1, parts * channels, have.size(1) - parts * channels)}, 1);
}

std::string AdviseVrt(const VrtConfig& config, const NamedTensors& weights) {
  for (const auto& [name, tensor] : weights) {
    if (name != kFirstConv || tensor.dim() != 5 || tensor.size(1) == config.FirstChannels()) continue;
    const int64_t channels = ClipChannels(config, tensor.size(1));
    if (channels < 3) break;
    return fmt::format(
        "conv_first reads {} channels in the file and {} in the model: the file was made for {} (in_chans {}), the "
        "model "
        "for {} (in_chans {}). Set in_chans to {}, or give weights for {}{}",
        tensor.size(1), config.FirstChannels(), InputName(channels), channels, InputName(config.in_chans),
        config.in_chans, channels, InputName(config.in_chans),
        channels < config.in_chans ? ", or widen conv_first when loading (new channels begin with weight 0)" : "");
  }
  return "compare depths, embed_dims, num_heads, window_size, pa_frames, deformable_groups and upscale with the option "
         "file that the weights were trained with";
}

c10::impl::GenericDict AsDict(const NamedTensors& tensors) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : tensors) dict.insert(name, tensor);
  return dict;
}

// As Python's torch.save: plain dicts and tensors. torch::jit::pickle_save would tag dicts with TorchScript types,
// which readers of weights alone refuse.
Status WriteTorchFile(const NamedTensors& tensors, const std::string& path, const std::string& key) {
  c10::IValue value = AsDict(tensors);
  if (!key.empty()) {
    c10::impl::GenericDict outer(c10::StringType::get(), c10::AnyType::get());
    outer.insert(key, value);
    value = outer;
  }
  std::string pickled, file;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { pickled.append(data, size); }, nullptr, nullptr,
                              nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  {
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
      file.append(static_cast<const char*>(data), size);
      return size;
    });
    writer.writeRecord("data.pkl", pickled.data(), pickled.size());
    size_t number = 0;
    for (const at::Tensor& tensor : pickler.tensorData()) {
      writer.writeRecord(fmt::format("data/{}", number++), tensor.storage().data(), tensor.storage().nbytes());
    }
    writer.writeEndOfFile();
  }
  return WriteFileAtomic(path, file);
}

// The types that WriteVrtFile is asked for, and that of upstream's position indices.
constexpr Dtype kWritten[] = {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kI64};

Status WriteSafetensors(const NamedTensors& tensors, const std::string& path, const VrtConfig& config,
                        std::map<std::string, std::string> metadata) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) {
    const auto type = std::ranges::find(kWritten, tensor.scalar_type(), [](Dtype one) { return *TypeOf(one); });
    specs.push_back({name, *type, tensor.sizes().vec()});
  }
  metadata["format"] = "pt";
  metadata[kVrtKey] = ToJsonLine(ToJson(config));
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, specs, metadata);
  if (!writer.ok()) return writer.status();
  for (const auto& [name, tensor] : tensors) {
    LOCKSTEP_RETURN_IF_ERROR(writer->Write(name, tensor.data_ptr(), tensor.nbytes()));
  }
  return writer->Finish();
}

}  // namespace

Result<NamedTensors> ReadTensorFile(const std::string& path) {
  Result<std::unique_ptr<Weights>> file = OpenWeights(path);
  if (!file.ok()) return file.status();
  NamedTensors tensors;
  for (const TensorInfo& info : (*file)->tensors()) {
    const std::optional<at::ScalarType> type = TypeOf(info.dtype);
    if (!type) {
      return Status(Code::kUsage,
                    fmt::format("{}: tensor {}: the type {} is not supported", path, info.name, DtypeName(info.dtype)),
                    "save weights as float32, float16 or bfloat16");
    }
    at::Tensor tensor = at::empty(info.shape, *type);
    LOCKSTEP_RETURN_IF_ERROR((*file)->Read(info.name, tensor.data_ptr(), tensor.nbytes()));
    tensors.emplace_back(info.name, std::move(tensor));
  }
  return tensors;
}

Result<NamedTensors> UnwrapVrt(const NamedTensors& tensors, const std::string& key, std::string* note) {
  std::vector<std::string> found;
  for (const char* wrapper : kWrappers) {
    const std::string prefix = std::string(wrapper) + ".";
    if (std::any_of(tensors.begin(), tensors.end(), [&](const auto& item) { return item.first.starts_with(prefix); })) {
      found.emplace_back(wrapper);
    }
  }
  if (!key.empty() && std::find(found.begin(), found.end(), key) == found.end()) {
    return Status(
        Code::kUsage, fmt::format("there are no weights under '{}'", key),
        found.empty() ? "the file is a bare state dict: ask for no name" : fmt::format("ask for '{}'", found.front()));
  }
  if (note != nullptr) note->clear();
  if (found.empty()) return WithOurNames(tensors);
  const std::string chosen = key.empty() ? found.front() : key, prefix = chosen + ".";
  if (note != nullptr && found.size() > 1) {
    *note = fmt::format("the file has '{}' and '{}'; '{}' is taken", found[0], found[1], chosen);
  }
  NamedTensors inner;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) inner.emplace_back(name.substr(prefix.size()), tensor);
  }
  return WithOurNames(inner);
}

Status LoadVrt(Vrt& model, const NamedTensors& weights, const VrtLoad& options) {
  NamedTensors own;
  for (const auto& [name, tensor] : weights) {
    if (!IsConstant(name)) own.emplace_back(name, tensor);
  }
  LoadRules rules;
  if (options.widen_first) {
    rules.fit = [&](const std::string& name, const at::Tensor& have,
                    at::IntArrayRef want) -> std::optional<at::Tensor> {
      if (name != kFirstConv) return std::nullopt;
      return Widened(model.config(), have, want);
    };
  }
  rules.advise = [&](const NamedTensors& given) { return AdviseVrt(model.config(), given); };
  return LoadWeights(model, own, rules).Context("VRT " + model.config().name);
}

Status LoadVrtFile(Vrt& model, const std::string& path, std::string* note, const VrtLoad& options) {
  const Result<NamedTensors> tensors = ReadTensorFile(path);
  if (!tensors.ok()) return tensors.status();
  const Result<NamedTensors> weights = UnwrapVrt(*tensors, "", note);
  if (!weights.ok()) return weights.status().Context(path);
  return LoadVrt(model, *weights, options).Context(path);
}

NamedTensors VrtStateDict(const Vrt& model, at::ScalarType type) {
  NamedTensors all;
  for (const auto& [name, tensor] : model.Merged()) {
    // A copy: parameters in training share one storage, and torch.save writes whole storages.
    const at::Tensor own = at::empty(tensor.sizes(), type);
    all.emplace_back(name, own.copy_(tensor.detach()));
  }
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto attention = std::dynamic_pointer_cast<vrt::WindowAttention>(item.value());
    if (!attention) continue;
    const vrt::Size3& window = attention->window;
    all.emplace_back(item.key() + ".relative_position_index", vrt::RelativePositionIndex(window));
    if (!attention->mutual) continue;
    const int64_t width = attention->qkv_self->weight.size(1);
    all.emplace_back(item.key() + ".position_bias", vrt::SinePositionCode(window[1], window[2], width));
  }
  if (model.config().pa_frames > 0) {
    all.emplace_back("spynet.mean", SpyNetMean());
    all.emplace_back("spynet.std", SpyNetDeviation());
  }
  return all;
}

Status WriteVrtFile(const Vrt& model, const std::string& path, const std::string& key, at::ScalarType type,
                    const std::map<std::string, std::string>& more) {
  const torch::NoGradGuard no_grad;
  const NamedTensors tensors = VrtStateDict(model, type);
  for (const auto& [name, tensor] : tensors) LOCKSTEP_RETURN_IF_ERROR(CheckFinite(name, tensor).Context(path));
  const bool torch_save = path.ends_with(".pth") || path.ends_with(".pt");
  return torch_save ? WriteTorchFile(tensors, path, key) : WriteSafetensors(tensors, path, model.config(), more);
}

}  // namespace lockstep::models
