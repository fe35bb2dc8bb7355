// The fast execution against the layers as they are written: the same numbers up to rounding, for outputs and for every
// parameter's gradient. In float64 rounding is 1e-16, so a wrong tap, frame or edge cannot hide in a tolerance.
#include "models/fused.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "models/fused_blocks.h"
#include "models/fused_frames.h"
#include "models/fused_kernels.h"
#include "models/taehv.h"
#include "models/taehv_stream.h"

namespace lockstep::models {
namespace {

at::Tensor TypedNoise(at::IntArrayRef sizes, at::ScalarType type = at::kDouble, uint64_t seed = 1) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(type));
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor x = a.to(at::kDouble).cpu(), y = b.to(at::kDouble).cpu();
  return ((x - y).norm() / (y.norm() + 1e-30)).item<double>();
}

// A named variant, made narrow.
TaehvConfig Narrow(const std::string& name) {
  at::set_num_threads(1);
  TaehvConfig config = *FindTaehv(name);
  config.encoder_width = {8, 16, 8, 16};
  config.decoder_width = {16, 8, 16, 8};
  return config;
}

struct Outcome {
  at::Tensor latents, frames;
  std::map<std::string, at::Tensor> gradients;
};

Outcome Train(Taehv& model, const at::Tensor& frames, Execution execution) {
  model.SetExecution(execution);
  model.zero_grad();
  Outcome out;
  out.latents = model.Encode(frames);
  out.frames = model.Decode(out.latents, false);
  at::Tensor weights = TypedNoise(out.frames.sizes(), at::kDouble, 3).to(out.frames.device(), out.frames.scalar_type());
  ((out.frames * weights).sum() + (out.latents * out.latents).sum()).backward();
  for (const auto& item : model.named_parameters()) {
    if (item.value().grad().defined()) out.gradients[item.key()] = item.value().grad().clone();
  }
  return out;
}

void ExpectSame(const Outcome& found, const Outcome& expected, double tolerance) {
  EXPECT_EQ(found.frames.sizes(), expected.frames.sizes());
  EXPECT_LT(Difference(found.latents, expected.latents), tolerance);
  EXPECT_LT(Difference(found.frames, expected.frames), tolerance);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    const at::Tensor& mine = found.gradients.at(name);
    EXPECT_LT(Difference(mine, gradient), tolerance) << name;
    EXPECT_EQ(mine.scalar_type(), gradient.scalar_type()) << name;
    EXPECT_TRUE(mine.is_contiguous()) << name;
  }
}

TEST(Fused, EveryVariantGivesTheReferencesNumbersAndGradients) {
  std::set<std::string> seen;
  for (TaehvConfig config : TaehvVariants()) {
    for (bool super : {false, true}) {
      std::string name = config.name + (super && !config.super ? "_super" : "");
      if (!FindTaehv(name).ok() || !seen.insert(name).second) continue;
      SCOPED_TRACE(name);
      TaehvConfig narrow = Narrow(name);
      Taehv model(narrow, 7);
      model.to(at::kDouble);
      int64_t side = narrow.SpaceDown() * 2;
      at::Tensor frames =
          TypedNoise({1, narrow.chunk > 0 ? narrow.chunk + 2 : 2 * narrow.TimeDown() + 1, 3, side, side / 2});
      ExpectSame(Train(model, frames, Execution::kFast), Train(model, frames, Execution::kReference), 1e-11);
    }
  }
  EXPECT_GT(seen.size(), 10u);
}

TEST(Fused, ClipsOfAnyLengthAndSeveralAtOnce) {
  Taehv model(Narrow("taehv"), 7);
  model.to(at::kDouble);
  for (int64_t length : {1, 3, 4, 7, 12}) {
    SCOPED_TRACE(length);
    at::Tensor frames = TypedNoise({3, length, 3, 16, 24});
    ExpectSame(Train(model, frames, Execution::kFast), Train(model, frames, Execution::kReference), 1e-11);
  }
}

