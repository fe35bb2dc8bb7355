#include "engine/frozen.h"

#include <algorithm>
#include <map>

#include "engine/host_memory.h"

namespace lockstep::engine {

int64_t Fingerprint(const at::Tensor& values) {
  constexpr int64_t kPiece = int64_t{1} << 22;
  const size_t bytes = values.element_size();
  const at::ScalarType type = bytes == 8 ? at::kLong : bytes == 4 ? at::kInt : bytes == 2 ? at::kShort : at::kChar;
  int64_t sum = 0;
  for (int64_t begin = 0; begin < values.numel(); begin += kPiece) {
    const int64_t n = std::min(kPiece, values.numel() - begin);
    const at::Tensor bits = values.narrow(0, begin, n).view(type).to(at::kLong);
    const at::Tensor place = at::arange(begin + 1, begin + 1 + n, bits.options()).bitwise_and(0xfffff);
    sum += (bits * (place * 2 + 1)).sum().item<int64_t>();
  }
  return sum;
}

Result<FrozenShards> FrozenShards::Take(const torch::nn::Module& module, const std::vector<Unit>& units,
                                        const Options& options) {
  const at::NoGradGuard no_grad;
  FrozenShards taken;
  taken.share_ = options.share;
  const auto named = module.named_parameters(/*recurse=*/true);
  for (size_t u = 0; u < units.size(); ++u) {
    std::map<at::ScalarType, std::vector<FrozenParameter>> by_type;
    for (const std::string& name : units[u].parameters) {
      const at::Tensor* tensor = named.find(name);
      if (tensor == nullptr || !Takes(*tensor, options.persistent)) continue;
      by_type[tensor->scalar_type()].push_back({name, *tensor, tensor->sizes().vec(), 0, 0, tensor->numel()});
    }
    for (auto& [type, list] : by_type) {
      int64_t total = 0;
      for (FrozenParameter& parameter : list) {
        parameter.group = taken.groups_.size();
        parameter.offset = total;
        total += parameter.numel;
      }
      const int64_t unit = kFlatAlignment * options.shares;
      const int64_t own = (total + unit - 1) / unit * kFlatAlignment;
      const auto like = list.front().tensor.options().requires_grad(false);
      const HostMemoryOptions read{.type = type, .pinned = !like.device().is_cpu()};
      taken.groups_.push_back(
          {u, options.on_host ? HostMemory(own, read) : at::zeros({own}, like), at::empty({0}, like)});
      for (FrozenParameter& parameter : list) {
        LOCKSTEP_RETURN_IF_ERROR(taken.Fill(parameter, options.draw));
        taken.parameters_.push_back(std::move(parameter));
      }
      taken.Place(taken.groups_.size() - 1, {});
    }
  }
  return taken;
}

Status FrozenShards::Fill(const FrozenParameter& parameter, const DrawParameter& draw) {
  const FlatRange range = RangeOf(parameter, share_);
  const at::Tensor own = OwnPart(parameter);
  if (!draw) {
    const at::Tensor whole = parameter.tensor.detach().contiguous().view({-1});
    fingerprint_ = fingerprint_ * 31 + Fingerprint(whole);
    own.copy_(whole.narrow(0, range.begin, range.size()));
    return Status::Ok();
  }
  if (range.size() == 0) return Status::Ok();
  const at::Tensor part = at::empty({range.size()}, at::kFloat);
  LOCKSTEP_RETURN_IF_ERROR(draw(parameter.name, range.begin, part));
  own.copy_(part);
  return Status::Ok();
}

FlatRange FrozenShards::RangeOf(const FrozenParameter& parameter, int share) const {
  const int64_t size = groups_[parameter.group].shard.numel();
  const int64_t begin = std::clamp(share * size - parameter.offset, int64_t{0}, parameter.numel);
  return {begin, std::clamp((share + 1) * size - parameter.offset, int64_t{0}, parameter.numel)};
}

at::Tensor FrozenShards::OwnPart(const FrozenParameter& parameter) const {
  const at::Tensor& shard = groups_[parameter.group].shard;
  const FlatRange range = RangeOf(parameter, share_);
  if (range.size() == 0) return shard.narrow(0, 0, 0);
  return shard.narrow(0, parameter.offset + range.begin - share_ * shard.numel(), range.size());
}

void FrozenShards::Place(size_t group, const at::Tensor& buffer) {
  for (FrozenParameter& parameter : parameters_) {
    if (parameter.group != group) continue;
    parameter.tensor.set_data(buffer.defined()
                                  ? buffer.narrow(0, parameter.offset, parameter.numel).view(parameter.shape)
                                  : groups_[group].nowhere);
  }
}

}  // namespace lockstep::engine
