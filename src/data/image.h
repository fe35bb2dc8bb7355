// PNG and JPEG. Whatever the file holds comes out as 8-bit RGB: grey is spread, 16 bits are cut to 8, palettes are
// looked up, alpha is dropped, CMYK is converted. Damaged or truncated files are errors that name the file, never a
// picture with a made-up part. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/parts.h"

namespace lockstep::data {

struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
  // Where a part of a picture was asked for: what was decoded begins at (x, y) of the picture, after that was reduced.
  int x = 0;
  int y = 0;
  int reduction = 1;
  int whole_width = 0;  // of the picture in the file
  int whole_height = 0;
};

// What is needed of a picture, in its own pixels, and how much smaller it may be decoded: 1, 2, 4 or 8.
struct Window {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
  int reduction = 1;
  friend bool operator==(const Window&, const Window&) = default;
};
// Asked when the size of the picture is known.
using WindowOf = std::function<Window(int width, int height)>;

// Kind by content, not by name. With `window`, at least that part: JPEG files are decoded around it alone (each pixel
// as in the whole picture) and reduced while they are decoded, PNG files down to its last row; the rest is still
// checked for damage.
Result<Image> DecodeImage(const std::string& path, const WindowOf& window = nullptr);
// `name` stands for the file in errors.
Result<Image> DecodeImageBytes(std::string_view bytes, const std::string& name, const WindowOf& window = nullptr);

struct ImageSize {
  int height = 0;
  int width = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// By the header alone: the first bytes of a file are enough as a rule. 0 x 0: no picture, or no whole header.
ImageSize SizeOfImage(std::string_view bytes);
// Of a picture in bytes [offset, offset + bytes) of a file: as much is read as its header takes.
ImageSize SizeOfImage(const ReadAt& read, uint64_t offset, uint64_t bytes);

// kFast: one filter and runs only, as OpenCV writes PNG; several times as fast, and some larger.
enum class PngEffort { kSmall, kFast };
// [height, width, 3] as a PNG file's bytes.
Result<std::string> EncodePng(std::span<const uint8_t> rgb, int width, int height,
                              PngEffort effort = PngEffort::kSmall);

}  // namespace lockstep::data
