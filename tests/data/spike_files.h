// Spikes and files of spikes for the tests of data/.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/files.h"
#include "data/random.h"
#include "data/spike_file.h"

namespace lockstep::data {

// [steps, height, width] of 0 and 1, brighter to the right.
struct Spikes {
  int64_t steps = 0;
  int height = 0, width = 0;
  std::vector<uint8_t> bits;
  int At(int64_t t, int y, int x) const { return bits[(t * height + y) * width + x]; }
};

inline Spikes RandomSpikes(int64_t steps, int height, int width, uint64_t seed = 1) {
  Spikes spikes{steps, height, width, {}};
  Random random(seed);
  for (int64_t i = 0; i < steps * height * width; ++i) {
    spikes.bits.push_back(random.Chance(0.05 + 0.6 * static_cast<double>(i % width) / width) ? 1 : 0);
  }
  return spikes;
}

inline std::string PackSpikes(const Spikes& spikes, bool flip = true) {
  SpikePacker packer({spikes.height, spikes.width, flip});
  const size_t frame = static_cast<size_t>(spikes.height) * spikes.width;
  for (int64_t t = 0; t < spikes.steps; ++t) packer.Add(std::span(spikes.bits).subspan(t * frame, frame));
  return std::string(packer.bytes());
}

inline void WriteSpikes(const std::string& path, const Spikes& spikes, bool flip = true) {
  ASSERT_TRUE(WriteFileAtomic(path, PackSpikes(spikes, flip), 0644, Durability::kProcess).ok());
}

}  // namespace lockstep::data
