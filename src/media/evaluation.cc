#include "media/evaluation.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>

#include "media/video_metrics.h"

namespace lockstep::media {
namespace {

constexpr int64_t kSsimWindow = 11, kLpipsSmallest = 31;

at::Tensor LevelsAsDouble(const at::Tensor& frames) {
  return frames.detach().to(at::kFloat).clamp(0, 1).mul(255).round().to(at::kDouble);
}

at::Tensor Append(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && a.size(0) > 0 ? at::cat({a, b}) : b;
}

at::Tensor Resize(const at::Tensor& frames, int64_t height, int64_t width) {
  return at::_upsample_bicubic2d_aa(frames, {height, width}, /*align_corners=*/false);
}

// All of `from` but the kept ones are mixtures of the two kept ones around them.
at::Tensor Interpolate(const at::Tensor& kept, const std::vector<int64_t>& places, int64_t frames) {
  std::vector<at::Tensor> all;
  size_t next = 0;
  for (int64_t t = 0; t < frames; ++t) {
    while (places[next] < t) ++next;
    if (places[next] == t) {
      all.push_back(kept[static_cast<int64_t>(next)]);
      continue;
    }
    const auto span = static_cast<double>(places[next] - places[next - 1]);
    const double weight = static_cast<double>(t - places[next - 1]) / span;
    all.push_back(at::lerp(kept[static_cast<int64_t>(next) - 1], kept[static_cast<int64_t>(next)], weight));
  }
  return at::stack(all);
}

}  // namespace

const std::vector<Metric>& Metrics() {
  static const std::vector<Metric> metrics = {
      {"psnr", "PSNR", 2, &ClipScores::psnr},
      {"ssim", "SSIM", 4, &ClipScores::ssim},
      {"lpips", "LPIPS", 4, &ClipScores::lpips},
      {"temporal_psnr", "tPSNR", 2, &ClipScores::temporal_psnr},
      {"temporal_error", "tMAE", 3, &ClipScores::temporal_error},
      {"flicker", "flicker", 3, &ClipScores::flicker},
  };
  return metrics;
}

void ClipMeter::Add(const at::Tensor& output, const at::Tensor& target) {
  const torch::NoGradGuard no_grad;
  TORCH_CHECK(output.dim() == 4 && output.sizes() == target.sizes(), "a clip's output is ", output.sizes(),
              " and its target ", target.sizes());
  const at::Tensor a = output.unsqueeze(1), b = target.unsqueeze(1);  // every frame a clip of its own
  const int64_t small = std::min(output.size(2), output.size(3));
  frames_ += output.size(0);
  psnr_ += Psnr(a, b).sum().item<double>();
  ssim_ += small < kSsimWindow ? NAN : Ssim(a, b).sum().item<double>();
  lpips_sum_ += lpips_ == nullptr || small < kLpipsSmallest ? NAN : (*lpips_)(a, b).sum().item<double>();
  AddMotion(LevelsAsDouble(output), LevelsAsDouble(target));
}

void ClipMeter::AddMotion(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor outputs = Append(last_output_, output), targets = Append(last_target_, target);
  last_output_ = output.narrow(0, output.size(0) - 1, 1).clone();
  last_target_ = target.narrow(0, target.size(0) - 1, 1).clone();
  const int64_t pairs = outputs.size(0) - 1;
  if (pairs == 0) return;
  const at::Tensor moved = outputs.narrow(0, 1, pairs) - outputs.narrow(0, 0, pairs);
  const at::Tensor moves = targets.narrow(0, 1, pairs) - targets.narrow(0, 0, pairs);
  const at::Tensor error = moved - moves;
  pairs_ += pairs;
  temporal_error_ += error.abs().mean({1, 2, 3}).sum().item<double>();
  temporal_psnr_ += (10 * at::log10(255.0 * 255.0 / error.square().mean({1, 2, 3}))).sum().item<double>();
  moved_ += moved.abs().mean({1, 2, 3}).sum().item<double>();
  moves_ += moves.abs().mean({1, 2, 3}).sum().item<double>();
}

ClipScores ClipMeter::Finish() {
  ClipScores scores;
  scores.frames = frames_;
  if (frames_ > 0) {
    const auto n = static_cast<double>(frames_);
    scores.psnr = psnr_ / n;
    scores.ssim = ssim_ / n;
    scores.lpips = lpips_sum_ / n;
  }
  if (pairs_ > 0) {
    const auto n = static_cast<double>(pairs_);
    scores.temporal_psnr = temporal_psnr_ / n;
    scores.temporal_error = temporal_error_ / n;
    if (moves_ > 0) scores.flicker = moved_ / moves_;
  }
  *this = ClipMeter(lpips_);
  return scores;
}

int64_t FramesIn(const models::TaehvConfig& config, int64_t frames) {
  int64_t in = frames;
  while (config.FramesOut(in) < frames || (config.cogvideox && config.Latents(in) % 2 == 0)) ++in;
  return in;
}

// Without a number of latents the stream of CogVideoX' variant keeps its first frames: they are dropped here, since the
// end is filled up such that the number becomes odd.
Reconstruction::Reconstruction(models::Taehv* model, at::Device device, engine::Precision precision, Take take)
    : model_(model),
      device_(device),
      precision_(precision),
      take_(std::move(take)),
      encoder_(model),
      decoder_(model),
      warm_up_(model->config().cogvideox ? model->config().TimeUp() - 1 : 0) {}

void Reconstruction::Push(const at::Tensor& frames) {
  const torch::NoGradGuard no_grad;
  const at::Tensor target = frames.to(device_).to(at::kFloat).div(255);
  waiting_ = Append(waiting_, target);
  frames_ += target.size(0);
  const int64_t step = model_->config().SpaceDown();
  const auto missing = [step](int64_t size) { return (step - size % step) % step; };
  at::Tensor padded = target;
  if (missing(target.size(2)) + missing(target.size(3)) > 0) {
    padded = at::replication_pad2d(target, {0, missing(target.size(3)), 0, missing(target.size(2))});
  }
  last_ = padded.narrow(0, padded.size(0) - 1, 1).clone();
  const engine::AutocastGuard autocast(device_.type(), precision_);
  Decode(encoder_.Push(padded.unsqueeze(0)));
}

void Reconstruction::Finish() {
  const torch::NoGradGuard no_grad;
  if (frames_ == 0) return;
  const engine::AutocastGuard autocast(device_.type(), precision_);
  if (const int64_t more = FramesIn(model_->config(), frames_) - frames_; more > 0) {
    Decode(encoder_.Push(last_.expand({more, -1, -1, -1}).unsqueeze(0)));
  }
  Decode(encoder_.Finish());
  Give(decoder_.Finish());
}

void Reconstruction::Decode(const at::Tensor& latents) {
  if (latents.defined()) Give(decoder_.Push(latents));
}

void Reconstruction::Give(const at::Tensor& decoded) {
  if (!decoded.defined()) return;
  const int64_t skip = std::min(warm_up_, decoded.size(1));
  warm_up_ -= skip;
  const int64_t count = std::min(decoded.size(1) - skip, waiting_.size(0));  // more come where the end was repeated
  if (count <= 0) return;
  const at::Tensor target = waiting_.narrow(0, 0, count);
  const at::Tensor output =
      decoded[0].narrow(0, skip, count).narrow(2, 0, target.size(2)).narrow(3, 0, target.size(3)).to(at::kFloat);
  take_(output, target);
  waiting_ = waiting_.narrow(0, count, waiting_.size(0) - count).clone();
}

Bicubic ScaleDownAndUp(const at::Tensor& frames, const models::TaehvConfig& config, Scaling scaling) {
  const torch::NoGradGuard no_grad;
  const int64_t count = frames.size(0), height = frames.size(2), width = frames.size(3);
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  Bicubic result;
  result.budget = ceil_div(count, config.TimeDown()) * config.latent * ceil_div(height, config.SpaceDown()) *
                  ceil_div(width, config.SpaceDown());
  std::vector<int64_t> places;
  for (int64_t t = 0; t < count; t += scaling == Scaling::kTime ? config.TimeDown() : 1) places.push_back(t);
  if (places.back() != count - 1) places.push_back(count - 1);
  result.kept = static_cast<int64_t>(places.size());
  const double scale = std::min(
      1.0, std::sqrt(static_cast<double>(result.budget) / static_cast<double>(result.kept * 3 * height * width)));
  const auto smaller = [scale](int64_t size) {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(size) * scale + 1e-9));
  };
  if (scaling == Scaling::kGrid) {
    result.height = ceil_div(height, config.SpaceDown());
    result.width = ceil_div(width, config.SpaceDown());
  } else {
    result.height = smaller(height);
    // The width may use what rounding the height left over.
    result.width = std::clamp<int64_t>(result.budget / (result.kept * 3 * result.height), 1, width);
    result.width = std::min(result.width, smaller(width) + 1);
  }
  result.values = result.kept * 3 * result.height * result.width;
  const at::Tensor kept =
      frames.index_select(0, at::tensor(places, at::TensorOptions(at::kLong).device(frames.device())));
  const at::Tensor back = Resize(Resize(kept.to(at::kFloat), result.height, result.width), height, width).clamp(0, 1);
  result.frames = Interpolate(back, places, count);
  return result;
}

Summary Summarize(const std::vector<double>& values) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite), [](double x) { return std::isfinite(x); });
  Summary summary;
  summary.count = static_cast<int64_t>(finite.size());
  if (finite.empty()) {
    summary.mean = summary.std = summary.min = summary.p10 = summary.p90 = summary.max = NAN;
    return summary;
  }
  std::sort(finite.begin(), finite.end());
  const auto n = static_cast<double>(finite.size());
  for (double x : finite) summary.mean += x / n;
  for (double x : finite) summary.std += (x - summary.mean) * (x - summary.mean) / n;
  summary.std = std::sqrt(summary.std);
  const auto quantile = [&](double q) {
    const double at = q * (n - 1);
    const auto low = static_cast<size_t>(at);
    const size_t high = std::min(low + 1, finite.size() - 1);
    return finite[low] + (finite[high] - finite[low]) * (at - static_cast<double>(low));
  };
  summary.min = finite.front();
  summary.p10 = quantile(0.1);
  summary.p90 = quantile(0.9);
  summary.max = finite.back();
  return summary;
}

}  // namespace lockstep::media
