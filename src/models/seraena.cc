#include "models/seraena.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <string>
#include <utility>

namespace lockstep::models {
namespace {

constexpr double kMomentum = 0.1;
constexpr double kEpsilon = 1e-5;

at::Tensor PerChannel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }

at::Tensor SumOfChannels(const at::Tensor& x) { return x.sum(at::IntArrayRef{0, 2, 3}, false, at::kDouble); }

// Normalisation by the statistics of all ranks. Float32 arithmetic whatever x is; sums of squares in float64, where
// subtracting the squared mean costs nothing. One sum over ranks forward (2 C + 1 numbers), one backward (2 C).
struct NormOverRanks : torch::autograd::Function<NormOverRanks> {
  // The result, the mean and the unbiased variance.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                                                const at::Tensor& weight, const at::Tensor& bias, int64_t sum_address) {
    const auto& sum = *reinterpret_cast<const SumOverRanks*>(sum_address);
    const int64_t channels = x.size(1);
    const at::Tensor wide = x.to(at::kFloat);
    at::Tensor sums =
        at::cat({SumOfChannels(wide), SumOfChannels(wide.square()),
                 at::full({1}, static_cast<double>(x.numel() / channels), wide.options().dtype(at::kDouble))});
    if (sum) sum(sums);
    const at::Tensor count = sums.narrow(0, 2 * channels, 1).clamp_min(1);
    const at::Tensor mean = sums.narrow(0, 0, channels) / count;
    const at::Tensor variance = (sums.narrow(0, channels, channels) / count - mean.square()).clamp_min(0);
    const at::Tensor inverse = (variance + kEpsilon).rsqrt().to(at::kFloat);
    const at::Tensor mean32 = mean.to(at::kFloat);
    const at::Tensor y = (wide - PerChannel(mean32)) * PerChannel(inverse * weight) + PerChannel(bias);
    const at::Tensor unbiased = variance * (count / (count - 1).clamp_min(1));
    context->save_for_backward({x, weight, mean32, inverse, count});
    context->saved_data["sum"] = sum_address;
    const at::Tensor unbiased32 = unbiased.to(at::kFloat);
    context->mark_non_differentiable({mean32, unbiased32});
    return {y.to(x.scalar_type()), mean32, unbiased32};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto& sum = *reinterpret_cast<const SumOverRanks*>(context->saved_data["sum"].toInt());
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3], &count = saved[4];
    const int64_t channels = x.size(1);
    const at::Tensor dy = gradients[0].to(at::kFloat);
    const at::Tensor normal = (x.to(at::kFloat) - PerChannel(mean)) * PerChannel(inverse);
    at::Tensor sums = at::cat({SumOfChannels(dy), SumOfChannels(dy * normal)});
    // The parameters' gradients are this rank's own part: whoever sums gradients adds the others'.
    const at::Tensor d_bias = sums.narrow(0, 0, channels).to(at::kFloat);
    const at::Tensor d_weight = sums.narrow(0, channels, channels).to(at::kFloat);
    if (sum) sum(sums);
    const at::Tensor means = (sums / count).to(at::kFloat);
    const at::Tensor dx =
        (dy - PerChannel(means.narrow(0, 0, channels)) - normal * PerChannel(means.narrow(0, channels, channels))) *
        PerChannel(weight * inverse);
    return {dx.to(x.scalar_type()), d_weight, d_bias, at::Tensor()};
  }
};

// Mean over equal parts where the sizes divide, as they do for pictures of a multiple of 8 (its backward has a fixed
// order also on GPUs); PyTorch's adaptive pooling otherwise.
at::Tensor PoolTo(const at::Tensor& x, int64_t height, int64_t width) {
  const int64_t y = x.size(2) / height, z = x.size(3) / width;
  if (x.size(2) != y * height || x.size(3) != z * width) return at::adaptive_avg_pool2d(x, {height, width});
  return y == 1 && z == 1 ? x : at::avg_pool2d(x, {y, z}, {y, z});
}

}  // namespace