TEST(Fused, InFloatTheDifferenceIsRounding) {
  Taehv model(Narrow("taehv"), 7);
  at::Tensor frames = TypedNoise({2, 8, 3, 16, 16}, at::kFloat);
  ExpectSame(Train(model, frames, Execution::kFast), Train(model, frames, Execution::kReference), 2e-5);
}

TEST(Fused, WithoutGradientsTheBitsAreTheSameAsWith) {
  Taehv model(Narrow("taehv"), 7);
  model.SetExecution(Execution::kFast);
  at::Tensor frames = TypedNoise({2, 8, 3, 16, 16}, at::kFloat), with = model.Decode(model.Encode(frames));
  torch::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(model.Decode(model.Encode(frames)), with));
}

TEST(Fused, AutocastDecidesTheComputeType) {
  Taehv model(Narrow("taehv"), 7);
  at::Tensor frames = TypedNoise({1, 4, 3, 16, 16}, at::kFloat), exact = model.Decode(model.Encode(frames), false);
  model.SetExecution(Execution::kFast);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::Tensor rounded = model.Decode(model.Encode(frames), false);
  rounded.to(at::kFloat).sum().backward();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
  EXPECT_EQ(model.Encode(frames).scalar_type(), at::kFloat);
  EXPECT_LT(Difference(rounded, exact), 2e-2);
  EXPECT_GT(Difference(rounded, exact), 1e-5);
  for (const auto& item : model.named_parameters()) {
    EXPECT_EQ(item.value().grad().scalar_type(), at::kFloat) << item.key();
  }
}

TEST(Fused, AFrozenHalfGetsNoGradientsAndTheOtherHalfTheSame) {
  for (std::string frozen : {"encoder.", "decoder."}) {
    Taehv model(Narrow("taehv"), 7);
    model.to(at::kDouble);
    for (auto& item : model.named_parameters()) {
      if (item.key().starts_with(frozen)) item.value().set_requires_grad(false);
    }
    at::Tensor frames = TypedNoise({1, 8, 3, 16, 16});
    Outcome fast = Train(model, frames, Execution::kFast);
    ExpectSame(fast, Train(model, frames, Execution::kReference), 1e-11);
    for (const auto& [name, gradient] : fast.gradients) EXPECT_FALSE(name.starts_with(frozen)) << name;
  }
}

TEST(Fused, FramesThatNeedGradientsGetThem) {
  Taehv model(Narrow("taehv"), 7);
  model.to(at::kDouble);
  at::Tensor frames = TypedNoise({1, 8, 3, 16, 16}).requires_grad_();
  at::Tensor expected = torch::autograd::grad({model.Decode(model.Encode(frames), false).square().sum()}, {frames})[0];
  model.SetExecution(Execution::kFast);
  at::Tensor found = torch::autograd::grad({model.Decode(model.Encode(frames), false).square().sum()}, {frames})[0];
  EXPECT_LT(Difference(found, expected), 1e-11);
}

TEST(Fused, StreamsGiveWhatTheWholeClipGives) {
  for (std::string name : {"taehv", "taehv1_5", "taeltx_2"}) {
    SCOPED_TRACE(name);
    TaehvConfig config = Narrow(name);
    Taehv model(config, 7);
    model.to(at::kDouble);
    torch::NoGradGuard no_grad;
    int64_t side = config.SpaceDown() * 2;
    at::Tensor frames = TypedNoise({2, 19, 3, side, side}), latents = model.Encode(frames);
    at::Tensor decoded = model.Decode(latents);
    model.SetExecution(Execution::kFast);
    for (int64_t piece : {1, 2, 3, 4, 7, 8, 19}) {
      SCOPED_TRACE(piece);
      at::Tensor found = model.EncodeSequential(frames, piece);
      EXPECT_LT(Difference(found, latents), 1e-11);
      EXPECT_LT(Difference(model.DecodeSequential(found, piece), decoded), 1e-11);
    }
  }
}

