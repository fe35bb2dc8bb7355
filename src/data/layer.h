// What a scene is made of: flat layers. A layer has a shape whose edge is softened over about a pixel, a colour that
// changes from its upper to its lower end, and a texture that makes its surface lighter and darker and its edge
// irregular. Layers are painted from the near ones to the far ones, and what is covered is not computed. Plain values;
// one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "data/texture.h"

namespace lockstep::data {

struct Rgb {
  float r = 0;
  float g = 0;
  float b = 0;
};

constexpr Rgb Blend(const Rgb& from, const Rgb& to, float t) {
  return {from.r + (to.r - from.r) * t, from.g + (to.g - from.g) * t, from.b + (to.b - from.b) * t};
}
constexpr Rgb operator*(const Rgb& colour, float factor) {
  return {colour.r * factor, colour.g * factor, colour.b * factor};
}
constexpr Rgb operator*(const Rgb& a, const Rgb& b) { return {a.r * b.r, a.g * b.g, a.b * b.b}; }

// In a box from (-1, -1) to (1, 1), y downwards.
enum class Shape : uint8_t {
  kAll,    // everywhere
  kCloud,  // where the texture is above `cut`
  kBelow,  // below an outline: hills, ground
  kEllipse,
  kBox,
  kTriangle,  // on its base: roofs, firs
  kSail,      // a triangle with its upright edge on the left
  kLens,      // pointed left and right: leaves, fish
  kHull,      // wide above, narrow below
};

struct Motion {
  float vx = 0, vy = 0;  // per frame
  float sway_x = 0, sway_y = 0, rate = 0, phase = 0;
};

// Lengths in pixels of an unmoved camera, from the picture's middle, y downwards.
struct Layer {
  Shape shape = Shape::kEllipse;
  float x = 0, y = 0;                     // of its middle at time 0
  float half_width = 1, half_height = 1;  // a negative width mirrors it
  float angle = 0, spin = 0;
  float depth = 1;  // how much of the camera's motion it shows: 0 at the horizon, 1 near
  Motion motion;

  Rgb top, bottom;
  float opacity = 1;
  float round = 0;     // shading: 0 flat, 1 as a ball
  float soft = 0.9f;   // width of the edge in pixels (kCloud: in the texture's units)
  float rough = 0;     // of the edge, in parts of the smaller half size (kBelow: pixels)
  float contrast = 0;  // of the texture in the brightness
  float cut = 0;
  int texture = 0;
  float texture_x = 0, texture_y = 0;
  float grain_x = 1, grain_y = 1;  // how fine the texture is; 1: as fine as the picture
  std::vector<float> outline;      // heights above y, one per pixel, a power of two of them
};

// World coordinates of a pixel: (x, y) from the picture's middle -> origin + x * right + y * down.
struct Frame {
  float x = 0, y = 0;
  float right_x = 1, right_y = 0;  // `down` is `right` turned by 90 degrees
  float scale = 1;                 // world units per pixel: the length of `right`
};

struct Light {
  float x = 0, y = 0, z = 1;  // towards the light, z towards the viewer
  float ambient = 0.4f;
};

struct Canvas {
  struct Pixel {
    Rgb colour;
    float open = 1;  // how much of what lies behind can still be seen
  };
  int height = 0;
  int width = 0;
  std::vector<Pixel> pixels;
};

// Adds a layer behind all that were painted before.
void PaintBehind(const Layer& layer, const Frame& frame, const Light& light, float time, const Texture& texture,
                 Canvas* canvas);

}  // namespace lockstep::data
