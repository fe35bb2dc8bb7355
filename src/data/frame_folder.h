// A video as a folder of pictures: read in natural order of names (PNG and JPEG), written as 000001.png, 000002.png,
// ... The folder appears at Finish and not before. One thread each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/image.h"
#include "data/publish.h"

namespace lockstep::data {

class FrameFolderReader {
 public:
  // An error for a folder without pictures.
  static Result<FrameFolderReader> Open(const std::string& path);
  uint64_t frames() const { return names_.size(); }
  // False at the end. Pictures of another size than the first are an error.
  Result<bool> Next(Image* image);

 private:
  std::string path_;
  std::vector<std::string> names_;
  size_t next_ = 0;
  int width_ = 0;
  int height_ = 0;
};

class FrameFolderWriter {
 public:
  static Result<FrameFolderWriter> Create(const std::string& path, bool overwrite);
  Status Write(const uint8_t* rgb, int width, int height);
  Status Finish();

 private:
  explicit FrameFolderWriter(Publication place) : place_(std::move(place)) {}
  Publication place_;
  uint64_t frames_ = 0;
};

}  // namespace lockstep::data
