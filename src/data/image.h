// PNG and JPEG. Whatever the file holds comes out as 8-bit RGB: grey is spread, 16 bits are cut to 8, palettes are
// looked up, alpha is dropped, CMYK is converted. Damaged or truncated files are errors that name the file, never a
// picture with a made-up part. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::data {

struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// Kind by content, not by name.
Result<Image> DecodeImage(const std::string& path);
// `name` stands for the file in errors.
Result<Image> DecodeImageBytes(std::string_view bytes, const std::string& name);

// [height, width, 3] as a PNG file's bytes.
Result<std::string> EncodePng(std::span<const uint8_t> rgb, int width, int height);

}  // namespace lockstep::data
