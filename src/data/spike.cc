#include "data/spike.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace lockstep::data {
namespace {

constexpr int kMiddleWindow = 50;
constexpr float kLeastRange = 1e-6F;
constexpr float kMostLevel = 1.001F;  // of a precomputed picture: 1, and what rounding adds

// Steps of part i of `parts`, as numpy's linspace of integers cuts them.
int64_t EdgeOf(int64_t steps, int parts, int i) {
  if (i == parts) return steps;
  return static_cast<int64_t>(static_cast<double>(i) * (static_cast<double>(steps) / parts));
}

SpikeBox WholeSensor(const SpikeSensor& sensor) { return {0, 0, sensor.height, sensor.width}; }

// mean * 255 truncated to a byte, in float32 as torch computes it, and divided by 255.
std::vector<float> PlaybackLevels(int64_t steps) {
  std::vector<float> levels;
  for (int64_t n = 0; n <= steps; ++n) {
    const float mean = static_cast<float>(n) / static_cast<float>(steps);
    levels.push_back(static_cast<float>(static_cast<uint8_t>(mean * 255.0F)) / 255.0F);
  }
  return levels;
}

class Renderer {
 public:
  Renderer(const SpikeFile& file, const SpikeForm& form, const SpikeBox& box)
      : file_(file), form_(form), box_(box), pixels_(static_cast<size_t>(box.height) * box.width) {}

  Result<std::vector<float>> Run() {
    LOCKSTEP_RETURN_IF_ERROR(CheckSteps(form_, file_.steps(), file_.path()));
    out_.reserve(pixels_ * static_cast<size_t>(form_.channels));
    LOCKSTEP_RETURN_IF_ERROR([&] {
      switch (form_.kind) {
        case SpikeKind::kTfp:
          return Playback();
        case SpikeKind::kMiddleTfp:
          return Middle();
        case SpikeKind::kTfi:
          return Intervals();
        case SpikeKind::kRawWindow:
          return Raw();
        case SpikeKind::kVoxel:
          return Voxels();
      }
      return Status(Code::kInternal, "a form of spikes without a formula");
    }());
    return std::move(out_);
  }

 private:
  Status Playback() {
    const int64_t half = form_.half_window;
    const std::vector<int64_t> centres = SpikeCentres(file_.steps(), form_.channels, form_.half_window);
    const int64_t from = centres.front() - half, to = std::min(centres.back() + half + 1, file_.steps());
    const Result<SpikeBits> bits = file_.Read(from, to, box_);
    if (!bits.ok()) return bits.status();
    std::vector<uint16_t> counts(pixels_);
    for (const int64_t centre : centres) {
      // A centre at T - h has one step less behind it, as in SpikeCV.
      const int64_t end = std::min(centre + half + 1, file_.steps());
      CountSpikes(*bits, centre - half, end, counts.data());
      const std::vector<float> levels = PlaybackLevels(end - (centre - half));
      for (const uint16_t count : counts) out_.push_back(levels[count]);
    }
    return Status::Ok();
  }

  // Smallest and largest are those of the whole picture: a crop must not change its brightness.
  Status Middle() {
    const int64_t from = std::max<int64_t>(form_.middle - kMiddleWindow + 1, 0);
    const int64_t to = std::min<int64_t>(form_.middle + kMiddleWindow + 1, file_.steps());
    Result<std::vector<uint16_t>> counts = CountWhole(from, to);
    if (!counts.ok()) return counts.status();
    const auto steps = static_cast<float>(to - from);
    const auto [least, most] = std::ranges::minmax(*counts);
    const float low = static_cast<float>(least) / steps;
    const float range = static_cast<float>(most) / steps - low + kLeastRange;
    Cut(*counts, [&](uint16_t count) { return (static_cast<float>(count) / steps - low) / range; });
    return Status::Ok();
  }

