// Samples of video restoration as a Source: a clip of frames, degraded and as it should be, and spikes where asked.
//
//   input   U8 [T, 3, h, w]               degraded, RGB
//   spikes  U8 or F32 [T, S, h, w]        only with spikes; 255 or 1.0 is the most
//   target  U8 [T, 3, h * scale, w * scale]
//
// T is PairedConfig::SampleFrames(): the frames that are read, and the last of them again where that is asked for.
// For interpolation the T frames of the input are every second one, and the target is the one in their middle.
// Sample i begins at frame i of all frames of all clips, as KAIR counts them; one that begins too late for its length
// is moved to a random start of its clip. With Draw::augment: interval, direction, crop, horizontal flip, vertical flip
// and transposition are drawn for a clip and are the same for all its frames, spikes included; without: the first
// interval, a centre crop, nothing turned. Drawn from (seed, epoch, sample): ranks and threads play no part. A file
// that is missing or damaged is an error that names it, also a missing spike file. Any thread.
#pragma once

#include <memory>

#include "base/status.h"
#include "data/paired_set.h"
#include "data/source.h"

namespace lockstep::data {

// Of any kind of PairedConfig.
Result<std::unique_ptr<Source>> OpenPaired(const PairedConfig& config);

// Samples of clips that were listed before.
Result<std::unique_ptr<Source>> MakePairedSource(std::shared_ptr<const PairedSet> set);
// Scenes in motion, rendered at a high rate, averaged into blur, and turned into spikes by an integrate-and-fire
// sensor.
Result<std::unique_ptr<Source>> MakeGeneratedPairs(const PairedConfig& config);

// What is drawn for a sample.
struct PairedDraw {
  int interval = 1;
  int64_t start = 0;  // in frames of the clip
  bool reverse = false;
  int top = 0, left = 0;  // of the crop, in pixels of the input
  bool hflip = false, vflip = false, transpose = false;
};
PairedDraw DrawPaired(const PairedConfig& config, const Draw& draw, int64_t frame, int64_t clip_frames,
                      int input_height, int input_width);

// Planes [channels, height, width], turned as drawn: horizontal flip, vertical flip, transposition, in that order.
template <typename From, typename To, typename Convert>
void TurnPlane(const From* from, ptrdiff_t row_step, ptrdiff_t pixel_step, int height, int width,
               const PairedDraw& draw, To* to, const Convert& convert) {
  const ptrdiff_t across = draw.transpose ? height : 1, down = draw.transpose ? 1 : width;
  for (int y = 0; y < height; ++y) {
    const From* line = from + (draw.vflip ? height - 1 - y : y) * row_step;
    To* out = to + y * down;
    if (draw.hflip) {
      for (int x = 0; x < width; ++x) out[x * across] = convert(line[(width - 1 - x) * pixel_step]);
    } else {
      for (int x = 0; x < width; ++x) out[x * across] = convert(line[x * pixel_step]);
    }
  }
}

}  // namespace lockstep::data
