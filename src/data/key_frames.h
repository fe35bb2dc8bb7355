// Where a video can be entered: its key frames, and the time of every frame. Found by reading the packets of a file
// once, without decoding. A clip in the middle then costs the frames from the key frame before it, also in a file whose
// frames have no constant rate or whose container is wrong about their number. Kept in memory by KeyFrameCache, and in
// the data index (`lockstep data index --keyframes`); never trusted for a file of another size or time of change. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/parts.h"
#include "data/stream_info.h"

namespace lockstep::data {

// A video file, or a part of a file that holds one.
struct VideoPart {
  std::string path;
  std::string name;  // for errors
  uint64_t offset = 0;
  uint64_t bytes = 0;  // 0: the whole file
};

struct KeyFrames {
  struct Key {
    uint64_t frame = 0;  // its number in the order in which frames are shown
    int64_t time = 0;    // at which it is decoded, in units of the stream
    int64_t place = -1;  // of its packet in the file; -1: not said
  };
  struct Run {  // frames at equal distances
    int64_t step = 0;
    uint64_t count = 0;
  };
  FileStamp stamp;  // of the file that was looked at

  int64_t first = 0;  // time of frame 0
  std::vector<Run> runs;
  std::vector<Key> keys;

  uint64_t frames() const;
  int64_t TimeOf(uint64_t frame) const;
  const Key& Before(uint64_t frame) const;  // the last one not after the frame
};

// Reads the packets of the whole file. Errors: it cannot be opened, or has packets without time, or of a codec whose
// packets are not frames: then it is to be decoded from its start.
Result<KeyFrames> FindKeyFrames(const VideoPart& part, const std::atomic<bool>* cancelled);

// As text without zero bytes.
std::string WriteKeyFrames(const KeyFrames& keys);
std::optional<KeyFrames> ReadKeyFrames(std::string_view text);

class KeyFrameCache {
 public:
  // What an index has stored about the video; checked when it is used.
  void Store(const VideoPart& part, std::string text);
  // Of the file as it is now: remembered, else from the index, else found by reading the file. Null: it has none.
  std::shared_ptr<const KeyFrames> Find(const VideoPart& part, const std::atomic<bool>* cancelled);
  // They turned out to be wrong.
  void Forget(const VideoPart& part);
  uint64_t scans() const { return scans_; }
  // What else is known about the same files.
  StreamInfoCache& streams() { return streams_; }

 private:
  using Place = std::pair<std::string, uint64_t>;  // path, offset
  struct Known {
    std::string text;                       // from the index, not yet used
    std::shared_ptr<const KeyFrames> keys;  // null: it has none
    FileStamp stamp;                        // of the file when it was looked at
    bool looked = false;
  };
  std::mutex mutex_;
  std::map<Place, Known> known_;
  std::atomic<uint64_t> scans_ = 0;
  StreamInfoCache streams_;
};

}  // namespace lockstep::data
