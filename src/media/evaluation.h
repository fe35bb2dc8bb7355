// How good an autoencoder is on clips of any length: scores that are added up piece by piece, the clip's way through
// the model at constant memory, what bicubic scaling to the same number of stored values would give, and summaries over
// clips. docs/evaluation.md defines every number. One thread, no gradients, no collectives.
//
//   Reconstruction run(&model, at::kCUDA, engine::Precision::kBf16, [&](at::Tensor output, at::Tensor target) {
//     meter.Add(output, target);
//   });
//   while (ReadFrames(&frames)) run.Push(frames);
//   run.Finish();
//   ClipScores scores = meter.Finish();
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/precision.h"
#include "media/lpips.h"
#include "models/taehv_stream.h"

namespace lockstep::media {

// NaN: not defined for this clip (one frame has no motion, LPIPS without weights, frames too small for a window).
struct ClipScores {
  int64_t frames = 0;
  double psnr = std::numeric_limits<double>::quiet_NaN();
  double ssim = std::numeric_limits<double>::quiet_NaN();
  double lpips = std::numeric_limits<double>::quiet_NaN();
  double temporal_psnr = std::numeric_limits<double>::quiet_NaN();
  double temporal_error = std::numeric_limits<double>::quiet_NaN();
  double flicker = std::numeric_limits<double>::quiet_NaN();
};

// The scores by name, in the order of tables.
struct Metric {
  const char* name;   // in JSON
  const char* title;  // in tables
  int digits;
  double ClipScores::* value;
};
const std::vector<Metric>& Metrics();

class ClipMeter {
 public:
  // `lpips` may be null and outlives the meter.
  explicit ClipMeter(const Lpips* lpips = nullptr) : lpips_(lpips) {}
  // The next frames (frames, 3, height, width) in [0, 1]; both are clamped and rounded to 8 bits first.
  void Add(const at::Tensor& output, const at::Tensor& target);
  // The scores of what was added; the meter is then ready for another clip.
  ClipScores Finish();

 private:
  void AddMotion(const at::Tensor& output, const at::Tensor& target);

  const Lpips* lpips_;
  int64_t frames_ = 0;
  double psnr_ = 0, ssim_ = 0, lpips_sum_ = 0;
  int64_t pairs_ = 0;
  double temporal_psnr_ = 0, temporal_error_ = 0, moved_ = 0, moves_ = 0;
  at::Tensor last_output_, last_target_;
};

// A clip through the model, piece by piece: padded at its right and lower edge to the size the model needs and at its
// end to whole latents, cropped back, so that every frame that goes in is compared.
class Reconstruction {
 public:
  using Take = std::function<void(const at::Tensor& output, const at::Tensor& target)>;
  // `take` gets frames (any number, 3, height, width) on the device.
  Reconstruction(models::Taehv* model, at::Device device, engine::Precision precision, Take take);
  // Bytes (frames, 3, height, width), all pieces of one size.
  void Push(const at::Tensor& frames);
  void Finish();

 private:
  void Decode(const at::Tensor& latents);
  void Give(const at::Tensor& decoded);

  models::Taehv* model_;
  at::Device device_;
  engine::Precision precision_;
  Take take_;
  models::EncoderStream encoder_;
  models::DecoderStream decoder_;
  int64_t warm_up_;     // frames the stream does not drop by itself
  at::Tensor waiting_;  // targets whose output has not come yet
  at::Tensor last_;
  int64_t frames_ = 0;
};

// How many frames must go in so that at least `frames` come out, trimmed: an odd number of latents for CogVideoX.
int64_t FramesIn(const models::TaehvConfig& config, int64_t frames);

// Bicubic down and up, what needs no network. kGrid: every frame at the latents' height and width. kSpace and kTime: no
// more stored values than the latents have; every frame smaller, or every TimeDown()-th frame (and the last) less small
// and the others interpolated between their neighbours.
enum class Scaling { kGrid, kSpace, kTime };
struct Bicubic {
  at::Tensor frames;               // (frames, 3, height, width) as they come back
  int64_t kept = 0;                // frames stored
  int64_t height = 0, width = 0;   // of a stored frame
  int64_t values = 0, budget = 0;  // stored, and what the latents of these frames have
};
Bicubic ScaleDownAndUp(const at::Tensor& frames, const models::TaehvConfig& config, Scaling scaling);

struct Summary {
  int64_t count = 0;  // of finite values; the rest is left out
  double mean = 0, std = 0, min = 0, p10 = 0, p90 = 0, max = 0;
};
// Standard deviation over the values as a whole; quantiles with linear interpolation.
Summary Summarize(const std::vector<double>& values);

}  // namespace lockstep::media
