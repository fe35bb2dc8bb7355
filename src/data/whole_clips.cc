#include "data/whole_clips.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <tuple>

#include "base/text.h"

namespace lockstep::data {
namespace {

class WholeClips final : public Source {
 public:
  explicit WholeClips(std::shared_ptr<const PairedSet> set) : set_(std::move(set)) {
    for (const PairedClip& clip : set_->clips()) clips_.push_back(&clip);
    const auto shape = [](const PairedClip* clip) { return std::tuple(clip->frames(), clip->height, clip->width); };
    std::ranges::sort(clips_, {}, [&](const PairedClip* clip) { return std::tuple(shape(clip), clip->name); });
    for (const PairedClip* clip : clips_) {
      const bool same = clip != clips_.front() && shape(clip) == shape(clips_[fields_.size() - 1]);
      fields_.push_back(same ? fields_.back() : std::make_shared<const std::vector<Field>>(FieldsFor(*clip)));
    }
  }

  const std::vector<Field>& fields() const override { return *fields_.front(); }
  const std::vector<Field>& FieldsOf(uint64_t index) const override { return *fields_[index]; }
  uint64_t size() const override { return clips_.size(); }
  std::string Name(uint64_t index) const override { return clips_[index]->name; }

  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    const PairedClip& clip = *clips_[draw.index];
    const std::vector<Field>& fields = *fields_[draw.index];
    for (int64_t frame = 0; frame < clip.frames(); ++frame) {
      if (draw.cancelled != nullptr && *draw.cancelled) return Status(Code::kInterrupted, "reading was stopped");
      for (size_t i = 0; i < fields.size(); ++i) {
        std::byte* to = out[i] + frame * (fields[i].bytes() / static_cast<size_t>(clip.frames()));
        LOCKSTEP_RETURN_IF_ERROR(fields[i].name == "spikes" ? ReadSpikes(clip, frame, to)
                                                            : ReadPicture(clip, frame, fields[i], to));
      }
    }
    return Status::Ok();
  }

  std::string Describe() const override {
    std::string text =
        fmt::format("{}: {}, {} in {}, whole", set_->config().kind, Count(static_cast<int64_t>(clips_.size()), "clip"),
                    Count(set_->frames(), "frame"), set_->config().target);
    return set_->notes().empty() ? text : text + "; " + set_->notes();
  }

  std::string Digest() const override {
    std::string identity = "whole clips 1";
    for (const PairedClip* clip : clips_) {
      identity += fmt::format("\n{} {} {} {}x{}", clip->name, clip->first, clip->frames(), clip->width, clip->height);
      for (const Picture& picture : clip->target) identity += fmt::format(" {}", picture.bytes);
    }
    return fmt::format("xxh64:{:016x}", static_cast<uint64_t>(XXH64(identity.data(), identity.size(), 0)));
  }

 private:
  std::vector<Field> FieldsFor(const PairedClip& clip) const {
    const SpikeInput& spikes = set_->config().spikes;
    std::vector<Field> fields = {{"input", ElementType::kU8, {clip.frames(), 3, clip.input_height, clip.input_width}}};
    if (spikes.use) {
      fields.push_back({"spikes",
                        spikes.floats ? ElementType::kF32 : ElementType::kU8,
                        {clip.frames(), spikes.form.channels, clip.input_height, clip.input_width}});
    }
    fields.push_back({"target", ElementType::kU8, {clip.frames(), 3, clip.height, clip.width}});
    return fields;
  }

  Status ReadPicture(const PairedClip& clip, int64_t frame, const Field& field, std::byte* out) const {
    const bool target = field.name == "target";
    const Result<Image> image = target ? set_->ReadTarget(clip, frame) : set_->ReadInput(clip, frame);
    if (!image.ok()) return image.status();
    if (image->height != field.shape[2] || image->width != field.shape[3]) {
      return Status(
          Code::kEnvironment,
          fmt::format("frames of mixed size in one clip: frame {} of '{}' is {}x{}, expected {}x{}", clip.stems[frame],
                      clip.name, image->width, image->height, field.shape[3], field.shape[2]));
    }
    const size_t pixels = static_cast<size_t>(image->height) * image->width;
    auto* planes = reinterpret_cast<uint8_t*>(out);
    for (size_t i = 0; i < pixels; ++i) {
      for (size_t c = 0; c < 3; ++c) planes[c * pixels + i] = image->rgb[3 * i + c];
    }
    return Status::Ok();
  }

  Status ReadSpikes(const PairedClip& clip, int64_t frame, std::byte* out) const {
    const Result<std::vector<float>> planes =
        set_->ReadSpikes(clip, frame, {0, 0, clip.input_height, clip.input_width});
    if (!planes.ok()) return planes.status();
    if (set_->config().spikes.floats) {
      std::ranges::copy(*planes, reinterpret_cast<float*>(out));
    } else {
      std::ranges::transform(*planes, reinterpret_cast<uint8_t*>(out), SpikeByte);
    }
    return Status::Ok();
  }

  std::shared_ptr<const PairedSet> set_;
  std::vector<const PairedClip*> clips_;                           // by length and size
  std::vector<std::shared_ptr<const std::vector<Field>>> fields_;  // of each clip
};

}  // namespace

std::unique_ptr<Source> MakeWholeClips(std::shared_ptr<const PairedSet> set) {
  return std::make_unique<WholeClips>(std::move(set));
}

}  // namespace lockstep::data
