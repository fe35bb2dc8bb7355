#include "recipes/clip_encoder.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/text.h"
#include "engine/state_tensors.h"

namespace lockstep::recipes {
namespace {

// Rounding in 16 bits and another order of sums stay far below it; another context does not.
constexpr double kSameFeatures = 0.02;

struct Layout {
  const char* name;
  std::vector<int64_t> axes;  // places in NTCHW, or NCHW
};

const std::vector<Layout>& Layouts() {
  static const auto& layouts = *new std::vector<Layout>{{"NTCHW", {0, 1, 2, 3, 4}},
                                                        {"NCTHW", {0, 2, 1, 3, 4}},
                                                        {"NTHWC", {0, 1, 3, 4, 2}},
                                                        {"NCHW", {0, 1, 2, 3}},
                                                        {"NHWC", {0, 2, 3, 1}}};
  return layouts;
}

size_t AxesOf(cache::Context context) { return context == cache::Context::kIndependent ? 4 : 5; }

std::optional<Dtype> StoredType(at::ScalarType type) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kF64, Dtype::kI64, Dtype::kI32, Dtype::kI16,
                            Dtype::kI8, Dtype::kU8, Dtype::kBool}) {
    if (engine::TorchType(dtype) == type) return dtype;
  }
  return std::nullopt;
}

// Relative, over all elements.
double Difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const double norm = std::max(x.norm().item<double>(), 1e-30);
  return (x - y).norm().item<double>() / norm;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<std::string> LayoutsOf(cache::Context context) {
  std::vector<std::string> names;
  for (const Layout& layout : Layouts()) {
    if (layout.axes.size() == AxesOf(context)) names.emplace_back(layout.name);
  }
  return names;
}

ClipEncoder::ClipEncoder(ClipEncoderConfig config, at::Device device, std::vector<int64_t> shape)
    : config_(std::move(config)), device_(device), shape_(std::move(shape)) {
  if (config_.context == cache::Context::kIndependent) shape_.erase(shape_.begin());
}

Result<std::unique_ptr<ClipEncoder>> ClipEncoder::Load(const ClipEncoderConfig& config, at::Device device,
                                                       const std::vector<int64_t>& shape) {
  std::unique_ptr<ClipEncoder> made(new ClipEncoder(config, device, shape));
  Result<std::unique_ptr<FrozenScript>> script = FrozenScript::Load(config.file, "encoder.path", device);
  if (!script.ok()) return script.status();
  made->script_ = std::move(*script);
  LOCKSTEP_RETURN_IF_ERROR(made->Probe());
  return made;
}

Status ClipEncoder::Refused(const std::string& what, const std::string& hint) const {
  return Status(Code::kUsage, fmt::format("{}: {}", config_.file.path, what), hint);
}

at::Tensor ClipEncoder::MadeUp(int number) const {
  std::vector<int64_t> one = {1};
  one.insert(one.end(), shape_.begin(), shape_.end());
  int64_t elements = 1;
  for (const int64_t size : shape_) elements *= size;
  const at::Tensor ramp = at::linspace(0, 1, elements, at::kDouble).mul(50 + 31 * number).sin();
  return ramp.mul(100).add(127).round().to(at::kByte).view(one);
}

// What a module or program gave, in the order of names_.
std::vector<at::Tensor> ClipEncoder::Named(const c10::IValue& given) {
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> names = config_.fields;
  if (given.isTensor()) {
    if (names.empty()) names = {"features"};
    TORCH_CHECK(names.size() == 1, "it gives one tensor, and cache.fields names ", names.size());
    tensors[names[0]] = given.toTensor();
  } else if (given.isTuple()) {
    const auto& elements = given.toTupleRef().elements();
    TORCH_CHECK(names.size() == elements.size(), "it gives a tuple of ", elements.size(), ", and cache.fields names ",
                names.size());
    for (size_t i = 0; i < elements.size(); ++i) tensors[names[i]] = elements[i].toTensor();
  } else {
    TORCH_CHECK(given.isGenericDict(), "a tensor, a tuple of tensors or a dict of tensors is expected, not ",
                given.tagKind());
    tensors = TensorsOf(given);
    if (names.empty()) {
      for (const auto& [name, tensor] : tensors) names.push_back(name);
    }
  }
  TORCH_CHECK(names_.empty() || names == names_, "it gives other tensors than before");
  names_ = names;
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors) all.push_back(name);
  std::vector<at::Tensor> chosen;
  for (const std::string& name : names) {
    TORCH_CHECK(tensors.contains(name), "it gives no '", name, "'; it gives ", Join(all, ", "));
    chosen.push_back(tensors[name]);
  }
  return chosen;
}

