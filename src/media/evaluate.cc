#include "media/evaluate.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "data/image.h"
#include "data/publish.h"
#include "engine/devices.h"
#include "engine/trainer.h"
#include "track/progress_line.h"
#include "track/score_text.h"

namespace lockstep::media {
namespace {

constexpr int64_t kPixels = 6'000'000;  // of frames in one piece
constexpr int64_t kWindow = 96;         // frames the baseline looks at together: whole latents for every variant

// All ways of scaling beside each other.
class BaselineMeter {
 public:
  BaselineMeter(const models::TaehvConfig& config, const Lpips* lpips)
      : config_(config), meters_(3, ClipMeter(lpips)) {}

  void Add(const at::Tensor& target) {
    waiting_.push_back(target);
    count_ += target.size(0);
    while (count_ >= kWindow) Measure(kWindow);
  }
  Baseline Finish() {
    if (count_ > 0) Measure(count_);
    const ClipScores grid = meters_[0].Finish(), space = meters_[1].Finish(), time = meters_[2].Finish();
    return time.psnr > space.psnr ? Baseline{grid, time, true} : Baseline{grid, space, false};
  }

 private:
  void Measure(int64_t frames) {
    const at::Tensor all = at::cat(waiting_);
    const at::Tensor window = all.narrow(0, 0, frames);
    for (const auto way : {Scaling::kGrid, Scaling::kSpace, Scaling::kTime}) {
      meters_[static_cast<size_t>(way)].Add(ScaleDownAndUp(window, config_, way).frames, window);
    }
    count_ -= frames;
    waiting_.clear();
    if (count_ > 0) waiting_.push_back(all.narrow(0, frames, count_).clone());
  }

