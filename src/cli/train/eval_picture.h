// The worst clips as one picture: for each its name and scores, then rows of frames: input, output, and the error made
// visible. Frames are thinned out while a clip runs, so that memory does not grow with it. One thread.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/image.h"

namespace lockstep::cli {

// A few frames of a clip, evenly spread over what was added.
class Strip {
 public:
  void Add(const at::Tensor& output, const at::Tensor& target);  // (frames, 3, height, width) in [0, 1]
  struct Pair {
    at::Tensor target, output;  // bytes (3, height, width) on the CPU, small enough to look at
  };
  std::vector<Pair> Choose(size_t count) const;

 private:
  int64_t seen_ = 0, every_ = 1;
  std::vector<Pair> kept_;
};

struct ShownClip {
  std::string title;
  Strip strip;
};

data::Image DrawClips(const std::vector<ShownClip>& clips);

}  // namespace lockstep::cli
