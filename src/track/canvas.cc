#include "track/canvas.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "base/text.h"
#include "track/cairo.h"

namespace lockstep::track {
namespace {

constexpr size_t kLongestText = 1000;  // bytes

bool IsWhole(double value) { return std::abs(value - std::round(value)) < 1e-6; }

// Cairo refuses to draw anything more after a text that is not UTF-8.
std::string Drawable(const std::string& text) { return Printable(text, kLongestText); }

}  // namespace

Canvas::Canvas(const Cairo& cairo, int width, int height, Colour paper)
    : cairo_(cairo), width_(width), height_(height) {
  surface_ = cairo_.image_surface_create(CAIRO_FORMAT_RGB24, width, height);
  context_ = cairo_.create(surface_);
  cairo_.set_font_face(context_, cairo_.font);
  cairo_font_options_t* options = cairo_.font_options_create();
  cairo_.font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_.font_options_set_hint_style(options, CAIRO_HINT_STYLE_SLIGHT);
  cairo_.font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  cairo_.set_font_options(context_, options);
  cairo_.font_options_destroy(options);
  cairo_.set_line_join(context_, CAIRO_LINE_JOIN_ROUND);
  Use(paper);
  cairo_.paint(context_);
}

Canvas::~Canvas() {
  cairo_.destroy(context_);
  cairo_.surface_destroy(surface_);
}

void Canvas::Use(Colour colour) {
  cairo_.set_source_rgba(context_, colour.red, colour.green, colour.blue, colour.alpha);
}

void Canvas::Use(const LineStyle& style) {
  Use(style.colour);
  cairo_.set_line_width(context_, style.width);
  cairo_.set_dash(context_, &style.dash, style.dash > 0 ? 1 : 0, 0);
  cairo_.set_line_cap(context_, style.dash > 0 ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
}

void Canvas::Fill(const Box& box, Colour colour) {
  Use(colour);
  cairo_.rectangle(context_, box.x, box.y, box.width, box.height);
  cairo_.fill(context_);
}

void Canvas::Frame(const Box& box, const LineStyle& style) {
  Use(style);
  cairo_.rectangle(context_, box.x, box.y, box.width, box.height);
  cairo_.stroke(context_);
}

void Canvas::Line(std::span<const Point> points, const LineStyle& style) {
  Use(style);
  const auto whole = [&](size_t i) {
    return i < points.size() && std::isfinite(points[i].x) && std::isfinite(points[i].y);
  };
  for (size_t i = 0; i < points.size(); ++i) {
    if (!whole(i)) continue;
    const auto [x, y] = points[i];
    if (i == 0 || !whole(i - 1)) {
      cairo_.move_to(context_, x, y);
      if (!whole(i + 1)) cairo_.line_to(context_, x, y);  // a round cap makes it a dot
    } else {
      cairo_.line_to(context_, x, y);
    }
  }
  cairo_.stroke(context_);
}

void Canvas::Disc(Point centre, double radius, Colour fill, Colour edge) {
  cairo_.arc(context_, centre.x, centre.y, radius, 0, 2 * std::numbers::pi);
  cairo_.close_path(context_);
  Use(fill);
  cairo_.fill_preserve(context_);
  Use(LineStyle{.colour = edge, .width = 1.5});
  cairo_.stroke(context_);
}

void Canvas::Text(Point at, const std::string& text, const TextStyle& style) {
  const std::string shown = Drawable(text);
  const double width = TextWidth(shown, style.size);
  const double before = style.align == Align::kLeft ? 0 : style.align == Align::kCentre ? width / 2 : width;
  Use(style.colour);
  cairo_.set_font_size(context_, style.size);
  cairo_.save(context_);
  cairo_.translate(context_, at.x, at.y);
  if (style.upward) cairo_.rotate(context_, -std::numbers::pi / 2);
  cairo_.move_to(context_, style.upward ? -before : std::round(at.x - before) - at.x, 0);
  cairo_.show_text(context_, shown.c_str());
  cairo_.restore(context_);
}

double Canvas::TextWidth(const std::string& text, double size) const {
  cairo_.set_font_size(context_, size);
  cairo_text_extents_t extents{};
  cairo_.text_extents(context_, Drawable(text).c_str(), &extents);
  return extents.x_advance;
}

std::string Canvas::Fit(const std::string& text, double size, double width, bool keep_end) const {
  std::string whole = Drawable(text);
  if (TextWidth(whole, size) <= width) return whole;
  const auto cut = [&](size_t bytes) {
    const auto inside = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };  // of a character
    size_t kept = bytes;
    if (keep_end) {
      while (kept > 0 && inside(whole[whole.size() - kept])) --kept;
      return "…" + whole.substr(whole.size() - kept);
    }
    while (kept > 0 && inside(whole[kept])) --kept;
    return whole.substr(0, kept) + "…";
  };
  size_t fits = 0, too_many = whole.size();  // bytes kept
  while (fits + 1 < too_many) {
    const size_t middle = (fits + too_many) / 2;
    (TextWidth(cut(middle), size) <= width ? fits : too_many) = middle;
  }
  return cut(fits);
}

void Canvas::Image(const Box& box, const Picture& picture) {
  if (picture.width <= 0 || picture.height <= 0 || box.width <= 0 || box.height <= 0) return;
  cairo_surface_t* image = cairo_.image_surface_create(CAIRO_FORMAT_RGB24, picture.width, picture.height);
  if (cairo_.surface_status(image) == CAIRO_STATUS_SUCCESS) {
    cairo_.surface_flush(image);
    unsigned char* data = cairo_.image_surface_get_data(image);
    const auto stride = static_cast<size_t>(cairo_.image_surface_get_stride(image));
    const uint8_t* from = picture.rgb.data();
    for (int y = 0; y < picture.height; ++y) {
      for (int x = 0; x < picture.width; ++x, from += 3) {
        const uint32_t pixel = uint32_t{from[0]} << 16 | uint32_t{from[1]} << 8 | from[2];
        std::memcpy(data + static_cast<size_t>(y) * stride + static_cast<size_t>(x) * 4, &pixel, 4);
      }
    }
    cairo_.surface_mark_dirty(image);
  }
  const double across = box.width / picture.width, down = box.height / picture.height;
  const bool sharp = across >= 1 && IsWhole(across) && IsWhole(down);
  cairo_.save(context_);
  cairo_.rectangle(context_, box.x, box.y, box.width, box.height);
  cairo_.clip(context_);
  cairo_.translate(context_, box.x, box.y);
  cairo_.scale(context_, across, down);
  cairo_.set_source_surface(context_, image, 0, 0);
  cairo_.pattern_set_filter(cairo_.get_source(context_), sharp ? CAIRO_FILTER_NEAREST : CAIRO_FILTER_BEST);
  cairo_.pattern_set_extend(cairo_.get_source(context_), CAIRO_EXTEND_PAD);  // no pale edges
  cairo_.paint(context_);
  cairo_.restore(context_);
  cairo_.surface_destroy(image);
}

Canvas::Clip::~Clip() { canvas_->cairo_.restore(canvas_->context_); }

Canvas::Clip Canvas::Inside(const Box& box) {
  cairo_.save(context_);
  cairo_.rectangle(context_, box.x, box.y, box.width, box.height);
  cairo_.clip(context_);
  return Clip(this);
}

Result<Picture> Canvas::Finish() {
  cairo_.surface_flush(surface_);
  const cairo_status_t status = cairo_.status(context_);
  if (status != CAIRO_STATUS_SUCCESS) {
    return Status(Code::kEnvironment, fmt::format("a picture of {} x {} pixels was not drawn: {}", width_, height_,
                                                  cairo_.status_to_string(status)));
  }
  Picture picture{width_, height_, {}};
  picture.rgb.resize(static_cast<size_t>(width_) * static_cast<size_t>(height_) * 3);
  const unsigned char* data = cairo_.image_surface_get_data(surface_);
  const auto stride = static_cast<size_t>(cairo_.image_surface_get_stride(surface_));
  uint8_t* to = picture.rgb.data();
  for (int y = 0; y < height_; ++y) {
    for (int x = 0; x < width_; ++x) {
      uint32_t pixel = 0;
      std::memcpy(&pixel, data + static_cast<size_t>(y) * stride + static_cast<size_t>(x) * 4, 4);
      *to++ = static_cast<uint8_t>(pixel >> 16);
      *to++ = static_cast<uint8_t>(pixel >> 8);
      *to++ = static_cast<uint8_t>(pixel);
    }
  }
  return picture;
}

}  // namespace lockstep::track
