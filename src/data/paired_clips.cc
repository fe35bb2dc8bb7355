#include "data/paired_clips.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/text.h"
#include "data/color_jitter.h"
#include "data/image.h"
#include "data/paired_check.h"
#include "data/random.h"
#include "data/stages.h"

namespace lockstep::data {
namespace {

class PairedSource final : public Source {
 public:
  explicit PairedSource(std::shared_ptr<const PairedSet> set) : set_(std::move(set)) {
    const PairedConfig& c = set_->config();
    const PairedClip& first = set_->clips()[0];
    height_ = c.crop > 0 ? c.crop / c.scale : first.input_height;
    width_ = c.crop > 0 ? c.crop / c.scale : first.input_width;
    fields_.push_back({"input", ElementType::kU8, {c.SampleFrames(), 3, height_, width_}});
    if (c.spikes.use) {
      fields_.push_back({"spikes",
                         c.spikes.floats ? ElementType::kF32 : ElementType::kU8,
                         {c.SampleFrames(), c.spikes.form.channels, height_, width_}});
    }
    fields_.push_back(
        {"target", ElementType::kU8, {c.interpolate ? 1 : c.SampleFrames(), 3, height_ * c.scale, width_ * c.scale}});
    for (const PairedClip& clip : set_->clips()) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + (c.every_start ? clip.frames() : 1));
    }
  }

  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return static_cast<uint64_t>(ends_.back()); }
  std::string Name(uint64_t index) const override {
    const auto [clip, frame] = Find(index);
    return fmt::format("{}/{}", clip->name, clip->stems[frame]);
  }
  std::string Origin(uint64_t index) const override { return Find(index).first->name; }

  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    const auto [clip, frame] = Find(draw.index);
    const PairedConfig& c = set_->config();
    const PairedDraw drawn = DrawPaired(c, draw, frame, clip->frames(), clip->input_height, clip->input_width);
    const SpikeBox input_box{drawn.top, drawn.left, height_, width_};
    const SpikeBox target_box{drawn.top * c.scale, drawn.left * c.scale, height_ * c.scale, width_ * c.scale};
    const size_t last = fields_.size() - 1;
    const int64_t step = drawn.interval * (c.interpolate ? 2 : 1);
    for (int i = 0; i < c.frames; ++i) {
      if (draw.cancelled != nullptr && *draw.cancelled) return Status(Code::kInterrupted, "reading was stopped");
      const int64_t number = drawn.start + (drawn.reverse ? c.frames - 1 - i : i) * step;
      LOCKSTEP_RETURN_IF_ERROR(ReadPicture(*clip, number, false, input_box, drawn, out[0] + i * PerFrame(0)));
      if (fields_.size() == 3) LOCKSTEP_RETURN_IF_ERROR(ReadSpikePlanes(*clip, number, input_box, drawn, out[1], i));
      if (c.interpolate) continue;
      LOCKSTEP_RETURN_IF_ERROR(ReadPicture(*clip, number, true, target_box, drawn, out[last] + i * PerFrame(last)));
    }
    if (c.interpolate) {
      const int64_t middle = drawn.start + static_cast<int64_t>(c.frames - 1) * drawn.interval;
      LOCKSTEP_RETURN_IF_ERROR(ReadPicture(*clip, middle, true, target_box, drawn, out[last]));
    }
    for (size_t field = 0; field < fields_.size(); ++field) {
      std::byte* after = out[field] + c.frames * PerFrame(field);
      for (int i = 0; i < c.repeat_last; ++i) {
        std::copy_n(after - PerFrame(field), PerFrame(field), after + i * PerFrame(field));
      }
    }
    JitterFields(c.color_jitter, draw, fields_, out);
    return Status::Ok();
  }

  std::string Describe() const override {
    const PairedConfig& c = set_->config();
    std::string text =
        fmt::format("{}: {}, {} in {}", c.kind, Count(static_cast<int64_t>(set_->clips().size()), "clip"),
                    Count(set_->frames(), "frame"), c.target);
    if (c.spikes.use) text += fmt::format(", spikes {} in {}", c.spikes.form.Folder(), c.spikes.path);
    return set_->notes().empty() ? text : text + "; " + set_->notes();
  }

  std::string Digest() const override {
    std::string identity = fmt::format("paired 1 {} {} {}", set_->config().frames, set_->config().scale,
                                       fields_.size() == 3 ? set_->config().spikes.form.Folder() : "");
    if (set_->config().interpolate) identity += " interpolation";
    if (set_->config().repeat_last > 0) identity += fmt::format(" last {} times", 1 + set_->config().repeat_last);
    for (const PairedClip& clip : set_->clips()) {
      identity += fmt::format("\n{} {} {} {}x{}", clip.name, clip.first, clip.frames(), clip.width, clip.height);
      for (const Picture& picture : clip.target) identity += fmt::format(" {}", picture.bytes);
    }
    return fmt::format("xxh64:{:016x}", static_cast<uint64_t>(XXH64(identity.data(), identity.size(), 0)));
  }

 private:
  size_t PerFrame(size_t field) const { return fields_[field].bytes() / static_cast<size_t>(fields_[field].shape[0]); }

  std::pair<const PairedClip*, int64_t> Find(uint64_t index) const {
    const auto at = static_cast<int64_t>(index);
    const auto it = std::ranges::upper_bound(ends_, at);
    const auto clip = it - ends_.begin();
    return {&set_->clips()[clip], set_->config().every_start ? at - (clip == 0 ? 0 : ends_[clip - 1]) : 0};
  }

  Status ReadPicture(const PairedClip& clip, int64_t frame, bool target, const SpikeBox& box, const PairedDraw& drawn,
                     std::byte* out) const {
    const WindowOf window = [&](int, int) { return Window{box.left, box.top, box.width, box.height}; };
    Result<Image> image = target ? set_->ReadTarget(clip, frame, window) : set_->ReadInput(clip, frame, window);
    if (!image.ok()) return image.status();
    const int height = target ? clip.height : clip.input_height, width = target ? clip.width : clip.input_width;
    if (image->whole_height != height || image->whole_width != width) {
      return Status(Code::kEnvironment,
                    fmt::format("frames of mixed size in one clip: frame {} of '{}' is {}x{}, expected {}x{}",
                                clip.stems[frame], clip.name, image->whole_width, image->whole_height, width, height));
    }
    const StageMark mark(LoadStage::kTransform);
    const ptrdiff_t stride = static_cast<ptrdiff_t>(image->width) * 3;
    const uint8_t* from = image->rgb.data() + (box.top - image->y) * stride + (box.left - image->x) * 3;
    const size_t pixels = static_cast<size_t>(box.height) * box.width;
    for (size_t c = 0; c < 3; ++c) {
      TurnPlane(from + c, stride, 3, box.height, box.width, drawn, reinterpret_cast<uint8_t*>(out) + c * pixels,
                [](uint8_t v) { return v; });
    }
    return Status::Ok();
  }

  Status ReadSpikePlanes(const PairedClip& clip, int64_t frame, const SpikeBox& box, const PairedDraw& drawn,
                         std::byte* out, int index) const {
    Result<std::vector<float>> planes = [&] {
      const StageMark mark(LoadStage::kRead);
      return set_->ReadSpikes(clip, frame, box);
    }();
    if (!planes.ok()) return planes.status();
    const StageMark mark(LoadStage::kTransform);
    const size_t pixels = static_cast<size_t>(box.height) * box.width;
    for (int s = 0; s < set_->config().spikes.form.channels; ++s) {
      const float* from = planes->data() + s * pixels;
      const size_t at = (static_cast<size_t>(index) * set_->config().spikes.form.channels + s) * pixels;
      if (set_->config().spikes.floats) {
        TurnPlane(from, box.width, 1, box.height, box.width, drawn, reinterpret_cast<float*>(out) + at,
                  [](float v) { return v; });
      } else {
        TurnPlane(from, box.width, 1, box.height, box.width, drawn, reinterpret_cast<uint8_t*>(out) + at, SpikeByte);
      }
    }
    return Status::Ok();
  }

  std::shared_ptr<const PairedSet> set_;
  std::vector<Field> fields_;
  std::vector<int64_t> ends_;   // samples up to and with each clip
  int height_ = 0, width_ = 0;  // of the input
};

}  // namespace

