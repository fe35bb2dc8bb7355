// A moving scene drawn from a seed: a textured ground under a camera that pans, turns and zooms, and one to four
// textured objects with motion of their own that cover each other. Edges are smooth over a pixel and textures are as
// fine as the picture, so nothing flickers. The scene is a pure function of (seed, number); rendering does not change
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "data/texture.h"

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
  enum class Shape { kEllipse, kBox, kStar };
  struct Thing {
    Shape shape = Shape::kEllipse;
    float x = 0, y = 0;    // of its centre at time 0, in pixels of an unmoved camera, from the middle
    float vx = 0, vy = 0;  // per unit of time
    float sway = 0, sway_rate = 0, sway_phase = 0;
    float half_width = 0, half_height = 0;
    float angle = 0, spin = 0;
    Texture texture;
  };
  struct Camera {
    float x = 0, y = 0, vx = 0, vy = 0;
    float sway = 0, sway_rate = 0, sway_phase = 0;
    float angle = 0, turn = 0;
    float zoom = 0, zoom_rate = 0;  // logarithms
  };
  // World coordinates of a pixel: (x, y) -> origin + x * right + y * down.
  struct Frame {
    float x = 0, y = 0;
    float right_x = 0, right_y = 0;
    float scale = 1;  // world units per pixel
  };

  static Texture MakeGround(Random* random, int height, int width);
  Frame Place(const View& view, float time) const;
  void PaintGround(const Frame& frame);
  void Paint(const Thing& thing, const Frame& frame, float time);

  int height_;
  int width_;
  Random random_;
  Texture ground_;
  Camera camera_;
  std::vector<Thing> things_;
  std::vector<Rgb> canvas_;
};

}  // namespace lockstep::data
