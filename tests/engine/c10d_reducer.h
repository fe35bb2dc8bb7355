// c10d's own Reducer, the core of PyTorch's DistributedDataParallel, over our communicator: oracle of the tests,
// opponent of the benchmarks. Buckets are those DistributedDataParallel would make. Its constructor differs between
// versions of LibTorch; whichever exists is called.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/torch/c10d_backend.h"

namespace lockstep::engine {

template <typename Reducer = c10d::Reducer>
std::unique_ptr<Reducer> MakeReducer(const std::vector<at::Tensor>& parameters,
                                     const c10::intrusive_ptr<c10d::ProcessGroup>& group, bool gradient_as_bucket_view,
                                     int64_t bucket_bytes = 25 << 20, int64_t first_bucket_bytes = 1 << 20) {
  using Buckets = std::vector<std::vector<size_t>>;
  using Sizes = std::vector<size_t>;
  using Flags = std::vector<bool>;
  using Names = std::unordered_map<size_t, std::string>;
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
  const Flags sparse(parameters.size(), false);
  // The order of registration at first; the first backward tells the real one and rebuild_buckets() takes it over.
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      parameters, {static_cast<size_t>(first_bucket_bytes), static_cast<size_t>(bucket_bytes)}, sparse);
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  if constexpr (std::is_constructible_v<Reducer, std::vector<at::Tensor>, Buckets, Group, Flags, int64_t, bool, bool,
                                        Names, int64_t, bool, bool, std::vector<int64_t>>) {
    return std::make_unique<Reducer>(parameters, buckets, group, sparse, bucket_bytes, false, gradient_as_bucket_view,
                                     Names{}, first_bucket_bytes, false, false, std::vector<int64_t>{});
  } else if constexpr (std::is_constructible_v<Reducer, std::vector<at::Tensor>, Buckets, Sizes, Group, Flags, int64_t,
                                               bool, bool, Names, int64_t, bool, bool>) {
    return std::make_unique<Reducer>(parameters, buckets, limits, group, sparse, bucket_bytes, false,
                                     gradient_as_bucket_view, Names{}, first_bucket_bytes, false, false);
  } else {
    return std::make_unique<Reducer>(parameters, buckets, limits, group, sparse, bucket_bytes, false,
                                     gradient_as_bucket_view, Names{}, first_bucket_bytes);
  }
}

// One step as DistributedDataParallel makes it; afterwards every parameter's .grad is the mean over ranks.
template <typename LossOf>
void ReducerStep(c10d::Reducer& reducer, const LossOf& loss_of) {
  reducer.prepare_for_forward();
  reducer.rebuild_buckets();
  const at::Tensor loss = loss_of();
  reducer.prepare_for_backward({loss});
  loss.backward();
}

}  // namespace lockstep::engine
