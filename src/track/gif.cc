#include "track/gif.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace lockstep::track {
namespace {

constexpr int kReds = 6, kGreens = 7, kBlues = 6;  // levels of each colour
constexpr int kCodeBits = 8;                       // of a pixel
constexpr uint16_t kClear = 1u << kCodeBits, kEnd = kClear + 1;
constexpr uint16_t kMostCodes = 4096;

// 8 x 8, each of 0..63 once: the threshold at which a pixel takes the next level.
constexpr std::array<std::array<uint8_t, 8>, 8> MakeBayer() {
  std::array<std::array<uint8_t, 8>, 8> table{};
  for (unsigned y = 0; y < 8; ++y) {
    for (unsigned x = 0; x < 8; ++x) {
      unsigned value = 0;
      for (unsigned bit = 0; bit < 3; ++bit) {
        value = value << 2 | ((x >> bit & 1) ^ (y >> bit & 1)) << 1 | (y >> bit & 1);
      }
      table[y][x] = static_cast<uint8_t>(value);
    }
  }
  return table;
}
constexpr auto kBayer = MakeBayer();

int Level(uint8_t value, int levels, int threshold) {
  // threshold / 64 is added before rounding down: on the mean the level is exact.
  return (value * (levels - 1) * 64 + threshold * 255) / (255 * 64);
}

uint8_t ColourOf(const uint8_t* rgb, int threshold) {
  return static_cast<uint8_t>((Level(rgb[0], kReds, threshold) * kGreens + Level(rgb[1], kGreens, threshold)) * kBlues +
                              Level(rgb[2], kBlues, threshold));
}

void PutShort(int value, std::string* out) {
  out->push_back(static_cast<char>(value & 0xff));
  out->push_back(static_cast<char>(value >> 8 & 0xff));
}

// LZW as GIF has it: codes from the lowest bit up, in sub-blocks of at most 255 bytes.
class LzwWriter {
 public:
  explicit LzwWriter(std::string* out) : out_(out) {
    out_->push_back(kCodeBits);
    Put(kClear);
    Clear();
  }

  void Add(uint8_t pixel) {
    if (prefix_ < 0) {
      prefix_ = pixel;
      return;
    }
    uint16_t& next = table_[static_cast<size_t>(prefix_)][pixel];
    if (next != 0) {
      prefix_ = next;
      return;
    }
    Put(static_cast<uint16_t>(prefix_));
    if (used_ == kMostCodes) {
      Put(kClear);
      Clear();
    } else {
      if (used_ == 1u << bits_) ++bits_;
      next = used_++;
    }
    prefix_ = pixel;
  }

  void Finish() {
    if (prefix_ >= 0) Put(static_cast<uint16_t>(prefix_));
    Put(kEnd);
    if (waiting_ > 0) block_.push_back(static_cast<char>(buffer_ & 0xff));
    WriteBlock(true);
    out_->push_back('\0');
  }

 private:
  void Clear() {
    table_.assign(kMostCodes, {});
    used_ = kEnd + 1;
    bits_ = kCodeBits + 1;
  }
  void Put(uint16_t code) {
    buffer_ |= static_cast<uint32_t>(code) << waiting_;
    for (waiting_ += bits_; waiting_ >= 8; waiting_ -= 8, buffer_ >>= 8) {
      block_.push_back(static_cast<char>(buffer_ & 0xff));
      WriteBlock(false);
    }
  }
  void WriteBlock(bool all) {
    if (block_.empty() || (block_.size() < 255 && !all)) return;
    out_->push_back(static_cast<char>(block_.size()));
    out_->append(block_);
    block_.clear();
  }

  std::string* out_;
  std::vector<std::array<uint16_t, 256>> table_;  // code and pixel -> code of both; 0: none yet
  int prefix_ = -1;
  uint16_t used_ = 0;
  int bits_ = kCodeBits + 1, waiting_ = 0;
  uint32_t buffer_ = 0;
  std::string block_;
};

}  // namespace

Picture SideBySide(const std::vector<Picture>& pictures) {
  Picture all;
  for (const Picture& picture : pictures) {
    all.width += picture.width;
    all.height = picture.height;
  }
  for (int y = 0; y < all.height; ++y) {
    for (const Picture& picture : pictures) {
      const auto row = static_cast<std::ptrdiff_t>(picture.width) * 3;
      const auto begin = picture.rgb.begin() + y * row;
      all.rgb.insert(all.rgb.end(), begin, begin + row);
    }
  }
  return all;
}

Result<std::string> EncodeGif(const std::vector<Picture>& frames, double frames_per_second) {
  if (frames.empty()) return Status(Code::kInternal, "a GIF without frames");
  const int width = frames[0].width, height = frames[0].height;
  if (width < 1 || height < 1 || width > 65535 || height > 65535) {
    return Status(Code::kInternal, fmt::format("a GIF of {} x {} pixels; 1 to 65,535 a side", width, height));
  }
  std::string gif = "GIF89a";
  PutShort(width, &gif);
  PutShort(height, &gif);
  gif += std::string("\xf7\x00\x00", 3);  // 256 colours for all frames
  for (int i = 0; i < 256; ++i) {
    const int index = std::min(i, kReds * kGreens * kBlues - 1);
    gif.push_back(static_cast<char>(index / (kGreens * kBlues) * 255 / (kReds - 1)));
    gif.push_back(static_cast<char>(index / kBlues % kGreens * 255 / (kGreens - 1)));
    gif.push_back(static_cast<char>(index % kBlues * 255 / (kBlues - 1)));
  }
  gif += std::string("\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00", 19);  // again and again
  const double rate = std::isfinite(frames_per_second) && frames_per_second > 0 ? frames_per_second : 10;
  const int delay = std::clamp(static_cast<int>(std::lround(100 / rate)), 2, 65535);
  for (const Picture& frame : frames) {
    const auto pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
    if (frame.width != width || frame.height != height || frame.rgb.size() != pixels * 3) {
      return Status(Code::kInternal, "frames of a GIF have one size");
    }
    gif += std::string("\x21\xf9\x04\x04", 4);
    PutShort(delay, &gif);
    gif += std::string("\x00\x00\x2c\x00\x00\x00\x00", 7);
    PutShort(width, &gif);
    PutShort(height, &gif);
    gif.push_back('\0');
    LzwWriter writer(&gif);
    for (size_t i = 0; i < pixels; ++i) {
      const size_t x = i % static_cast<size_t>(width), y = i / static_cast<size_t>(width);
      writer.Add(ColourOf(&frame.rgb[3 * i], kBayer[y % 8][x % 8]));
    }
    writer.Finish();
  }
  gif.push_back('\x3b');
  return gif;
}

}  // namespace lockstep::track
