// VRT's warping and deformable convolution on a GPU against the CPU's own code in double, with the gradients of all
// inputs; that deterministic algorithms give the same bits; and that nothing waits for the device. For builds with
// CUDA.
#ifdef LOCKSTEP_CUDA
#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <functional>

#include "models/deformable.h"
#include "models/flow_warp.h"
#include "models/vrt.h"
#include "models/warp_kernels.h"

namespace lockstep::models {
namespace {

using Tensors = std::vector<at::Tensor>;
using WarpedBy = std::function<at::Tensor(const Tensors&)>;

const at::Device kWarpDevice(at::kCUDA, 0);

struct WarpPrecision {
  at::ScalarType type;
  double allowed;  // relative distance by norm
};
const WarpPrecision kWarpPrecisions[] = {{at::kFloat, 2e-5}, {at::kBFloat16, 2e-2}, {at::kHalf, 3e-3}};

double NormDistance(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor x = found.detach().cpu().to(at::kDouble), y = expected.detach().to(at::kDouble);
  if (x.sizes() != y.sizes()) return INFINITY;
  return (x - y).norm().item<double>() / (y.norm().item<double>() + 1e-12);
}

// Fixed weights that every type has exactly and whose sums do not vanish.
at::Tensor SumWeights(const at::Tensor& like) {
  const at::Tensor wave = at::cos(at::arange(like.numel(), at::kDouble)).mul(32).round().div(64).add(0.25);
  return wave.view(like.sizes()).to(like.options());
}

// The output and the gradients of all inputs of a fixed sum of the output.
Tensors OutputAndGradients(const WarpedBy& f, const Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_(true));
  const at::Tensor out = f(leaves);
  (out * SumWeights(out)).sum(at::kFloat).backward();
  Tensors results{out.detach()};
  for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

// `narrow` inputs are in the type under test, the others float32.
void ExpectAsOnTheCpu(const WarpedBy& f, const Tensors& inputs, const std::vector<bool>& narrow,
                      const std::string& what) {
  for (const WarpPrecision& precision : kWarpPrecisions) {
    Tensors own, reference;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor given = inputs[i].to(narrow[i] ? precision.type : at::kFloat);
      own.push_back(given.to(kWarpDevice));
      reference.push_back(given.to(at::kDouble));
    }
    const Tensors found = OutputAndGradients(f, own), expected = OutputAndGradients(f, reference);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].defined(), expected[i].defined()) << what << ", result " << i;
      if (!found[i].defined()) continue;
      EXPECT_EQ(found[i].scalar_type(), i == 0 ? own[0].scalar_type() : own[i - 1].scalar_type());
      EXPECT_LT(NormDistance(found[i], expected[i]), precision.allowed)
          << what << ", " << precision.type << ", " << (i == 0 ? "output" : "gradient of input ") << i;
    }
  }
}

// n, h, w, channels, outputs, groups of offsets, hops (groups of the weight).
struct GuidedShape {
  int64_t n, h, w, c, out, offset_groups, hops;
};
const GuidedShape kGuidedShapes[] = {
    {2, 9, 7, 96, 96, 16, 1}, {1, 8, 11, 192, 96, 16, 2}, {1, 5, 6, 36, 12, 4, 2},
    {2, 7, 5, 21, 6, 3, 1},   {1, 6, 5, 54, 18, 6, 3},
};

// Frames, offsets, mask, weight and bias.
Tensors DeformableInputs(const GuidedShape& s, double reach) {
  torch::manual_seed(11);
  return {at::randn({s.n, s.h, s.w, s.c}), (at::rand({s.n, s.h, s.w, s.offset_groups * 18}) - 0.5) * (2 * reach),
          at::rand({s.n, s.h, s.w, s.offset_groups * 9}),
          at::randn({s.out, s.c / s.hops, 3, 3}) / std::sqrt(9.0 * static_cast<double>(s.c)), at::randn({s.out})};
}

at::Tensor Deformed(const Tensors& in) { return DeformableConv({in[0], in[1], in[2], in[3], in[4]}); }

// Frames, raw, weight, bias and flows.
Tensors GuidedInputs(const GuidedShape& s) {
  torch::manual_seed(12);
  Tensors inputs{at::randn({s.n, s.h, s.w, s.c}), at::randn({s.n, s.h, s.w, s.offset_groups * 27}),
                 at::randn({s.out, s.c / s.hops, 3, 3}) / std::sqrt(9.0 * static_cast<double>(s.c)),
                 at::randn({s.out})};
  for (int64_t i = 0; i < s.hops; ++i) inputs.push_back(at::randn({s.n, s.h, s.w, 2}) * 2);
  return inputs;
}

at::Tensor Guided(const Tensors& in) {
  return FlowGuidedDeformable({in[0], in[1], Tensors(in.begin() + 4, in.end()), 2.5, in[2], in[3]});
}

