// The clips an evaluation looks at: parts of video files, folders of frames and tensors in files, or the samples a
// training keeps for validation. One thread.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/source.h"

namespace lockstep::media {

// The frames of one clip in order.
class ClipReader {
 public:
  virtual ~ClipReader() = default;
  // How many there are, when that is certain.
  virtual std::optional<int64_t> frames() const = 0;
  // Up to `count` further frames as bytes (frames, 3, height, width); undefined: the end.
  virtual Result<at::Tensor> Next(int64_t count) = 0;
};

class ClipSet {
 public:
  virtual ~ClipSet() = default;
  virtual uint64_t size() const = 0;
  virtual std::string Name(uint64_t index) const = 0;
  virtual Result<std::unique_ptr<ClipReader>> Open(uint64_t index) const = 0;
  // One line: what these clips are.
  virtual std::string Describe() const = 0;
};

struct ClipChoice {
  std::vector<std::string> data;  // files and folders
  std::string annotations;        // a list of them below data[0]
  int64_t frames = 49;            // at most; 0: all
  int64_t clips_per_video = 1;    // spread evenly
  int64_t height = 0,
          width = 0;  // 0: as they are; else cropped in the middle to this shape and resized, as in training
};
Result<std::unique_ptr<ClipSet>> FindClips(const ClipChoice& choice);

// The samples of a source, without augmentation.
std::unique_ptr<ClipSet> SourceClips(std::shared_ptr<const data::Source> source);

}  // namespace lockstep::media
