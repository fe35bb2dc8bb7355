// Scores in pieces against scores of the whole, temporal scores against arithmetic, the baseline against its own rule.
#include "media/evaluation.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "media/video_metrics.h"

namespace lockstep::media {
namespace {

at::Tensor Noise(std::vector<int64_t> shape, uint64_t seed) {
  return at::rand(shape, at::detail::createCPUGenerator(seed));
}

models::TaehvConfig Tiny(bool cogvideox = false) {
  models::TaehvConfig config;
  config.name = "tiny";
  config.latent = 4;
  config.encoder_width = {8, 8, 8, 8};
  config.decoder_width = {12, 8, 8, 8};
  config.cogvideox = cogvideox;
  return config;
}

// Something that moves, as bytes.
at::Tensor Clip(int64_t frames, int64_t height, int64_t width) {
  const at::Tensor t = at::arange(frames).view({-1, 1, 1, 1}), c = at::arange(3).view({1, 3, 1, 1});
  const at::Tensor y = at::arange(height).view({1, 1, -1, 1}), x = at::arange(width).view({1, 1, 1, -1});
  return (127 + 120 * at::sin(0.3 * x + 0.2 * y + 0.4 * t + c)).to(at::kByte);
}

TEST(ClipMeter, PiecesGiveTheScoresOfTheWhole) {
  const at::Tensor output = Noise({7, 3, 20, 24}, 1), target = Noise({7, 3, 20, 24}, 2);
  ClipMeter meter;
  meter.Add(output, target);
  const ClipScores whole = meter.Finish();
  EXPECT_EQ(whole.frames, 7);
  EXPECT_NEAR(whole.psnr, Psnr(output.unsqueeze(0), target.unsqueeze(0))[0].item<double>(), 1e-9);
  EXPECT_NEAR(whole.ssim, Ssim(output.unsqueeze(0), target.unsqueeze(0))[0].item<double>(), 1e-9);
  EXPECT_TRUE(std::isnan(whole.lpips));
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1}, {3, 4}, {5, 1, 1}}) {
    int64_t at = 0;
    for (int64_t size : sizes) {
      meter.Add(output.narrow(0, at, size), target.narrow(0, at, size));
      at += size;
    }
    const ClipScores pieces = meter.Finish();
    for (const Metric& metric : Metrics()) {
      if (!std::isnan(whole.*metric.value)) EXPECT_NEAR(pieces.*metric.value, whole.*metric.value, 1e-9) << metric.name;
    }
  }
}

TEST(ClipMeter, TemporalScoresAreTheirDefinitions) {
  // The target brightens by 10 levels a frame; the output by 13, 7, 13: errors of the differences are 3, -3, 3.
  const auto frames = [](const std::vector<int>& levels) {
    at::Tensor clip = at::zeros({static_cast<int64_t>(levels.size()), 3, 16, 16});
    for (size_t i = 0; i < levels.size(); ++i) clip[static_cast<int64_t>(i)].fill_(levels[i] / 255.0);
    return clip;
  };
  ClipMeter meter;
  meter.Add(frames({50, 63, 70, 83}), frames({50, 60, 70, 80}));
  const ClipScores scores = meter.Finish();
  EXPECT_NEAR(scores.temporal_error, 3, 1e-9);
  EXPECT_NEAR(scores.temporal_psnr, 20 * std::log10(255.0 / 3), 1e-9);
  EXPECT_NEAR(scores.flicker, 33.0 / 30, 1e-9);
  // A constant offset is an error of every frame and of no difference.
  meter.Add(frames({60, 70, 80}), frames({50, 60, 70}));
  const ClipScores offset = meter.Finish();
  EXPECT_EQ(offset.temporal_error, 0);
  EXPECT_EQ(offset.temporal_psnr, INFINITY);
  EXPECT_NEAR(offset.flicker, 1, 1e-12);
  EXPECT_NEAR(offset.psnr, 20 * std::log10(255.0 / 10), 1e-9);
  // A still picture has no motion to be kept.
  meter.Add(frames({60, 61}), frames({50, 50}));
  EXPECT_TRUE(std::isnan(meter.Finish().flicker));
  meter.Add(frames({60}), frames({50}));
  EXPECT_TRUE(std::isnan(meter.Finish().temporal_error));
}

TEST(ClipMeter, SmallFramesHaveNoSsim) {
  ClipMeter meter;
  meter.Add(Noise({2, 3, 10, 24}, 1), Noise({2, 3, 10, 24}, 2));
  const ClipScores scores = meter.Finish();
  EXPECT_TRUE(std::isnan(scores.ssim));
  EXPECT_FALSE(std::isnan(scores.psnr));
}