  Status Voxels() {
    for (int i = 0; i < form_.channels; ++i) {
      Result<std::vector<uint16_t>> counts =
          CountWhole(EdgeOf(file_.steps(), form_.channels, i), EdgeOf(file_.steps(), form_.channels, i + 1));
      if (!counts.ok()) return counts.status();
      const float most = std::max<float>(std::ranges::max(*counts), 1);
      Cut(*counts, [&](uint16_t count) { return static_cast<float>(count) / most; });
    }
    return Status::Ok();
  }

  Status Raw() {
    const int64_t from = file_.steps() / 2 - form_.channels / 2;
    const Result<SpikeBits> bits = file_.Read(from, from + form_.channels, box_);
    if (!bits.ok()) return bits.status();
    for (int64_t step = from; step < from + form_.channels; ++step) {
      for (int y = 0; y < box_.height; ++y) {
        const auto row = bits->Row(step, y);
        for (int x = 0; x < box_.width; ++x) out_.push_back((row[x / 64] >> (x % 64) & 1) != 0 ? 1.0F : 0.0F);
      }
    }
    return Status::Ok();
  }

  // Step 0 is not looked at, and the search ends `half_window` steps away on both sides, as in SpikeCV.
  Status Intervals() {
    const int64_t half = form_.half_window, steps = file_.steps();
    for (const int64_t centre : SpikeCentres(steps, form_.channels, form_.half_window)) {
      const int64_t from = std::max<int64_t>(centre - half + 1, 1), to = std::min(centre + half + 1, steps);
      const Result<SpikeBits> bits = file_.Read(from, to, box_);
      if (!bits.ok()) return bits.status();
      for (int y = 0; y < box_.height; ++y) {
        for (int x = 0; x < box_.width; ++x) {
          int64_t before = centre, after = centre + 1;
          while (before >= from && !bits->At(before, y, x)) --before;
          while (after < to && !bits->At(after, y, x)) ++after;
          const int64_t interval = before < from || after >= to ? 2 * half : after - before;
          out_.push_back(static_cast<float>(255 / interval) / 255.0F);
        }
      }
    }
    return Status::Ok();
  }

  Result<std::vector<uint16_t>> CountWhole(int64_t from, int64_t to) const {
    const Result<SpikeBits> bits = file_.Read(from, to, WholeSensor(file_.sensor()));
    if (!bits.ok()) return bits.status();
    std::vector<uint16_t> counts(static_cast<size_t>(bits->height) * bits->width);
    CountSpikes(*bits, from, to, counts.data());
    return counts;
  }

  template <typename Level>
  void Cut(const std::vector<uint16_t>& whole, const Level& level) {
    for (int y = box_.top; y < box_.top + box_.height; ++y) {
      const uint16_t* row = whole.data() + static_cast<size_t>(y) * file_.sensor().width + box_.left;
      for (int x = 0; x < box_.width; ++x) out_.push_back(level(row[x]));
    }
  }

  const SpikeFile& file_;
  const SpikeForm& form_;
  SpikeBox box_;
  size_t pixels_;
  std::vector<float> out_;
};

// What a file of another program may have in its place (0 to 255, NaN) would be taken for noise, or wrap as a byte.
Result<std::vector<float>> Levels(std::vector<float> planes, const std::string& path) {
  const auto wrong = std::ranges::find_if(planes, [](float value) { return !(value >= 0 && value <= kMostLevel); });
  if (wrong == planes.end()) return planes;
  return Status(
      Code::kEnvironment,
      fmt::format("'{}' has the value {}: expected 0 to 1 in float32 and in windows of raw spikes", path, *wrong),
      "store levels from 0 to 255 as uint8, or write it again with lockstep data prepare gopro-spike");
}

struct LinearTap {
  int first = 0, second = 0;
  float weight = 0;  // of the second
};

std::vector<LinearTap> LinearTaps(int from, int to) {
  std::vector<LinearTap> taps;
  const double scale = static_cast<double>(from) / to;
  for (int i = 0; i < to; ++i) {
    const auto at = static_cast<float>((i + 0.5) * scale - 0.5);
    int first = static_cast<int>(std::floor(at));
    float weight = at - static_cast<float>(first);
    if (first < 0) first = 0, weight = 0;
    if (first >= from - 1) first = from - 1, weight = 0;
    taps.push_back({first, std::min(first + 1, from - 1), weight});
  }
  return taps;
}

}  // namespace

