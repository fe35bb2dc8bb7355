// Deformable convolution and warping: against a slow reference (loops in double), finite differences, and what they
// must equal for simple offsets.
#include "models/deformable.h"

#include <gtest/gtest.h>

#include "golden/golden.h"
#include "models/flow_warp.h"

namespace lockstep::models {
namespace {

struct Shape {
  int64_t n, h, w, c, out, offset_groups, groups;
};

DeformableArgs MakeArgs(const Shape& s, double reach, at::ScalarType type = at::kDouble) {
  torch::manual_seed(3);
  const auto options = at::TensorOptions(type);
  DeformableArgs a;
  a.frames = at::randn({s.n, s.h, s.w, s.c}, options);
  a.offset = (at::rand({s.n, s.h, s.w, s.offset_groups * 18}, options) - 0.5) * (2 * reach);
  a.mask = at::rand({s.n, s.h, s.w, s.offset_groups * 9}, options);
  a.weight = at::randn({s.out, s.c / s.groups, 3, 3}, options);
  a.bias = at::randn({s.out}, options);
  return a;
}

// One number at a time, as the definition has it.
at::Tensor Slow(const DeformableArgs& a, const Shape& s) {
  const auto x = a.frames.accessor<double, 4>(), offset = a.offset.accessor<double, 4>(),
             mask = a.mask.accessor<double, 4>(), weight = a.weight.accessor<double, 4>();
  const at::Tensor out = at::zeros({s.n, s.h, s.w, s.out}, at::kDouble);
  auto to = out.accessor<double, 4>();
  const auto pixel = [&](int64_t n, int64_t i, int64_t j, int64_t c) {
    return i >= 0 && i < s.h && j >= 0 && j < s.w ? x[n][i][j][c] : 0.0;
  };
  const int64_t per_group = s.c / s.groups, per_offset = s.c / s.offset_groups;
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t i = 0; i < s.h; ++i) {
      for (int64_t j = 0; j < s.w; ++j) {
        for (int64_t o = 0; o < s.out; ++o) {
          double sum = a.bias[o].item<double>();
          const int64_t first = o / (s.out / s.groups) * per_group;
          for (int64_t c = first; c < first + per_group; ++c) {
            for (int64_t k = 0; k < 9; ++k) {
              const int64_t at = c / per_offset * 9 + k;
              const double y = static_cast<double>(i + k / 3 - 1) + offset[n][i][j][2 * at];
              const double z = static_cast<double>(j + k % 3 - 1) + offset[n][i][j][2 * at + 1];
              const auto y0 = static_cast<int64_t>(std::floor(y)), z0 = static_cast<int64_t>(std::floor(z));
              double value = 0;
              for (int64_t dy = 0; dy < 2; ++dy) {
                for (int64_t dz = 0; dz < 2; ++dz) {
                  value += (1 - std::abs(y - static_cast<double>(y0 + dy))) *
                           (1 - std::abs(z - static_cast<double>(z0 + dz))) * pixel(n, y0 + dy, z0 + dz, c);
                }
              }
              sum += weight[o][c - first][k / 3][k % 3] * mask[n][i][j][at] * value;
            }
          }
          to[n][i][j][o] = sum;
        }
      }
    }
  }
  return out;
}

const Shape kShapes[] = {{2, 5, 7, 8, 6, 4, 1}, {1, 6, 4, 12, 4, 2, 2}, {1, 4, 5, 12, 6, 4, 3}, {1, 3, 3, 4, 2, 1, 1}};

TEST(DeformableConv, EqualsTheDefinition) {
  for (const Shape& s : kShapes) {
    const DeformableArgs a = MakeArgs(s, 4);
    EXPECT_LT(golden::Distance(DeformableConv(a), Slow(a, s)), 1e-12);
    EXPECT_LT(golden::Distance(DeformableConvByGather(a), Slow(a, s)), 1e-12);
    DeformableArgs f{a.frames.to(at::kFloat), a.offset.to(at::kFloat), a.mask.to(at::kFloat), a.weight.to(at::kFloat),
                     a.bias.to(at::kFloat)};
    EXPECT_LT(golden::Distance(DeformableConv(f), Slow(a, s)), 1e-5);
  }
}

// The gradients of f(inputs) summed with fixed weights, by differences of size 1e-6 at a few places of each input.
template <typename F>
void ExpectGradients(std::vector<at::Tensor> inputs, const F& f) {
  for (at::Tensor& input : inputs) input = input.detach().clone().requires_grad_(true);
  const auto value = [&] {
    const at::Tensor out = f(inputs);
    return (out * at::cos(at::arange(out.numel(), out.options())).view(out.sizes())).sum();
  };
  value().backward();
  for (size_t k = 0; k < inputs.size(); ++k) {
    at::Tensor flat = inputs[k].detach().view({-1});
    for (int64_t i = 0; i < 25; ++i) {
      const int64_t at = (i * 7919 + 3) % flat.numel();
      const torch::NoGradGuard no_grad;
      const double step = 1e-6, before = flat[at].item<double>();
      flat[at] = before + step;
      const double above = value().template item<double>();
      flat[at] = before - step;
      const double below = value().template item<double>();
      flat[at] = before;
      const double expected = (above - below) / (2 * step), found = inputs[k].grad().view({-1})[at].item<double>();
      EXPECT_NEAR(found, expected, 1e-5 * std::max(1.0, std::abs(expected))) << "input " << k << " at " << at;
    }
  }
}

