#include "data/frame_folder.h"

#include <fmt/format.h>

#include "base/files.h"
#include "data/listing.h"

namespace lockstep::data {

Result<FrameFolderReader> FrameFolderReader::Open(const std::string& path) {
  Result<std::vector<Entry>> entries = ListEntries(path);
  if (!entries.ok()) return entries.status();
  FrameFolderReader reader;
  reader.path_ = path;
  for (const Entry& entry : *entries) {
    if (!entry.is_folder && IsImageName(entry.name)) reader.names_.push_back(entry.name);
  }
  if (reader.names_.empty()) {
    return Status(
        Code::kUsage,
        fmt::format("'{}' has no frames: expected {}, found {} other entries", path, kImageNames, entries->size()),
        "give the folder that holds the pictures themselves");
  }
  return reader;
}

Result<bool> FrameFolderReader::Next(Image* image) {
  if (next_ == names_.size()) return false;
  const std::string name = JoinPath(path_, names_[next_]);
  Result<Image> read = DecodeImage(name);
  if (!read.ok()) return read.status();
  if (next_ == 0) {
    width_ = read->width;
    height_ = read->height;
  } else if (read->width != width_ || read->height != height_) {
    return Status(Code::kEnvironment, fmt::format("'{}' is {}x{}, expected {}x{} as the first frame is", name,
                                                  read->width, read->height, width_, height_));
  }
  *image = std::move(*read);
  ++next_;
  return true;
}

Result<FrameFolderWriter> FrameFolderWriter::Create(const std::string& path, bool overwrite) {
  Result<Publication> place = Publication::Folder(path, overwrite);
  if (!place.ok()) return place.status();
  return FrameFolderWriter(std::move(*place));
}

Status FrameFolderWriter::Write(const uint8_t* rgb, int width, int height) {
  Result<std::string> png = EncodePng({rgb, static_cast<size_t>(width) * height * 3}, width, height);
  if (!png.ok()) return png.status();
  return WriteFileAtomic(fmt::format("{}/{:06}.png", place_.temporary(), ++frames_), *png, 0644, Durability::kProcess);
}

Status FrameFolderWriter::Finish() {
  if (frames_ == 0) return Status(Code::kEnvironment, fmt::format("'{}': there is not one frame", place_.path()));
  return place_.Publish();
}

}  // namespace lockstep::data
