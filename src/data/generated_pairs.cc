#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>

#include "base/text.h"
#include "data/color_jitter.h"
#include "data/paired_check.h"
#include "data/paired_clips.h"
#include "data/random.h"
#include "data/spike_scene.h"

namespace lockstep::data {
namespace {

// Means of boxes of `scale` x `scale` pixels.
std::vector<uint8_t> ReducePlanes(const std::vector<uint8_t>& planes, int height, int width, int scale) {
  if (scale == 1) return planes;
  std::vector<uint8_t> out;
  const int boxes = scale * scale;
  for (int row = 0; row < 3 * height; row += scale) {
    for (int x = 0; x < width; x += scale) {
      int sum = 0;
      for (int i = 0; i < boxes; ++i) sum += planes[static_cast<size_t>(row + i / scale) * width + x + i % scale];
      out.push_back(static_cast<uint8_t>((sum + boxes / 2) / boxes));
    }
  }
  return out;
}

class GeneratedPairs final : public Source {
 public:
  explicit GeneratedPairs(const PairedConfig& config) : config_(config), size_(config.crop / config.scale) {
    fields_.push_back({"input", ElementType::kU8, {config.frames, 3, size_, size_}});
    if (WithSpikes()) {
      fields_.push_back({"spikes",
                         config.spikes.floats ? ElementType::kF32 : ElementType::kU8,
                         {config.frames, config.spikes.form.channels, size_, size_}});
    }
    fields_.push_back(
        {"target", ElementType::kU8, {config.interpolate ? 1 : config.frames, 3, config.crop, config.crop}});
  }

  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return config_.clips; }
  std::string Name(uint64_t index) const override { return fmt::format("scene {}", index); }

  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    SpikeSceneOptions options{.height = config_.crop, .width = config_.crop, .divisor = config_.sensor_divisor};
    PairedDraw drawn;
    if (draw.augment) {
      Random time(draw.seed, draw.epoch, draw.index, Purpose::kTime);
      options.start = time.Uniform(0, 16);
      drawn.reverse = config_.random_reverse && time.Chance(0.5);
      Random crop(draw.seed, draw.epoch, draw.index, Purpose::kCrop);
      options.shift_x = crop.Uniform(-0.25, 0.25);
      options.shift_y = crop.Uniform(-0.25, 0.25);
      Random flip(draw.seed, draw.epoch, draw.index, Purpose::kFlip);
      const bool across = flip.Chance(0.5), down = flip.Chance(0.5), turned = flip.Chance(0.5);
      drawn.hflip = config_.hflip && across;
      drawn.vflip = config_.rotate && down;
      drawn.transpose = config_.rotate && turned;
    }
    SpikeScene scene(config_.seed, draw.index, options);
    for (int i = 0; i < config_.Span(); ++i) {
      if (draw.cancelled != nullptr && *draw.cancelled) return Status(Code::kInterrupted, "reading was stopped");
      const int at = drawn.reverse ? config_.Span() - 1 - i : i;
      const SpikeScene::Exposure exposure = scene.Next();
      if (config_.interpolate) {  // sharp frames alone
        uint8_t* to = reinterpret_cast<uint8_t*>(out[0]) + at / 2 * PerFrame(0);
        if (at == config_.frames - 1) {
          to = reinterpret_cast<uint8_t*>(out[1]);
        } else if (at % 2 != 0) {
          continue;
        }
        Put(exposure.sharp.data(), 3, size_, drawn, to);
        continue;
      }
      const auto reduced = ReducePlanes(exposure.blurred, config_.crop, config_.crop, config_.scale);
      Put(reduced.data(), 3, size_, drawn, reinterpret_cast<uint8_t*>(out[0]) + at * PerFrame(0));
      if (WithSpikes()) LOCKSTEP_RETURN_IF_ERROR(PutSpikes(scene, exposure, drawn, out[1], at));
      const size_t last = fields_.size() - 1;
      Put(exposure.sharp.data(), 3, config_.crop, drawn, reinterpret_cast<uint8_t*>(out[last]) + at * PerFrame(last));
    }
    JitterFields(config_.color_jitter, draw, fields_, out);
    return Status::Ok();
  }

  std::string Describe() const override {
    return fmt::format("generated: {} scenes from seed {}, {}{}", config_.clips, config_.seed,
                       config_.interpolate ? "every second frame" : "blurred by motion",
                       WithSpikes() ? ", with spikes " + config_.spikes.form.Folder() : "");
  }
  std::string Digest() const override {
    const std::string identity = fmt::format(
        "generated pairs 1 {} {} {} {} {}{}", config_.seed, config_.clips, config_.crop, config_.sensor_divisor,
        WithSpikes() ? config_.spikes.form.Folder() : "", config_.interpolate ? "interpolation" : "");
    return fmt::format("xxh64:{:016x}", static_cast<uint64_t>(XXH64(identity.data(), identity.size(), 0)));
  }

 private:
  bool WithSpikes() const { return config_.spikes.use; }
  size_t PerFrame(size_t field) const { return fields_[field].bytes() / static_cast<size_t>(fields_[field].shape[0]); }

  static void Put(const uint8_t* planes, int channels, int size, const PairedDraw& drawn, uint8_t* out) {
    const size_t pixels = static_cast<size_t>(size) * size;
    for (int c = 0; c < channels; ++c) {
      TurnPlane(planes + c * pixels, size, 1, size, size, drawn, out + c * pixels, [](uint8_t v) { return v; });
    }
  }

  Status PutSpikes(const SpikeScene& scene, const SpikeScene::Exposure& exposure, const PairedDraw& drawn,
                   std::byte* out, int frame) const {
    const SpikeSensor& sensor = scene.sensor();
    Result<SpikeFile> file = SpikeFile::FromBytes(exposure.spikes, sensor, "spikes of a generated scene");
    if (!file.ok()) return file.status();
    const int channels = config_.spikes.form.channels;
    Result<std::vector<float>> planes = RenderSpikes(*file, config_.spikes.form, {0, 0, sensor.height, sensor.width});
    if (!planes.ok()) return planes.status();
    const std::vector<float> whole =
        ResizePlanes(std::move(*planes), channels, sensor.height, sensor.width, size_, size_);
    const size_t pixels = static_cast<size_t>(size_) * size_;
    for (int s = 0; s < channels; ++s) {
      const size_t at = (static_cast<size_t>(frame) * channels + s) * pixels;
      if (config_.spikes.floats) {
        TurnPlane(whole.data() + s * pixels, size_, 1, size_, size_, drawn, reinterpret_cast<float*>(out) + at,
                  [](float v) { return v; });
      } else {
        TurnPlane(whole.data() + s * pixels, size_, 1, size_, size_, drawn, reinterpret_cast<uint8_t*>(out) + at,
                  SpikeByte);
      }
    }
    return Status::Ok();
  }

  PairedConfig config_;
  int size_;  // of the input
  std::vector<Field> fields_;
};

}  // namespace

Result<std::unique_ptr<Source>> MakeGeneratedPairs(const PairedConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckPairedConfig(config));
  const int sensor = config.sensor_divisor < 1 ? 0 : config.crop / config.sensor_divisor;
  if (config.crop < 16 || sensor < 8 || sensor * config.sensor_divisor != config.crop || sensor % 8 != 0) {
    return Status(Code::kUsage,
                  fmt::format("generated clips of {} pixels and a sensor 1/{} as large: expected at least 16, and a "
                              "sensor size that is a multiple of 8",
                              config.crop, config.sensor_divisor));
  }
  return std::unique_ptr<Source>(std::make_unique<GeneratedPairs>(config));
}

}  // namespace lockstep::data
