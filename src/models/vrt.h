// VRT, the video restoration transformer: deblurring, denoising, super-resolution and interpolation of clips. Parameter
// names are upstream's. A plain module: owned by the recipe, used by one thread at a time, no collectives; equal seeds
// give equal weights on every rank.
//
//   VrtConfig config = *FindVrt("006");
//   Vrt model(config, /*seed=*/7);
//   at::Tensor restored = model.Forward(clips);  // [b, d, c, h, w] -> [b, d, 3, h, w]
//
// Constants that upstream keeps as buffers (position indices and codes, SpyNet's mean and std) are no buffers here; the
// files that vrt_file.h writes have them.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/lora.h"
#include "models/spynet.h"
#include "models/vrt_config.h"
#include "models/vrt_stage.h"

namespace lockstep::models {

class Vrt : public torch::nn::Module {
 public:
  // Throws where config.Check() is an error. Element i of a parameter is a function of (seed, name, i) alone, with the
  // distributions of upstream's constructor.
  explicit Vrt(const VrtConfig& config, uint64_t seed = 0);
  const VrtConfig& config() const { return config_; }

  // Clips [b, d, InputChannels(), h, w] -> [b, d, out_chans, upscale * h, upscale * w]; interpolation: [b, out_chans /
  // 3, 3, h, w]. In training mode DropPath takes `draws` [b, Draws()], uniform in [0, 1), or numbers of the default
  // generator where that is undefined: all drawn here, before the first unit. The result is added to `base` [b, d,
  // out_chans, h, w], by default the first channels of the clips. Throws where config.CheckClip is an error.
  at::Tensor Forward(const at::Tensor& clips, const at::Tensor& draws = {}, const at::Tensor& base = {});
  // Random numbers that one sample takes.
  int64_t Draws() const { return static_cast<int64_t>(rates_.size()); }
  // DropPath's factors [Draws(), b] of draws [b, Draws()]: 0, or what the others are scaled by.
  at::Tensor Factors(const at::Tensor& draws, at::ScalarType type) const;

  // Optical flows of clips [b, d, h, w, c], RGB first: for each scale (1, 1/2, 1/4, 1/8), over all hops.
  std::vector<vrt::Flows> OpticalFlows(const at::Tensor& clips) const;

  // Units in the order of forward: the attention and the feed-forward part of every block. Other parameters (SpyNet,
  // convolutions, warping, linear layers between groups) belong to none.
  const std::vector<vrt::Unit>& Units() const { return units_; }
  // Forward runs every unit through `runner` (the signature of engine::UnitRunner).
  void RunUnits(vrt::Runner runner) { runner_ = std::move(runner); }

  // LoRA for the matrices that the globs choose ("*.qkv_self.weight", "*.proj.weight"), as Decoder::AddLora: all other
  // parameters are frozen. Once, after the weights are there.
  Status AddLora(const LoraConfig& lora);
  const LoraConfig& lora() const { return lora_; }
  // Names of the matrices that can have LoRA: qkv_self, qkv_mut and proj of every block.
  std::vector<std::string> Matrices() const;
  // Parameters without LoRA: a matrix that has one with it added. In the module's order, upstream's names.
  std::vector<std::pair<std::string, at::Tensor>> Merged() const;

  // The parts, for whoever loads weights or runs the same parameters in another way.
  SpyNet& spynet() { return *spynet_; }
  const vrt::Stage& stage(size_t i) const { return *stages_[i]; }
  size_t stages() const { return stages_.size(); }

 private:
  at::Tensor Features(const at::Tensor& first, const std::vector<vrt::Flows>& flows, const vrt::Pass& pass) const;
  at::Tensor Restore(const at::Tensor& clips, const at::Tensor& base, const vrt::Pass& pass) const;
  at::Tensor Interpolate(const at::Tensor& clips, const vrt::Pass& pass) const;
  std::vector<std::pair<std::string, std::shared_ptr<vrt::Linear>>> LoraLinears() const;
  void DrawWeights();

  VrtConfig config_;
  uint64_t seed_;
  LoraConfig lora_;
  std::shared_ptr<vrt::Conv> conv_first_, conv_last_;
  std::shared_ptr<SpyNet> spynet_;  // null for interpolation
  std::vector<std::shared_ptr<vrt::Stage>> stages_;
  std::shared_ptr<vrt::Norm> widen_norm_, norm_;
  std::shared_ptr<vrt::Linear> widen_, conv_after_body_;
  std::vector<std::shared_ptr<vrt::Rtmsa>> groups_;                // of stage 8
  std::shared_ptr<vrt::Conv> conv_before_upsample_, linear_fuse_;  // null where the head has none
  std::vector<std::shared_ptr<vrt::Conv>> upsample_;
  std::vector<vrt::Unit> units_;
  std::vector<double> rates_;  // of DropPath, for every draw
  std::vector<std::shared_ptr<vrt::Tmsa>> blocks_;
  std::shared_ptr<vrt::Copies> copies_;
  vrt::Runner runner_;
};

}  // namespace lockstep::models
