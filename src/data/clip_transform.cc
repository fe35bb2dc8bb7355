#include "data/clip_transform.h"

#include <algorithm>
#include <cmath>

#include "data/random.h"
#include "data/stages.h"

namespace lockstep::data {
namespace {

// Index into [0, n) of a position continued by reflection without repeating the edge: -1 -> 1, n -> n - 2.
int Reflect(int i, int n) {
  if (n == 1) return 0;
  const int period = 2 * (n - 1);
  i %= period;
  if (i < 0) i += period;
  return i < n ? i : period - i;
}

uint8_t RoundToByte(float value) { return static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f)); }
float Unit(float value) { return std::clamp(value, 0.0f, 1.0f); }
float Grey(float r, float g, float b) { return 0.2989f * r + 0.587f * g + 0.114f * b; }

// Turns the hue of one RGB colour in [0, 1] (through HSV: value and saturation stay).
void TurnHue(float turn, float* r, float* g, float* b) {
  const float high = std::max({*r, *g, *b});
  const float range = high - std::min({*r, *g, *b});
  if (range <= 0) return;
  float hue = 0;  // in sixths of a turn
  if (high == *r) {
    hue = (*g - *b) / range;
  } else if (high == *g) {
    hue = 2 + (*b - *r) / range;
  } else {
    hue = 4 + (*r - *g) / range;
  }
  hue += 6 * turn;
  hue -= 6 * std::floor(hue / 6);
  const auto channel = [&](float offset) {
    float k = hue + offset;
    if (k >= 6) k -= 6;
    return high - range * std::clamp(std::min(k, 4 - k), 0.0f, 1.0f);
  };
  *r = channel(5);
  *g = channel(3);
  *b = channel(1);
}

}  // namespace

const std::vector<std::string> kResizeNames = {"bilinear", "bicubic", "pillow_bilinear", "pillow_bicubic"};

Resize ResizeByName(const std::string& name) {
  return static_cast<Resize>(std::ranges::find(kResizeNames, name) - kResizeNames.begin());
}

Colour DrawColour(const Draw& draw, bool wanted) {
  Colour colour;
  Random random(draw.seed, draw.epoch, draw.index, Purpose::kColour);
  if (!draw.augment || !wanted || !random.Chance(0.7)) return colour;
  colour.brightness = random.Uniform(0.9, 1.1);
  colour.contrast = random.Uniform(0.9, 1.1);
  colour.saturation = random.Uniform(0.9, 1.1);
  colour.hue = random.Uniform(-0.05, 0.05);
  return colour;
}

bool DrawFlip(const Draw& draw, bool wanted) {
  return draw.augment && wanted && Random(draw.seed, draw.epoch, draw.index, Purpose::kFlip).Chance(0.5);
}

void ApplyColour(const Colour& colour, uint8_t* planes, size_t pixels) {
  if (colour.none()) return;
  const auto brightness = static_cast<float>(colour.brightness);
  const auto contrast = static_cast<float>(colour.contrast);
  const auto saturation = static_cast<float>(colour.saturation);
  const auto hue = static_cast<float>(colour.hue);
  uint8_t* const red = planes;
  uint8_t* const green = planes + pixels;
  uint8_t* const blue = planes + 2 * pixels;
  double sum = 0;
  for (size_t i = 0; i < pixels; ++i) {
    const auto bright = [&](uint8_t x) { return Unit(static_cast<float>(x) * (brightness / 255)); };
    sum += Grey(bright(red[i]), bright(green[i]), bright(blue[i]));
  }
  const float pivot = (1 - contrast) * static_cast<float>(sum / static_cast<double>(pixels));
  const auto stretched = [&](uint8_t x) {
    return Unit(Unit(static_cast<float>(x) * (brightness / 255)) * contrast + pivot);
  };
  for (size_t i = 0; i < pixels; ++i) {
    float r = stretched(red[i]);
    float g = stretched(green[i]);
    float b = stretched(blue[i]);
    const float grey = (1 - saturation) * Grey(r, g, b);
    r = Unit(r * saturation + grey);
    g = Unit(g * saturation + grey);
    b = Unit(b * saturation + grey);
    if (hue != 0) TurnHue(hue, &r, &g, &b);
    red[i] = RoundToByte(r * 255);
    green[i] = RoundToByte(g * 255);
    blue[i] = RoundToByte(b * 255);
  }
}

void FlipHorizontally(uint8_t* planes, int width, int height) {
  for (int row = 0; row < 3 * height; ++row) {
    uint8_t* line = planes + static_cast<size_t>(row) * width;
    std::reverse(line, line + width);
  }
}

Crop DrawCrop(const Draw& draw, int frame_width, int frame_height, int width, int height) {
  const double fit = std::min(static_cast<double>(frame_width) / width, static_cast<double>(frame_height) / height);
  Random random(draw.seed, draw.epoch, draw.index, Purpose::kCrop);
  const double scale = fit * (draw.augment ? random.Uniform(0.8, 1.0) : 1.0);
  Crop crop;
  // The small term: 3 * (64 / 3.0) must be 64.
  crop.width = std::max(width, static_cast<int>(width * scale + 1e-6));
  crop.height = std::max(height, static_cast<int>(height * scale + 1e-6));
  const auto place = [&](int frame, int box) {
    if (box >= frame) return -(box - frame) / 2;
    if (!draw.augment) return (frame - box) / 2;
    return static_cast<int>(random.Below(static_cast<uint64_t>(frame - box) + 1));
  };
  crop.x = place(frame_width, crop.width);
  crop.y = place(frame_height, crop.height);
  return crop;
}