// What the engine's activation checkpointing does: once without gradients, once more with them when they are needed.
TEST(Fused, StagesMayRunTwice) {
  Taehv model(Narrow("taehv"), 7);
  model.to(at::kDouble);
  int stages = 0;
  model.SetWrap([&](size_t, const Taehv::Stage& stage, const at::Tensor& input) {
    ++stages;
    at::Tensor first = [&] {
      torch::NoGradGuard no_grad;
      return stage(input);
    }();
    at::Tensor second = stage(input);
    EXPECT_TRUE(at::equal(first, second));
    return second;
  });
  at::Tensor frames = TypedNoise({1, 8, 3, 16, 16});
  ExpectSame(Train(model, frames, Execution::kFast), Train(model, frames, Execution::kReference), 1e-11);
  EXPECT_EQ(stages, 12);
}

TEST(Fused, SecondDerivativesAreRefused) {
  Taehv model(Narrow("taehv"), 7);
  model.SetExecution(Execution::kFast);
  at::Tensor loss = model.Encode(TypedNoise({1, 4, 3, 16, 16}, at::kFloat)).square().sum();
  EXPECT_THROW(torch::autograd::grad({loss}, {model.parameters()[0]}, {}, true, true), c10::Error);
}

// One convolution for enlarging, growing and convolving; one wrong tap is seen.
TEST(Fused, MergedWeightsAreTheLayersOneAfterAnother) {
  at::Tensor grow = TypedNoise({3 * 5, 4, 1, 1}) - 0.5, conv = TypedNoise({6, 5, 3, 3}, at::kDouble, 2) - 0.5,
             x = TypedNoise({2, 4, 5, 7});
  fused::Shape shape{.clips = 2, .frames = 3, .channels = 6, .height = 10, .width = 14};
  at::Tensor large = at::conv2d(at::upsample_nearest2d(x, {10, 14}), grow).reshape({6, 5, 10, 14});
  at::Tensor expected = at::conv2d(large, conv, {}, 1, 1);
  auto run = [&](const at::Tensor& weight) {
    return fused::Regroup(at::conv2d(x, weight, {}, 1, 1), {.phases = true, .group = 3}, shape, {}, 1);
  };
  at::Tensor weight = fused::MergeGrow(grow, conv, 2, at::kDouble);
  EXPECT_LT(Difference(run(weight), expected), 1e-14);
  EXPECT_GT(Difference(run(weight.flip({3})), expected), 0.1);
  at::Tensor wrong = conv.clone();
  wrong[0][0][0][0] += 1e-6;
  EXPECT_GT(Difference(run(fused::MergeGrow(grow, wrong, 2, at::kDouble)), expected), 1e-9);

  at::Tensor pool = TypedNoise({5, 2 * 4, 1, 1}) - 0.5, pairs = TypedNoise({2, 8, 6, 9});
  EXPECT_LT(Difference(at::conv2d(pairs, fused::MergePool(pool, conv, at::kDouble), {}, 2, 1),
                       at::conv2d(at::conv2d(pairs, pool), conv, {}, 2, 1)),
            1e-14);

  at::Tensor phases = at::conv2d(x, weight, {}, 1, 1).contiguous(at::MemoryFormat::ChannelsLast);
  fused::ClearEdges(phases, 6);
  at::Tensor last = TypedNoise({3, 6, 3, 3});
  at::Tensor found =
      at::conv2d(phases, fused::ForGroup(fused::PhasesOf(last), 3, 72, 40, at::kDouble)).narrow(1, 0, 36);
  found = found.unflatten(1, {3, 2, 2, 3}).permute({0, 1, 4, 5, 2, 6, 3}).reshape({6, 3, 10, 14});
  EXPECT_LT(Difference(found, at::conv2d(expected, last, {}, 1, 1)), 1e-14);
}

TEST(Fused, AThinConvolutionMayReadNeighboursAsChannels) {
  at::Tensor x = TypedNoise({2, 5, 6, 4}), conv = TypedNoise({3, 5, 3, 3}, at::kDouble, 2);
  at::Tensor found = at::conv2d(fused::Columns(x, 16, at::kDouble), fused::ColumnsOf(conv, 16), {}, {1, 1}, {1, 0});
  EXPECT_LT(Difference(found, at::conv2d(x, conv, {}, 1, 1)), 1e-14);
}