TEST(VrtWarpOnAGpu, HasItsOwnKernels) {
  for (const WarpPrecision& precision : kWarpPrecisions) EXPECT_TRUE(warp::Usable(kWarpDevice, precision.type));
  EXPECT_FALSE(warp::Usable(kWarpDevice, at::kDouble));
}

TEST(VrtWarpOnAGpu, DeformableConvIsThatOfTheCpu) {
  at::globalContext().setAllowTF32CuBLAS(false);
  for (const GuidedShape& s : kGuidedShapes) {
    ExpectAsOnTheCpu(Deformed, DeformableInputs(s, 3), {true, false, false, false, false},
                     "channels " + std::to_string(s.c));
  }
}

TEST(VrtWarpOnAGpu, DeformableConvIsThatOfGathering) {
  const auto gathered = [](const Tensors& in) { return DeformableConvByGather({in[0], in[1], in[2], in[3], in[4]}); };
  for (const GuidedShape& s : kGuidedShapes) {
    Tensors inputs = DeformableInputs(s, 3);
    for (at::Tensor& input : inputs) input = input.to(kWarpDevice);
    const Tensors found = OutputAndGradients(Deformed, inputs), expected = OutputAndGradients(gathered, inputs);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_LT(NormDistance(found[i], expected[i].cpu()), 2e-5) << i;
  }
}

TEST(VrtWarpOnAGpu, OffsetsThatAreNotNumbersReadNothing) {
  Tensors inputs = DeformableInputs(kGuidedShapes[0], 1);
  for (at::Tensor& input : inputs) input = input.to(kWarpDevice);
  for (const double offset : {std::numeric_limits<double>::quiet_NaN(), 1e30, -1e30}) {
    inputs[1].fill_(offset);
    const Tensors results = OutputAndGradients(Deformed, inputs);
    EXPECT_TRUE(at::allclose(results[0], inputs[4].expand(results[0].sizes())));
    EXPECT_EQ(results[1].abs().max().item<double>(), 0);
  }
}

TEST(VrtWarpOnAGpu, FlowGuidedConvolutionIsThatOfTheCpu) {
  for (const GuidedShape& s : kGuidedShapes) {
    std::vector<bool> narrow(static_cast<size_t>(4 + s.hops), false);
    narrow[0] = narrow[1] = true;
    ExpectAsOnTheCpu(Guided, GuidedInputs(s), narrow, "channels " + std::to_string(s.c));
  }
}

TEST(VrtWarpOnAGpu, WhatNeedsNoGradientGetsNone) {
  Tensors inputs = GuidedInputs(kGuidedShapes[1]), all;
  for (at::Tensor& input : inputs) input = input.to(kWarpDevice);
  all = OutputAndGradients(Guided, inputs);
  inputs[1].requires_grad_(true);  // the raw offsets alone
  const at::Tensor out = Guided(inputs);
  (out * SumWeights(out)).sum().backward();
  EXPECT_LT(NormDistance(inputs[1].grad(), all[2].cpu()), 1e-5);
  for (const size_t i : {0, 2, 3, 4}) EXPECT_FALSE(inputs[i].grad().defined());
}

TEST(VrtWarpOnAGpu, PiecesAreTheWhole) {  // four frames need more columns than one piece holds
  torch::manual_seed(13);
  const GuidedShape s{4, 224, 224, 96, 96, 16, 1};
  Tensors inputs = GuidedInputs(s);
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = inputs[i].to(at::TensorOptions(kWarpDevice).dtype(i < 2 ? at::kBFloat16 : at::kFloat));
  }
  const Tensors whole = OutputAndGradients(Guided, inputs);
  const Tensors halves = OutputAndGradients(
      [](const Tensors& in) {
        Tensors outs;
        for (int64_t i = 0; i < 4; i += 2) {
          outs.push_back(Guided({in[0].narrow(0, i, 2), in[1].narrow(0, i, 2), in[2], in[3], in[4].narrow(0, i, 2)}));
        }
        return at::cat(outs);
      },
      inputs);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_LT(NormDistance(whole[i], halves[i].cpu()), 5e-3) << i;
}

TEST(VrtWarpOnAGpu, WarpingIsThatOfTheCpu) {
  torch::manual_seed(14);
  for (const Outside outside : {Outside::kZeros, Outside::kBorder}) {
    for (const int64_t channels : {2, 3, 8, 96, 200, 320}) {
      const Tensors inputs{at::randn({3, 6, 7, channels}), at::randn({3, 6, 7, 2}) * 3};
      ExpectAsOnTheCpu([&](const Tensors& in) { return FlowWarp(in[0], in[1], outside); }, inputs, {true, false},
                       "channels " + std::to_string(channels));
    }
  }
}

