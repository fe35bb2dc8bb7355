// Restores clips of any length and size with a model made for short and small ones, as KAIR's test does: windows of
// frames and tiles of pixels that overlap, blended by how many cover a pixel; near a tile's inner edges half of the
// overlap is left to its neighbour. Memory does not depend on the length of a clip. One thread.
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

  // What contradicts itself. `flags`: named as flags, else as keys of recipe.test.
  Status Check(bool flags) const;
};

// [b, d, c, h, w] -> [b, d, 3, h * scale, w * scale].
using RestoreForward = std::function<at::Tensor(const at::Tensor& clips)>;
// Where restored frames [d, 3, h * scale, w * scale] go, in order, each once.
using WriteFrames = std::function<Status(const at::Tensor& frames)>;

// First frames or pixels of windows over `size`: `part - overlap` apart, the last one ends where `size` does.
std::vector<int64_t> TileStarts(int64_t size, int64_t part, int64_t overlap);

// Frames in, restored frames out, as soon as no later window changes them. A window that covers none of what is still
// to come is run when further frames, or Finish, show where it lies.
class RestoreStream {
 public:
  RestoreStream(RestoreForward forward, const RestoreTiles& tiles, WriteFrames write)
      : forward_(std::move(forward)), tiles_(tiles), write_(std::move(write)) {}
  Status Push(const at::Tensor& frames);  // [d, c, h, w]
  Status Finish();

 private:
  int64_t end() const { return held_from_ + (held_.defined() ? held_.size(0) : 0); }
  void Run(int64_t begin, int64_t length);
  Status Emit(int64_t until);  // frames before `until` are done

  RestoreForward forward_;
  RestoreTiles tiles_;
  WriteFrames write_;
  at::Tensor held_;                   // frames that windows to come need
  int64_t held_from_ = 0, next_ = 0;  // number of its first; where the next window begins
  at::Tensor sum_;                    // of windows, for frames from `written_` on
  std::vector<int64_t> counts_;       // windows that each of them is in
  int64_t written_ = 0;
};

// A window of frames [d, c, h, w], in tiles: as many frames come out as the model makes of it, float32.
at::Tensor RestoreFrames(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& window);

// A clip in memory, [d, c, h, w] -> [d, 3, h * scale, w * scale], float32.
at::Tensor RestoreClip(const RestoreForward& forward, const RestoreTiles& tiles, const at::Tensor& clip);

}  // namespace lockstep::media
