#include "data/image.h"

// libjpeg's header needs these two before it.
#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "base/files.h"
#include "base/text.h"
#include "base/zip.h"
#include "data/stages.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kMaxPixels = 1ull << 28;
constexpr size_t kMaxImageFile = size_t{1} << 30;

Status Bad(const std::string& name, const std::string& why) {
  return Status(Code::kEnvironment, fmt::format("'{}' cannot be decoded: {}", name, why));
}

// A header can promise any size; memory is given only when the bytes that follow could fill it.
bool SizeIsPlausible(uint64_t width, uint64_t height, uint64_t file_bytes, uint64_t pixels_per_byte, std::string* why) {
  if (width == 0 || height == 0) {
    *why = "it has no pixels";
  } else if (width > kMaxPixels || height > kMaxPixels || width * height > kMaxPixels) {
    *why = fmt::format("{}x{} pixels are more than {}", width, height, kMaxPixels);
  } else if (width * height / pixels_per_byte > file_bytes + 4096) {
    *why = fmt::format("{} bytes cannot hold {}x{} pixels", file_bytes, width, height);
  }
  return why->empty();
}

// Both libraries report errors by a jump. Everything with a destructor lives in these structs, outside the function
// that is jumped out of.
struct PngJob {
  std::string_view rest;
  size_t file_bytes = 0;
  bool header_only = false;
  std::string error;
  Image image;
  std::vector<png_bytep> rows;
  const WindowOf* window = nullptr;
  std::vector<uint8_t> line;  // a row above the window
  bool partly = false;        // rows below the window were not decoded
  std::string out;            // of encoding
  png_structp png = nullptr;
  png_infop info = nullptr;
};

void PngFail(png_structp png, png_const_charp message) {
  static_cast<PngJob*>(png_get_error_ptr(png))->error = message;
  png_longjmp(png, 1);
}
void PngIgnore(png_structp, png_const_charp) {}

void PngRead(png_structp png, png_bytep to, size_t bytes) {
  auto* job = static_cast<PngJob*>(png_get_io_ptr(png));
  if (job->rest.size() < bytes) png_error(png, "the file is truncated");
  std::memcpy(to, job->rest.data(), bytes);
  job->rest.remove_prefix(bytes);
}

void PngSetUp(PngJob* job, int* width, int* height) {
  png_structp png = job->png;
  png_set_user_limits(png, 1 << 20, 1 << 20);
  png_read_info(png, job->info);
  *width = static_cast<int>(png_get_image_width(png, job->info));
  *height = static_cast<int>(png_get_image_height(png, job->info));
  png_set_expand(png);  // palettes, grey below 8 bits, transparency chunks
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, job->info);
}

bool DecodePngJob(PngJob* job) {
  job->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, job, PngFail, PngIgnore);
  if (job->png == nullptr) return false;
  job->info = png_create_info_struct(job->png);
  if (job->info == nullptr) return false;
  if (setjmp(png_jmpbuf(job->png))) return false;
  png_set_read_fn(job->png, job, PngRead);
  PngSetUp(job, &job->image.width, &job->image.height);
  if (job->header_only) return true;
  if (png_get_rowbytes(job->png, job->info) != static_cast<size_t>(job->image.width) * 3) {
    png_error(job->png, "its pixels do not become 8-bit RGB");
  }
  // Deflate packs at most 1032 to 1; one bit a pixel and interlacing leave less than 16384 pixels to a byte.
  if (!SizeIsPlausible(job->image.width, job->image.height, job->file_bytes, 16384, &job->error)) return false;
  Image& image = job->image;
  image.whole_width = image.width;
  image.whole_height = image.height;
  const size_t stride = static_cast<size_t>(image.width) * 3;
  if (job->window != nullptr && *job->window && png_get_interlace_type(job->png, job->info) == PNG_INTERLACE_NONE) {
    const Window window = (*job->window)(image.width, image.height);
    image.y = std::clamp(window.y, 0, image.height);
    image.height = std::clamp(window.height, 0, image.height - image.y);
    image.rgb.resize(stride * image.height);
    job->line.resize(stride);
    for (int y = 0; y < image.y; ++y) png_read_row(job->png, job->line.data(), nullptr);
    for (int y = 0; y < image.height; ++y) png_read_row(job->png, image.rgb.data() + y * stride, nullptr);
    job->partly = image.y + image.height < image.whole_height;
    if (!job->partly) png_read_end(job->png, nullptr);
    return true;
  }
  image.rgb.resize(stride * image.height);
  job->rows.resize(image.height);
  for (int y = 0; y < image.height; ++y) job->rows[y] = image.rgb.data() + y * stride;
  png_read_image(job->png, job->rows.data());
  png_read_end(job->png, nullptr);
  return true;
}

