// What replaces PyTorch's resizing and padding under deterministic algorithms gives their values and gradients.
#include "models/resize.h"

#include <gtest/gtest.h>

#include "golden/golden.h"

namespace lockstep::models {
namespace {

// Values and gradients of f and g at one input.
template <typename F, typename G>
void ExpectSameFunction(const at::Tensor& input, const F& f, const G& g) {
  at::Tensor own = input.clone().requires_grad_(true), other = input.clone().requires_grad_(true);
  const at::Tensor a = f(own), b = g(other);
  EXPECT_LT(golden::Distance(a, b), 1e-12);
  a.square().sum().backward();
  b.square().sum().backward();
  EXPECT_LT(golden::Distance(own.grad(), other.grad()), 1e-12);
}

TEST(Resize, ProductsEqualPyTorchsBilinearResizing) {
  torch::manual_seed(1);
  const struct {
    int64_t from_height, from_width, height, width;
  } rows[] = {{4, 6, 8, 12}, {7, 5, 32, 32}, {8, 8, 7, 5}, {2, 3, 4, 6}, {1, 1, 2, 2}};
  for (const auto& row : rows) {
    for (const bool corners : {true, false}) {
      ExpectSameFunction(
          at::randn({2, 2, row.from_height, row.from_width}, at::kDouble),
          [&](const at::Tensor& x) { return ResizeByProducts(x, row.height, row.width, corners); },
          [&](const at::Tensor& x) { return ResizeBilinear(x, row.height, row.width, corners); });
    }
  }
}

TEST(Resize, CopiesEqualPyTorchsReflectionPadding) {
  torch::manual_seed(2);
  ExpectSameFunction(
      at::randn({2, 3, 5, 7}, at::kDouble), [](const at::Tensor& x) { return PadByCopies(x, 3); },
      [](const at::Tensor& x) { return PadByReflection(x, 3); });
}

TEST(Resize, ConstantsAreMadeWithoutACopy) {
  EXPECT_TRUE(at::equal(OnDevice({0.5, -2, 3}, at::kFloat), at::tensor({0.5F, -2.F, 3.F})));
}

}  // namespace
}  // namespace lockstep::models
