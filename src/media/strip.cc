#include "media/strip.h"

#include <torch/types.h>

#include <utility>
#include <vector>

namespace lockstep::media {

void Strip::Add(const at::Tensor& output, const at::Tensor& target) {
  const int64_t frames = output.size(0);
  if (frames == 0) return;
  const auto show = [&](int64_t t) { return media::ShowFrame(seen_ + t, output[t], target[t]); };
  const at::Tensor errors =
      (output.to(at::kFloat).clamp(0, 1) - target.to(at::kFloat).clamp(0, 1)).abs().mean({1, 2, 3});
  const auto worst = errors.argmax().item<int64_t>();
  const auto error = errors[worst].item<double>();
  if (!first_) first_ = show(0);
  last_ = show(frames - 1);
  if (error > worst_error_) {
    worst_ = show(worst);
    worst_error_ = error;
  }
  seen_ += frames;
}

track::SheetRow Strip::Row() const {
  std::vector<media::ShownFrame> frames;
  const bool differs = worst_ && worst_->index != first_->index;
  if (first_) frames.push_back(*first_);
  if (differs) {
    frames.push_back(*worst_);
  } else if (last_ && last_->index != first_->index) {
    frames.push_back(*last_);
  }
  track::SheetRow row = media::ClipRow(std::move(frames));
  if (differs) row.detail += " (the worst)";
  return row;
}

}  // namespace lockstep::media
