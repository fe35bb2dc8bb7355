// Pictures and files of pictures for the tests of data/.
#pragma once

#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/image.h"

namespace lockstep::data {

// The pattern of make_goldens.py.
inline Image Pattern(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) image.rgb.push_back(static_cast<uint8_t>((x * 7 + y * 13 + c * 50 + x * y) % 256));
    }
  }
  return image;
}

inline Image Flat(int width, int height, uint8_t level) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width) * height * 3, level)};
}

inline void WritePng(const std::string& path, const Image& image) {
  ASSERT_TRUE(WriteFileAtomic(path, *EncodePng(image.rgb, image.width, image.height), 0644, Durability::kProcess).ok());
}

// Rows of `samples` in any layout of PNG; palette and transparency where the type has them.
inline std::string PngOf(int width, int height, int depth, int type, int interlace,
                         const std::vector<uint8_t>& samples) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  if (setjmp(png_jmpbuf(png))) {
    png_destroy_write_struct(&png, &info);
    return "";
  }
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), size);
      },
      nullptr);
  png_set_IHDR(png, info, width, height, depth, type, interlace, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (type == PNG_COLOR_TYPE_PALETTE) {
    const png_color palette[] = {{10, 20, 30}, {40, 50, 60}, {70, 80, 90}, {100, 110, 120}};
    png_set_PLTE(png, info, palette, 4);
    const png_byte alpha[] = {0, 128};
    png_set_tRNS(png, info, alpha, 2, nullptr);
  }
  png_write_info(png, info);
  const size_t stride = samples.size() / height;
  std::vector<png_bytep> rows;
  for (int y = 0; y < height; ++y) rows.push_back(const_cast<png_bytep>(samples.data() + y * stride));
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

inline std::string JpegOf(int width, int height, J_COLOR_SPACE space, const std::vector<uint8_t>& samples,
                          bool progressive = false, int across = 0, int down = 0) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = width;
  info.image_height = height;
  info.input_components = static_cast<int>(samples.size() / (static_cast<size_t>(width) * height));
  info.in_color_space = space;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 98, TRUE);
  // Pixels that share a colour; 0: libjpeg's choice, two by two.
  if (across > 0) info.comp_info[0].h_samp_factor = across, info.comp_info[0].v_samp_factor = down;
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  const size_t stride = samples.size() / height;
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(samples.data() + info.next_scanline * stride);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string out(reinterpret_cast<char*>(buffer), size);
  jpeg_destroy_compress(&info);
  std::free(buffer);
  return out;
}

}  // namespace lockstep::data