TEST(VrtWarpOnAGpu, TheFourNearestPixelsAreThoseOfTheCpu) {
  torch::manual_seed(15);
  at::Tensor flow = at::randn({2, 5, 9, 2}) * 3;
  flow.narrow(0, 0, 1).round_();  // floor and ceil meet
  for (const int64_t channels : {3, 4, 8}) {
    ExpectAsOnTheCpu([](const Tensors& in) { return FlowWarpNearest4(in[0], in[1]); },
                     {at::randn({2, 5, 9, channels}), flow}, {true, false}, "channels " + std::to_string(channels));
  }
}

TEST(VrtWarpOnAGpu, DeterministicAlgorithmsGiveTheSameBitsAndTheSameValues) {
  const GuidedShape s{2, 40, 40, 96, 96, 16, 1};
  Tensors inputs = GuidedInputs(s), warped{inputs[0], inputs[4]};
  for (at::Tensor& input : inputs) input = input.to(kWarpDevice);
  for (at::Tensor& input : warped) input = input.to(kWarpDevice);
  const auto warp = [](const Tensors& in) { return FlowWarp(in[0], in[1]); };
  const auto nearest = [](const Tensors& in) { return FlowWarpNearest4(in[0], in[1]); };
  struct {
    WarpedBy f;
    const Tensors& inputs;
  } const rows[] = {{Guided, inputs}, {warp, warped}, {nearest, warped}};
  for (const auto& row : rows) {
    const Tensors free = OutputAndGradients(row.f, row.inputs);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    const Tensors first = OutputAndGradients(row.f, row.inputs), second = OutputAndGradients(row.f, row.inputs);
    const Tensors nothing = OutputAndGradients([&](const Tensors& in) { return row.f(in) * 0; }, row.inputs);
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
    for (size_t i = 1; i < first.size(); ++i) {
      if (!first[i].defined()) continue;
      EXPECT_TRUE(at::equal(first[i], second[i])) << i;
      EXPECT_LT(NormDistance(first[i], free[i].cpu()), 1e-5) << i;
    }
    EXPECT_EQ(nothing[1].abs().max().item<double>(), 0);
  }
}

// The whole of a small model, two frames ahead and back.
TEST(VrtWarpOnAGpu, AModelLearnsAsOnTheCpu) {
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  VrtConfig config = *FindVrt("tiny");
  config.pa_frames = 4, config.img_size[0] = 4;
  Vrt model(config, 5);
  model.eval();
  torch::manual_seed(16);
  {
    const torch::NoGradGuard no_grad;  // the layers before offsets begin with 0
    for (const auto& item : model.named_parameters()) {
      if (item.key().find(".conv_offset.6.") != std::string::npos) item.value().normal_(0, 0.05);
    }
  }
  const auto& size = config.img_size;
  const at::Tensor clips = at::rand({1, size[0], config.InputChannels(), size[1], size[2]});
  std::map<std::string, at::Tensor> expected;
  at::Tensor output;
  for (const at::Device device : {at::Device(at::kCPU), kWarpDevice}) {
    model.to(device);
    model.zero_grad();
    const at::Tensor out = model.Forward(clips.to(device), {});
    (out * SumWeights(out)).sum().backward();
    if (device.is_cpu()) output = out.detach();
    EXPECT_LT(NormDistance(out, output), 1e-4);
    for (const auto& item : model.named_parameters()) {
      if (device.is_cpu()) expected[item.key()] = item.value().grad().clone();
      EXPECT_LT(NormDistance(item.value().grad(), expected.at(item.key())), 1e-2) << item.key();
    }
  }
}

TEST(VrtWarpOnAGpu, NothingWaitsForTheDevice) {
  Tensors inputs = GuidedInputs(kGuidedShapes[1]);
  for (at::Tensor& input : inputs) input = input.to(kWarpDevice).requires_grad_(true);
  SpyNet spynet;
  spynet.to(kWarpDevice);
  const at::Tensor pictures = at::rand({2, 40, 56, 3}).to(kWarpDevice);
  const auto step = [&] {
    const at::Tensor warped = FlowWarp(inputs[0], inputs[4]) + FlowWarpNearest4(inputs[0], inputs[4]).narrow(3, 0, 192);
    const at::Tensor out = Guided({warped, inputs[1], inputs[2], inputs[3], inputs[4], inputs[5]});
    out.backward(at::ones_like(out));
    // Neither a multiple of 32 nor a power of two: the flows are resized and scaled.
    for (const at::Tensor& flow : spynet.Forward(pictures, pictures.flip(0))) flow.sum().backward({}, true);
  };
  auto& sync = c10::cuda::warning_state();
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
    step();
    sync.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
    EXPECT_NO_THROW(step()) << deterministic;
    sync.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  }
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

}  // namespace
}  // namespace lockstep::models
#endif
