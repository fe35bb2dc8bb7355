// Trained weights measured on clips: scores of every clip, of bicubic scaling beside it, and a picture of the worst.
// docs/evaluation.md defines the numbers. One thread; progress goes to stderr.
//
//   Evaluation evaluation(options);
//   LOCKSTEP_RETURN_IF_ERROR(evaluation.Load());
//   LOCKSTEP_RETURN_IF_ERROR(evaluation.Measure(std::move(clips)));
//   LOCKSTEP_RETURN_IF_ERROR(evaluation.WritePicture());
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/precision.h"
#include "media/clips.h"
#include "media/evaluation.h"
#include "media/load_taehv.h"
#include "media/strip.h"
#include "track/sheet.h"

namespace lockstep::media {

struct EvaluationOptions {
  std::string weights, variant;
  std::string picture;  // a PNG of the worst clips; "": none
  std::string device = "auto", precision = "fp32", execution = "fast";
  std::vector<std::string> lpips;
  int worst = 5;
  bool baseline = false;
  bool strict = false;  // an unreadable clip is an error, not left out
};

// What bicubic scaling gives: at the latents' height and width, and with as many stored values.
struct Baseline {
  ClipScores grid, values;
  bool time = false;  // which of the two ways of storing as many values was better
};

struct MeasuredClip {
  std::string name;
  int64_t height = 0, width = 0;
  ClipScores scores;
  std::optional<Baseline> baseline;
  Strip strip;
};

struct LeftOutClip {
  std::string name, why;
};

class Evaluation {
 public:
  explicit Evaluation(const EvaluationOptions& options) : options_(options) {}

  // The weights onto the device, and whatever else must be there before clips are looked for.
  Status Load();
  Status Measure(std::unique_ptr<ClipSet> clips);
  // Where one was asked for; after the numbers, which a full disk does not take away.
  Status WritePicture() const;

  const EvaluationOptions& options() const { return options_; }
  const LoadedTaehv& loaded() const { return loaded_; }
  at::Device device() const { return device_; }
  const ClipSet& clips() const { return *clips_; }
  const std::vector<MeasuredClip>& measured() const { return measured_; }
  const std::vector<LeftOutClip>& left_out() const { return left_out_; }
  int64_t frames() const { return frames_; }
  double seconds() const { return seconds_; }
  // Whether a metric was measured: LPIPS needs weights.
  bool Has(const Metric& metric) const { return lpips_ || metric.value != &ClipScores::lpips; }
  // By PSNR; a clip without error is the best.
  std::vector<const MeasuredClip*> Worst(size_t count) const;

 private:
  Status MeasureClip(uint64_t index);
  void ForgetPictures();
  std::string MeanText(std::string_view name) const;

  EvaluationOptions options_;
  const track::Cairo* cairo_ = nullptr;  // with a picture
  LoadedTaehv loaded_;
  at::Device device_ = at::kCPU;
  engine::Precision precision_ = engine::Precision::kFp32;
  std::optional<Lpips> lpips_;
  std::unique_ptr<ClipSet> clips_;
  std::vector<MeasuredClip> measured_;
  std::vector<size_t> pictured_;  // into measured_
  std::vector<LeftOutClip> left_out_;
  int64_t frames_ = 0;
  double seconds_ = 0;
};

}  // namespace lockstep::media
