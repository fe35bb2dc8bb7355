#include "data/spike_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

// Spike cameras and data sets that people have: height, width. In the order in which they are proposed.
constexpr std::array<std::pair<int, int>, 12> kSensors = {{
    {360, 640},    // GoPro with spikes
    {250, 400},    // Vidar, SpikeCV's default
    {1000, 1000},  // Vidar 2
    {1000, 1024},
    {720, 1280},
    {480, 640},
    {500, 800},
    {256, 448},
    {260, 346},
    {512, 512},
    {480, 854},
    {256, 256},
}};
constexpr int64_t kLeastSteps = 16, kMostSteps = 100'000;
constexpr int kPlanes = 8;  // of the counters: 255 steps at once

uint64_t FrameBits(const SpikeSensor& sensor) {
  return static_cast<uint64_t>(sensor.height) * static_cast<uint64_t>(sensor.width);
}

// Spreads a byte's bits over eight bytes.
constexpr std::array<uint64_t, 256> MakeSpread() {
  std::array<uint64_t, 256> table{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    for (int bit = 0; bit < 8; ++bit) table[byte] |= (byte >> bit & 1) << (8 * bit);
  }
  return table;
}
constexpr std::array<uint64_t, 256> kSpread = MakeSpread();

// `count` bits from bit `at` of `bytes` on to words. `bytes` has eight readable bytes behind its last bit.
void CopyBits(const uint8_t* bytes, uint64_t at, int count, uint64_t* words) {
  const uint8_t* from = bytes + at / 8;
  const auto shift = static_cast<int>(at % 8);
  for (int done = 0; done < count; done += 64, from += 8, ++words) {
    uint64_t word = 0;
    std::memcpy(&word, from, sizeof word);  // little-endian machines only, as the whole program
    if (shift != 0) word = word >> shift | static_cast<uint64_t>(from[8]) << (64 - shift);
    const int left = count - done;
    *words = left < 64 ? word & ((1ull << left) - 1) : word;
  }
}

struct SaidSensor {
  std::string config;  // the file that says it
  SpikeSensor sensor;
};

// What SpikeCV's config.yaml in a folder above a file says of its sensor, where it fits the file.
std::optional<SaidSensor> SaidByConfig(const std::string& path, uint64_t file_bytes) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (int up = 0; up < 5 && !folder.empty(); ++up, folder = folder.parent_path()) {
    const std::string config = folder / "config.yaml";
    const Result<std::string> text = ReadFile(config, 1 << 16);
    if (!text.ok()) continue;
    SpikeSensor said{0, 0};
    for (const std::string& line : lockstep::Split(*text, '\n')) {
      if (line.starts_with("spike_h:"))
        said.height = ParseDigits<int>(Trim(std::string_view(line).substr(8))).value_or(0);
      if (line.starts_with("spike_w:"))
        said.width = ParseDigits<int>(Trim(std::string_view(line).substr(8))).value_or(0);
    }
    const uint64_t frame = said.height > 0 && said.width > 0 ? FrameBits(said) / 8 : 0;
    if (frame == 0 || file_bytes % frame != 0) continue;
    return SaidSensor{config, said};
  }
  return std::nullopt;
}

}  // namespace

std::vector<SpikeShape> FittingShapes(uint64_t file_bytes) {
  std::vector<SpikeShape> shapes;
  for (const auto& [height, width] : kSensors) {
    const uint64_t frame = static_cast<uint64_t>(height) * static_cast<uint64_t>(width);
    if (frame % 8 != 0 || file_bytes % (frame / 8) != 0) continue;
    const auto steps = static_cast<int64_t>(file_bytes / (frame / 8));
    if (steps >= kLeastSteps && steps <= kMostSteps) shapes.push_back({steps, height, width});
  }
  return shapes;
}