// The chunks that were not decoded: all there, with the checksums that they promise. Damage is to be found in every
// epoch, whatever the window; a checksum takes a twentieth of the time of decoding.
bool RestIsWhole(std::string_view bytes, size_t decoded, std::string* error) {
  constexpr size_t kSignature = 8, kAround = 12;  // length and name before, checksum behind
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  };
  for (size_t at = kSignature;;) {
    if (bytes.size() < at + kAround || bytes.size() - at - kAround < number(at)) {
      *error = "the file is truncated";
      return false;
    }
    const size_t length = number(at), end = at + kAround + length;
    const std::string_view name = bytes.substr(at + 4, 4);
    if (end > decoded) {
      if (Crc32(0, bytes.data() + at + 4, length + 4) != number(end - 4)) {
        *error = fmt::format("{}: CRC error", name);
        return false;
      }
    }
    if (name == "IEND") return true;
    at = end;
  }
}

Result<Image> DecodePng(std::string_view bytes, const std::string& name, const WindowOf& window) {
  PngJob job;
  job.rest = bytes;
  job.file_bytes = bytes.size();
  job.window = &window;
  bool ok = DecodePngJob(&job);
  png_destroy_read_struct(&job.png, &job.info, nullptr);
  if (ok && job.partly) ok = RestIsWhole(bytes, bytes.size() - job.rest.size(), &job.error);
  if (!ok) return Bad(name, job.error.empty() ? "libpng gives no reason" : "PNG: " + job.error);
  return std::move(job.image);
}

struct JpegJob {
  jpeg_error_mgr manager;  // first: libjpeg knows only this part
  std::jmp_buf jump;
  jpeg_decompress_struct info;
  char error[JMSG_LENGTH_MAX] = "";
  std::string problem;
  bool header_only = false;
  Image image;
  Window window;
  std::vector<uint8_t> line;  // one row as libjpeg gives it, for CMYK
};

void JpegFail(j_common_ptr info) {
  auto* job = reinterpret_cast<JpegJob*>(info->err);
  (*info->err->format_message)(info, job->error);
  std::longjmp(job->jump, 1);
}

// libjpeg fills what is missing with grey and goes on; here that is an error.
void JpegMessage(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_BOGUS_PROGRESSION:
      JpegFail(info);
      break;
    default:  // oddities of a header that do not touch the pixels
      break;
  }
}

void FromCmyk(const uint8_t* cmyk, int width, bool inverted, uint8_t* rgb) {
  const int flip = inverted ? 0 : 255;
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int k = cmyk[3] ^ flip;
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(((cmyk[c] ^ flip) * k + 127) / 255);
  }
}

// Rows and columns to decode so that those of the window have the pixels of the whole picture: colour is stored for
// several pixels at once and smoothed over its neighbours.
constexpr int kMargin = 32;

#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 2000000
constexpr bool kDecodesParts = true;
#else
constexpr bool kDecodesParts = false;
JDIMENSION jpeg_skip_scanlines(j_decompress_ptr, JDIMENSION) { return 0; }
void jpeg_crop_scanline(j_decompress_ptr, JDIMENSION*, JDIMENSION*) {}
#endif

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// The window in pixels of the reduced picture, with its margin.
Window Reduced(const Window& window, int width, int height) {
  const int r = window.reduction;
  const int left = std::max(window.x / r - kMargin, 0), top = std::max(window.y / r - kMargin, 0);
  return {left, top, std::min(CeilDiv(window.x + window.width, r) + kMargin, width) - left,
          std::min(CeilDiv(window.y + window.height, r) + kMargin, height) - top, r};
}

void ReadRows(JpegJob* job, bool cmyk, int top) {
  jpeg_decompress_struct* info = &job->info;
  Image& image = job->image;
  const size_t stride = static_cast<size_t>(image.width) * 3;
  image.rgb.resize(stride * image.height);
  if (cmyk) job->line.resize(static_cast<size_t>(image.width) * 4);
  if (top > 0) jpeg_skip_scanlines(info, static_cast<JDIMENSION>(top));
  for (int y = 0; y < image.height; ++y) {
    uint8_t* to = image.rgb.data() + static_cast<size_t>(y) * stride;
    uint8_t* line = cmyk ? job->line.data() : to;
    jpeg_read_scanlines(info, &line, 1);
    if (cmyk) FromCmyk(line, image.width, info->saw_Adobe_marker != 0, to);
  }
  // The rest is not needed, but damage in it is to be found in every epoch, whatever the window.
  if (info->output_scanline < info->output_height) {
    jpeg_skip_scanlines(info, info->output_height - info->output_scanline - 1);  // all would not be looked at
    job->line.resize(stride);
    uint8_t* last = job->line.data();
    jpeg_read_scanlines(info, &last, 1);
  }
}

