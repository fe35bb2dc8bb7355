// Widths and heights of listed pictures and videos, for buckets.
#include <algorithm>

#include "data/file_source.h"
#include "data/image.h"
#include "data/listing.h"
#include "data/parallel.h"
#include "data/parts.h"
#include "data/video_reader.h"

namespace lockstep::data {
namespace {

ImageSize SizeOfPicture(const Video& video) {
  const Picture& picture = video.pictures.front();
  Result<ListedFile> file = OpenListed(video.packed ? video.path : JoinPath(video.path, picture.name));
  if (!file.ok()) return {};
  const uint64_t offset = video.packed ? picture.offset : 0;
  if (offset > file->bytes) return {};
  return SizeOfImage(file->read, offset, video.packed ? std::min(picture.bytes, file->bytes - offset) : file->bytes);
}

ImageSize SizeOfVideo(const Video& video) {
  VideoReader::Options options;
  if (video.packed) options.offset = video.offset, options.bytes = video.bytes;
  const auto reader = VideoReader::Open(video.path, options);
  if (!reader.ok()) return {};
  return {(*reader)->info().height, (*reader)->info().width};
}

}  // namespace

// Of its first bytes, or of all where a header is longer (JPEG with a preview in it).
ImageSize SizeOfImage(const ReadAt& read, uint64_t offset, uint64_t bytes) {
  ImageSize size;
  for (const uint64_t wanted : {uint64_t{4} << 10, uint64_t{64} << 10, uint64_t{16} << 20}) {
    std::string head(std::min(wanted, bytes), '\0');
    if (!read(offset, head.size(), head.data()).ok()) return {};
    size = SizeOfImage(head);
    if (size.width > 0 || head.size() == bytes) break;
  }
  return size;
}

void MeasurePicture(Video* video) {
  const ImageSize size = video->pictures.empty() ? SizeOfVideo(*video) : SizeOfPicture(*video);
  video->width = size.width, video->height = size.height;
}

void MeasurePictures(Inventory* inventory) {
  if (inventory->measured) return;
  ForEachAtOnce(inventory->videos.size(), [&](size_t i) { MeasurePicture(&inventory->videos[i]); });
  inventory->measured = true;
}

}  // namespace lockstep::data