Result<int64_t> SpikeSteps(uint64_t file_bytes, const SpikeSensor& sensor, const std::string& name) {
  if (sensor.height < 1 || sensor.width < 1 || FrameBits(sensor) % 8 != 0) {
    return Status(Code::kUsage, fmt::format("a spike sensor of {} x {} pixels: a step must have a whole number of "
                                            "bytes, one bit for each pixel",
                                            sensor.height, sensor.width));
  }
  const uint64_t frame = FrameBits(sensor) / 8;
  if (file_bytes >= frame && file_bytes % frame == 0) return static_cast<int64_t>(file_bytes / frame);
  std::vector<std::string> fits;
  for (const SpikeShape& shape : FittingShapes(file_bytes)) {
    fits.push_back(fmt::format("{} x {} x {}", shape.steps, shape.height, shape.width));
  }
  std::string hint;
  if (const auto said = SaidByConfig(name, file_bytes)) {
    hint = fmt::format("{} says {} x {}, which fits", said->config, said->sensor.height, said->sensor.width);
  }
  if (hint.empty() && fits.empty()) hint = "no known camera fits either: the file may be truncated, or not bit-packed";
  if (hint.empty()) hint = fmt::format("sizes that fit (steps x height x width): {}", Join(fits, ", "));
  return Status(
      Code::kEnvironment,
      fmt::format("'{}' has {} bytes, no whole number of steps of {} x {} pixels ({} bytes each): {} steps "
                  "and {} bytes",
                  name, file_bytes, sensor.height, sensor.width, frame, file_bytes / frame, file_bytes % frame),
      hint);
}

Status CheckSaidSensor(int64_t steps, const SpikeSensor& sensor, const std::string& name) {
  const auto said = SaidByConfig(name, static_cast<uint64_t>(steps) * (FrameBits(sensor) / 8));
  if (!said || (said->sensor.height == sensor.height && said->sensor.width == sensor.width)) return Status::Ok();
  return Status(Code::kUsage,
                fmt::format("{} says that the sensor has {} x {} pixels, not {} x {}: pixels of '{}' would be mixed up",
                            said->config, said->sensor.height, said->sensor.width, sensor.height, sensor.width, name),
                fmt::format("use {} x {}, or correct that file", said->sensor.height, said->sensor.width));
}

Result<SpikeFile> SpikeFile::Open(const std::string& path, const SpikeSensor& sensor) {
  Result<ListedFile> listed = OpenListed(path);
  if (!listed.ok()) return listed.status();
  Result<int64_t> steps = SpikeSteps(listed->bytes, sensor, path);
  if (!steps.ok()) return steps.status();
  SpikeFile file;
  file.path_ = path;
  file.sensor_ = sensor;
  file.steps_ = *steps;
  file.read_ = std::move(listed->read);
  return file;
}

Result<SpikeFile> SpikeFile::FromBytes(std::string_view bytes, const SpikeSensor& sensor, const std::string& name) {
  Result<int64_t> steps = SpikeSteps(bytes.size(), sensor, name);
  if (!steps.ok()) return steps.status();
  SpikeFile file;
  file.path_ = name;
  file.sensor_ = sensor;
  file.steps_ = *steps;
  file.read_ = [bytes](uint64_t offset, size_t count, char* out) {
    std::memcpy(out, bytes.data() + offset, count);
    return Status::Ok();
  };
  return file;
}