TEST(Reconstruction, EveryFrameOfAnyClipIsComparedWithItself) {
  for (const bool cogvideox : {false, true}) {
    models::Taehv model(Tiny(cogvideox), 3);
    model.StartNearIdentity();
    for (int64_t count : {1, 2, 5, 12}) {
      for (int64_t piece : {1, 5}) {
        const at::Tensor clip = Clip(count, 21, 30);
        std::vector<at::Tensor> outputs, targets;
        Reconstruction run(&model, at::kCPU, engine::Precision::kFp32,
                           [&](const at::Tensor& output, const at::Tensor& target) {
                             outputs.push_back(output);
                             targets.push_back(target);
                           });
        for (int64_t at = 0; at < count; at += piece) run.Push(clip.narrow(0, at, std::min(piece, count - at)));
        run.Finish();
        const at::Tensor target = at::cat(targets), output = at::cat(outputs);
        ASSERT_EQ(target.sizes(), clip.sizes());
        EXPECT_TRUE(target.equal(clip.to(at::kFloat).div(255)));
        // The whole clip at once, with its last frame repeated until all come out.
        const int64_t in = FramesIn(model.config(), count);
        at::Tensor whole = at::replication_pad2d(clip.to(at::kFloat).div(255), {0, 2, 0, 3});
        if (in > count) whole = at::cat({whole, whole.narrow(0, count - 1, 1).expand({in - count, -1, -1, -1})});
        const torch::NoGradGuard no_grad;
        const at::Tensor expected =
            model.Decode(model.Encode(whole.unsqueeze(0)))[0].narrow(0, 0, count).narrow(2, 0, 21).narrow(3, 0, 30);
        EXPECT_LT((output - expected).abs().max().item<double>(), 1e-5) << count << " " << piece;
      }
    }
  }
}

TEST(ScaleDownAndUp, StoresNoMoreThanTheLatentsAndUsesNearlyAll) {
  for (const Scaling way : {Scaling::kSpace, Scaling::kTime}) {
    for (int64_t count : {1, 2, 5, 12, 13, 49}) {
      for (const auto& [height, width] : {std::pair<int64_t, int64_t>{64, 64}, {48, 72}, {30, 21}}) {
        const Bicubic bicubic = ScaleDownAndUp(Noise({count, 3, height, width}, 1), models::TaehvConfig(), way);
        EXPECT_EQ(bicubic.frames.sizes(), (std::vector<int64_t>{count, 3, height, width}));
        EXPECT_EQ(bicubic.values, bicubic.kept * 3 * bicubic.height * bicubic.width);
        EXPECT_LE(bicubic.values, bicubic.budget);
        EXPECT_GT(static_cast<double>(bicubic.values), 0.6 * static_cast<double>(bicubic.budget))
            << count << " " << height;
        EXPECT_GE(bicubic.frames.min().item<double>(), 0);
        EXPECT_LE(bicubic.frames.max().item<double>(), 1);
      }
    }
  }
  // 13 latents of 16 x 8 x 8 values for 49 frames of 64 x 64: 48 times fewer than 49 * 3 * 64 * 64, nearly.
  const Bicubic spatial = ScaleDownAndUp(Noise({49, 3, 64, 64}, 1), models::TaehvConfig(), Scaling::kSpace);
  EXPECT_EQ(spatial.budget, 13 * 16 * 8 * 8);
  EXPECT_EQ(spatial.kept, 49);
  EXPECT_EQ(ScaleDownAndUp(Noise({49, 3, 64, 64}, 1), models::TaehvConfig(), Scaling::kTime).kept, 13);
}

TEST(ScaleDownAndUp, TheGridIsTheLatentsHeightAndWidth) {
  models::TaehvConfig config;
  const Bicubic one = ScaleDownAndUp(Noise({5, 3, 64, 90}, 1), config, Scaling::kGrid);
  EXPECT_EQ((std::vector<int64_t>{one.kept, one.height, one.width}), (std::vector<int64_t>{5, 8, 12}));
  config.patch = 2;
  const Bicubic two = ScaleDownAndUp(Noise({5, 3, 64, 90}, 1), config, Scaling::kGrid);
  EXPECT_EQ((std::vector<int64_t>{two.kept, two.height, two.width}), (std::vector<int64_t>{5, 4, 6}));
}

TEST(ScaleDownAndUp, KeepsWhatItCanKeep) {
  const at::Tensor still = at::full({9, 3, 32, 32}, 0.4);
  EXPECT_LT((ScaleDownAndUp(still, models::TaehvConfig(), Scaling::kSpace).frames - still).abs().max().item<double>(),
            1e-5);
  // Motion that is linear in time is kept by the way over time, and noise in time is not.
  at::Tensor ramp = at::zeros({9, 3, 32, 32});
  for (int t = 0; t < 9; ++t) ramp[t].fill_(0.1 * t);
  EXPECT_LT((ScaleDownAndUp(ramp, models::TaehvConfig(), Scaling::kTime).frames - ramp).abs().max().item<double>(),
            1e-5);
  const at::Tensor flashes = Noise({9, 1, 1, 1}, 4).expand({9, 3, 32, 32}).contiguous();
  EXPECT_LT(
      (ScaleDownAndUp(flashes, models::TaehvConfig(), Scaling::kSpace).frames - flashes).abs().max().item<double>(),
      1e-5);
  EXPECT_GT(
      (ScaleDownAndUp(flashes, models::TaehvConfig(), Scaling::kTime).frames - flashes).abs().max().item<double>(),
      0.1);
}

TEST(Summarize, IsNumPysMeanDeviationAndQuantiles) {
  const Summary summary = Summarize({4, 1, NAN, 3, 2, INFINITY, 10});
  EXPECT_EQ(summary.count, 5);
  EXPECT_DOUBLE_EQ(summary.mean, 4);
  EXPECT_NEAR(summary.std, std::sqrt(10.0), 1e-12);  // numpy.std([4, 1, 3, 2, 10])
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 10);
  EXPECT_DOUBLE_EQ(summary.p10, 1.4);  // numpy.percentile(..., 10)
  EXPECT_DOUBLE_EQ(summary.p90, 7.6);
  EXPECT_TRUE(std::isnan(Summarize({}).mean));
  EXPECT_EQ(Summarize({2.5}).p10, 2.5);
}

}  // namespace
}  // namespace lockstep::media
