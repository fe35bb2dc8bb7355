#include "engine/flat.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/host_memory.h"

namespace lockstep::engine {
namespace {

// Copies between a flat buffer and memory that holds some of its ranges one after the other.
void CopyRanges(const std::vector<FlatRange>& ranges, const at::Tensor& flat, const at::Tensor& own, bool to_flat) {
  const at::NoGradGuard no_grad;
  int64_t local = 0;
  for (const FlatRange& range : ranges) {
    const at::Tensor there = flat.narrow(0, range.begin, range.size());
    const at::Tensor here = own.narrow(0, local, range.size());
    (to_flat ? there : here).copy_(to_flat ? here : there);
    local += range.size();
  }
}

// The unit of each parameter by name.
std::map<std::string, int> GroupsOf(const std::vector<Unit>& units) {
  std::map<std::string, int> groups;
  for (size_t u = 0; u < units.size(); ++u) {
    for (const std::string& name : units[u].parameters) groups.emplace(name, static_cast<int>(u));
  }
  return groups;
}

// Zeroed float32 memory beside the model.
at::Tensor MemoryOn(at::Device device, int64_t numel) {
  constexpr int64_t kLarge = int64_t{1} << 20;  // elements; two huge pages
  if (device.is_cpu() && numel >= kLarge) return HostMemory(numel, {.chunk = 0});
  return at::zeros({numel}, at::TensorOptions().dtype(at::kFloat).device(device));
}

}  // namespace

at::Tensor OwnedParameters::NewState() const {
  return on_host ? HostMemory(numel()) : MemoryOn(values.device(), numel());
}

std::vector<std::pair<int64_t, at::Tensor>> OwnedParameters::Parts(const at::Tensor& memory, bool in_place) const {
  if (!in_place) return {{0, memory}};
  std::vector<std::pair<int64_t, at::Tensor>> parts;
  int64_t begin = 0;
  for (const FlatRange& range : ranges) {
    parts.emplace_back(begin, memory.narrow(0, range.begin, range.size()));
    begin += range.size();
  }
  return parts;
}

Result<FlatParameters> FlatParameters::Create(const torch::nn::Module& module, const Allocate& gradients,
                                              const Options& options) {
  FlatParameters flat;
  flat.options_ = options;
  const bool shards = IsSharded(options.stage, Buffer::kParameters);
  const std::map<std::string, int> groups = GroupsOf(shards ? options.units : std::vector<Unit>());
  const auto named = module.named_parameters(/*recurse=*/true);
  for (auto it = named.end(); it != named.begin();) {
    --it;
    const at::Tensor& tensor = it->value();
    if (!tensor.requires_grad()) continue;
    if (tensor.scalar_type() != at::kFloat) {
      return Status(
          Code::kUsage,
          fmt::format("parameter {}: expected float32, found {}", it->key(), c10::toString(tensor.scalar_type())),
          "keep trainable weights in float32 and let train.precision choose what is computed in");
    }
    if (!flat.parameters_.empty() && tensor.device() != flat.parameters_.front().tensor.device()) {
      return Status(Code::kUsage,
                    fmt::format("parameter {} is on {}, {} on {}", it->key(), tensor.device().str(),
                                flat.parameters_.front().name, flat.parameters_.front().tensor.device().str()),
                    "move the whole model to one device");
    }
    flat.parameters_.push_back({it->key(), tensor, tensor.sizes().vec(), 0, tensor.numel()});
  }
  if (flat.parameters_.empty()) {
    return Status(Code::kUsage, "the model has no parameter that requires a gradient", "unfreeze something to train");
  }
  // The last unit comes first, as in backward; what is always there comes last, since its gradients come all along.
  const auto group = [&](const FlatParameter& parameter) {
    const auto found = groups.find(parameter.name);
    return !shards || found == groups.end() || parameter.numel < options.persistent ? kAlways : found->second;
  };
  std::stable_sort(flat.parameters_.begin(), flat.parameters_.end(),
                   [&](const FlatParameter& a, const FlatParameter& b) { return group(a) > group(b); });
  std::vector<Layout::Size> sizes;
  for (const FlatParameter& p : flat.parameters_) sizes.push_back({p.name, p.numel, group(p)});
  flat.layout_ = Layout(sizes, options.layout);
  for (size_t i = 0; i < sizes.size(); ++i) flat.parameters_[i].offset = flat.layout_.parameters()[i].offset;

  flat.device_ = flat.parameters_.front().tensor.device();
  const auto whole = at::TensorOptions().dtype(at::kFloat).device(flat.device_);
  OwnedParameters& own = flat.owned_;
  own.ranges = flat.layout_.Kept(options.stage, Buffer::kOptimizer, options.share);
  own.segments = SegmentsOf(flat.layout_, own.ranges);
  own.on_host = options.host_master;
  own.size = TotalSize(own.ranges);
  const bool all = !IsSharded(options.stage, Buffer::kOptimizer);
  // What a device reads of the host's memory: parameters in the model's type, which may be the master itself.
  const HostMemoryOptions read{.type = options.parameters, .pinned = !flat.device_.is_cpu()};
  const bool one_copy = options.host_parameters && options.parameters == at::kFloat;
  const HostMemoryOptions master = one_copy ? read : HostMemoryOptions();
  at::Tensor drawn;
  if (options.draw && shards) {
    own.values = options.host_master ? HostMemory(own.size, master) : MemoryOn(flat.device_, own.size);
    LOCKSTEP_RETURN_IF_ERROR(flat.DrawOwned());
  } else {
    drawn = MemoryOn(flat.device_, flat.layout_.numel());
    const at::NoGradGuard no_grad;
    for (FlatParameter& parameter : flat.parameters_) View(drawn, parameter).copy_(parameter.tensor);
    if (!all) flat.fingerprint_ = Fingerprint(drawn);
    // Whole float32 parameters are there anyway: the own ones are updated among them.
    own.values_in_place = !options.host_master && (all || (!shards && options.parameters == at::kFloat));
    if (own.values_in_place) {
      own.values = drawn;
    } else {
      own.values = options.host_master ? HostMemory(own.size, master) : MemoryOn(flat.device_, own.size);
      CopyRanges(own.ranges, drawn, own.values, /*to_flat=*/false);
    }
  }
  if (shards) {
    if (options.host_parameters) {
      flat.shards_ = one_copy ? own.values : HostMemory(own.size, read).copy_(own.values);
    } else {
      flat.shards_ = own.values.to(flat.device_, options.parameters);  // the same memory where it is float32
    }
    flat.nowhere_ = at::empty({0}, whole.dtype(options.parameters));
    // Shapes without memory, for the gradient accumulators that a strategy makes.
    const at::Tensor one = at::zeros({1}, flat.nowhere_.options());
    for (FlatParameter& parameter : flat.parameters_) parameter.tensor.set_data(one.expand(parameter.shape));
    Result<FrozenShards> frozen = FrozenShards::Take(
        module, options.units,
        {options.persistent, flat.layout_.shares(), options.share, options.host_parameters, options.draw});
    if (!frozen.ok()) return frozen.status();
    flat.frozen_ = std::move(*frozen);
    flat.fingerprint_ += flat.frozen_.fingerprint();
  } else {
    if (options.values) {
      flat.values_ = options.values(flat.layout_.numel());
      flat.values_.copy_(drawn);
      if (own.values_in_place) own.values = flat.values_;
    } else {
      flat.values_ = drawn.to(options.parameters);  // likewise
    }
    for (FlatParameter& parameter : flat.parameters_) parameter.tensor.set_data(View(flat.values_, parameter));
    if (options.host_master) {
      flat.working_ = all ? flat.values_ : own.values.to(flat.device_, options.parameters);
    }
  }
  if (options.whole_gradients) flat.gradients_ = gradients(flat.layout_.numel());
  flat.views_ = options.whole_gradients && flat.gradients_.scalar_type() == options.parameters;
  const bool widest = options.whole_gradients && flat.gradients_.scalar_type() == at::kFloat;
  own.gradients_in_place = options.host_master ? all && options.whole_gradients : widest;
  own.gradients = own.gradients_in_place ? flat.gradients_ : MemoryOn(flat.device_, own.size);
  flat.ResetGradients();
  return flat;
}

Status FlatParameters::DrawOwned() {
  constexpr int64_t kPiece = int64_t{1} << 24;
  const at::NoGradGuard no_grad;
  for (const Segment& segment : owned_.segments) {
    const FlatParameter& parameter = parameters_[segment.parameter];
    for (int64_t begin = segment.begin; begin < segment.end; begin += kPiece) {
      const at::Tensor piece = at::empty({std::min(kPiece, segment.end - begin)}, at::kFloat);
      LOCKSTEP_RETURN_IF_ERROR(
          options_.draw(parameter.name, segment.flat + begin - segment.begin - parameter.offset, piece));
      owned_.values.narrow(0, begin, piece.numel()).copy_(piece);
    }
  }
  return Status::Ok();
}

at::Tensor FlatParameters::View(const at::Tensor& flat, const FlatParameter& parameter) {
  return flat.narrow(0, parameter.offset, parameter.numel).view(parameter.shape);
}

void FlatParameters::ResetGradients() {
  if (gradients_.defined()) gradients_.zero_();
  for (FlatParameter& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!views_) {
      gradient.reset();
      continue;
    }
    const auto* expected = static_cast<const std::byte*>(gradients_.const_data_ptr()) +
                           parameter.offset * static_cast<int64_t>(gradients_.element_size());
    if (!gradient.defined() || gradient.const_data_ptr() != expected) gradient = View(gradients_, parameter);
  }
}

