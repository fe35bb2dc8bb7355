#include "data/scene.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace lockstep::data {
namespace {

constexpr float kTurn = 2 * std::numbers::pi_v<float>;

float Between(Random* random, double low, double high) { return static_cast<float>(random->Uniform(low, high)); }

uint8_t ToByte(float value) { return static_cast<uint8_t>(std::clamp(value * 255 + 0.5f, 0.0f, 255.0f)); }

}  // namespace

Texture Scene::MakeGround(Random* random, int height, int width) {
  // Large enough that the picture shows the ground about once.
  const auto side = std::bit_ceil(static_cast<unsigned>(std::max(32.0, 1.25 * std::max(height, width))));
  const auto size = static_cast<float>(std::min(height, width));
  return Texture(random, static_cast<int>(side), std::max(4.0f, size * Between(random, 0.12, 0.4)));
}

Scene::Scene(uint64_t seed, uint64_t number, int height, int width)
    : height_(height),
      width_(width),
      random_(seed, 0, number, Purpose::kScene),
      ground_(MakeGround(&random_, height, width)) {
  Random* random = &random_;
  const auto size = static_cast<float>(std::min(height, width));
  const float heading = Between(random, 0, kTurn);
  const float speed = size * Between(random, 0, 0.025);
  camera_.x = Between(random, 0, ground_.side());
  camera_.y = Between(random, 0, ground_.side());
  camera_.vx = speed * std::cos(heading);
  camera_.vy = speed * std::sin(heading);
  camera_.sway = size * Between(random, 0, 0.03);
  camera_.sway_rate = Between(random, 0.1, 0.5);
  camera_.sway_phase = Between(random, 0, kTurn);
  camera_.angle = Between(random, 0, kTurn);
  camera_.turn = random->Chance(0.5) ? Between(random, -0.03, 0.03) : 0;
  camera_.zoom = Between(random, -0.15, 0.25);
  camera_.zoom_rate = random->Chance(0.5) ? Between(random, -0.012, 0.012) : 0;

  const int count = static_cast<int>(random->Between(1, 4));
  for (int i = 0; i < count; ++i) {
    const float half = size * Between(random, 0.08, 0.24);
    const float stretch = Between(random, 0.6, 1.6);
    const auto side = std::bit_ceil(static_cast<unsigned>(std::max(16.0f, 2 * half)));
    Thing thing{.shape = static_cast<Shape>(random->Below(3)),
                .x = static_cast<float>(width) * Between(random, -0.45, 0.45),
                .y = static_cast<float>(height) * Between(random, -0.45, 0.45),
                .half_width = half * std::sqrt(stretch),
                .half_height = half / std::sqrt(stretch),
                .angle = Between(random, 0, kTurn),
                .spin = random->Chance(0.5) ? Between(random, -0.12, 0.12) : 0,
                .texture = Texture(random, static_cast<int>(side), std::max(4.0f, half * Between(random, 0.4, 1.0)))};
    const float toward = Between(random, 0, kTurn);
    const float pace = size * Between(random, 0, 0.03);
    thing.vx = pace * std::cos(toward);
    thing.vy = pace * std::sin(toward);
    thing.sway = size * Between(random, 0, 0.05);
    thing.sway_rate = Between(random, 0.1, 0.6);
    thing.sway_phase = Between(random, 0, kTurn);
    things_.push_back(std::move(thing));
  }
}

Scene::Frame Scene::Place(const View& view, float time) const {
  Frame frame;
  frame.scale =
      std::exp(-(camera_.zoom + camera_.zoom_rate * std::sin(0.05f * time) * 20)) / static_cast<float>(view.zoom);
  const float angle = camera_.turn * time;
  frame.right_x = std::cos(angle) * frame.scale;
  frame.right_y = std::sin(angle) * frame.scale;
  const float sway = camera_.sway * std::sin(camera_.sway_rate * time + camera_.sway_phase);
  frame.x = camera_.vx * time + sway + static_cast<float>(view.shift_x * height_);
  frame.y = camera_.vy * time + sway * 0.5f + static_cast<float>(view.shift_y * height_);
  return frame;
}

