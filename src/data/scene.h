// A moving scene drawn from a seed: layered scenery with things of their own motion, seen by a hand-held camera that
// pans and zooms, in one light, with a little sensor noise. Its pictures have the statistics of natural video: power
// falls with the square of the frequency, near things cover far ones, colours are few and smoother than brightness. The
// scene is a pure function of (seed, number); rendering does not change it.
#pragma once

#include <cstdint>

#include "data/scenery.h"

namespace lockstep::data {

// What an augmentation may change without touching the scene.
struct View {
  double time = 0;     // of the first frame, in frames
  double stride = 1;   // time between frames
  double shift_x = 0;  // of the camera, in heights of the picture
  double shift_y = 0;
  double zoom = 1;  // above 1: closer
};

class Scene {
 public:
  Scene(uint64_t seed, uint64_t number, int height, int width);

  // planes [3, height, width] of frame `frame`.
  void Render(const View& view, int frame, uint8_t* planes);

 private:
  struct Camera {
    float vx = 0, vy = 0;  // of what is near, in pixels per frame
    float shake = 0, rate_x = 0, rate_y = 0, phase_x = 0, phase_y = 0;
    float tilt = 0;
    float zoom = 0, zoom_rate = 0;  // logarithms
  };

  Frame Place(const View& view, float time, float depth) const;
  void Develop(double time, uint8_t* planes) const;

  Random random_;
  Scenery scenery_;
  Camera camera_;
  uint64_t noise_key_ = 0;
  float noise_ = 0;  // standard deviation in levels
  float exposure_ = 1, falloff_ = 0;
  Canvas canvas_;
};

}  // namespace lockstep::data
