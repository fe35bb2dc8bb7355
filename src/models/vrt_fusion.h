// RGB and spikes fused into the three channels that an unmodified VRT takes (S-VRT's "dual" input, early placement).
// Parameter names are S-VRT's below "fusion_adapter.". The operator decides the frame contract:
//
//   expanded:  each frame is repeated for each of the S spike bins, VRT restores T * S frames, Reduce takes T of them
//   collapsed: the bins of a frame are fused into it, VRT restores T frames
//
// S-VRT's plain 006 needs none of this: there spikes are further input channels (VrtConfig::in_chans). A plain module;
// one thread at a time; no collectives.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lockstep::models {

namespace fusion {
struct Operator;
}

enum class FrameContract { kExpanded, kCollapsed };

struct FusionConfig {
  std::string op = "gated";                         // concat, gated, pase, pase_residual, attention
  std::string placement = "early";                  // S-VRT also has middle and hybrid; those are refused
  std::string frame_contract = "operator_default";  // or expanded, collapsed
  int64_t spike_bins = 4;                           // S
  int64_t hidden_chans = 32;                        // gated, pase, pase_residual
  int64_t kernel_size = 3;                          // pase, pase_residual
  bool normalize_kernel = true;                     // softmax over the weights of a predicted kernel
  int64_t feature_chans = 48;                       // pase_residual
  int64_t token_dim = 48, token_stride = 4, num_layers = 3, num_heads = 4;  // attention
  double mlp_ratio = 2;                                                     // attention
  double alpha_init = 0.05, gate_bias_init = -2;                            // pase_residual, attention
  int64_t reduce_index = 0;  // the bin whose frame is kept (expanded); beyond the last: the last

  bool operator==(const FusionConfig&) const = default;

  // An operator or placement that is not here is refused by name, with what to use instead.
  Status Check() const;
  // After Check.
  FrameContract Contract() const;
  // Frames that VRT sees for clips of `frames`.
  int64_t BackboneFrames(int64_t frames) const {
    return Contract() == FrameContract::kExpanded ? frames * spike_bins : frames;
  }
};

// Whether a network part of S-VRT that is named in option files is one that we have: "mamba",
// "dual_scale_temporal_mamba", "dcnv4", "scflow", "sea_raft" and others are refused with what to use instead.
Status CheckSvrtOperator(std::string_view kind, const std::string& name);

class FusionAdapter : public torch::nn::Module {
 public:
  // Throws where config.Check() is an error. Drawn as Vrt's weights; gated and the residual operators begin near the
  // identity.
  explicit FusionAdapter(const FusionConfig& config, uint64_t seed = 0);
  const FusionConfig& config() const { return config_; }

  // RGB [b, t, 3, h, w] and spikes [b, t, S, h', w'] (enlarged where they are smaller) -> [b, BackboneFrames, 3, h, w].
  at::Tensor Forward(const at::Tensor& rgb, const at::Tensor& spikes);
  // RGB as often as VRT sees it, [b, BackboneFrames, 3, h, w]: VRT's result is added to that, not to what Forward
  // gives.
  at::Tensor Base(const at::Tensor& rgb) const;
  // What Forward gave -> [b, t, 3, h, w], of expanded frames that of the middle bin: for losses of the adapter.
  at::Tensor Middle(const at::Tensor& fused) const;
  // VRT's output for those frames -> [b, t, 3, h, w].
  at::Tensor Reduce(const at::Tensor& restored) const;

 private:
  at::Tensor FrameOfBin(const at::Tensor& frames, int64_t bin) const;
  FusionConfig config_;
  std::shared_ptr<fusion::Operator> operator_;
  std::shared_ptr<torch::nn::Module> refine_;
  at::Tensor Enlarged(const at::Tensor& spikes, int64_t height, int64_t width) const;
};

// Warm-up of the operators that write a correction back (pase_residual, attention): first the head alone, then the
// whole operator, then everything.
enum class FusionWarmup { kWritebackOnly, kTokenMixer, kFull };
struct FusionWarmupPlan {
  int64_t head_only_iters = 0;  // S-VRT: 800
  int64_t fix_iter = 0;         // 0: no warm-up
};
FusionWarmup FusionWarmupAt(const FusionWarmupPlan& plan, int64_t step);
// Whether a parameter of the model trains in that stage, by its name; `fix_keys` of the option file freeze others.
bool TrainsInWarmup(const FusionConfig& config, FusionWarmup stage, std::string_view parameter);

}  // namespace lockstep::models
