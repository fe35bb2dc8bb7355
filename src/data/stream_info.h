// What FFmpeg finds out about a video by decoding its first frames (pixel format, delay of the decoder, rates), kept
// so that a file is only looked at once: opening it again takes a few hundred microseconds instead of milliseconds. For
// MP4 and MOV files, whose headers say the rest. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "data/parts.h"

struct AVFormatContext;

namespace lockstep::data {

class StreamInfoCache {
 public:
  // The index of the video stream, its properties filled in; -1: nothing is known about the file as it is now.
  int Restore(const std::string& path, uint64_t offset, AVFormatContext* format);
  // After avformat_find_stream_info: of that stream.
  void Keep(const std::string& path, uint64_t offset, const AVFormatContext* format, int stream);
  uint64_t restored() const { return restored_; }

 private:
  struct Known;
  std::mutex mutex_;
  std::map<std::pair<std::string, uint64_t>, std::shared_ptr<const Known>> known_;
  std::atomic<uint64_t> restored_ = 0;
};

}  // namespace lockstep::data
