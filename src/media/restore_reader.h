// Windows of a clip's frames, with their spikes, in order: what two windows share is decoded once, pictures of a folder
// by several threads, and a video is decoded from its start on, whichever windows are asked for. Memory is that of one
// window. One thread.
#pragma once

#include <torch/types.h>

#include <deque>
#include <memory>
#include <string>

#include "base/status.h"
#include "media/restore.h"
#include "media/restore_clips.h"

namespace lockstep::media {

struct WindowFrames {
  at::Tensor frames;  // [d, 3, h, w], uint8 or float32 in [0, 1]
  at::Tensor spikes;  // [d, channels, h, w], float32; undefined: the model takes none
};

class WindowReader {
 public:
  struct Options {
    data::SpikeSensor sensor;
    data::SpikeForm form;
    size_t threads = 1;   // that decode pictures and spikes
    bool pinned = false;  // memory from which a GPU copies by itself
  };
  // `clip` and `asked` outlive it.
  WindowReader(const FoundClip& clip, const MediaOptions& asked, const Options& options)
      : clip_(clip), asked_(asked), options_(options) {}

  // `window.begin` never falls from one call to the next.
  Result<WindowFrames> Read(const FrameWindow& window);

 private:
  struct Frame {
    at::Tensor picture;  // [3, h, w]
    at::Tensor spikes;
  };
  Status ReadOn(int64_t end);  // further frames of a video or tensor, up to `end`
  Result<at::Tensor> ReadSpikes(int64_t frame) const;

  const FoundClip& clip_;
  const MediaOptions& asked_;
  Options options_;
  std::unique_ptr<MediaInput> input_;  // of what is read in order
  int64_t position_ = 0;               // in it
  std::deque<Frame> held_;
  int64_t first_ = 0;  // number of held_.front()
};

}  // namespace lockstep::media
