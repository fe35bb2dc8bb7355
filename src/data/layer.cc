#include "data/layer.h"

#include <algorithm>
#include <cmath>

namespace lockstep::data {
namespace {

constexpr float kReach = 3;         // a texture is rarely beyond this many standard deviations
constexpr float kTexels = 1.7f;     // per pixel, for a grain of 1
constexpr float kPositive = 65536;  // a multiple of every outline's length

// How deep (a, b) lies inside a shape, in parts of its half size; negative outside. Exact near the edge, where it
// matters.
template <Shape shape>
float Inside(float a, float b) {
  if constexpr (shape == Shape::kEllipse) return 1 - std::sqrt(a * a + b * b);
  if constexpr (shape == Shape::kBox) return std::min(1 - std::abs(a), 1 - std::abs(b));
  if constexpr (shape == Shape::kTriangle) return std::min(0.9f * ((b + 1) * 0.5f - std::abs(a)), 1 - b);
  if constexpr (shape == Shape::kSail) return std::min({1 + a, 1 - b, 0.7f * (b - a)});
  if constexpr (shape == Shape::kLens) return 0.6f * (1 - a * a - std::abs(b));
  if constexpr (shape == Shape::kHull) return std::min({1 + b, 1 - b, 0.85f - std::abs(a) - 0.15f * b});
  return 1;
}

class Painter {
 public:
  Painter(const Layer& layer, const Frame& frame, const Light& light, float time, const Texture& texture,
          Canvas* canvas)
      : layer_(layer), texture_(texture), light_(light), canvas_(canvas) {
    const float sway = std::sin(layer.motion.rate * time + layer.motion.phase);
    const float dx = layer.x + layer.motion.vx * time + layer.motion.sway_x * sway - frame.x;
    const float dy = layer.y + layer.motion.vy * time + layer.motion.sway_y * sway - frame.y;
    const float inverse = 1 / (frame.scale * frame.scale);
    centre_x_ = (dx * frame.right_x + dy * frame.right_y) * inverse + 0.5f * static_cast<float>(canvas->width - 1);
    centre_y_ = (dy * frame.right_x - dx * frame.right_y) * inverse + 0.5f * static_cast<float>(canvas->height - 1);
    const float angle = layer.angle + layer.spin * time - std::atan2(frame.right_y, frame.right_x);
    const float cos = std::cos(angle);
    const float sin = std::sin(angle);
    cos_ = cos * frame.scale;
    sin_ = sin * frame.scale;
    // The light in the layer's own axes: it stays where it is when the layer turns.
    light_.x = (light.x * cos + light.y * sin) * (layer.half_width < 0 ? -1.0f : 1.0f);
    light_.y = light.y * cos - light.x * sin;
    right_ = canvas->width - 1;
    bottom_ = canvas->height - 1;
    per_pixel_ = 1 / (frame.scale * layer.soft);
    if (layer.shape == Shape::kAll || layer.shape == Shape::kCloud || layer.shape == Shape::kBelow) return;
    const float width = std::abs(layer.half_width);
    const float small = std::min(width, layer.half_height);
    per_pixel_ *= small;
    // The box around the turned layer.
    const float margin = (1 + layer.rough + layer.soft * frame.scale / small) / frame.scale;
    const float reach_x = margin * (std::abs(cos) * width + std::abs(sin) * layer.half_height);
    const float reach_y = margin * (std::abs(sin) * width + std::abs(cos) * layer.half_height);
    left_ = std::max(0, ToInt(std::floor(centre_x_ - reach_x)));
    top_ = std::max(0, ToInt(std::floor(centre_y_ - reach_y)));
    right_ = std::min(right_, ToInt(std::ceil(centre_x_ + reach_x)));
    bottom_ = std::min(bottom_, ToInt(std::ceil(centre_y_ + reach_y)));
  }

