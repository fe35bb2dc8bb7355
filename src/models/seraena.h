// Seraena: a discriminator that looks at patches of pictures beside their latents, and the correction it gives to a
// decoder's output. Names in the state dict and the first draw are upstream's. Owned by a recipe, used by its training
// thread.
//
// Statistics are over all ranks: what a batch normalisation or the scale of the correction needs is summed through
// SumOverRanks, so that 4 ranks see what 1 rank with all pictures sees. With such a function set, Forward in training
// mode, its backward, and PopulationStd are collective; a rank without pictures takes part with an empty batch.
// Everything here can be part of a captured graph: no value is read by the host.
//
//   PatchDisc disc(9, 16, /*seed=*/7);
//   DiscriminatorLoss(disc, real, fake, context, fake_context, is_fake).backward();
//   at::Tensor target = fake + Correction(disc, real, fake, context, {});
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::models {

// Adds a float64 vector up over ranks, in place. Absent: this rank is alone (or stays alone on purpose).
using SumOverRanks = std::function<void(at::Tensor& values)>;

// BatchNorm2d: batch statistics (biased variance) in training, running ones (momentum 0.1, unbiased) in evaluation.
struct Norm : torch::nn::Module {
  explicit Norm(int64_t channels);
  at::Tensor Forward(const at::Tensor& x, const SumOverRanks& sum, bool defer);
  void Absorb(const at::Tensor& mean, const at::Tensor& variance);
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  at::Tensor pass_mean, pass_variance;  // of the last training pass, when deferred
};

class PatchDisc : public torch::nn::Module {
 public:
  // Weights as `torch.manual_seed(seed)` and upstream's constructor give them, bit for bit.
  PatchDisc(int64_t image_channels, int64_t context_channels, uint64_t seed);

  // Pictures [N, image channels, H, W] with values around [0, 1] and context [N, context channels, any size]: scores
  // [N, 6, H / 8, W / 8], one map per block.
  at::Tensor Forward(const at::Tensor& images, const at::Tensor& context);

  // Set for good before the first step. The function must outlive the graphs made with it.
  void SetSum(SumOverRanks sum) { sum_ = std::move(sum); }

  // Where results must not depend on the number of ranks to the bit, every pass keeps to its own statistics, and the
  // running ones change once a step: each training pass leaves PassStatistics, the caller adds those of all passes of
  // all ranks up in an order of its own, and AbsorbStatistics moves the running ones towards the mean over pictures.
  void DeferRunningStatistics() { defer_ = true; }
  at::Tensor EmptyStatistics() const;              // zeros, float64: pictures, then mean and variance of each block
  at::Tensor PassStatistics(int64_t count) const;  // of the last training pass, which had so many pictures
  void AbsorbStatistics(const at::Tensor& sum);

  int64_t image_channels() const { return image_channels_; }
  int64_t context_channels() const { return context_channels_; }

 private:
  struct Block;
  struct Convolution;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::vector<std::shared_ptr<Convolution>> projections_;
  int64_t image_channels_, context_channels_;
  SumOverRanks sum_;
  bool defer_ = false;
};

// Squared distance of the scores from +1 where `is_fake` (bool [N]) and -1 elsewhere; pictures and context are the fake
// ones there. Training mode. An empty batch gives 0 with a graph, for the collectives in its backward.
at::Tensor DiscriminatorLoss(PatchDisc& disc, const at::Tensor& real, const at::Tensor& fake,
                             const at::Tensor& real_context, const at::Tensor& fake_context, const at::Tensor& is_fake);

// Where to move each fake so that its scores come nearer to those of its real one: minus the gradient of the distance,
// divided by (its standard deviation + 1e-5). Evaluation mode. No graph.
at::Tensor Correction(PatchDisc& disc, const at::Tensor& real, const at::Tensor& fake, const at::Tensor& context,
                      const SumOverRanks& sum);

// Of all elements of all ranks' tensors; a scalar like them.
at::Tensor PopulationStd(const at::Tensor& values, const SumOverRanks& sum);

}  // namespace lockstep::models