  const models::TaehvConfig& config_;
  std::vector<ClipMeter> meters_;  // by Scaling
  std::vector<at::Tensor> waiting_;
  int64_t count_ = 0;
};

// Whole latents; little for large frames. The first piece is small: the size is not known before.
int64_t PieceOf(const MeasuredClip& clip) {
  if (clip.height == 0) return 8;
  return std::clamp<int64_t>(kPixels / (clip.height * clip.width) / 8 * 8, 8, 64);
}

}  // namespace

Status Evaluation::Load() {
  if (!options_.picture.empty()) {
    Result<const track::Cairo*> cairo = track::LoadCairo();
    if (!cairo.ok()) return cairo.status().Context("--picture");
    cairo_ = *cairo;
    // Made and removed again: a place that cannot be written is said before clips are measured.
    const Result<data::Publication> place = data::Publication::File(options_.picture, /*overwrite=*/true);
    if (!place.ok()) return place.status().Context("--picture");
  }
  Result<LoadedTaehv> loaded = LoadTaehv(options_.weights, options_.variant);
  if (!loaded.ok()) return loaded.status();
  loaded_ = std::move(*loaded);
  if (!loaded_.note.empty()) fmt::print(stderr, "lockstep eval: {}\n", loaded_.note);
  Result<at::Device> device = engine::ChooseDevice(options_.device, 0, 1, comm::Backend::kAuto);
  if (!device.ok()) return device.status();
  device_ = *device;
  precision_ = options_.precision == "bf16"   ? engine::Precision::kBf16
               : options_.precision == "fp16" ? engine::Precision::kFp16
                                              : engine::Precision::kFp32;
  loaded_.model->to(device_);
  loaded_.model->eval();
  loaded_.model->SetExecution(options_.execution == "fast" ? models::Execution::kFast : models::Execution::kReference);
  if (!options_.lpips.empty()) {
    Result<Lpips> lpips = Lpips::Load(options_.lpips);
    if (!lpips.ok()) return lpips.status();
    lpips_ = std::move(*lpips);
    lpips_->To(device_);
  }
  return Status::Ok();
}

Status Evaluation::Measure(std::unique_ptr<ClipSet> clips) {
  clips_ = std::move(clips);
  const TimePoint began = Now();
  {
    track::ProgressLine progress({.unit = "clip", .total = clips_->size(), .fd = 2});
    for (uint64_t i = 0; i < clips_->size(); ++i) {
      Status status = MeasureClip(i);
      if (!status.ok()) {
        if (options_.strict) return status.Context(clips_->Name(i));
        progress.Say(fmt::format("left out: {}", status.message()));
        left_out_.push_back({clips_->Name(i), status.message()});
      }
      progress.Update({.step = i + 1});
    }
  }
  seconds_ = std::chrono::duration<double>(Now() - began).count();
  if (measured_.empty()) {
    return Status(Code::kUsage,
                  fmt::format("none of the {} clips could be measured; the first: {}", clips_->size(),
                              left_out_.empty() ? "there is none" : left_out_.front().why),
                  "name videos, folders of frames or .safetensors with --data");
  }
  return Status::Ok();
}

Status Evaluation::MeasureClip(uint64_t index) {
  try {
    Result<std::unique_ptr<ClipReader>> reader = clips_->Open(index);
    if (!reader.ok()) return reader.status();
    MeasuredClip clip;
    clip.name = clips_->Name(index);
    ClipMeter meter(lpips_ ? &*lpips_ : nullptr);
    BaselineMeter baseline(loaded_.model->config(), lpips_ ? &*lpips_ : nullptr);
    Reconstruction run(loaded_.model.get(), device_, precision_,
                       [&](const at::Tensor& output, const at::Tensor& target) {
                         meter.Add(output, target);
                         if (options_.baseline) baseline.Add(target);
                         if (!options_.picture.empty()) clip.strip.Add(output, target);
                       });
    for (;;) {
      Result<at::Tensor> frames = (*reader)->Next(PieceOf(clip));
      if (!frames.ok()) return frames.status();
      if (!frames->defined()) break;
      clip.height = frames->size(2);
      clip.width = frames->size(3);
      run.Push(*frames);
    }
    run.Finish();
    clip.scores = meter.Finish();
    if (clip.scores.frames == 0) return Status(Code::kUsage, fmt::format("'{}' has no frames", clip.name));
    if (std::isnan(clip.scores.psnr)) {
      return Status(Code::kRankFailed, fmt::format("'{}': the model's output is not a number", clip.name),
                    "try --precision fp32");
    }
    if (options_.baseline) clip.baseline = baseline.Finish();
    frames_ += clip.scores.frames;
    measured_.push_back(std::move(clip));
    ForgetPictures();
    return Status::Ok();
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return Status(Code::kRankFailed, fmt::format("'{}': {}", clips_->Name(index), what.substr(0, what.find('\n'))),
                  "out of memory? --height and --width make frames smaller");
  }
}

std::vector<const MeasuredClip*> Evaluation::Worst(size_t count) const {
  std::vector<const MeasuredClip*> worst;
  for (const MeasuredClip& clip : measured_) worst.push_back(&clip);
  std::stable_sort(worst.begin(), worst.end(),
                   [](const MeasuredClip* a, const MeasuredClip* b) { return a->scores.psnr < b->scores.psnr; });
  worst.resize(std::min(worst.size(), count));
  return worst;
}

// Frames are kept for the worst clips only; the newest clip joins them, the best of them leaves.
void Evaluation::ForgetPictures() {
  if (options_.picture.empty()) return;
  pictured_.push_back(measured_.size() - 1);
  if (pictured_.size() <= static_cast<size_t>(options_.worst)) return;
  auto best = pictured_.begin();
  for (auto it = best; it != pictured_.end(); ++it) {
    if (measured_[*it].scores.psnr >= measured_[*best].scores.psnr) best = it;
  }
  measured_[*best].strip = Strip();
  pictured_.erase(best);
}

Status Evaluation::WritePicture() const {
  if (options_.picture.empty()) return Status::Ok();
  const std::vector<const MeasuredClip*> worst = Worst(static_cast<size_t>(options_.worst));
  track::Sheet sheet{.title = loaded_.path, .columns = kClipColumns, .map_label = track::kAbsoluteError};
  sheet.subtitle = loaded_.model->config().name + (loaded_.step ? fmt::format("  ·  step {}", *loaded_.step) : "");
  sheet.subtitle += fmt::format("  ·  the {} worst of {} clips by PSNR  ·  mean of all: {}, {}", worst.size(),
                                measured_.size(), MeanText("psnr"), MeanText("ssim"));
  for (const MeasuredClip* clip : worst) {
    track::SheetRow row = clip->strip.Row();
    row.title = clip->name;
    row.score = track::ScoreText("psnr", clip->scores.psnr) + "   " + track::ScoreText("ssim", clip->scores.ssim);
    if (lpips_) row.score += "   " + track::ScoreText("lpips", clip->scores.lpips);
    sheet.rows.push_back(std::move(row));
  }
  const Result<track::Picture> picture = track::DrawSheet(*cairo_, sheet);
  if (!picture.ok()) return picture.status();
  Result<std::string> png = data::EncodePng(picture->rgb, picture->width, picture->height);
  if (!png.ok()) return png.status();
  return WriteFileAtomic(options_.picture, *png);
}

std::string Evaluation::MeanText(std::string_view name) const {
  for (const Metric& metric : Metrics()) {
    if (metric.name != name) continue;
    std::vector<double> values;
    for (const MeasuredClip& clip : measured_) values.push_back(clip.scores.*metric.value);
    return track::ScoreText(name, Summarize(values).mean);
  }
  return "";
}

}  // namespace lockstep::media