const std::vector<std::string> kSpikeKinds = {"tfp", "middle_tfp", "tfi", "raw_window", "voxel"};

SpikeKind SpikeKindByName(const std::string& name) {
  return static_cast<SpikeKind>(std::ranges::find(kSpikeKinds, name) - kSpikeKinds.begin());
}

std::string SpikeForm::Folder() const {
  switch (kind) {
    case SpikeKind::kTfp:
      return fmt::format("tfp_b{}_hw{}", channels, half_window);
    case SpikeKind::kMiddleTfp:
      return fmt::format("middle_tfp_c{}", middle);
    case SpikeKind::kTfi:
      return fmt::format("tfi_b{}_hw{}", channels, half_window);
    case SpikeKind::kRawWindow:
      return fmt::format("raw_window_l{}", channels);
    case SpikeKind::kVoxel:
      return fmt::format("voxel_b{}", channels);
  }
  return "";
}

Status CheckForm(const SpikeForm& form) {
  const std::string name = kSpikeKinds[static_cast<size_t>(form.kind)];
  if (form.channels < 1) return Status(Code::kUsage, fmt::format("{} with {} channels", name, form.channels));
  if (form.kind == SpikeKind::kRawWindow && form.channels % 2 == 0) {
    return Status(
        Code::kUsage,
        fmt::format("raw_window of {} steps: expected an odd number, with one step in its middle", form.channels));
  }
  if (form.kind == SpikeKind::kMiddleTfp && form.channels != 1) {
    return Status(Code::kUsage, fmt::format("middle_tfp has one channel, not {}", form.channels));
  }
  if (form.half_window < 1) return Status(Code::kUsage, fmt::format("a half window of {} steps", form.half_window));
  return Status::Ok();
}

Status CheckSteps(const SpikeForm& form, int64_t steps, const std::string& name) {
  int64_t least = 1;
  switch (form.kind) {
    case SpikeKind::kTfp:
    case SpikeKind::kTfi:
      least = 2 * int64_t{form.half_window} + 1;
      break;
    case SpikeKind::kMiddleTfp:
      least = int64_t{form.middle} + 1;
      break;
    case SpikeKind::kRawWindow:
    case SpikeKind::kVoxel:
      least = form.channels;
      break;
  }
  if (steps >= least) return Status::Ok();
  return Status(Code::kEnvironment,
                fmt::format("'{}' is too short: {} needs {} or more, it has {}", name, form.Folder(),
                            Count(least, "step"), steps),
                "use a smaller window, or another form of the spikes");
}

std::vector<int64_t> SpikeCentres(int64_t steps, int channels, int half_window) {
  std::vector<int64_t> centres;
  for (int i = 0; i < channels; ++i) {
    const int64_t middle =
        channels == 1 ? steps / 2 : (EdgeOf(steps, channels, i) + EdgeOf(steps, channels, i + 1)) / 2;
    centres.push_back(std::max<int64_t>(half_window, std::min(middle, steps - half_window)));
  }
  return centres;
}

SpikeBox BoxOfSpikes(const SpikeSensor& sensor, int rgb_height, int rgb_width, const SpikeBox& rgb_box) {
  const double down = static_cast<double>(sensor.height) / rgb_height;
  const double across = static_cast<double>(sensor.width) / rgb_width;
  const auto size = [](double pixels, int most) {
    return std::min(std::max(static_cast<int>(std::nearbyint(pixels)), 1), most);
  };
  SpikeBox box;
  box.height = size(rgb_box.height * down, sensor.height);
  box.width = size(rgb_box.width * across, sensor.width);
  box.top = std::max(std::min(static_cast<int>(std::nearbyint(rgb_box.top * down)), sensor.height - box.height), 0);
  box.left = std::max(std::min(static_cast<int>(std::nearbyint(rgb_box.left * across)), sensor.width - box.width), 0);
  return box;
}

