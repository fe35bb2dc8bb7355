// Frames and latents in and out of files, as tensors, a piece at a time: video files, folders of pictures,
// .safetensors. Which of them a path is follows from what is there (input) or from its ending (output). Whoever opens
// one uses it on one thread; outputs appear at Finish and not before, destroyed earlier they leave nothing.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor_info.h"
#include "data/video_reader.h"

namespace lockstep::media {

// Frames NTCHW on the CPU: uint8, or floating point in [0, 1]. Latents likewise, floating point.
struct Piece {
  at::Tensor data;              // undefined: the end
  std::vector<double> seconds;  // of each frame; empty: at the constant rate
  int64_t count() const { return data.defined() ? data.size(1) : 0; }
};

struct MediaShape {
  int64_t clips = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 3;
  data::Ratio rate{25, 1};
  bool rate_known = false;  // the file says it, or the user
  data::Ratio pixel_aspect{1, 1};
  uint64_t count = 0;          // frames or latents; 0: unknown
  bool count_certain = false;  // otherwise it is what the file promises
};

class MediaInput {
 public:
  virtual ~MediaInput() = default;
  const MediaShape& shape() const { return shape_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  virtual Result<Piece> Read(int64_t count) = 0;
  virtual std::vector<std::string> Notes() const { return {}; }

 protected:
  MediaShape shape_;
  std::map<std::string, std::string> metadata_;
};

struct InputOptions {
  std::optional<data::Ratio> rate;  // videos are resampled to it, others, which have no clock, are taken at it
  const std::atomic<bool>* cancelled = nullptr;
};

Result<std::unique_ptr<MediaInput>> OpenFrames(const std::string& path, const InputOptions& options);
Result<std::unique_ptr<MediaInput>> OpenLatents(const std::string& path);

class MediaOutput {
 public:
  virtual ~MediaOutput() = default;
  // Frames in [0, 1] or uint8, on the CPU.
  virtual Status Write(const Piece& piece) = 0;
  virtual Status Finish(const std::map<std::string, std::string>& metadata) = 0;
  virtual std::string Describe() const { return ""; }  // "libx264 66x48"
  virtual std::vector<std::string> Notes() const { return {}; }
};

struct OutputOptions {
  bool overwrite = false;
  std::string codec = "auto", pixels;
  std::optional<int> crf;
  Dtype dtype = Dtype::kF32;  // of tensors
};

// Whether a path of this name becomes tensors.
bool IsTensorName(const std::string& path);
// An error for the name of a folder of frames that ends like a file's.
Status CheckFolderName(const std::string& path);
// Whether a video of this name and shape can be written as asked: its container, codec, pixels and quality.
Status CheckVideo(const std::string& path, const MediaShape& shape, const OutputOptions& options);
// Checks what can be known before any work: the ending, and that nothing is in the way.
Status CheckOutput(const std::string& path, bool latents, bool overwrite);
// `shape.count` must be certain for more than one clip.
Result<std::unique_ptr<MediaOutput>> CreateFrames(const std::string& path, const MediaShape& shape,
                                                  const OutputOptions& options);
Result<std::unique_ptr<MediaOutput>> CreateLatents(const std::string& path, const MediaShape& shape,
                                                   const OutputOptions& options);

// "25", "29.97" (the broadcast rates become what they stand for), "30000/1001".
Result<data::Ratio> ParseRate(const std::string& text);

}  // namespace lockstep::media