Result<std::vector<at::Tensor>> ClipEncoder::Features(const at::Tensor& frames) {
  const at::NoGradGuard no_grad;
  try {
    at::Tensor x = frames.to(device_).to(at::kFloat).div(255);
    x = x.mul(config_.range[1] - config_.range[0]).add(config_.range[0]);
    const auto colours = [&](const std::array<double, 3>& values) {
      return at::tensor(at::ArrayRef<double>(values.data(), 3), at::kFloat).to(device_).view({3, 1, 1});
    };
    x = x.sub(colours(config_.mean)).div(colours(config_.deviation)).to(engine::ComputeType(config_.file.precision));
    for (const Layout& layout : Layouts()) {
      if (config_.layout == layout.name) x = x.permute(layout.axes).contiguous();
    }
    std::vector<at::Tensor> features = Named(script_->Forward(x));
    for (size_t i = 0; i < features.size(); ++i) {
      TORCH_CHECK(features[i].dim() > 0 && features[i].size(0) == frames.size(0), "'", names_[i], "' is ",
                  ShapeText(features[i].sizes()), ": its first axis must count the ", frames.size(0), " of the batch");
      if (fields_.empty()) continue;
      TORCH_CHECK(features[i].sizes().slice(1) == at::IntArrayRef(fields_[i].shape) &&
                      StoredType(features[i].scalar_type()) == fields_[i].dtype,
                  "'", names_[i], "' is ", ShapeText(features[i].sizes()), ", and one record was ",
                  DescribeTensor(fields_[i].dtype, fields_[i].shape), " before");
    }
    return features;
  } catch (const std::exception& error) {
    return Refused(fmt::format("the encoder failed on frames {} ({}): {}", ShapeText(frames.sizes()), config_.layout,
                               ScriptError(error)),
                   "it takes one batch of frames and gives a tensor, a tuple or a dict of tensors whose first axis "
                   "counts the batch (docs/feature-cache.md)");
  }
}

// Types, shapes and values of a batch of one.
Status ClipEncoder::CheckFields(const std::vector<at::Tensor>& features) const {
  const bool sets = config_.context == cache::Context::kReferenceSet;
  for (size_t i = 0; i < features.size(); ++i) {
    const std::string& name = names_[i];
    if (!StoredType(features[i].scalar_type())) {
      return Refused(fmt::format("'{}' has the type {}, which a cache does not store", name,
                                 c10::toString(features[i].scalar_type())),
                     "give a real number type");
    }
    if (features[i].is_floating_point() && !at::isfinite(features[i]).all().item<bool>()) {
      return Refused(fmt::format("'{}' of a plain clip is not finite", name),
                     "try encoder.precision: fp32, and check encoder.range");
    }
    const bool counts = features[i].dim() > 1 && features[i].size(1) == shape_[0];
    if (Contains(config_.per_item, name) && !counts) {
      return Refused(fmt::format("'{}' is {} for a clip, and cache.per_item says that it begins with an axis of the {} "
                                 "frames",
                                 name, ShapeText(features[i].sizes().slice(1)), shape_[0]),
                     "take it out of cache.per_item, or give it that axis");
    }
    if (sets && counts && !Contains(config_.per_item, name)) {
      return Refused(fmt::format("'{}' is {} for a clip of {} frames: does its first axis count frames?", name,
                                 ShapeText(features[i].sizes().slice(1)), shape_[0]),
                     "if so list it under cache.per_item; if not, put another axis first");
    }
  }
  for (const std::string& name : config_.per_item) {
    if (!Contains(names_, name)) return Refused("cache.per_item: it gives no '" + name + "'", Join(names_, ", "));
  }
  return Status::Ok();
}

