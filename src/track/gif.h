// Frames as an animated GIF that loops forever: what TensorBoard and W&B show as a video. Colours of a fixed palette
// (6 red x 7 green x 6 blue) with ordered dithering, so that equal frames have equal bytes. Pure function, any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "track/canvas.h"

namespace lockstep::track {

// Pictures of one height beside each other.
Picture SideBySide(const std::vector<Picture>& pictures);

// Frames of one size, at least one, at most 65,535 pixels a side.
Result<std::string> EncodeGif(const std::vector<Picture>& frames, double frames_per_second);

}  // namespace lockstep::track
