// A scene in motion seen by two cameras at once: one that averages the light of a whole exposure (blur), and a spike
// camera. The scene of scene.h is rendered several times within an exposure, while the camera swings so fast that
// details are lost in the average; the spike camera gets the light in between by interpolation. Each of its pixels adds
// up light and fires when it has enough, so that spikes say when light came. Exposures follow each other without a gap,
// as in GoPro's blurred frames, and what a pixel has added up stays for the next one. A pure function of (seed,
// number); one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/scene.h"
#include "data/spike_file.h"

namespace lockstep::data {

struct SpikeSceneOptions {
  int height = 64, width = 64;
  int divisor = 1;     // picture size / sensor size
  int renders = 11;    // of the scene in an exposure, odd: the middle one is the sharp picture
  int steps = 88;      // of the spike camera in an exposure
  double start = 0;    // of the first exposure, in exposures
  double shift_x = 0;  // of the camera, in heights of the picture
  double shift_y = 0;
};

class SpikeScene {
 public:
  SpikeScene(uint64_t seed, uint64_t number, const SpikeSceneOptions& options);

  struct Exposure {
    std::vector<uint8_t> blurred, sharp;  // planes [3, height, width]
    std::string spikes;                   // a file's bytes
  };
  // The next exposure.
  Exposure Next();
  const SpikeSensor& sensor() const { return sensor_; }

 private:
  View ViewAt(double time) const;
  // Grey levels of the sensor's pixels, 0 to 1.
  std::vector<float> Luminance(const std::vector<uint8_t>& planes) const;

  SpikeSceneOptions options_;
  Scene scene_;
  SpikeSensor sensor_;
  int64_t exposure_ = 0;
  double angle_ = 0, speed_ = 0, rate_ = 0, phase_ = 0, sway_ = 0, sway_rate_ = 0, sway_phase_ = 0, clock_ = 0;
  std::vector<float> charge_;  // of each pixel of the sensor, below 1
};

}  // namespace lockstep::data
