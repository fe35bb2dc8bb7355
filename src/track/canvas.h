// A surface to draw on: lines, boxes, text in DejaVu Sans, pictures; at the end plain RGB bytes, which the caller
// encodes. Coordinates are pixels from the top left. A canvas belongs to one thread; several may be drawn on at once.
//
//   Result<const Cairo*> cairo = LoadCairo();   // an error says what to install
//   Canvas canvas(**cairo, 640, 480);
//   canvas.Text(320, 24, "loss", {.size = 18, .align = Align::kCentre});
//   Result<Picture> picture = canvas.Finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

struct _cairo;
struct _cairo_surface;

namespace lockstep::track {

struct Cairo;

// libcairo.so.2, or the file named by `library` or else by the environment variable LOCKSTEP_CAIRO. Loaded once and
// kept until the process ends. Any thread.
Result<const Cairo*> LoadCairo(const std::string& library = "");

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // width * height * 3, rows from the top
};

struct Point {
  double x = 0, y = 0;
  bool operator==(const Point&) const = default;
};
// A value that is not finite is a gap in the line.
using Points = std::vector<Point>;

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

struct Colour {
  double red = 0, green = 0, blue = 0, alpha = 1;
  static constexpr Colour Hex(uint32_t rgb, double alpha = 1) {
    return {(rgb >> 16 & 255) / 255.0, (rgb >> 8 & 255) / 255.0, (rgb & 255) / 255.0, alpha};
  }
};

inline constexpr Colour kPaper = Colour::Hex(0xffffff), kInk = Colour::Hex(0x1f2328), kFaint = Colour::Hex(0x656d76),
                        kGrid = Colour::Hex(0xe6e8eb), kEdge = Colour::Hex(0xc4c9cf);
// After Okabe and Ito: told apart also by people who see red and green alike.
inline constexpr Colour kBlue = Colour::Hex(0x0072b2), kOrange = Colour::Hex(0xd55e00), kGreen = Colour::Hex(0x009e73),
                        kPurple = Colour::Hex(0x8f4d7a);

enum class Align { kLeft, kCentre, kRight };

// What all pictures have: pixels around them, and sizes of their letters.
inline constexpr double kMargin = 24, kTitle = 20, kText = 13, kSmall = 12;

struct TextStyle {
  double size = 13;
  Colour colour = kInk;
  Align align = Align::kLeft;
  bool upward = false;  // turned by 90 degrees, read from below
};

struct LineStyle {
  Colour colour = kInk;
  double width = 1;
  double dash = 0;  // length of dashes and of the gaps between them; 0: a whole line
};

class Canvas {
 public:
  // At most 32,000 pixels a side. `cairo` outlives the canvas.
  Canvas(const Cairo& cairo, int width, int height, Colour paper = kPaper);
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;
  ~Canvas();

  void Fill(const Box& box, Colour colour);
  void Frame(const Box& box, const LineStyle& style);
  // Points that are not finite interrupt the line; one alone between two gaps is a dot.
  void Line(std::span<const Point> points, const LineStyle& style);
  void Disc(Point centre, double radius, Colour fill, Colour edge);
  // `at` is where the baseline begins, has its middle or ends. Bytes that are no text are made visible.
  void Text(Point at, const std::string& text, const TextStyle& style = {});
  double TextWidth(const std::string& text, double size) const;
  // The text, with an ellipsis where it is longer than `width`; keep_end: cut at the front, as for paths.
  std::string Fit(const std::string& text, double size, double width, bool keep_end = false) const;
  // Stretched over the box: by whole factors with sharp pixels, else smoothly.
  void Image(const Box& box, const Picture& picture);

  // Drawing is limited to the box until the returned object dies.
  class [[nodiscard]] Clip {
   public:
    ~Clip();
    Clip(const Clip&) = delete;
    Clip& operator=(const Clip&) = delete;

   private:
    friend class Canvas;
    explicit Clip(Canvas* canvas) : canvas_(canvas) {}
    Canvas* canvas_;
  };
  Clip Inside(const Box& box);

  // Once, at the end. An error where Cairo had one: memory, a size it does not take.
  Result<Picture> Finish();

 private:
  void Use(Colour colour);
  void Use(const LineStyle& style);

  const Cairo& cairo_;
  int width_, height_;
  _cairo_surface* surface_;
  _cairo* context_;
};

}  // namespace lockstep::track
