#include "data/scene.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <ranges>

namespace lockstep::data {
namespace {

// Frames after which a scene begins again: what moves steadily must not leave the range of numbers.
constexpr double kLongest = 4096;

float In(Random* random, double low, double high) { return static_cast<float>(random->Uniform(low, high)); }

uint8_t ToByte(float level) { return static_cast<uint8_t>(std::clamp(level + 0.5f, 0.0f, 255.0f)); }

}  // namespace

Scene::Scene(uint64_t seed, uint64_t number, int height, int width)
    : random_(seed, 0, number, Purpose::kScene), scenery_(DrawScenery(&random_, height, width)) {
  canvas_.height = height;
  canvas_.width = width;
  canvas_.pixels.resize(static_cast<size_t>(height) * width);
  Random* random = &random_;
  const auto size = static_cast<float>(std::min(height, width));
  // Most cameras move slowly, some fast.
  const float speed = size * scenery_.pan * 0.025f * std::pow(In(random, 0, 1), 2.0f);
  camera_.vx = speed * (random->Chance(0.5) ? 1.0f : -1.0f);
  camera_.vy = speed * In(random, -0.25, 0.25);
  camera_.shake = size * In(random, 0, 0.004);
  camera_.rate_x = In(random, 0.2, 0.6);
  camera_.rate_y = In(random, 0.2, 0.6);
  camera_.phase_x = In(random, 0, kTurn);
  camera_.phase_y = In(random, 0, kTurn);
  camera_.tilt = In(random, -0.04, 0.04);
  camera_.zoom = In(random, -0.05, 0.25);
  camera_.zoom_rate = random->Chance(0.4) ? In(random, -0.008, 0.008) : 0;
  exposure_ = In(random, 0.85, 1.1);
  falloff_ = In(random, 0.0, 0.2);
  noise_ = In(random, 0.5, 2.0);
  noise_key_ = random->Next();
}

Frame Scene::Place(const View& view, float time, float depth) const {
  Frame frame;
  const float zoom = camera_.zoom + depth * camera_.zoom_rate * std::sin(0.05f * time) * 20;
  frame.scale = std::exp(-zoom) / static_cast<float>(view.zoom);
  frame.right_x = std::cos(camera_.tilt) * frame.scale;
  frame.right_y = std::sin(camera_.tilt) * frame.scale;
  const auto height = static_cast<float>(canvas_.height);
  frame.x = depth * camera_.vx * time + camera_.shake * std::sin(camera_.rate_x * time + camera_.phase_x) +
            static_cast<float>(view.shift_x) * height;
  frame.y = depth * camera_.vy * time + camera_.shake * std::sin(camera_.rate_y * time + camera_.phase_y) +
            static_cast<float>(view.shift_y) * height;
  return frame;
}

// Light falls off towards the corners; the sensor adds its noise, another one in every frame.
void Scene::Develop(double time, uint8_t* planes) const {
  Random random(Fold(noise_key_, std::bit_cast<uint64_t>(time)));
  const size_t pixels = canvas_.pixels.size();
  const float reach = 1 / (0.25f * static_cast<float>(canvas_.height * canvas_.height + canvas_.width * canvas_.width));
  // The sum of two bytes has a standard deviation of 104.5.
  const float scale = noise_ / 104.5f;
  for (int y = 0; y < canvas_.height; ++y) {
    const float v = static_cast<float>(y) - 0.5f * static_cast<float>(canvas_.height - 1);
    for (int x = 0; x < canvas_.width; ++x) {
      const float u = static_cast<float>(x) - 0.5f * static_cast<float>(canvas_.width - 1);
      const float light = 255 * exposure_ * (1 - falloff_ * (u * u + v * v) * reach);
      const uint64_t bits = random.Next();
      const auto grain = [&](int shift) {
        return scale * static_cast<float>(static_cast<int>(bits >> shift & 255) +
                                          static_cast<int>(bits >> (shift + 8) & 255) - 255);
      };
      const size_t at = static_cast<size_t>(y) * canvas_.width + x;
      const Rgb& colour = canvas_.pixels[at].colour;
      planes[at] = ToByte(colour.r * light + grain(0));
      planes[pixels + at] = ToByte(colour.g * light + grain(16));
      planes[2 * pixels + at] = ToByte(colour.b * light + grain(32));
    }
  }
}

void Scene::Render(const View& view, int frame, uint8_t* planes) {
  const double time = std::fmod(view.time + view.stride * frame, kLongest);
  std::ranges::fill(canvas_.pixels, Canvas::Pixel{});
  for (const Layer& layer : std::views::reverse(scenery_.layers)) {
    PaintBehind(layer, Place(view, static_cast<float>(time), layer.depth), scenery_.light, static_cast<float>(time),
                scenery_.textures[layer.texture], &canvas_);
  }
  Develop(time, planes);
}

}  // namespace lockstep::data