bool DecodeJpegJob(JpegJob* job, std::string_view bytes, const WindowOf* window) {
  jpeg_decompress_struct* info = &job->info;
  info->err = jpeg_std_error(&job->manager);
  job->manager.error_exit = JpegFail;
  job->manager.emit_message = JpegMessage;
  if (setjmp(job->jump)) return false;
  jpeg_create_decompress(info);
  jpeg_mem_src(info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(info, TRUE);
  Image& image = job->image;
  image.whole_width = static_cast<int>(info->image_width);
  image.whole_height = static_cast<int>(info->image_height);
  if (job->header_only) return true;
  // A 16x16 block takes more than a bit for each of its components, over all scans.
  if (!SizeIsPlausible(info->image_width, info->image_height, bytes.size(), 2048, &job->problem)) return false;
  const bool cmyk = info->num_components == 4;
  info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  info->dct_method = JDCT_ISLOW;  // the same picture on every machine
  const bool part = kDecodesParts && *window && !cmyk;
  if (part) {
    job->window = (*window)(image.whole_width, image.whole_height);
    image.reduction = job->window.reduction;
    info->scale_num = 1;
    info->scale_denom = static_cast<unsigned>(image.reduction);
  }
  jpeg_start_decompress(info);
  image.width = static_cast<int>(info->output_width);
  image.height = static_cast<int>(info->output_height);
  if (part) {
    const Window wanted = Reduced(job->window, image.width, image.height);
    auto left = static_cast<JDIMENSION>(wanted.x), across = static_cast<JDIMENSION>(wanted.width);
    if (wanted.width < image.width) jpeg_crop_scanline(info, &left, &across);
    image.x = static_cast<int>(left), image.width = static_cast<int>(across);
    image.y = wanted.y, image.height = wanted.height;
  }
  ReadRows(job, cmyk, image.y);
  jpeg_finish_decompress(info);
  return true;
}

Result<Image> DecodeJpeg(std::string_view bytes, const std::string& name, const WindowOf& window) {
  JpegJob job;
  std::memset(&job.info, 0, sizeof(job.info));
  const bool ok = DecodeJpegJob(&job, bytes, &window);
  jpeg_destroy_decompress(&job.info);
  if (!ok) return Bad(name, "JPEG: " + (job.problem.empty() ? std::string(job.error) : job.problem));
  return std::move(job.image);
}

void PngAppend(png_structp png, png_bytep from, size_t bytes) {
  static_cast<PngJob*>(png_get_io_ptr(png))->out.append(reinterpret_cast<const char*>(from), bytes);
}
void PngFlush(png_structp) {}

bool EncodePngJob(PngJob* job, const uint8_t* rgb, int width, int height, PngEffort effort) {
  job->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, job, PngFail, PngIgnore);
  if (job->png == nullptr) return false;
  job->info = png_create_info_struct(job->png);
  if (job->info == nullptr) return false;
  if (setjmp(png_jmpbuf(job->png))) return false;
  png_set_write_fn(job->png, job, PngAppend, PngFlush);
  png_set_IHDR(job->png, job->info, width, height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (effort == PngEffort::kFast) {
    png_set_compression_level(job->png, 1);
    png_set_compression_strategy(job->png, 3);  // runs alone (Z_RLE)
    png_set_filter(job->png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
  }
  png_write_info(job->png, job->info);
  for (int y = 0; y < height; ++y) png_write_row(job->png, rgb + static_cast<size_t>(y) * width * 3);
  png_write_end(job->png, nullptr);
  return true;
}

}  // namespace

Result<Image> DecodeImageBytes(std::string_view bytes, const std::string& name, const WindowOf& window) {
  const StageMark mark(LoadStage::kDecode);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return DecodePng(bytes, name, window);
  if (bytes.starts_with("\xff\xd8\xff")) return DecodeJpeg(bytes, name, window);
  if (bytes.empty()) return Bad(name, "it is empty");
  return Bad(name, fmt::format("it is neither PNG nor JPEG (it starts with \"{}\")", Printable(bytes.substr(0, 8))));
}

ImageSize SizeOfImage(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) {
    PngJob job;
    job.rest = bytes;
    job.header_only = true;
    const bool ok = DecodePngJob(&job);
    png_destroy_read_struct(&job.png, &job.info, nullptr);
    if (ok) return {job.image.height, job.image.width};
  } else if (bytes.starts_with("\xff\xd8\xff")) {
    JpegJob job;
    std::memset(&job.info, 0, sizeof(job.info));
    job.header_only = true;
    const bool ok = DecodeJpegJob(&job, bytes, nullptr);
    jpeg_destroy_decompress(&job.info);
    if (ok) return {job.image.whole_height, job.image.whole_width};
  }
  return {};
}

Result<Image> DecodeImage(const std::string& path, const WindowOf& window) {
  Result<std::string> bytes = [&] {
    const StageMark mark(LoadStage::kRead);
    return ReadFile(path, kMaxImageFile);
  }();
  if (!bytes.ok()) return bytes.status();
  return DecodeImageBytes(*bytes, path, window);
}

Result<std::string> EncodePng(std::span<const uint8_t> rgb, int width, int height, PngEffort effort) {
  if (width < 1 || height < 1 || rgb.size() != static_cast<size_t>(width) * height * 3) {
    return Status(Code::kInternal,
                  fmt::format("{} bytes are not an RGB picture of {}x{} pixels", rgb.size(), width, height));
  }
  PngJob job;
  const bool ok = EncodePngJob(&job, rgb.data(), width, height, effort);
  png_destroy_write_struct(&job.png, &job.info);
  if (!ok) return Status(Code::kInternal, "the picture was not encoded as PNG: " + job.error);
  return std::move(job.out);
}

}  // namespace lockstep::data