TEST(DeformableConv, GradientsAreThoseOfDifferences) {
  for (const Shape& s : kShapes) {
    const DeformableArgs a = MakeArgs(s, 2);
    ExpectGradients({a.frames, a.offset, a.mask, a.weight, a.bias}, [](const std::vector<at::Tensor>& in) {
      return DeformableConv({in[0], in[1], in[2], in[3], in[4]});
    });
  }
}

TEST(DeformableConv, GradientsAreThoseOfGatheringWithAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const Shape s{3, 40, 37, 24, 16, 8, 1};
  std::vector<at::Tensor> first;
  for (const int count : {0, 1, 3}) {  // 0: by gathering
    at::set_num_threads(std::max(count, 1));
    DeformableArgs a = MakeArgs(s, 6, at::kFloat);
    std::vector<at::Tensor> inputs{a.frames, a.offset, a.mask, a.weight, a.bias};
    for (at::Tensor& input : inputs) input.requires_grad_(true);
    const at::Tensor out = count == 0 ? DeformableConvByGather(a) : DeformableConv(a);
    out.square().mean().backward();
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (count == 0) {
        first.push_back(inputs[k].grad());
      } else {
        EXPECT_LT(golden::Distance(inputs[k].grad(), first[k]), 1e-5) << count << " threads, input " << k;
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(DeformableConv, ZeroOffsetsWithMaskOneHalfAreHalfAConvolution) {
  const Shape s{2, 6, 9, 8, 5, 2, 1};
  DeformableArgs a = MakeArgs(s, 0);
  a.offset.zero_();
  a.mask.fill_(0.5);
  a.bias.zero_();
  const at::Tensor convolution =
      at::conv2d(a.frames.permute({0, 3, 1, 2}), a.weight, {}, 1, 1).permute({0, 2, 3, 1}) * 0.5;
  EXPECT_LT(golden::Distance(DeformableConv(a), convolution), 1e-12);
}

TEST(DeformableConv, OffsetsThatAreNotNumbersReadNothing) {
  const Shape s{1, 4, 4, 4, 4, 1, 1};
  DeformableArgs a = MakeArgs(s, 1);
  a.offset.fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(at::allclose(DeformableConv(a), a.bias.expand({1, 4, 4, 4})));
  a.offset.fill_(1e300);
  EXPECT_TRUE(at::allclose(DeformableConv(a), a.bias.expand({1, 4, 4, 4})));
}

TEST(DeformableConv, WhatDoesNotFitTogetherIsRefused) {
  DeformableArgs a = MakeArgs({1, 4, 4, 8, 4, 2, 1}, 1);
  a.mask = a.mask.narrow(3, 0, 17).contiguous();
  EXPECT_THROW(DeformableConv(a), c10::Error);
}

at::Tensor GridSample(const at::Tensor& x, const at::Tensor& flow, int64_t mode, int64_t padding) {
  const int64_t h = x.size(1), w = x.size(2);
  const auto grid = at::meshgrid({at::arange(h, x.options()), at::arange(w, x.options())}, "ij");
  const at::Tensor size = at::tensor({static_cast<double>(w - 1), static_cast<double>(h - 1)});
  const at::Tensor places = (at::stack({grid[1], grid[0]}, 2) + flow) * 2 / size - 1;
  return at::grid_sampler_2d(x.permute({0, 3, 1, 2}), places, mode, padding, true).permute({0, 2, 3, 1});
}

TEST(FlowWarp, EqualsGridSampleWithItsGradients) {
  torch::manual_seed(5);
  for (const Outside outside : {Outside::kZeros, Outside::kBorder}) {
    std::vector<at::Tensor> own{at::randn({3, 6, 7, 5}, at::kDouble), at::randn({3, 6, 7, 2}, at::kDouble) * 3}, other;
    for (at::Tensor& input : own) {
      other.push_back(input.clone().requires_grad_(true));
      input.requires_grad_(true);
    }
    const at::Tensor a = FlowWarp(own[0], own[1], outside);
    const at::Tensor b = GridSample(other[0], other[1], 0, outside == Outside::kBorder ? 1 : 0);
    a.square().sum().backward();
    b.square().sum().backward();
    EXPECT_LT(golden::Distance(a, b), 1e-12);
    for (size_t k = 0; k < 2; ++k) EXPECT_LT(golden::Distance(own[k].grad(), other[k].grad()), 1e-12);
  }
}

TEST(FlowWarp, Nearest4ReadsTheFourPixelsAroundAPlace) {
  torch::manual_seed(6);
  const at::Tensor x = at::randn({2, 5, 6, 3}, at::kDouble).requires_grad_(true);
  const at::Tensor flow = (at::randn({2, 5, 6, 2}, at::kDouble) * 2).requires_grad_(true);
  const at::Tensor out = FlowWarpNearest4(x, flow);
  std::vector<at::Tensor> corners;
  const auto grid = at::meshgrid({at::arange(5, x.options()), at::arange(6, x.options())}, "ij");
  const at::Tensor base = at::stack({grid[1], grid[0]}, 2), place = (base + flow).detach();
  for (int k = 0; k < 4; ++k) {
    const at::Tensor px = place.select(3, 0), py = place.select(3, 1);
    const at::Tensor corner =
        at::stack({k / 2 ? at::ceil(px) : at::floor(px), k % 2 ? at::ceil(py) : at::floor(py)}, 3);
    corners.push_back(GridSample(x.detach(), corner - base, 1, 0));
  }
  EXPECT_TRUE(at::equal(out, at::cat(corners, 3)));
  out.sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(flow.grad().defined());
}

}  // namespace
}  // namespace lockstep::models
