#include "cli/train/eval_picture.h"

#include <torch/types.h>

#include <algorithm>

#include "track/font.h"

namespace lockstep::cli {
namespace {

constexpr size_t kShown = 6, kKept = 16;  // frames of a clip
constexpr int64_t kTile = 240;            // largest side of a shown frame
constexpr int kAmplify = 8;
constexpr int kScale = 2, kGap = 8;  // of letters; between rows
constexpr int kLine = track::kGlyphHeight * kScale + kGap;
constexpr int kMargin = (track::kGlyphWidth + 1) * kScale * 9;  // room for "ERROR X8"

class Canvas {
 public:
  Canvas(int width, int height) : image_{width, height, std::vector<uint8_t>(size_t{3} * width * height, 24)} {}

  void Text(int x, int y, const std::string& text) {
    for (char c : text) {
      const auto rows = track::Glyph(c);
      for (int row = 0; row < track::kGlyphHeight * kScale; ++row) {
        for (int column = 0; column < track::kGlyphWidth * kScale; ++column) {
          if ((rows[row / kScale] >> (track::kGlyphWidth - 1 - column / kScale) & 1) != 0) Dot(x + column, y + row);
        }
      }
      x += (track::kGlyphWidth + 1) * kScale;
    }
  }

  void Frame(int x, int y, const at::Tensor& frame) {
    const at::Tensor rows = frame.permute({1, 2, 0}).contiguous();
    const auto* from = rows.data_ptr<uint8_t>();
    const auto row_bytes = static_cast<size_t>(rows.size(1)) * 3;
    for (int64_t row = 0; row < rows.size(0); ++row) {
      std::copy_n(from + static_cast<size_t>(row) * row_bytes, row_bytes,
                  image_.rgb.begin() + static_cast<int64_t>(3) * ((y + row) * image_.width + x));
    }
  }

  data::Image image() && { return std::move(image_); }

 private:
  void Dot(int x, int y) {
    if (x < 0 || y < 0 || x >= image_.width || y >= image_.height) return;
    std::fill_n(image_.rgb.begin() + 3 * (static_cast<int64_t>(y) * image_.width + x), 3, uint8_t{230});
  }

  data::Image image_;
};

at::Tensor Small(const at::Tensor& frame) {
  at::Tensor small = frame.to(at::kFloat).clamp(0, 1);
  const int64_t side = std::max(frame.size(1), frame.size(2));
  if (side > kTile) {
    const auto fit = [&](int64_t size) { return std::max<int64_t>(1, size * kTile / side); };
    small = at::_upsample_bilinear2d_aa(small.unsqueeze(0), {fit(frame.size(1)), fit(frame.size(2))}, false)[0];
  } else if (side * 2 <= kTile) {
    const int64_t zoom = kTile / side;
    small = small.repeat_interleave(zoom, 1).repeat_interleave(zoom, 2);
  }
  return small.mul(255).round().to(at::kByte).to(at::kCPU).contiguous();
}

}  // namespace

void Strip::Add(const at::Tensor& output, const at::Tensor& target) {
  for (int64_t t = 0; t < output.size(0); ++t, ++seen_) {
    if (seen_ % every_ != 0) continue;
    kept_.push_back({Small(target[t]), Small(output[t])});
    if (kept_.size() < kKept) continue;
    for (size_t i = 0; i < kKept / 2; ++i) kept_[i] = kept_[2 * i];
    kept_.resize(kKept / 2);
    every_ *= 2;
  }
}

std::vector<Strip::Pair> Strip::Choose(size_t count) const {
  std::vector<Pair> chosen;
  count = std::min(count, kept_.size());
  for (size_t i = 0; i < count; ++i) chosen.push_back(kept_[count == 1 ? 0 : i * (kept_.size() - 1) / (count - 1)]);
  return chosen;
}

data::Image DrawClips(const std::vector<ShownClip>& clips) {
  int width = 640, height = kGap;
  for (const ShownClip& clip : clips) {
    const std::vector<Strip::Pair> pairs = clip.strip.Choose(kShown);
    if (pairs.empty()) continue;
    const at::Tensor& frame = pairs[0].target;
    width = std::max(width, kMargin + static_cast<int>(pairs.size()) * (static_cast<int>(frame.size(2)) + kGap) + kGap);
    height += kLine + 3 * (static_cast<int>(frame.size(1)) + kGap) + kGap;
  }
  Canvas canvas(width, height);
  const size_t letters = static_cast<size_t>(width - 2 * kGap) / ((track::kGlyphWidth + 1) * kScale);
  int y = kGap;
  for (const ShownClip& clip : clips) {
    const std::vector<Strip::Pair> pairs = clip.strip.Choose(kShown);
    if (pairs.empty()) continue;
    canvas.Text(kGap, y, clip.title.size() <= letters ? clip.title : clip.title.substr(clip.title.size() - letters));
    y += kLine;
    const auto tall = static_cast<int>(pairs[0].target.size(1)), wide = static_cast<int>(pairs[0].target.size(2));
    const std::pair<const char*, int> rows[] = {{"INPUT", 0}, {"OUTPUT", 1}, {"ERROR X8", 2}};
    static_assert(kAmplify == 8, "the label says it");
    for (const auto& [label, kind] : rows) {
      canvas.Text(kGap, y, label);
      for (size_t i = 0; i < pairs.size(); ++i) {
        at::Tensor frame = kind == 0 ? pairs[i].target : pairs[i].output;
        if (kind == 2) {
          frame = (pairs[i].output.to(at::kInt) - pairs[i].target.to(at::kInt)).abs().mul(kAmplify).clamp(0, 255);
        }
        canvas.Frame(kMargin + static_cast<int>(i) * (wide + kGap), y, frame.to(at::kByte));
      }
      y += tall + kGap;
    }
    y += kGap;
  }
  return std::move(canvas).image();
}

}  // namespace lockstep::cli
