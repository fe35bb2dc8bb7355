#include "data/interpolation_clips.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace lockstep::data {
namespace {

class InterpolationClips final : public Source {
 public:
  explicit InterpolationClips(std::shared_ptr<const PairedSet> set) : set_(std::move(set)) {
    const PairedConfig& c = set_->config();
    for (const PairedClip& clip : set_->clips()) {
      const int height = c.center[0] > 0 ? c.center[0] : clip.height,
                width = c.center[1] > 0 ? c.center[1] : clip.width;
      auto fields = std::make_shared<const std::vector<Field>>(
          std::vector<Field>{{"input", ElementType::kU8, {c.frames, 3, height, width}},
                             {"target", ElementType::kU8, {1, 3, height, width}}});
      if (!windows_.empty() && windows_.back().fields->front().shape == fields->front().shape) {
        fields = windows_.back().fields;
      }
      // A clip with an even number of frames ends with its last frame twice.
      const int64_t before = c.repeat_ends ? c.frames - 2 : 0;
      const int64_t frames = c.repeat_ends ? clip.frames() / 2 * 2 + 1 : clip.frames();
      for (int64_t start = -before; start + c.Span() <= frames + before; start += 2) {
        windows_.push_back({&clip, start, fields});
      }
    }
  }

  const std::vector<Field>& fields() const override { return *windows_.front().fields; }
  const std::vector<Field>& FieldsOf(uint64_t index) const override { return *windows_[index].fields; }
  uint64_t size() const override { return windows_.size(); }
  std::string Name(uint64_t index) const override {
    const auto& [clip, start, fields] = windows_[index];
    return fmt::format("{}/{}", clip->name, clip->stems[static_cast<size_t>(start + set_->config().frames - 1)]);
  }
  std::string Origin(uint64_t index) const override { return windows_[index].clip->name; }

  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    const auto& [clip, start, fields] = windows_[draw.index];
    const PairedConfig& c = set_->config();
    const size_t bytes = (*fields)[1].bytes();
    for (int i = 0; i < c.frames; ++i) {
      if (draw.cancelled != nullptr && *draw.cancelled) return Status(Code::kInterrupted, "reading was stopped");
      const int64_t frame = std::clamp<int64_t>(start + 2 * i, 0, clip->frames() - 1);
      LOCKSTEP_RETURN_IF_ERROR(Put(*clip, frame, set_->ReadInput(*clip, frame), (*fields)[0], out[0] + i * bytes));
    }
    const int64_t middle = start + c.frames - 1;
    return Put(*clip, middle, set_->ReadTarget(*clip, middle), (*fields)[1], out[1]);
  }

  std::string Describe() const override {
    return fmt::format("{}: {}, {} in {}, each the middle of {} others", set_->config().kind,
                       Count(static_cast<int64_t>(set_->clips().size()), "clip"),
                       Count(static_cast<int64_t>(size()), "frame"), set_->config().target, set_->config().frames);
  }

  std::string Digest() const override {
    const PairedConfig& c = set_->config();
    std::string identity =
        fmt::format("interpolation clips 1 {} {} {} {}", c.frames, c.center[0], c.center[1], c.repeat_ends);
    for (const PairedClip& clip : set_->clips()) {
      identity += fmt::format("\n{} {} {} {}x{}", clip.name, clip.first, clip.frames(), clip.width, clip.height);
      for (const Picture& picture : clip.target) identity += fmt::format(" {}", picture.bytes);
    }
    return fmt::format("xxh64:{:016x}", static_cast<uint64_t>(XXH64(identity.data(), identity.size(), 0)));
  }

 private:
  struct FrameWindow {
    const PairedClip* clip;
    int64_t start;  // may lie before the clip
    std::shared_ptr<const std::vector<Field>> fields;
  };

  // The middle of a picture as planes; where it cannot be exact, the side that torchvision's CenterCrop takes.
  static Status Put(const PairedClip& clip, int64_t frame, const Result<Image>& image, const Field& field,
                    std::byte* out) {
    if (!image.ok()) return image.status();
    if (image->height != clip.height || image->width != clip.width) {
      return Status(Code::kEnvironment,
                    fmt::format("frames of mixed size in one clip: frame {} of '{}' is {}x{}, expected {}x{}",
                                clip.stems[static_cast<size_t>(frame)], clip.name, image->width, image->height,
                                clip.width, clip.height));
    }
    const auto height = static_cast<int>(field.shape[2]), width = static_cast<int>(field.shape[3]);
    const auto half = [](int rest) { return static_cast<int>(std::nearbyint(rest / 2.0)); };  // Python's round
    const int top = half(clip.height - height), left = half(clip.width - width);
    auto* planes = reinterpret_cast<uint8_t*>(out);
    const size_t pixels = static_cast<size_t>(height) * width;
    for (int y = 0; y < height; ++y) {
      const uint8_t* row = image->rgb.data() + (static_cast<size_t>(top + y) * clip.width + left) * 3;
      for (int x = 0; x < width; ++x) {
        for (size_t c = 0; c < 3; ++c) planes[c * pixels + static_cast<size_t>(y) * width + x] = row[3 * x + c];
      }
    }
    return Status::Ok();
  }

  std::shared_ptr<const PairedSet> set_;
  std::vector<FrameWindow> windows_;
};

}  // namespace

std::unique_ptr<Source> MakeInterpolationClips(std::shared_ptr<const PairedSet> set) {
  return std::make_unique<InterpolationClips>(std::move(set));
}

}  // namespace lockstep::data
