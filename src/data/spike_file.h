// Files of a spike camera (docs/formats/spikes.md): one bit for each pixel and step, no header. Bit p = (t * height +
// y)
// * width + x is bit p % 8 of byte p / 8, the least significant first. Nothing in a file says its height and width, so
// they are checked against its size: what does not divide is an error that names the sizes that do. Reads only the
// steps and rows that are asked for. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/parts.h"

namespace lockstep::data {

struct SpikeSensor {
  int height = 360;
  int width = 640;
  bool flip = true;  // the file's last row is the picture's first
};

// Steps of a file of this size. Errors: a remainder, no step at all, a frame of no whole bytes. `name` is the file.
Result<int64_t> SpikeSteps(uint64_t file_bytes, const SpikeSensor& sensor, const std::string& name);

// An error where SpikeCV's config.yaml in a folder above file `name`, which has `steps` of the sensor, says another
// size that fits as well: 640 x 360 has the bytes of 360 x 640.
Status CheckSaidSensor(int64_t steps, const SpikeSensor& sensor, const std::string& name);

struct SpikeShape {
  int64_t steps = 0;
  int height = 0, width = 0;
};
// Sizes of known cameras that divide a file of this size into 16 to 100,000 steps.
std::vector<SpikeShape> FittingShapes(uint64_t file_bytes);

// A box of pixels, as the picture shows them (after the flip).
struct SpikeBox {
  int top = 0, left = 0, height = 0, width = 0;
};

// Bits of some steps inside a box: each row begins at a new word, its first pixel is the least significant bit.
struct SpikeBits {
  int64_t first = 0, steps = 0;  // steps [first, first + steps) of the file
  int height = 0, width = 0;
  size_t row_words = 0;
  std::vector<uint64_t> words;  // [steps, height, row_words]; bits beyond the width are 0

  std::span<const uint64_t> Row(int64_t step, int y) const {
    return {words.data() + (static_cast<size_t>(step - first) * height + y) * row_words, row_words};
  }
  bool At(int64_t step, int y, int x) const { return (Row(step, y)[x / 64] >> (x % 64) & 1) != 0; }
};

// An open file of a known sensor.
class SpikeFile {
 public:
  static Result<SpikeFile> Open(const std::string& path, const SpikeSensor& sensor);
  // The bytes of a file that is in memory; they outlive the result.
  static Result<SpikeFile> FromBytes(std::string_view bytes, const SpikeSensor& sensor, const std::string& name);
  // Steps [from, to) of a box. Errors: what lies outside the file, a file that became shorter.
  Result<SpikeBits> Read(int64_t from, int64_t to, const SpikeBox& box) const;

  int64_t steps() const { return steps_; }
  const SpikeSensor& sensor() const { return sensor_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  SpikeSensor sensor_;
  int64_t steps_ = 0;
  ReadAt read_;
};

// Spikes of each pixel in steps [from, to) of `bits`: counts [height, width].
void CountSpikes(const SpikeBits& bits, int64_t from, int64_t to, uint16_t* counts);

// One step after another, as a sensor gives them: `spikes` [height, width] of 0 and 1, as the picture shows them.
class SpikePacker {
 public:
  explicit SpikePacker(const SpikeSensor& sensor) : sensor_(sensor) {}
  void Add(std::span<const uint8_t> spikes);
  int64_t steps() const { return steps_; }
  std::string_view bytes() const { return bytes_; }

 private:
  SpikeSensor sensor_;
  int64_t steps_ = 0;
  std::string bytes_;
};

}  // namespace lockstep::data