Status ClipEncoder::Probe() {
  const at::Tensor first = MadeUp(0);
  std::vector<at::Tensor> alone;
  for (int i = 0; i < 2; ++i) {
    torch::manual_seed(static_cast<uint64_t>(i) + 1);
    Result<std::vector<at::Tensor>> features = Features(first);
    if (!features.ok()) return features.status();
    if (i == 0) LOCKSTEP_RETURN_IF_ERROR(CheckFields(*features));
    for (size_t f = 0; f < alone.size(); ++f) {
      if (at::equal(alone[f], (*features)[f])) continue;
      return Refused(fmt::format("'{}' of the same clip differs between two calls", names_[f]),
                     "a cache needs features that are the same at all times: no random numbers, no state");
    }
    alone = std::move(*features);
  }
  for (size_t i = 0; i < alone.size(); ++i) {
    cache::FieldSpec field{names_[i], *StoredType(alone[i].scalar_type()), cache::Storage::kSame,
                           alone[i].sizes().slice(1).vec(), Contains(config_.per_item, names_[i])};
    const bool narrows = field.dtype == Dtype::kF32 || field.dtype == Dtype::kF16 || field.dtype == Dtype::kBF16;
    if (narrows && !field.shape.empty()) field.stored = config_.stored;
    fields_.push_back(std::move(field));
  }
  // What lies beside a record in its batch must not show in its features.
  const auto together = Features(at::cat({first, MadeUp(1)}));
  if (!together.ok()) return together.status();
  for (size_t i = 0; i < alone.size(); ++i) {
    if (Difference(alone[i][0], (*together)[i][0]) <= kSameFeatures) continue;
    return Refused(fmt::format("'{}' depends on what else is in the batch", names_[i]),
                   config_.context == cache::Context::kIndependent
                       ? "an encoder that looks at several frames needs cache.context: ordered, with all frames of its "
                         "context in a clip (data.frames)"
                       : "each clip of a batch must be encoded for itself");
  }
  if (config_.context != cache::Context::kReferenceSet || shape_[0] < 3) return Status::Ok();
  // Another order of all frames but the first must change the order of features, and nothing else.
  std::vector<int64_t> order = {0};
  for (int64_t i = shape_[0] - 1; i > 0; --i) order.push_back(i);
  const at::Tensor turned = at::tensor(order, at::kLong);
  const auto swapped = Features(first.index_select(1, turned));
  if (!swapped.ok()) return swapped.status();
  for (size_t i = 0; i < alone.size(); ++i) {
    const at::Tensor expected = fields_[i].per_item ? alone[i].index_select(1, turned.to(alone[i].device())) : alone[i];
    if (Difference(expected, (*swapped)[i]) <= kSameFeatures) continue;
    return Refused(fmt::format("'{}' depends on the order of the frames after the first", names_[i]),
                   "use cache.context: ordered");
  }
  return Status::Ok();
}

Result<cache::Description> DescribeEncoder(const ClipEncoderConfig& config, std::vector<int64_t> frames) {
  Result<std::string> digest = ScriptDigest(config.file);
  if (!digest.ok()) return digest.status().Context("encoder");
  if (config.context == cache::Context::kIndependent) frames.erase(frames.begin());
  cache::Description made;
  made.encoder = {
      {"kind", config.file.kind}, {"implementation", 1}, {"precision", engine::PrecisionName(config.file.precision)}};
  made.weights = std::move(*digest);
  made.preprocessing = {{"frames", frames},
                        {"range", config.range},
                        {"mean", config.mean},
                        {"deviation", config.deviation},
                        {"layout", config.layout}};
  made.context = config.context;
  return made;
}

Result<cache::Description> ClipEncoder::Describe() const {
  std::vector<int64_t> frames = shape_;
  if (config_.context == cache::Context::kIndependent) frames.insert(frames.begin(), 1);
  Result<cache::Description> made = DescribeEncoder(config_, std::move(frames));
  if (!made.ok()) return made;
  made->fields = fields_;
  LOCKSTEP_RETURN_IF_ERROR(made->Check());
  return made;
}

}  // namespace lockstep::recipes
