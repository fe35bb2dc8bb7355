// The next token from logits: greedy, or drawn after temperature, top-k and top-p as Hugging Face applies them. Seeded:
// equal seeds and logits give equal tokens. One thread at a time.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <cstdint>

#include "base/status.h"

namespace lockstep::models {

struct SamplingOptions {
  double temperature = 1;  // 0: the most probable token
  int64_t top_k = 0;       // > 0: only the k most probable tokens (and those as probable as the last of them)
  double top_p = 1;        // < 1: only the most probable tokens that together reach p

  Status Check() const;
};

// Logits [B, vocabulary] -> probabilities, float32. With temperature 0 the most probable token has all.
at::Tensor SamplingProbabilities(const at::Tensor& logits, const SamplingOptions& options);

class Sampler {
 public:
  Sampler(const SamplingOptions& options, uint64_t seed);
  // Logits [B, vocabulary] -> tokens [B], on the logits' device. Draws one number per row, on the CPU.
  at::Tensor Next(const at::Tensor& logits);

 private:
  SamplingOptions options_;
  at::Generator random_;
};

}  // namespace lockstep::models
