// Which frames of a video make a clip. Drawn once per clip, before the length of the video is known for sure; placed
// when it is. Values, any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "data/random.h"
#include "data/source.h"

namespace lockstep::data {

struct Pace {
  int frames = 1;
  int stride = 1;    // wanted
  double where = 0;  // in [0, 1): how far into the possible starts
};

// Without augmentation the clips of one video are spread evenly over it, the first at its start.
inline Pace DrawPace(const Draw& draw, int frames, int min_stride, int max_stride, uint64_t clip, uint64_t clips) {
  if (!draw.augment) return {frames, min_stride, static_cast<double>(clip) / static_cast<double>(clips)};
  Random random(draw.seed, draw.epoch, draw.index, Purpose::kTime);
  const auto stride = static_cast<int>(random.Between(min_stride, max_stride));
  return {frames, stride, random.Uniform()};
}

struct Placed {
  uint64_t start = 0;
  uint64_t stride = 1;
};

// In a video of `total` frames: with the wanted stride or the largest that fits; nothing when 1 does not.
inline std::optional<Placed> Place(const Pace& pace, uint64_t total) {
  const auto gaps = static_cast<uint64_t>(pace.frames - 1);
  if (total < gaps + 1) return std::nullopt;
  Placed placed;
  placed.stride = gaps == 0 ? 1 : std::min<uint64_t>(pace.stride, (total - 1) / gaps);
  const uint64_t starts = total - gaps * placed.stride;
  placed.start = std::min(starts - 1, static_cast<uint64_t>(pace.where * static_cast<double>(starts)));
  return placed;
}

}  // namespace lockstep::data
