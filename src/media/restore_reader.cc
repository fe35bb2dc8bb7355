#include "media/restore_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "data/image.h"
#include "data/parallel.h"

namespace lockstep::media {
namespace {

constexpr int64_t kReadAtOnce = 8;  // frames of a video

Result<at::Tensor> ReadPicture(const std::string& path, int64_t height, int64_t width) {
  Result<data::Image> image = data::DecodeImage(path);
  if (!image.ok()) return image.status();
  if (image->height != height || image->width != width) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' is {}x{}, expected {}x{}", path, image->width, image->height, width, height));
  }
  at::Tensor rgb = at::empty({height, width, 3}, at::kByte);
  std::copy(image->rgb.begin(), image->rgb.end(), rgb.data_ptr<uint8_t>());
  return rgb.permute({2, 0, 1});
}

at::Tensor Stacked(const std::vector<at::Tensor>& parts, bool pictures, bool pinned) {
  const at::Tensor& one = parts.front();
  const auto count = static_cast<int64_t>(parts.size());
  const at::TensorOptions options = one.options().pinned_memory(pinned);
  // Bytes stay as pictures have them, channels last.
  at::Tensor all = pictures && one.scalar_type() == at::kByte
                       ? at::empty({count, one.size(1), one.size(2), one.size(0)}, options).permute({0, 3, 1, 2})
                       : at::empty({count, one.size(0), one.size(1), one.size(2)}, options);
  for (int64_t i = 0; i < count; ++i) all[i].copy_(parts[static_cast<size_t>(i)]);
  return all;
}

}  // namespace

Result<at::Tensor> WindowReader::ReadSpikes(int64_t frame) const {
  if (frame >= static_cast<int64_t>(clip_.spikes.size())) {
    return Status(Code::kUsage, fmt::format("--spikes: {} files, and frame {} of '{}' has none", clip_.spikes.size(),
                                            frame + 1, clip_.input));
  }
  const std::string& path = clip_.spikes[static_cast<size_t>(frame)];
  const data::SpikeSensor& sensor = options_.sensor;
  Result<data::SpikeFile> file = data::SpikeFile::Open(path, sensor);
  if (!file.ok()) return file.status().Context("--spikes");
  LOCKSTEP_RETURN_IF_ERROR(data::CheckSteps(options_.form, file->steps(), path));
  Result<std::vector<float>> planes = data::RenderSpikes(*file, options_.form, {0, 0, sensor.height, sensor.width});
  if (!planes.ok()) return planes.status();
  const auto height = static_cast<int>(clip_.shape.height), width = static_cast<int>(clip_.shape.width);
  const std::vector<float> sized =
      data::ResizePlanes(std::move(*planes), options_.form.channels, sensor.height, sensor.width, height, width);
  at::Tensor all = at::empty({options_.form.channels, height, width});
  std::copy(sized.begin(), sized.end(), all.data_ptr<float>());
  return all;
}

Status WindowReader::ReadOn(int64_t end) {
  if (!input_) {
    MediaOptions one = asked_;
    one.input = clip_.input;
    Result<AskedFrames> opened = OpenAsked(one);
    if (!opened.ok()) return opened.status();
    input_ = std::move(opened->input);
  }
  while (position_ < end) {
    // A piece ends where the window begins: what is passed over is not kept.
    const int64_t stop = position_ < first_ ? first_ : end;
    Result<Piece> piece = input_->Read(std::min(kReadAtOnce, stop - position_));
    if (!piece.ok()) return piece.status();
    if (piece->count() == 0) {
      return Status(Code::kEnvironment,
                    fmt::format("'{}' ended after {} frames, expected {}", clip_.input, position_, clip_.shape.count));
    }
    for (int64_t i = 0; i < piece->count(); ++i, ++position_) {
      // A copy: a picture must not keep the memory of its piece.
      if (position_ >= first_) held_.push_back({piece->data[0][i].clone(), {}});
    }
  }
  return Status::Ok();
}

Result<WindowFrames> WindowReader::Read(const FrameWindow& window) {
  for (; !held_.empty() && first_ < window.begin; ++first_) held_.pop_front();
  if (held_.empty()) first_ = window.begin;
  const auto known = static_cast<int64_t>(held_.size());
  if (clip_.frames.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(ReadOn(window.end()));
  } else {
    held_.resize(static_cast<size_t>(window.length));
  }
  std::vector<Status> outcomes(held_.size());
  data::ForEachAtOnce(
      held_.size() - static_cast<size_t>(known),
      [&](size_t i) {
        const size_t at = static_cast<size_t>(known) + i;
        const int64_t number = first_ + static_cast<int64_t>(at);
        try {
          if (!clip_.frames.empty()) {
            Result<at::Tensor> picture =
                ReadPicture(clip_.frames[static_cast<size_t>(number)], clip_.shape.height, clip_.shape.width);
            if (!picture.ok()) outcomes[at] = picture.status();
            if (picture.ok()) held_[at].picture = *picture;
          }
          if (clip_.spikes.empty()) return;
          Result<at::Tensor> spikes = ReadSpikes(number);
          if (!spikes.ok()) outcomes[at] = spikes.status();
          if (spikes.ok()) held_[at].spikes = *spikes;
        } catch (const std::exception& error) {
          outcomes[at] = Status(Code::kEnvironment, error.what());
        }
      },
      options_.threads);
  for (const Status& outcome : outcomes) LOCKSTEP_RETURN_IF_ERROR(outcome);
  std::vector<at::Tensor> pictures, spikes;
  for (const Frame& frame : held_) {
    pictures.push_back(frame.picture);
    if (frame.spikes.defined()) spikes.push_back(frame.spikes);
  }
  WindowFrames read{Stacked(pictures, /*pictures=*/true, options_.pinned), {}};
  if (!spikes.empty()) read.spikes = Stacked(spikes, /*pictures=*/false, options_.pinned);
  return read;
}

}  // namespace lockstep::media