void FlatParameters::ReadOwnedGradients() {
  if (!owned_.gradients_in_place) CopyRanges(owned_.ranges, gradients_, owned_.gradients, false);
}

void FlatParameters::ReadOwnedValues() {
  if (values_.defined() && owned_.values.const_data_ptr() != values_.const_data_ptr()) {
    CopyRanges(owned_.ranges, values_, owned_.values, false);
  }
}

void FlatParameters::WriteOwnedValues() {
  const at::NoGradGuard no_grad;
  if (options_.host_master) {
    const at::Tensor working = OwnedWorking();
    if (!written_ && !working.is_same(owned_.values)) working.copy_(owned_.values);
    written_ = false;
    if (!shards_.defined() && !working.is_same(values_)) CopyRanges(owned_.ranges, values_, working, true);
  } else if (shards_.defined()) {
    if (!shards_.is_same(owned_.values)) shards_.copy_(owned_.values);
  } else if (owned_.values.const_data_ptr() != values_.const_data_ptr()) {
    CopyRanges(owned_.ranges, values_, owned_.values, true);
  }
}

FlatRange FlatParameters::OwnRange(size_t bucket) const {
  int64_t begin = 0;
  for (size_t b = 0; b < bucket; ++b) begin += layout_.buckets()[b].size() / layout_.shares();
  return {begin, begin + layout_.buckets()[bucket].size() / layout_.shares()};
}

at::Tensor FlatParameters::Shard(size_t bucket) const {
  const FlatRange range = OwnRange(bucket);
  return shards_.narrow(0, range.begin, range.size());
}

void FlatParameters::Place(int group, const at::Tensor& buffer) {
  int64_t begin = -1;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const size_t bucket = layout_.parameters()[i].bucket;
    if (layout_.GroupOf(bucket) != group) continue;
    if (begin < 0) begin = layout_.buckets()[bucket].begin;
    FlatParameter& parameter = parameters_[i];
    parameter.tensor.set_data(buffer.defined()
                                  ? buffer.narrow(0, parameter.offset - begin, parameter.numel).view(parameter.shape)
                                  : nowhere_);
  }
}

}  // namespace lockstep::engine
