// Restores clips of any length and size with a model made for short and small ones, as KAIR's test does: windows of
// frames and tiles of pixels that overlap, blended by how many cover a pixel; near a tile's inner edges half of the
// overlap is left to its neighbour. A window depends on its own frames alone, so windows may be restored in any order
// and by any process. One thread.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lockstep::media {

struct RestoreTiles {
  int64_t frames = 18, frame_overlap = 2;  // of a window; frames 0: the whole clip, padded by mirrored frames
  int64_t tile = 224, tile_overlap = 20;   // pixels of the input; tile 0: whole frames, padded by mirrored pixels
  int64_t batch = 1;                       // tiles at once
  int64_t scale = 1;                       // output size / input size
  std::array<int64_t, 3> window{6, 8, 8};  // clips are padded to multiples of it ...
  std::array<int64_t, 3> least{1, 1, 1};   // ... and to what the model takes at least: frames, height, width
  int64_t between = 0;  // frames of which the model makes the one in the middle (media/interpolate.h); 0: it restores

  // What contradicts itself. `flags`: named as flags, else as keys of recipe.test.
  Status Check(bool flags) const;
};

// [b, d, c, h, w] -> [b, d, 3, h * scale, w * scale].
using RestoreForward = std::function<at::Tensor(const at::Tensor& clips)>;

// First frames or pixels of windows over `size`: `part - overlap` apart, the last one ends where `size` does.
std::vector<int64_t> TileStarts(int64_t size, int64_t part, int64_t overlap);

// Frames [begin, begin + length) of a clip.
struct FrameWindow {
  int64_t begin = 0, length = 0;
  int64_t end() const { return begin + length; }
  friend bool operator==(const FrameWindow&, const FrameWindow&) = default;
};
// The windows of a clip of `count` frames, in order. Of interpolation these are the frames that come out: each is made
// from the frames around it alone, so windows share none.
std::vector<FrameWindow> FrameWindows(int64_t count, const RestoreTiles& tiles);
// The windows that hold a frame: numbers [first, second). What is written is the mean of what they give, summed in
// their order.
std::pair<size_t, size_t> WindowsOver(const std::vector<FrameWindow>& windows, int64_t frame);
// The frames of a window that no other one holds; none: length 0.
FrameWindow OwnFrames(const std::vector<FrameWindow>& windows, size_t number);

// One window [d, c, h, w] -> [d, 3, h * scale, w * scale], float32. No value waits for the device.
at::Tensor RestoreWindow(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& window);

// A window of frames [d, c, h, w], in tiles: as many frames come out as the model makes of it, float32.
at::Tensor RestoreFrames(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& window);

// A clip in memory, [d, c, h, w] -> [d, 3, h * scale, w * scale], float32.
at::Tensor RestoreClip(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& clip);

}  // namespace lockstep::media
