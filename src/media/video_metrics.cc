#include "media/video_metrics.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

namespace lockstep::media {
namespace {

// 8-bit values as float64: sums of squares up to 255^2 cancel in the variances, which float32 would spoil.
at::Tensor ToBytes(const at::Tensor& clips) {
  return clips.detach().to(at::kFloat).clamp(0, 1).mul(255).round().to(at::kDouble);
}

void CheckPair(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 5 && a.sizes() == b.sizes() && a.numel() > 0,
              "metrics compare two clips of one shape (clips, frames, channels, height, width), not ", a.sizes(),
              " and ", b.sizes());
}

// Sums shifted copies under the 1-D Gaussian: thirty times faster here than a one-channel float64 convolution.
at::Tensor Blur(const at::Tensor& planes, int64_t dim) {
  int64_t size = planes.size(dim) - 10;
  double total = 0;
  at::Tensor sum;
  for (int i = 0; i < 11; ++i) {
    double weight = std::exp(-(i - 5) * (i - 5) / (2 * 1.5 * 1.5));
    total += weight;
    at::Tensor shifted = planes.narrow(dim, i, size);
    sum = i == 0 ? shifted * weight : sum.add_(shifted, weight);
  }
  return sum.div_(total);
}

// The mean under the window around every pixel that has a whole one; the 2-D Gaussian is two 1-D passes.
at::Tensor WindowMean(const at::Tensor& planes) { return Blur(Blur(planes, -2), -1); }

// Luma of 8-bit values NTCHW, RGB: one channel.
at::Tensor Luma(const at::Tensor& bytes) {
  TORCH_CHECK(bytes.size(2) == 3, "luma is of RGB, not of ", bytes.size(2), " channels");
  const auto channel = [&](int64_t c) { return bytes.narrow(2, c, 1); };
  return (channel(0) * 65.481 + channel(1) * 128.553 + channel(2) * 24.966) / 255 + 16;
}

at::Tensor PsnrOfBytes(const at::Tensor& a, const at::Tensor& b) {
  return (10 * at::log10(255.0 * 255.0 / (a - b).square().mean({2, 3, 4}))).mean(1).cpu();
}

// Of one clip TCHW.
at::Tensor SsimOfBytes(const at::Tensor& x, const at::Tensor& y) {
  constexpr double kC1 = 0.01 * 255 * 0.01 * 255, kC2 = 0.03 * 255 * 0.03 * 255;
  at::Tensor mx = WindowMean(x), my = WindowMean(y);
  at::Tensor vx = WindowMean(x * x) - mx * mx, vy = WindowMean(y * y) - my * my, cov = WindowMean(x * y) - mx * my;
  at::Tensor map = (2 * mx * my + kC1) * (2 * cov + kC2) / ((mx * mx + my * my + kC1) * (vx + vy + kC2));
  return map.mean();
}

at::Tensor SsimOfClips(const at::Tensor& a, const at::Tensor& b, bool luma) {
  CheckPair(a, b);
  TORCH_CHECK(a.size(3) >= 11 && a.size(4) >= 11, "SSIM needs frames of at least 11 x 11, not ", a.size(3), " x ",
              a.size(4));
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> clips;
  for (int64_t n = 0; n < a.size(0); ++n) {  // clip by clip: the maps of a whole batch would not fit in a cache
    at::Tensor x = ToBytes(a.narrow(0, n, 1)), y = ToBytes(b.narrow(0, n, 1));
    clips.push_back(luma ? SsimOfBytes(Luma(x)[0], Luma(y)[0]) : SsimOfBytes(x[0], y[0]));
  }
  return at::stack(clips).cpu();
}

}  // namespace

at::Tensor Psnr(const at::Tensor& a, const at::Tensor& b) {
  CheckPair(a, b);
  torch::NoGradGuard no_grad;
  return PsnrOfBytes(ToBytes(a), ToBytes(b));
}

at::Tensor PsnrY(const at::Tensor& a, const at::Tensor& b) {
  CheckPair(a, b);
  torch::NoGradGuard no_grad;
  return PsnrOfBytes(Luma(ToBytes(a)), Luma(ToBytes(b)));
}

at::Tensor Ssim(const at::Tensor& a, const at::Tensor& b) { return SsimOfClips(a, b, /*luma=*/false); }

at::Tensor SsimY(const at::Tensor& a, const at::Tensor& b) { return SsimOfClips(a, b, /*luma=*/true); }

}  // namespace lockstep::media
