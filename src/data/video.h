// The frames of one clip out of a video file (data/video_reader.h). Each call opens the file anew and decodes on the
// calling thread only: the loader's threads are the parallelism. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "base/status.h"
#include "data/key_frames.h"
#include "data/pace.h"
#include "data/video_reader.h"

namespace lockstep::data {

// Hands the frames of one clip to `take`, in order. A video that ends before the clip does is read again with what its
// true length allows, so `take` may see the same numbers twice: the later call counts. Errors name the file; a video
// too short at stride 1 says how many frames were wanted and how many there are. Strides count frames, whatever their
// distance in time. Where the file has no constant rate or is wrong about its length, `keys` (may be null) says where
// it can be entered; without them it is decoded from its start, with the same frames. With
// `window`, pixels outside of it may have any value.
Status ReadVideoClip(const VideoPart& part, const Pace& pace, const std::atomic<bool>* cancelled,
                     const std::function<Status(const VideoFrame&)>& take, KeyFrameCache* keys = nullptr,
                     const WindowOf& window = nullptr);
inline Status ReadVideoClip(const std::string& path, const Pace& pace, const std::atomic<bool>* cancelled,
                            const std::function<Status(const VideoFrame&)>& take) {
  return ReadVideoClip(VideoPart{path, path}, pace, cancelled, take);
}

}  // namespace lockstep::data
