// A clip at twice its rate, with a model that makes the frame in the middle of several (RestoreTiles::between): output
// frame 2 i is frame i of the clip, unchanged, and output frame 2 i + 1 is made of the frames around that gap. Before
// the first frame and behind the last one these are repeated, as upstream's VFI_Vid4 does. One thread.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "media/restore.h"

namespace lockstep::media {

// 7 frames of 4, and when each is shown.
int64_t InterpolatedCount(int64_t count);
std::vector<double> InterpolatedTimes(const std::vector<double>& seconds);

// The frames of a clip of `count` that the output frames of a window depend on.
FrameWindow FramesAround(const FrameWindow& window, int64_t between, int64_t count);

// Those frames [d, 3, h, w] -> the window's output frames [length, 3, h, w], float32.
at::Tensor InterpolateWindow(const RestoreForward& forward, const RestoreTiles& tiles, const FrameWindow& window,
                             int64_t count, const at::Tensor& frames);

}  // namespace lockstep::media