Norm::Norm(int64_t channels) {
  weight = register_parameter("weight", at::ones({channels}));
  bias = register_parameter("bias", at::zeros({channels}));
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor Norm::Forward(const at::Tensor& x, const SumOverRanks& sum, bool defer) {
  if (!is_training()) {
    return at::batch_norm(x, weight, bias, running_mean, running_var, false, kMomentum, kEpsilon,
                          at::globalContext().userEnabledCuDNN());
  }
  if (!sum && !defer) {
    {
      const at::NoGradGuard no_grad;
      num_batches_tracked.add_(1);
    }
    return at::batch_norm(x, weight, bias, running_mean, running_var, true, kMomentum, kEpsilon,
                          at::globalContext().userEnabledCuDNN());
  }
  const auto out = NormOverRanks::apply(x, weight, bias, reinterpret_cast<int64_t>(&sum));
  if (defer) {
    pass_mean = out[1];
    pass_variance = out[2];
  } else {
    Absorb(out[1], out[2]);
  }
  return out[0];
}

void Norm::Absorb(const at::Tensor& mean, const at::Tensor& variance) {
  const at::NoGradGuard no_grad;
  running_mean.mul_(1 - kMomentum).add_(mean, kMomentum);
  running_var.mul_(1 - kMomentum).add_(variance, kMomentum);
  num_batches_tracked.add_(1);
}

struct PatchDisc::Convolution : torch::nn::Module {
  Convolution(at::Generator& random, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding)
      : stride(stride), padding(padding) {
    // Conv2d's default draw, with its roundings.
    const double fan_in = static_cast<double>(in * kernel * kernel);
    const double bound = std::sqrt(3.0) * (std::sqrt(2.0 / (1 + std::pow(std::sqrt(5.0), 2))) / std::sqrt(fan_in));
    weight = register_parameter("weight", at::empty({out, in, kernel, kernel}).uniform_(-bound, bound, random));
  }
  at::Tensor Forward(const at::Tensor& x) const { return at::conv2d(x, weight, {}, stride, padding); }
  at::Tensor weight;
  int64_t stride, padding;
};

struct PatchDisc::Block : torch::nn::Module {
  Block(at::Generator& random, int64_t in, int64_t out, int64_t stride)
      : conv(register_module("0", std::make_shared<Convolution>(random, in, out, stride == 2 ? 4 : 3, stride, 1))),
        norm(register_module("1", std::make_shared<Norm>(out))) {}
  std::shared_ptr<Convolution> conv;
  std::shared_ptr<Norm> norm;
};

PatchDisc::PatchDisc(int64_t image_channels, int64_t context_channels, uint64_t seed)
    : torch::nn::Module("PatchDisc"), image_channels_(image_channels), context_channels_(context_channels) {
  struct Row {
    int64_t width, stride;
  };
  constexpr Row kRows[] = {{64, 1}, {128, 2}, {256, 2}, {512, 2}, {512, 1}, {512, 1}};
  at::Generator random = at::detail::createCPUGenerator(seed);
  const at::NoGradGuard no_grad;
  auto blocks = std::make_shared<torch::nn::Module>("blocks");
  auto projections = std::make_shared<torch::nn::Module>("proj");
  int64_t in = image_channels + context_channels;
  for (const Row& row : kRows) {
    blocks_.push_back(blocks->register_module(std::to_string(blocks_.size()),
                                              std::make_shared<Block>(random, in, row.width, row.stride)));
    in = row.width;
  }
  for (const Row& row : kRows) {
    projections_.push_back(projections->register_module(std::to_string(projections_.size()),
                                                        std::make_shared<Convolution>(random, row.width, 1, 1, 1, 0)));
  }
  register_module("blocks", blocks);
  register_module("proj", projections);
}

at::Tensor PatchDisc::Forward(const at::Tensor& images, const at::Tensor& context) {
  TORCH_CHECK(images.dim() == 4 && images.size(1) == image_channels_ && images.size(2) >= 8 && images.size(3) >= 8,
              "the discriminator takes pictures as (N, ", image_channels_, ", >= 8, >= 8), not ", images.sizes());
  TORCH_CHECK(context.dim() == 4 && context.size(1) == context_channels_ && context.size(0) == images.size(0),
              "the discriminator takes context as (", images.size(0), ", ", context_channels_, ", height, width), not ",
              context.sizes());
  const int64_t height = images.size(2) / 8, width = images.size(3) / 8;
  at::Tensor x = at::cat({images.mul(2).sub(1),
                          at::upsample_nearest2d(context.to(images.scalar_type()), {images.size(2), images.size(3)})},
                         1);
  // Half precision convolutions of GPUs want channels last, and would turn every layer's input round.
  if (x.is_cuda() && at::autocast::is_autocast_enabled(at::kCUDA)) x = x.contiguous(at::MemoryFormat::ChannelsLast);
  std::vector<at::Tensor> scores;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = at::relu(blocks_[i]->norm->Forward(blocks_[i]->conv->Forward(x), sum_, defer_));
    scores.push_back(PoolTo(projections_[i]->Forward(x), height, width));
  }
  return at::cat(scores, 1);
}

