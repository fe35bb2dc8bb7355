// The frames of one video file in order, as 8-bit RGB, through FFmpeg's libraries where the build has them. Rotation by
// quarter turns that the file asks for is done. Owned by one thread; any number of readers side by side.
//
//   Result<std::unique_ptr<VideoReader>> video = VideoReader::Open("a.mp4");
//   VideoFrame frame;
//   for (;;) {
//     Result<bool> more = (*video)->Next(&frame);
//     if (!more.ok() || !*more) break;
//     Use(frame.rgb, frame.width, frame.height, frame.seconds);
//   }
//
// Errors name the file: what is no video, has no picture in it, is damaged in the middle or changes its size. A file
// that was cut ends where its data end, one that begins in the middle begins at its first key frame; Notes() says so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/image.h"
#include "data/key_frames.h"

namespace lockstep::data {

// One decoded frame; valid until the next call. RGB, rows `stride` bytes apart.
struct VideoFrame {
  int number = 0;  // within the clip or the video
  int width = 0;
  int height = 0;
  const uint8_t* rgb = nullptr;
  size_t stride = 0;
  double seconds = 0;  // since the first frame; constant-rate files without timestamps: by their rate
};

struct Ratio {
  int num = 0;
  int den = 1;
  double value() const { return den == 0 ? 0 : static_cast<double>(num) / den; }
};

// What the container says; frames and rate may be wrong.
struct VideoInfo {
  Ratio rate;           // mean frames a second; 0: not said
  uint64_t frames = 0;  // 0: not said
  Ratio pixel_aspect{1, 1};
  int width = 0, height = 0;  // as shown, after rotation; 0: not said
};

class VideoReader {
 public:
  struct Options {
    const std::atomic<bool>* cancelled = nullptr;  // set by another thread: reading ends with kInterrupted
    int threads = 1;                               // of the decoder; 0: as many as it likes
    std::string name;                              // for errors; "": the path
    uint64_t offset = 0;                           // where the video begins in the file, if `bytes` is not 0
    uint64_t bytes = 0;                            // of the video in a larger file; 0: the whole file is the video
    StreamInfoCache* streams = nullptr;            // for files that are opened again and again
    WindowOf window;  // the part of each frame that is looked at; other pixels of VideoFrame may have any value
  };
  static Result<std::unique_ptr<VideoReader>> Open(const std::string& path, const Options& options);
  static Result<std::unique_ptr<VideoReader>> Open(const std::string& path) { return Open(path, Options()); }
  virtual ~VideoReader() = default;

  virtual const VideoInfo& info() const = 0;
  // False at the end of the video.
  virtual Result<bool> Next(VideoFrame* frame) = 0;
  // The same without converting the frame.
  virtual Result<bool> Skip() = 0;
  // Goes to the frame that a constant rate puts at number `start`, so that the next call gives it; the video seems to
  // end behind frame start + count - 1. False: this file cannot be entered there, and the reader is of no further use.
  virtual bool Seek(uint64_t start, uint64_t count) = 0;
  // Goes to frame `start` of the order in which frames are shown, whatever their distances. False as above, or the key
  // frames are not those of this file.
  virtual bool Seek(uint64_t start, uint64_t count, const KeyFrames& keys) = 0;
  // What a user should know about what was read so far: cut short, no key frame at the start.
  virtual std::vector<std::string> Notes() const = 0;
};

// "this build reads no video files ..."
Status NoVideoSupport();

}  // namespace lockstep::data