Result<std::vector<float>> RenderSpikes(const SpikeFile& file, const SpikeForm& form, const SpikeBox& box) {
  return Renderer(file, form, box).Run();
}

Result<std::vector<float>> ReadRendered(const NpyFile& file, const SpikeSensor& sensor, const SpikeForm& form,
                                        const SpikeBox& box) {
  const std::vector<int64_t> expected = {form.channels, sensor.height, sensor.width};
  if (file.shape() != expected) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' is an array of shape ({}): {} of this sensor is ({}), of mixed size", file.path(),
                              fmt::join(file.shape(), ", "), form.Folder(), fmt::join(expected, ", ")),
                  "write it again with lockstep data prepare gopro-spike");
  }
  const size_t elements = static_cast<size_t>(form.channels) * box.height * box.width;
  std::vector<float> planes(elements);
  if (file.type() == ElementType::kF32) {
    LOCKSTEP_RETURN_IF_ERROR(
        file.ReadBox(box.top, box.left, box.height, box.width, reinterpret_cast<std::byte*>(planes.data())));
    return Levels(std::move(planes), file.path());
  }
  std::vector<uint8_t> bytes(elements);
  LOCKSTEP_RETURN_IF_ERROR(
      file.ReadBox(box.top, box.left, box.height, box.width, reinterpret_cast<std::byte*>(bytes.data())));
  const float unit = form.kind == SpikeKind::kRawWindow ? 1.0F : static_cast<float>(file.most());
  for (size_t i = 0; i < elements; ++i) planes[i] = static_cast<float>(bytes[i]) / unit;
  return Levels(std::move(planes), file.path());
}

Result<std::string> RenderToNpy(const SpikeFile& file, const SpikeForm& form) {
  const SpikeSensor& sensor = file.sensor();
  Result<std::vector<float>> planes = RenderSpikes(file, form, WholeSensor(sensor));
  if (!planes.ok()) return planes.status();
  const std::vector<int64_t> shape = {form.channels, sensor.height, sensor.width};
  if (form.kind == SpikeKind::kMiddleTfp || form.kind == SpikeKind::kVoxel) {
    return EncodeNpy(ElementType::kF32, shape, std::as_bytes(std::span(*planes)));
  }
  const float unit = form.kind == SpikeKind::kRawWindow ? 1.0F : 255.0F;
  std::vector<uint8_t> bytes(planes->size());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(std::nearbyint((*planes)[i] * unit));
  return EncodeNpy(ElementType::kU8, shape, std::as_bytes(std::span(bytes)));
}

std::vector<float> ResizePlanes(std::vector<float> planes, int channels, int from_height, int from_width, int height,
                                int width) {
  if (from_height == height && from_width == width) return planes;
  const std::vector<LinearTap> across = LinearTaps(from_width, width), down = LinearTaps(from_height, height);
  std::vector<float> rows(static_cast<size_t>(from_height) * width);
  std::vector<float> out(static_cast<size_t>(channels) * height * width);
  float* to = out.data();
  for (int c = 0; c < channels; ++c) {
    const float* plane = planes.data() + static_cast<size_t>(c) * from_height * from_width;
    for (int y = 0; y < from_height; ++y) {
      const float* line = plane + static_cast<size_t>(y) * from_width;
      float* row = rows.data() + static_cast<size_t>(y) * width;
      for (int x = 0; x < width; ++x) {
        const LinearTap& tap = across[x];
        row[x] = line[tap.first] * (1 - tap.weight) + line[tap.second] * tap.weight;
      }
    }
    for (const LinearTap& tap : down) {
      const float* first = rows.data() + static_cast<size_t>(tap.first) * width;
      const float* second = rows.data() + static_cast<size_t>(tap.second) * width;
      const float weight = tap.weight, rest = 1 - tap.weight;
      for (int x = 0; x < width; ++x) to[x] = first[x] * rest + second[x] * weight;
      to += width;
    }
  }
  return out;
}

}  // namespace lockstep::data
