// Frames out of a video file, through FFmpeg's libraries where the build has them. Each call opens the file anew and
// decodes on the calling thread only: the loader's threads are the parallelism. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "data/pace.h"

namespace lockstep::data {

// One decoded frame; valid during the call. RGB, rows `stride` bytes apart.
struct VideoFrame {
  int number = 0;  // within the clip
  int width = 0;
  int height = 0;
  const uint8_t* rgb = nullptr;
  size_t stride = 0;
};

// Hands the frames of one clip to `take`, in order. A video that ends before the clip does is read again with what its
// true length allows, so `take` may see the same numbers twice: the later call counts. Errors name the file; a video
// too short at stride 1 says how many frames were wanted and how many there are.
Status ReadVideoClip(const std::string& path, const Pace& pace, const std::atomic<bool>* cancelled,
                     const std::function<Status(const VideoFrame&)>& take);

// "this build reads no video files ..."
Status NoVideoSupport();

}  // namespace lockstep::data