PairedDraw DrawPaired(const PairedConfig& config, const Draw& draw, int64_t frame, int64_t clip_frames,
                      int input_height, int input_width) {
  PairedDraw drawn;
  Random time(draw.seed, draw.epoch, draw.index, Purpose::kTime);
  drawn.interval = draw.augment ? config.intervals[time.Below(config.intervals.size())] : config.intervals[0];
  // KAIR leaves room for `interval` frames behind the last one; a clip that has no such room is used to its end.
  const int64_t span = config.Span();
  int64_t last = clip_frames - span * drawn.interval;
  if (last < 0) last = clip_frames - (span - 1) * drawn.interval - 1;
  drawn.start = frame <= last ? frame : draw.augment ? time.Between(0, last) : last;
  drawn.reverse = draw.augment && config.random_reverse && time.Chance(0.5);
  const int size_y = config.crop > 0 ? config.crop / config.scale : input_height;
  const int size_x = config.crop > 0 ? config.crop / config.scale : input_width;
  if (!draw.augment) {
    drawn.top = (input_height - size_y) / 2;
    drawn.left = (input_width - size_x) / 2;
    return drawn;
  }
  Random crop(draw.seed, draw.epoch, draw.index, Purpose::kCrop);
  drawn.top = static_cast<int>(crop.Between(0, input_height - size_y));
  drawn.left = static_cast<int>(crop.Between(0, input_width - size_x));
  Random flip(draw.seed, draw.epoch, draw.index, Purpose::kFlip);
  const bool across = flip.Chance(0.5), down = flip.Chance(0.5), turned = flip.Chance(0.5);
  drawn.hflip = config.hflip && across;
  drawn.vflip = config.rotate && down;
  drawn.transpose = config.rotate && turned;
  return drawn;
}

Result<std::unique_ptr<Source>> MakePairedSource(std::shared_ptr<const PairedSet> set) {
  return std::unique_ptr<Source>(std::make_unique<PairedSource>(std::move(set)));
}

Result<std::unique_ptr<Source>> OpenPaired(const PairedConfig& config) {
  if (config.kind == "generated") return MakeGeneratedPairs(config);
  Result<PairedSet> set = PairedSet::Open(config);
  if (!set.ok()) return set.status();
  return MakePairedSource(std::make_shared<const PairedSet>(std::move(*set)));
}

}  // namespace lockstep::data