void Scene::PaintGround(const Frame& frame) {
  const float cos = std::cos(camera_.angle);
  const float sin = std::sin(camera_.angle);
  // The ground is turned once more, so that its pattern does not lie along the picture's edges.
  const float right_x = cos * frame.right_x - sin * frame.right_y;
  const float right_y = sin * frame.right_x + cos * frame.right_y;
  const auto wrap = static_cast<float>(ground_.side());
  const float at_x = std::fmod(camera_.x + cos * frame.x - sin * frame.y, wrap);
  const float at_y = std::fmod(camera_.y + sin * frame.x + cos * frame.y, wrap);
  for (int y = 0; y < height_; ++y) {
    const float v = static_cast<float>(y) - 0.5f * static_cast<float>(height_ - 1);
    const float u = -0.5f * static_cast<float>(width_ - 1);
    float x_at = at_x + u * right_x - v * right_y;
    float y_at = at_y + u * right_y + v * right_x;
    Rgb* out = canvas_.data() + static_cast<size_t>(y) * width_;
    for (int x = 0; x < width_; ++x, x_at += right_x, y_at += right_y) out[x] = ground_.At(x_at, y_at);
  }
}

void Scene::Paint(const Thing& thing, const Frame& frame, float time) {
  // Centre of the thing in the picture.
  const float sway = thing.sway * std::sin(thing.sway_rate * time + thing.sway_phase);
  const float dx = thing.x + thing.vx * time + sway - frame.x;
  const float dy = thing.y + thing.vy * time - sway - frame.y;
  const float inverse = 1 / (frame.scale * frame.scale);
  const float centre_x = (dx * frame.right_x + dy * frame.right_y) * inverse + 0.5f * static_cast<float>(width_ - 1);
  const float centre_y = (dy * frame.right_x - dx * frame.right_y) * inverse + 0.5f * static_cast<float>(height_ - 1);
  const float reach = 1.15f * std::hypot(thing.half_width, thing.half_height) / frame.scale + 1;
  const int left = std::max(0, static_cast<int>(std::floor(centre_x - reach)));
  const int right = std::min(width_ - 1, static_cast<int>(std::ceil(centre_x + reach)));
  const int top = std::max(0, static_cast<int>(std::floor(centre_y - reach)));
  const int bottom = std::min(height_ - 1, static_cast<int>(std::ceil(centre_y + reach)));
  // Picture to the thing's own axes.
  const float angle = thing.angle + thing.spin * time - std::atan2(frame.right_y, frame.right_x);
  const float cos = std::cos(angle) * frame.scale;
  const float sin = std::sin(angle) * frame.scale;
  const float small = std::min(thing.half_width, thing.half_height);
  for (int y = top; y <= bottom; ++y) {
    Rgb* line = canvas_.data() + static_cast<size_t>(y) * width_;
    const float v = static_cast<float>(y) - centre_y;
    for (int x = left; x <= right; ++x) {
      const float u = static_cast<float>(x) - centre_x;
      const float own_x = u * cos + v * sin;
      const float own_y = v * cos - u * sin;
      // Distance to the edge, positive inside, in world units; exact near the edge, which is where it matters.
      float inside = 0;
      if (thing.shape == Shape::kBox) {
        inside = std::min(thing.half_width - std::abs(own_x), thing.half_height - std::abs(own_y));
      } else {
        const float radius = std::hypot(own_x / thing.half_width, own_y / thing.half_height);
        float edge = 1;
        if (thing.shape == Shape::kStar && radius < 1.2f) {
          edge = 0.85f + 0.25f * std::cos(5 * std::atan2(own_y / thing.half_height, own_x / thing.half_width));
        }
        inside = (edge - radius) * small;
      }
      const float cover = std::clamp(inside / frame.scale + 0.5f, 0.0f, 1.0f);
      if (cover > 0) line[x] = Blend(line[x], thing.texture.At(own_x, own_y), cover);
    }
  }
}

void Scene::Render(const View& view, int frame, uint8_t* planes) {
  const auto time = static_cast<float>(view.time + view.stride * frame);
  const size_t pixels = static_cast<size_t>(height_) * width_;
  canvas_.resize(pixels);
  const Frame place = Place(view, time);
  PaintGround(place);
  for (const Thing& thing : things_) Paint(thing, place, time);
  for (size_t i = 0; i < pixels; ++i) {
    planes[i] = ToByte(canvas_[i].r);
    planes[pixels + i] = ToByte(canvas_[i].g);
    planes[2 * pixels + i] = ToByte(canvas_[i].b);
  }
}

}  // namespace lockstep::data
