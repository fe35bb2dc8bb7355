#include "models/sampling.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace lockstep::models {

Status SamplingOptions::Check() const {
  if (!(temperature >= 0)) return {Code::kUsage, fmt::format("temperature is {}, expected 0 or more", temperature)};
  if (top_k < 0) return {Code::kUsage, fmt::format("top_k is {}, expected 0 (all tokens) or more", top_k)};
  if (!(top_p > 0 && top_p <= 1)) {
    return {Code::kUsage, fmt::format("top_p is {}, expected more than 0 and at most 1", top_p)};
  }
  return Status::Ok();
}

at::Tensor SamplingProbabilities(const at::Tensor& logits, const SamplingOptions& options) {
  const torch::NoGradGuard no_grad;
  at::Tensor scores = logits.to(at::kFloat);
  if (options.temperature == 0) {
    return at::zeros_like(scores).scatter_(1, scores.argmax(1, true), 1);
  }
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  scores = scores / options.temperature;
  if (options.top_k > 0 && options.top_k < scores.size(1)) {
    const at::Tensor least = std::get<0>(scores.topk(options.top_k, 1)).narrow(1, options.top_k - 1, 1);
    scores = scores.masked_fill(scores < least, kNever);
  }
  if (options.top_p < 1) {
    const auto [sorted, order] = scores.sort(1, /*descending=*/true);
    const at::Tensor probabilities = sorted.softmax(1);
    // A token goes when those before it reach p already; the first one stays.
    const at::Tensor before = probabilities.cumsum(1) - probabilities;
    const at::Tensor gone = (before >= options.top_p).scatter(1, order, before >= options.top_p);
    scores = scores.masked_fill(gone, kNever);
  }
  return scores.softmax(1);
}

Sampler::Sampler(const SamplingOptions& options, uint64_t seed)
    : options_(options), random_(at::detail::createCPUGenerator(seed)) {}

at::Tensor Sampler::Next(const at::Tensor& logits) {
  const torch::NoGradGuard no_grad;
  if (options_.temperature == 0) return logits.argmax(1);
  const at::Tensor uniform =
      at::rand({logits.size(0), 1}, random_, at::TensorOptions().dtype(at::kDouble)).to(logits.device());
  const at::Tensor sums = SamplingProbabilities(logits, options_).to(at::kDouble).cumsum(1);
  // The first token whose sum passes the number; tokens without probability are never first.
  const at::Tensor total = sums.narrow(1, sums.size(1) - 1, 1);
  return (sums <= uniform * total).sum(1).clamp_max(logits.size(1) - 1);
}

}  // namespace lockstep::models
