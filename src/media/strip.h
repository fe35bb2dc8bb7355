// The worst clips as one sheet (track/sheet.h): input, reconstruction and error of two frames each, the worst of the
// clip among them. Frames are chosen while a clip runs, so that memory does not grow with it. One thread.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "media/tiles.h"
#include "track/sheet.h"

namespace lockstep::media {

// The frames of a clip that are worth looking at.
class Strip {
 public:
  void Add(const at::Tensor& output, const at::Tensor& target);  // (frames, 3, height, width) in [0, 1]
  // The first frame and the one with the largest mean error; the first and the last where these are the same.
  track::SheetRow Row() const;

 private:
  int64_t seen_ = 0;
  double worst_error_ = -1;
  std::optional<media::ShownFrame> first_, worst_, last_;
};

}  // namespace lockstep::media
