#include "data/spike_scene.h"

#include <algorithm>
#include <cmath>

#include "data/random.h"

namespace lockstep::data {
namespace {

// The camera's motion within an exposure, in heights of the picture: at 64 pixels 5 to 13 pixels are averaged.
constexpr double kLeastSpeed = 0.08, kMostSpeed = 0.2;
constexpr double kSceneClock = 2;  // frames of scene.h in an exposure: what moves in the scene

}  // namespace

SpikeScene::SpikeScene(uint64_t seed, uint64_t number, const SpikeSceneOptions& options)
    : options_(options),
      scene_(seed, number, options.height, options.width),
      sensor_{options.height / options.divisor, options.width / options.divisor, true} {
  Random random(seed, 1, number, Purpose::kScene);
  angle_ = random.Uniform(0, kTurn);
  speed_ = random.Uniform(kLeastSpeed, kMostSpeed);
  rate_ = random.Uniform(0.3, 0.8);
  phase_ = random.Uniform(0, kTurn);
  sway_ = random.Uniform(0, 0.4) * speed_;
  sway_rate_ = random.Uniform(0.8, 1.6);
  sway_phase_ = random.Uniform(0, kTurn);
  clock_ = random.Uniform(0, 100);
  charge_.resize(static_cast<size_t>(sensor_.height) * sensor_.width);
  for (float& charge : charge_) charge = static_cast<float>(random.Uniform());
}

// The camera swings along a line and sways across it. Speed is the derivative: an amplitude of speed / rate.
View SpikeScene::ViewAt(double time) const {
  const double along = speed_ / rate_ * std::sin(rate_ * time + phase_);
  const double across = sway_ / sway_rate_ * std::sin(sway_rate_ * time + sway_phase_);
  View view;
  view.time = clock_ + kSceneClock * time;
  view.shift_x = options_.shift_x + along * std::cos(angle_) - across * std::sin(angle_);
  view.shift_y = options_.shift_y + along * std::sin(angle_) + across * std::cos(angle_);
  return view;
}

std::vector<float> SpikeScene::Luminance(const std::vector<uint8_t>& planes) const {
  const size_t pixels = static_cast<size_t>(options_.height) * options_.width;
  const int d = options_.divisor;
  const float unit = 1.0F / (255.0F * static_cast<float>(d * d));
  std::vector<float> light(charge_.size());
  for (int y = 0; y < sensor_.height * d; ++y) {
    for (int x = 0; x < sensor_.width * d; ++x) {
      const size_t at = static_cast<size_t>(y) * options_.width + x;
      light[static_cast<size_t>(y / d) * sensor_.width + x / d] +=
          unit * (0.299F * planes[at] + 0.587F * planes[pixels + at] + 0.114F * planes[2 * pixels + at]);
    }
  }
  return light;
}

SpikeScene::Exposure SpikeScene::Next() {
  const size_t values = static_cast<size_t>(options_.height) * options_.width * 3;
  Exposure exposure;
  std::vector<uint32_t> sum(values);
  std::vector<uint8_t> planes(values);
  std::vector<std::vector<float>> light;  // at each render
  for (int i = 0; i < options_.renders; ++i) {
    const double time = options_.start + static_cast<double>(exposure_) + (i + 0.5) / options_.renders;
    scene_.Render(ViewAt(time), 0, planes.data());
    for (size_t k = 0; k < values; ++k) sum[k] += planes[k];
    if (i == options_.renders / 2) exposure.sharp = planes;
    light.push_back(Luminance(planes));
  }
  exposure.blurred.resize(values);
  const auto renders = static_cast<uint32_t>(options_.renders);
  for (size_t k = 0; k < values; ++k) exposure.blurred[k] = static_cast<uint8_t>((sum[k] + renders / 2) / renders);

  SpikePacker packer(sensor_);
  std::vector<uint8_t> fired(charge_.size());
  for (int step = 0; step < options_.steps; ++step) {
    const double at = std::clamp((step + 0.5) / options_.steps * options_.renders - 0.5, 0.0, options_.renders - 1.0);
    const int before = std::min(static_cast<int>(at), options_.renders - 2);
    const auto part = static_cast<float>(at - before);
    const std::vector<float>&a = light[before], &b = light[before + 1];
    for (size_t k = 0; k < charge_.size(); ++k) {
      const float charge = charge_[k] + a[k] + (b[k] - a[k]) * part;
      const bool fires = charge >= 1;
      fired[k] = fires ? 1 : 0;
      charge_[k] = fires ? charge - 1 : charge;
    }
    packer.Add(fired);
  }
  exposure.spikes = std::string(packer.bytes());
  ++exposure_;
  return exposure;
}

}  // namespace lockstep::data