TEST(Fused, GradientsOfMergedWeightsAreNumerically) {
  at::Tensor grow = (TypedNoise({2 * 3, 2, 1, 1}) - 0.5).requires_grad_();
  at::Tensor conv = (TypedNoise({2, 3, 3, 3}, at::kDouble, 2) - 0.5).requires_grad_(),
             pool = (TypedNoise({3, 4, 1, 1})).requires_grad_();
  for (int64_t factor : {1, 2}) {
    at::Tensor weights = TypedNoise(fused::MergeGrow(grow, conv, factor, at::kDouble).sizes(), at::kDouble, 4);
    auto loss = [&] { return (fused::MergeGrow(grow, conv, factor, at::kDouble) * weights).sum(); };
    auto gradients = torch::autograd::grad({loss()}, {grow, conv});
    for (auto [p, gradient] : {std::pair(grow, gradients[0]), std::pair(conv, gradients[1])}) {
      torch::NoGradGuard no_grad;
      double before = p.view({-1})[4].item<double>(), step = 1e-4;
      p.view({-1})[4] = before + step;
      double up = loss().item<double>();
      p.view({-1})[4] = before - step;
      double down = loss().item<double>();
      p.view({-1})[4] = before;
      EXPECT_NEAR((up - down) / (2 * step), gradient.reshape({-1})[4].item<double>(), 1e-7);
    }
  }
}

// Collect must be the transpose of WithPast and Regroup: <A x, y> = <x, A' y> for any x and y.
TEST(Fused, GradientsOfLayoutsAreTheirTransposes) {
  fused::Shape shape{.clips = 2, .frames = 4, .channels = 3, .height = 4, .width = 6};
  for (fused::Layout layout :
       {fused::Layout{}, fused::Layout{.group = 2}, fused::Layout{true, 1}, fused::Layout{true, 2}}) {
    SCOPED_TRACE(layout.phases);
    at::Tensor z = layout.phases ? TypedNoise({8 / layout.group, layout.group * 12, 3, 4})
                                 : TypedNoise({8 / layout.group, layout.group * 3, 4, 6});
    at::Tensor y = TypedNoise({8, 6, 4, 6}, at::kDouble, 2), back = fused::Collect({.both = y}, shape, layout);
    EXPECT_NEAR((fused::WithPast(z, layout, shape, {}) * y).sum().item<double>(), (z * back).sum().item<double>(),
                1e-10);
    at::Tensor g = TypedNoise({4, 6, 4, 6}, at::kDouble, 2),
               direct = fused::Collect({.direct = g, .direct_group = 2}, shape, layout);
    EXPECT_NEAR((fused::Regroup(z, layout, shape, {}, 2) * g).sum().item<double>(), (z * direct).sum().item<double>(),
                1e-10);
  }
}

#ifdef LOCKSTEP_CUDA
// The kernels against the ATen operators they replace.
TEST(Fused, OnAGpuTheKernelsGiveTheSameNumbers) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(fused::kernels::Usable(at::zeros({1, 8, 2, 2}, at::TensorOptions(at::kCUDA).dtype(type)), 8));
  }
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  for (std::string name : {"taehv", "taehv1_5", "taeltx_2", "taehv_super"}) {
    SCOPED_TRACE(name);
    TaehvConfig config = Narrow(name);
    Taehv model(config, 7);
    int64_t side = config.SpaceDown() * 2;
    at::Tensor frames = TypedNoise({2, 9, 3, side, side}, at::kFloat);
    Outcome expected = Train(model, frames, Execution::kReference);
    model.to(at::kCUDA);
    ExpectSame(Train(model, frames.cuda(), Execution::kFast), expected, 1e-3);  // a relu may flip
    torch::NoGradGuard no_grad;
    at::Tensor whole = model.Encode(frames.cuda());
    for (int64_t piece : {1, 3, 4}) EXPECT_LT(Difference(model.EncodeSequential(frames.cuda(), piece), whole), 1e-5);
    at::Tensor decoded = model.Decode(whole);
    for (int64_t piece : {1, 2}) EXPECT_LT(Difference(model.DecodeSequential(whole, piece), decoded), 1e-5);
  }
}
#endif

}  // namespace
}  // namespace lockstep::models