  template <Shape shape>
  void Run() const {
    const float across = 1 / layer_.half_width;
    const float down = 1 / layer_.half_height;
    const float grain_x = kTexels * layer_.grain_x;
    const float grain_y = kTexels * layer_.grain_y;
    const float rough = layer_.rough / kReach;
    const float outside = -0.5f / per_pixel_ - layer_.rough;
    const float half_square = 0.5f * layer_.contrast * layer_.contrast;
    const bool textured = layer_.contrast > 0 || layer_.rough > 0 || shape == Shape::kCloud;
    for (int y = top_; y <= bottom_; ++y) {
      Canvas::Pixel* line = canvas_->pixels.data() + static_cast<size_t>(y) * canvas_->width;
      const float v = static_cast<float>(y) - centre_y_;
      for (int x = left_; x <= right_; ++x) {
        Canvas::Pixel& pixel = line[x];
        if (pixel.open <= 0) continue;
        const float u = static_cast<float>(x) - centre_x_;
        const float own_x = u * cos_ + v * sin_;
        const float own_y = v * cos_ - u * sin_;
        const float a = own_x * across;
        const float b = own_y * down;
        const float inside = shape == Shape::kBelow ? own_y + Height(own_x) : Inside<shape>(a, b);
        if (inside < outside) continue;
        const float n =
            textured ? texture_.At(own_x * grain_x + layer_.texture_x, own_y * grain_y + layer_.texture_y) : 0;
        float cover = layer_.opacity;
        if (shape == Shape::kCloud) {
          cover *= std::clamp((n - layer_.cut) / layer_.soft, 0.0f, 1.0f);
        } else if (shape != Shape::kAll) {
          cover *= std::clamp((inside + rough * n) * per_pixel_ + 0.5f, 0.0f, 1.0f);
        }
        if (cover <= 0) continue;
        // The first terms of exp(contrast * n): surfaces are lighter and darker by factors.
        float bright = 1 + layer_.contrast * n + half_square * n * n;
        if (layer_.round > 0) bright *= 1 + layer_.round * (Shade(a, b) - 1);
        const Rgb colour = Blend(layer_.top, layer_.bottom, std::clamp(0.5f + 0.5f * b, 0.0f, 1.0f));
        const float weight = pixel.open * cover;
        pixel.colour.r += weight * bright * colour.r;
        pixel.colour.g += weight * bright * colour.g;
        pixel.colour.b += weight * bright * colour.b;
        pixel.open -= weight;
      }
    }
  }

 private:
  // A layer far outside of the picture is as good as one just outside.
  static int ToInt(float x) { return static_cast<int>(std::clamp(x, -1e6f, 1e6f)); }

  float Height(float x) const {
    const int mask = static_cast<int>(layer_.outline.size()) - 1;
    const float at = x + kPositive;
    const int cell = static_cast<int>(at);
    const float left = layer_.outline[cell & mask];
    const float right = layer_.outline[(cell + 1) & mask];
    return left + (right - left) * (at - static_cast<float>(cell));
  }

  // Of a ball that fills the layer's box.
  float Shade(float a, float b) const {
    const float z = std::sqrt(std::max(0.0f, 1 - a * a - b * b));
    const float facing = std::max(0.0f, a * light_.x + b * light_.y + z * light_.z);
    return light_.ambient + (1 - light_.ambient) * 1.4f * facing;
  }

  const Layer& layer_;
  const Texture& texture_;
  Light light_;
  Canvas* canvas_;
  float centre_x_ = 0, centre_y_ = 0, cos_ = 1, sin_ = 0;  // picture to the layer's own axes
  float per_pixel_ = 1;                                    // part of the edge that one pixel crosses, per depth inside
  int left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
};

}  // namespace

void PaintBehind(const Layer& layer, const Frame& frame, const Light& light, float time, const Texture& texture,
                 Canvas* canvas) {
  const Painter painter(layer, frame, light, time, texture, canvas);
  switch (layer.shape) {
    case Shape::kAll:
      return painter.Run<Shape::kAll>();
    case Shape::kCloud:
      return painter.Run<Shape::kCloud>();
    case Shape::kBelow:
      return painter.Run<Shape::kBelow>();
    case Shape::kEllipse:
      return painter.Run<Shape::kEllipse>();
    case Shape::kBox:
      return painter.Run<Shape::kBox>();
    case Shape::kTriangle:
      return painter.Run<Shape::kTriangle>();
    case Shape::kSail:
      return painter.Run<Shape::kSail>();
    case Shape::kLens:
      return painter.Run<Shape::kLens>();
    case Shape::kHull:
      return painter.Run<Shape::kHull>();
  }
}

}  // namespace lockstep::data
