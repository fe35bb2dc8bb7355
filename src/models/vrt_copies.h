// A model's parameters as the matrix products of its blocks take them: in their type, some of them side by side. Made
// at once at the beginning of a pass and used until its backward pass is done; blocks that run by themselves make their
// own. One thread; no collectives.
#pragma once

#include <memory>
#include <vector>

#include "models/vrt_layers.h"

namespace lockstep::models::vrt {

struct AttentionCopy {
  at::Tensor qkv, qkv_bias;  // self, then mutual; the bias may be undefined
  at::Tensor code;           // of the mutual part: the sine code of 64 places through its weights, [64, 3 * width]
  at::Tensor table;          // [heads, positions] in units of log2, float32
  at::Tensor proj;
};
struct MlpCopy {
  at::Tensor both, both_bias;  // gate, then value
  at::Tensor down, down_bias;
};

std::shared_ptr<const AttentionCopy> CopyOf(const WindowAttention& attention, at::ScalarType type);
std::shared_ptr<const MlpCopy> CopyOf(const Geglu& mlp, at::ScalarType type);

class Copies {
 public:
  // All blocks' parameters as they are now, into the same memory as before. False, and nothing is copied, where some
  // are elsewhere (shared out between ranks) or blocks have none of these kernels.
  bool Refresh(const std::vector<std::shared_ptr<Tmsa>>& blocks, at::ScalarType type);
  const std::shared_ptr<AttentionCopy>& attention(size_t block) const { return attentions_[block]; }
  const std::shared_ptr<MlpCopy>& mlp(size_t block) const { return mlps_[block]; }

 private:
  std::vector<std::shared_ptr<AttentionCopy>> attentions_;
  std::vector<std::shared_ptr<MlpCopy>> mlps_;
};

}  // namespace lockstep::models::vrt
