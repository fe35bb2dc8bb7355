// From frames of any size to a clip of the wanted size: crop with the aspect ratio of the target, resize with a filter
// as wide as the reduction (no aliasing), flip, colours. Drawn once per clip and applied alike to all
// its frames. A frame smaller than the target is continued by reflection at its edges. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/float_resample.h"
#include "data/resample.h"
#include "data/source.h"

namespace lockstep::data {

struct Colour {
  double brightness = 1;
  double contrast = 1;
  double saturation = 1;
  double hue = 0;  // in turns
  bool none() const { return brightness == 1 && contrast == 1 && saturation == 1 && hue == 0; }
};

// Factors in [.9, 1.1] and hue in [-.05, .05] with probability .7, else none. Neither, where the configuration has
// switched them off.
Colour DrawColour(const Draw& draw, bool wanted = true);
bool DrawFlip(const Draw& draw, bool wanted = true);

// Brightness, contrast (about the frame's mean grey), saturation, hue, in that order, on planes [3, pixels].
void ApplyColour(const Colour& colour, uint8_t* planes, size_t pixels);
void FlipHorizontally(uint8_t* planes, int width, int height);

struct Crop {
  int x = 0;  // negative: the frame is continued by reflection
  int y = 0;
  int width = 0;
  int height = 0;
};

// The largest box with the target's aspect ratio, times U(.8, 1) anywhere in the frame when augmenting, centred
// otherwise; never smaller than the target.
Crop DrawCrop(const Draw& draw, int frame_width, int frame_height, int width, int height);

// How a crop becomes as large as the target: with float weights and one rounding, as torch's bilinear and bicubic with
// antialias, or with Pillow's bits.
enum class Resize { kBilinear, kBicubic, kPillowBilinear, kPillowBicubic };

// By its name in a configuration: bilinear, bicubic, pillow_bilinear, pillow_bicubic. The name must be one of them.
extern const std::vector<std::string> kResizeNames;
Resize ResizeByName(const std::string& name);

class ClipTransform {
 public:
  // For frames of this size.
  ClipTransform(const Draw& draw, int frame_width, int frame_height, int width, int height,
                Resize resize = Resize::kBilinear);
  // With a crop and colours of the caller's choice.
  ClipTransform(const Crop& crop, bool flip, const Colour& colour, int frame_width, int frame_height, int width,
                int height, Resize resize = Resize::kBilinear);

  // rgb [frame_height, frame_width, 3], each row `stride` bytes after the one before -> planes [3, height, width].
  void Apply(const uint8_t* rgb, size_t stride, uint8_t* planes);

 private:
  void ResizeAsTorch(const uint8_t* rgb, size_t stride, uint8_t* planes);
  void ResizeAsPillow(const uint8_t* rgb, size_t stride, uint8_t* planes);

  bool flip_;
  Colour colour_;
  int width_;
  int height_;
  Crop crop_;
  int frame_width_;
  int frame_height_;
  std::optional<Resample> resample_;
  std::optional<FloatResample> float_resample_;
  std::vector<uint8_t> continued_;  // a crop, or two rows of it, that reaches beyond its frame
  std::vector<float> line_, sums_;  // two rows of the crop: [crop's width, 2, 4]; a row of the result: [width, 4]
  std::vector<float> rows_;         // the crop's rows, already as narrow as the target: [rows, width, 4]
};

}  // namespace lockstep::data