Result<SpikeBits> SpikeFile::Read(int64_t from, int64_t to, const SpikeBox& box) const {
  if (from < 0 || to > steps_ || from >= to || box.top < 0 || box.left < 0 || box.height < 1 || box.width < 1 ||
      box.top + box.height > sensor_.height || box.left + box.width > sensor_.width) {
    return Status(Code::kInternal, fmt::format("'{}' has {} steps of {} x {}: steps {} to {} of a box of {} x {} at "
                                               "({}, {}) are not in it",
                                               path_, steps_, sensor_.height, sensor_.width, from, to, box.height,
                                               box.width, box.top, box.left));
  }
  SpikeBits bits{.first = from, .steps = to - from, .height = box.height, .width = box.width};
  bits.row_words = static_cast<size_t>((box.width + 63) / 64);
  bits.words.resize(static_cast<size_t>(bits.steps) * box.height * bits.row_words);
  const int file_top = sensor_.flip ? sensor_.height - box.top - box.height : box.top;
  const auto width = static_cast<uint64_t>(sensor_.width);
  // Rows of one step are one read; where they are most of the step, all steps are one read.
  const bool at_once = 2 * box.height >= sensor_.height;
  const uint64_t rows_at = static_cast<uint64_t>(file_top) * width;
  const uint64_t rows_bits = static_cast<uint64_t>(box.height) * width;
  std::vector<uint8_t> bytes;
  const auto load = [&](uint64_t first_bit, uint64_t end_bit) {
    const uint64_t begin = first_bit / 8, end = (end_bit + 7) / 8;
    bytes.resize(end - begin + 16);  // CopyBits reads words
    return read_(begin, end - begin, reinterpret_cast<char*>(bytes.data()));
  };
  const auto start_of = [&](int64_t step) { return static_cast<uint64_t>(step) * FrameBits(sensor_) + rows_at; };
  if (at_once) LOCKSTEP_RETURN_IF_ERROR(load(start_of(from), start_of(to - 1) + rows_bits));
  uint64_t* to_words = bits.words.data();
  for (int64_t step = from; step < to; ++step) {
    if (!at_once) LOCKSTEP_RETURN_IF_ERROR(load(start_of(step), start_of(step) + rows_bits));
    const uint64_t origin = (at_once ? start_of(from) : start_of(step)) / 8 * 8;
    for (int y = 0; y < box.height; ++y, to_words += bits.row_words) {
      const int row = sensor_.flip ? box.height - 1 - y : y;
      const uint64_t at = start_of(step) + static_cast<uint64_t>(row) * width + static_cast<uint64_t>(box.left);
      CopyBits(bytes.data(), at - origin, box.width, to_words);
    }
  }
  return bits;
}

// Sixty-four counters at once, each a column of bits in `planes`: adding a step is a carry through the planes.
void CountSpikes(const SpikeBits& bits, int64_t from, int64_t to, uint16_t* counts) {
  std::fill_n(counts, static_cast<size_t>(bits.height) * bits.width, uint16_t{0});
  const size_t step_words = static_cast<size_t>(bits.height) * bits.row_words;
  constexpr int64_t kBlock = (1 << kPlanes) - 1;
  for (int64_t begin = from; begin < to; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, to);
    const auto planes_used = static_cast<int>(std::bit_width(static_cast<uint64_t>(end - begin)));
    for (int y = 0; y < bits.height; ++y) {
      const size_t row = static_cast<size_t>(y) * bits.row_words;
      for (size_t w = 0; w < bits.row_words; ++w) {
        std::array<uint64_t, kPlanes> planes{};
        const uint64_t* word = bits.words.data() + static_cast<size_t>(begin - bits.first) * step_words + row + w;
        for (int64_t step = begin; step < end; ++step, word += step_words) {
          uint64_t carry = *word;
          for (int p = 0; p < planes_used; ++p) {
            const uint64_t next = planes[p] & carry;
            planes[p] ^= carry;
            carry = next;
          }
        }
        const int left = std::min(64, bits.width - static_cast<int>(w) * 64);
        uint16_t* out = counts + static_cast<size_t>(y) * bits.width + w * 64;
        for (int x = 0; x < left; x += 8) {
          uint64_t eight = 0;
          for (int p = 0; p < planes_used; ++p) eight += kSpread[planes[p] >> x & 255] << p;
          for (int i = 0; i < std::min(8, left - x); ++i) out[x + i] += static_cast<uint16_t>(eight >> (8 * i) & 255);
        }
      }
    }
  }
}

void SpikePacker::Add(std::span<const uint8_t> spikes) {
  const uint64_t frame = FrameBits(sensor_);
  const uint64_t first = static_cast<uint64_t>(steps_) * frame;
  bytes_.resize((first + frame + 7) / 8);
  const auto width = static_cast<size_t>(sensor_.width);
  for (int y = 0; y < sensor_.height; ++y) {
    const int row = sensor_.flip ? sensor_.height - 1 - y : y;
    const uint8_t* line = spikes.data() + static_cast<size_t>(y) * width;
    uint64_t at = first + static_cast<uint64_t>(row) * width;
    for (size_t x = 0; x < width; ++x, ++at) {
      if (line[x] != 0) bytes_[at / 8] = static_cast<char>(static_cast<uint8_t>(bytes_[at / 8]) | 1U << at % 8);
    }
  }
  ++steps_;
}

}  // namespace lockstep::data
