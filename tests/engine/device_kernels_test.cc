// The optimizer's kernels on a GPU against the host's: equal bits. For builds with CUDA.
#ifdef LOCKSTEP_CUDA
#include "engine/device_kernels.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "engine/kernels.h"

namespace lockstep::engine {
namespace {

TEST(DeviceKernels, AdamHasTheBitsOfTheHost) {
  at::manual_seed(1);
  const at::Device gpu(at::kCUDA, 0);
  ASSERT_TRUE(device::Usable(gpu));
  for (const bool decoupled : {true, false}) {
    for (const int64_t n : {1, 7, 16, 4099, 100000}) {
      at::Tensor p = at::randn({n}), m = at::zeros({n}), v = at::zeros({n});
      at::Tensor on_p = p.to(gpu), on_m = m.to(gpu), on_v = v.to(gpu);
      const device::AdamRates rates{3e-4, 0.5, 0.9, 0.95, 1e-8, 0.1, decoupled ? 1 : 0};
      const auto number = [&](double x, at::ScalarType type) { return at::full({}, x, at::dtype(type).device(gpu)); };
      for (int t = 1; t <= 30; ++t) {
        const at::Tensor g = at::randn({n}) * std::pow(10.0, t % 7 - 3);
        const double lr_factor = 1 - t / 100.0, factor = 1.0 / (3 + t);
        const double lr = rates.lr * lr_factor * rates.lr_scale;
        kernels::AdamStep step;
        step.lr = static_cast<float>(lr);
        step.decay = decoupled ? static_cast<float>(1 - lr * rates.weight_decay) : 1.0F;
        step.l2 = decoupled ? 0.0F : static_cast<float>(rates.weight_decay);
        step.beta1 = static_cast<float>(rates.beta1), step.beta2 = static_cast<float>(rates.beta2);
        step.epsilon = static_cast<float>(rates.epsilon);
        step.correction1 = static_cast<float>(1 - std::pow(rates.beta1, t));
        step.correction2 = static_cast<float>(std::sqrt(1 - std::pow(rates.beta2, t)));
        step.gradient = static_cast<float>(factor);
        kernels::Adam(p.mutable_data_ptr<float>(), g.mutable_data_ptr<float>(), m.mutable_data_ptr<float>(),
                      v.mutable_data_ptr<float>(), static_cast<size_t>(n), step);
        device::Adam(on_p, g.to(gpu), on_m, on_v, rates,
                     {number(lr_factor, at::kDouble), number(factor, at::kDouble), number(t, at::kFloat),
                      number(0, at::kFloat)});
        // A gradient that is not finite changes nothing.
        device::Adam(on_p, at::full_like(on_p, std::numeric_limits<float>::infinity()), on_m, on_v, rates,
                     {number(1, at::kDouble), number(1, at::kDouble), number(t, at::kFloat), number(1, at::kFloat)});
      }
      EXPECT_TRUE(at::equal(on_p.cpu(), p)) << n;
      EXPECT_TRUE(at::equal(on_m.cpu(), m)) << n;
      EXPECT_TRUE(at::equal(on_v.cpu(), v)) << n;
    }
  }
}

TEST(DeviceKernels, SquaresOfBlocksAreTheHosts) {
  at::manual_seed(2);
  const at::Device gpu(at::kCUDA, 0);
  for (const int64_t blocks : {1, 3, 1000, 70000}) {
    at::Tensor g = at::randn({blocks * 16});
    at::Tensor expected = at::empty({blocks}, at::kDouble);
    kernels::BlockSquares(g.mutable_data_ptr<float>(), static_cast<size_t>(blocks * 16),
                          expected.mutable_data_ptr<double>());
    const at::Tensor sums = at::empty({blocks}, at::dtype(at::kDouble).device(gpu)),
                     largest = at::zeros({1}, sums.options());
    device::BlockSquares(g.to(gpu), sums, largest);
    EXPECT_TRUE(at::equal(sums.cpu(), expected));
    EXPECT_EQ(largest.item<double>(), expected.max().item<double>());
    const at::Tensor out = at::zeros({2}, at::dtype(at::kLong).device(gpu));
    device::AddBlocks(sums, largest, out);
    int exponent = 0;
    std::frexp(largest.item<double>(), &exponent);
    const double total = (static_cast<double>(out[0].item<int64_t>()) +
                          static_cast<double>(out[1].item<int64_t>()) / static_cast<double>(1 << 30)) *
                         std::ldexp(1.0, exponent - 30);
    EXPECT_NEAR(total / expected.sum().item<double>(), 1, 1e-12);
    // bf16 gradients are read as they are.
    const at::Tensor narrow = g.to(at::kBFloat16);
    at::Tensor wide = narrow.to(at::kFloat);
    kernels::BlockSquares(wide.mutable_data_ptr<float>(), static_cast<size_t>(blocks * 16),
                          expected.mutable_data_ptr<double>());
    device::BlockSquares(narrow.to(gpu), sums, largest);
    EXPECT_TRUE(at::equal(sums.cpu(), expected));
    g[0] = std::numeric_limits<float>::quiet_NaN();
    device::BlockSquares(g.to(gpu), sums, largest);
    EXPECT_TRUE(std::isnan(largest.item<double>()));
  }
}

}  // namespace
}  // namespace lockstep::engine
#endif