ClipTransform::ClipTransform(const Draw& draw, int frame_width, int frame_height, int width, int height, Resize resize)
    : ClipTransform(DrawCrop(draw, frame_width, frame_height, width, height), DrawFlip(draw), DrawColour(draw),
                    frame_width, frame_height, width, height, resize) {}

ClipTransform::ClipTransform(const Crop& crop, bool flip, const Colour& colour, int frame_width, int frame_height,
                             int width, int height, Resize resize)
    : flip_(flip),
      colour_(colour),
      width_(width),
      height_(height),
      crop_(crop),
      frame_width_(frame_width),
      frame_height_(frame_height) {
  const bool cubic = resize == Resize::kBicubic || resize == Resize::kPillowBicubic;
  const Filter filter = cubic ? Filter::kBicubic : Filter::kBilinear;
  if (resize == Resize::kBilinear || resize == Resize::kBicubic) {
    float_resample_.emplace(filter, crop.width, crop.height, width, height);
  } else {
    resample_.emplace(filter, crop.width, crop.height, width, height);
  }
}

void ClipTransform::Apply(const uint8_t* rgb, size_t stride, uint8_t* planes) {
  const StageMark mark(LoadStage::kTransform);
  resample_ ? ResizeAsPillow(rgb, stride, planes) : ResizeAsTorch(rgb, stride, planes);
  if (flip_) FlipHorizontally(planes, width_, height_);
  ApplyColour(colour_, planes, static_cast<size_t>(width_) * height_);
}

void ClipTransform::ResizeAsPillow(const uint8_t* rgb, size_t stride, uint8_t* planes) {
  const bool inside =
      crop_.x >= 0 && crop_.y >= 0 && crop_.x + crop_.width <= frame_width_ && crop_.y + crop_.height <= frame_height_;
  if (inside) return resample_->Apply(rgb + crop_.y * stride + static_cast<size_t>(crop_.x) * 3, stride, planes);
  const size_t row = static_cast<size_t>(crop_.width) * 3;
  continued_.resize(row * crop_.height);
  for (int y = 0; y < crop_.height; ++y) {
    const uint8_t* line = rgb + static_cast<size_t>(Reflect(crop_.y + y, frame_height_)) * stride;
    uint8_t* to = continued_.data() + row * y;
    for (int x = 0; x < crop_.width; ++x, to += 3) {
      std::copy_n(line + static_cast<size_t>(Reflect(crop_.x + x, frame_width_)) * 3, 3, to);
    }
  }
  resample_->Apply(continued_.data(), row, planes);
}

// The box is resized as a picture of its own: weights beyond its border are left out, and the rest made to sum to one.
void ClipTransform::ResizeAsTorch(const uint8_t* rgb, size_t stride, uint8_t* planes) {
  const size_t row_size = static_cast<size_t>(width_) * 4, crop_bytes = static_cast<size_t>(crop_.width) * 3;
  rows_.resize(row_size * (crop_.height + 1));
  line_.resize(static_cast<size_t>(crop_.width) * 8);
  continued_.resize(crop_bytes * 2);
  const bool inside = crop_.x >= 0 && crop_.x + crop_.width <= frame_width_;
  const auto row_at = [&](int y, uint8_t* room) {
    const uint8_t* from = rgb + static_cast<size_t>(Reflect(crop_.y + y, frame_height_)) * stride;
    if (inside) return from + static_cast<size_t>(crop_.x) * 3;
    for (int x = 0; x < crop_.width; ++x) {
      std::copy_n(from + static_cast<size_t>(Reflect(crop_.x + x, frame_width_)) * 3, 3,
                  room + static_cast<size_t>(x) * 3);
    }
    return static_cast<const uint8_t*>(room);
  };
  for (int y = 0; y < crop_.height; y += 2) {
    const uint8_t* a = row_at(y, continued_.data());
    const uint8_t* b = y + 1 < crop_.height ? row_at(y + 1, continued_.data() + crop_bytes) : a;
    float* to = rows_.data() + row_size * y;
    float_resample_->AcrossPixels(a, b, line_.data(), to, to + row_size);
  }
  const size_t pixels = static_cast<size_t>(width_) * height_;
  sums_.resize(row_size);
  for (int y = 0; y < height_; ++y) {
    float_resample_->Down(rows_.data(), row_size, y, sums_.data());
    for (int c = 0; c < 3; ++c) {
      uint8_t* to = planes + c * pixels + static_cast<size_t>(y) * width_;
      for (int x = 0; x < width_; ++x) to[x] = RoundToByte(sums_[static_cast<size_t>(x) * 4 + c]);
    }
  }
}

}  // namespace lockstep::data
