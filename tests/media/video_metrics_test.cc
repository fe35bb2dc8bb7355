// PSNR and SSIM against NumPy written from the formulas (tests/golden/make.py), and against arithmetic.
#include "media/video_metrics.h"

#include <gtest/gtest.h>

#include "golden/golden.h"

namespace lockstep::media {
namespace {

// All is computed in float64 on equal 8-bit values; only the order of sums differs.
TEST(VideoMetrics, EqualTheFormulasOnClipsThatLeaveTheRange) {
  auto clips = golden::Tensors("metrics");
  auto doc = golden::Json("metrics");
  at::Tensor psnr = Psnr(clips["a"], clips["b"]), ssim = Ssim(clips["a"], clips["b"]);
  ASSERT_EQ(psnr.numel(), 2);
  EXPECT_GT(clips["b"].max().item<float>(), 1);
  for (int n = 0; n < 2; ++n) {
    EXPECT_NEAR(psnr[n].item<double>(), doc["psnr"][n], 1e-9);
    EXPECT_NEAR(ssim[n].item<double>(), doc["ssim"][n], 1e-9);
  }
}

// KAIR computes luma in float32: its bytes differ in the fifth digit.
TEST(VideoMetrics, LumaEqualsKair) {
  auto clips = golden::Tensors("metrics");
  auto doc = golden::Json("metrics");
  at::Tensor psnr = PsnrY(clips["a"], clips["b"]), ssim = SsimY(clips["a"], clips["b"]);
  for (int n = 0; n < 2; ++n) {
    EXPECT_NEAR(psnr[n].item<double>(), doc["psnr_y"][n], 1e-4);
    EXPECT_NEAR(ssim[n].item<double>(), doc["ssim_y"][n], 1e-6);
  }
  // A grey level of difference is 219 / 255 levels of luma.
  at::Tensor a = at::full({1, 1, 3, 16, 16}, 100 / 255.0), b = at::full({1, 1, 3, 16, 16}, 101 / 255.0);
  EXPECT_NEAR(PsnrY(a, b)[0].item<double>(), 20 * std::log10(255.0 * 255 / 219), 1e-9);
  EXPECT_THROW(PsnrY(a.narrow(2, 0, 1), b.narrow(2, 0, 1)), c10::Error);
}

TEST(VideoMetrics, PsnrOfOneGreyLevelIsTheDefinition) {
  at::Tensor a = at::full({1, 2, 3, 16, 16}, 100 / 255.0), b = at::full({1, 2, 3, 16, 16}, 101 / 255.0);
  EXPECT_NEAR(Psnr(a, b)[0].item<double>(), 20 * std::log10(255.0), 1e-9);
  EXPECT_EQ(Psnr(a, a)[0].item<double>(), INFINITY);
}

TEST(VideoMetrics, AMeanOverFramesNotOverErrors) {
  at::Tensor a = at::zeros({1, 2, 3, 16, 16}), b = at::zeros({1, 2, 3, 16, 16});
  b[0][0].fill_(1 / 255.0);
  b[0][1].fill_(1);
  EXPECT_NEAR(Psnr(a, b)[0].item<double>(), 10 * std::log10(255.0), 1e-9);  // (48.13 + 0) / 2
}

TEST(VideoMetrics, LessThanHalfALevelIsNoDifference) {
  at::Tensor a = at::full({1, 1, 3, 16, 16}, 100 / 255.0);
  EXPECT_EQ(Psnr(a, a + 0.4 / 255)[0].item<double>(), INFINITY);
  EXPECT_NE(Psnr(a, a + 0.6 / 255)[0].item<double>(), INFINITY);
}

TEST(VideoMetrics, SsimIsOneForEqualsAndSymmetric) {
  at::Tensor a = at::rand({2, 1, 3, 20, 30}, at::detail::createCPUGenerator(1));
  at::Tensor b = at::rand({2, 1, 3, 20, 30}, at::detail::createCPUGenerator(2));
  EXPECT_NEAR(Ssim(a, a)[1].item<double>(), 1, 1e-12);
  EXPECT_LT(Ssim(a, b)[0].item<double>(), 0.2);
  EXPECT_NEAR(Ssim(a, b)[0].item<double>(), Ssim(b, a)[0].item<double>(), 1e-12);
}

TEST(VideoMetrics, OtherShapesAreRefused) {
  at::Tensor a = at::zeros({1, 2, 3, 16, 16});
  EXPECT_THROW(Psnr(a, a.narrow(1, 0, 1)), c10::Error);
  EXPECT_THROW(Psnr(a[0], a[0]), c10::Error);
  EXPECT_THROW(Ssim(a.narrow(3, 0, 10), a.narrow(3, 0, 10)), c10::Error);
}

}  // namespace
}  // namespace lockstep::media
