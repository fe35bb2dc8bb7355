#include "engine/recompute.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "engine/precision.h"

namespace lockstep::engine {
namespace {

struct RecomputeGradients {
  at::Tensor output, input, weight;
};

RecomputeGradients RunSegment(bool recompute, bool autocast, int64_t* forwards) {
  torch::manual_seed(3);
  const at::Tensor weight = at::randn({16, 16}).requires_grad_(true);
  const at::Tensor input = at::randn({8, 16}).requires_grad_(true);
  const auto segment = [&](const at::Tensor& x) {
    ++*forwards;
    return at::dropout(at::linear(x, weight).relu(), 0.4, /*train=*/true);
  };
  const AutocastGuard guard(at::kCPU, autocast ? Precision::kBf16 : Precision::kFp32);
  torch::manual_seed(11);
  at::Tensor hidden = recompute ? Recompute(segment, input) : segment(input);
  at::Tensor output = at::dropout(hidden, 0.5, true);  // draws after the segment must not be disturbed
  output.to(at::kFloat).pow(2).sum().backward();
  return {output.detach(), input.grad(), weight.grad()};
}

TEST(Recompute, GivesTheSameBitsWithDropoutInside) {
  int64_t once = 0;
  int64_t twice = 0;
  const RecomputeGradients plain = RunSegment(false, false, &once);
  const RecomputeGradients again = RunSegment(true, false, &twice);
  EXPECT_TRUE(at::equal(plain.output, again.output));
  EXPECT_TRUE(at::equal(plain.input, again.input));
  EXPECT_TRUE(at::equal(plain.weight, again.weight));
  EXPECT_EQ(once, 1);
  EXPECT_EQ(twice, 2);
}

TEST(Recompute, RestoresAutocastDuringBackward) {
  int64_t count = 0;
  const RecomputeGradients plain = RunSegment(false, true, &count);
  const RecomputeGradients again = RunSegment(true, true, &count);
  EXPECT_EQ(plain.output.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(plain.weight, again.weight));
}

TEST(Recompute, LeavesTheGeneratorAsBackwardFoundIt) {
  torch::manual_seed(5);
  const at::Tensor x = at::ones({4}).requires_grad_(true);
  at::Tensor y = Recompute([](const at::Tensor& t) { return at::dropout(t, 0.5, true); }, x);
  const at::Tensor before = at::rand({1});
  torch::manual_seed(5);
  at::dropout(at::ones({4}), 0.5, true);
  y.sum().backward();
  EXPECT_TRUE(at::equal(at::rand({1}), before));
}

TEST(Recompute, TrainsParametersAlthoughTheInputNeedsNoGradient) {
  const at::Tensor weight = at::ones({2, 2}).requires_grad_(true);
  Recompute([&](const at::Tensor& t) { return at::linear(t, weight); }, at::ones({1, 2})).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::ones({2, 2})));
}

TEST(Recompute, AFrozenSegmentOfAFrozenInputIsNoErrorInBackward) {
  const at::Tensor weight = at::ones({2, 2}), trained = at::ones({2}).requires_grad_(true);
  const at::Tensor y = Recompute([&](const at::Tensor& t) { return at::linear(t, weight); }, at::ones({1, 2}));
  (y * trained).sum().backward();
  EXPECT_TRUE(at::equal(trained.grad(), at::full({2}, 2.0)));
}

TEST(Recompute, RunsOnceWithoutGradients) {
  const at::NoGradGuard no_grad;
  int runs = 0;
  Recompute(
      [&](const at::Tensor& t) {
        ++runs;
        return t;
      },
      at::ones({1}));
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace lockstep::engine