at::Tensor PatchDisc::EmptyStatistics() const {
  int64_t size = 1;
  for (const auto& block : blocks_) size += 2 * block->norm->weight.size(0);
  return at::zeros({size}, blocks_[0]->norm->running_mean.options().dtype(at::kDouble));
}

at::Tensor PatchDisc::PassStatistics(int64_t count) const {
  if (count == 0) return EmptyStatistics();
  std::vector<at::Tensor> parts = {at::ones({1}, blocks_[0]->norm->running_mean.options())};
  for (const auto& block : blocks_) {
    parts.push_back(block->norm->pass_mean);
    parts.push_back(block->norm->pass_variance);
  }
  return at::cat(parts).to(at::kDouble).mul(static_cast<double>(count));
}

void PatchDisc::AbsorbStatistics(const at::Tensor& sum) {
  const at::Tensor means = (sum / sum.narrow(0, 0, 1).clamp_min(1)).to(at::kFloat);
  int64_t at = 1;
  for (const auto& block : blocks_) {
    const int64_t channels = block->norm->weight.size(0);
    block->norm->Absorb(means.narrow(0, at, channels), means.narrow(0, at + channels, channels));
    at += 2 * channels;
  }
}

at::Tensor DiscriminatorLoss(PatchDisc& disc, const at::Tensor& real, const at::Tensor& fake,
                             const at::Tensor& real_context, const at::Tensor& fake_context,
                             const at::Tensor& is_fake) {
  disc.train();
  const at::Tensor mask = is_fake.to(at::kBool).view({-1, 1, 1, 1});
  const at::Tensor scores =
      disc.Forward(at::where(mask, fake, real), at::where(mask, fake_context, real_context)).to(at::kFloat);
  if (real.size(0) == 0) return scores.sum();
  return at::mse_loss(scores, mask.to(at::kFloat).mul(2).sub(1).expand_as(scores));
}

at::Tensor Correction(PatchDisc& disc, const at::Tensor& real, const at::Tensor& fake, const at::Tensor& context,
                      const SumOverRanks& sum) {
  disc.eval();
  at::Tensor correction = at::zeros_like(fake);
  if (fake.size(0) > 0) {
    at::Tensor wanted;
    {
      const at::NoGradGuard no_grad;
      wanted = disc.Forward(real, context).to(at::kFloat);
    }
    const at::AutoGradMode with_gradient(true);
    const at::Tensor moved = fake.detach().clone().requires_grad_(true);
    const at::Tensor scores = disc.Forward(moved, context).to(at::kFloat);
    const at::Tensor distance = at::mse_loss(scores, wanted, at::Reduction::None).mean(at::IntArrayRef{1, 2, 3}).sum();
    correction = torch::autograd::grad({distance}, {moved})[0].detach().neg();
  }
  return correction.div(PopulationStd(correction, sum).add(1e-5));
}

at::Tensor PopulationStd(const at::Tensor& values, const SumOverRanks& sum) {
  if (!sum) return at::std(values, at::OptionalIntArrayRef(), at::Scalar(0));
  const at::Tensor wide = values.to(at::kDouble);
  at::Tensor sums =
      at::stack({wide.sum(), wide.square().sum(), at::full({}, static_cast<double>(values.numel()), wide.options())});
  sum(sums);
  const at::Tensor count = sums[2].clamp_min(1);
  const at::Tensor mean = sums[0] / count;
  return (sums[1] / count - mean.square()).clamp_min(0).sqrt().to(values.scalar_type());
}

}  // namespace lockstep::models
