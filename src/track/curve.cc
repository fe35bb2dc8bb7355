#include "track/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "track/font.h"

namespace lockstep::track {
namespace {

using Colour = std::array<uint8_t, 3>;

constexpr Colour kPaper = {255, 255, 255}, kGrid = {228, 228, 228}, kInk = {64, 64, 64};
// Told apart by people who see red and green alike.
constexpr Colour kLines[] = {{0, 90, 181}, {220, 110, 0}, {120, 60, 160}, {0, 130, 100}};

// Everything is drawn at twice the size and averaged at the end, which smooths the edges.
constexpr int kFine = 2;

Colour Pale(Colour colour) {
  for (uint8_t& part : colour) part = static_cast<uint8_t>(255 - (255 - part) * 3 / 10);
  return colour;
}

class Canvas {
 public:
  Canvas(int width, int height) : width_(width * kFine), height_(height * kFine) {
    fine_.resize(static_cast<size_t>(width_) * static_cast<size_t>(height_), kPaper);
  }

  // In fine points; what is outside is left out.
  void Dot(int x, int y, Colour colour) {
    if (x < clip_[0] || y < clip_[1] || x >= std::min(clip_[2], width_) || y >= std::min(clip_[3], height_)) return;
    fine_[static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)] = colour;
  }
  void Clip(int left, int top, int right, int bottom) { clip_ = {std::max(left, 0), std::max(top, 0), right, bottom}; }
  void NoClip() { Clip(0, 0, width_, height_); }

  void Fill(int left, int top, int right, int bottom, Colour colour) {
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) Dot(x, y, colour);
    }
  }

  void Line(double x0, double y0, double x1, double y1, int thick, Colour colour) {
    const double length = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1.0});
    const int points = static_cast<int>(std::min(length, 1e5));
    for (int i = 0; i <= points; ++i) {
      const double part = static_cast<double>(i) / points;
      const int x = static_cast<int>(std::lround(x0 + (x1 - x0) * part));
      const int y = static_cast<int>(std::lround(y0 + (y1 - y0) * part));
      Fill(x - thick / 2, y - thick / 2, x - thick / 2 + thick, y - thick / 2 + thick, colour);
    }
  }

  void Text(int x, int y, std::string_view text, int scale, Colour colour) {
    for (char c : text) {
      const auto rows = Glyph(c);
      for (int row = 0; row < kGlyphHeight; ++row) {
        for (int column = 0; column < kGlyphWidth; ++column) {
          if ((rows[static_cast<size_t>(row)] >> (kGlyphWidth - 1 - column) & 1) == 0) continue;
          const int left = x + column * scale, top = y + row * scale;
          Fill(left, top, left + scale, top + scale, colour);
        }
      }
      x += (kGlyphWidth + 1) * scale;
    }
  }
  static int TextWidth(std::string_view text, int scale) {
    return static_cast<int>(text.size()) * (kGlyphWidth + 1) * scale - scale;
  }

  Picture Finish() const {
    Picture picture{width_ / kFine, height_ / kFine, {}};
    picture.rgb.reserve(static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height) * 3);
    for (int y = 0; y < picture.height; ++y) {
      for (int x = 0; x < picture.width; ++x) {
        for (size_t part = 0; part < 3; ++part) {
          int sum = 0;
          for (int dy = 0; dy < kFine; ++dy) {
            for (int dx = 0; dx < kFine; ++dx) {
              sum += fine_[static_cast<size_t>(y * kFine + dy) * static_cast<size_t>(width_) +
                           static_cast<size_t>(x * kFine + dx)][part];
            }
          }
          picture.rgb.push_back(static_cast<uint8_t>(sum / (kFine * kFine)));
        }
      }
    }
    return picture;
  }

  int width() const { return width_; }
  int height() const { return height_; }

 private:
  int width_, height_;
  std::vector<Colour> fine_;
  std::array<int, 4> clip_ = {0, 0, 1 << 30, 1 << 30};
};

struct Range {
  double low = INFINITY, high = -INFINITY;
  void Add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Never empty, so that a flat line or nothing at all can be drawn.
  void Widen(double margin) {
    if (!(low <= high)) low = 0, high = 1;
    double span = high - low;
    // Neighbouring numbers of a large magnitude leave no room for ticks.
    if (span <= std::abs(high) * 1e-12) span = std::max(std::abs(high) * 0.1, 1e-12), low -= span / 2, high += span / 2;
    low -= span * margin;
    high += span * margin;
  }
};

// The range of the values without the few wildest, which would flatten everything else.
Range Typical(const CurvePoints& points) {
  std::vector<double> values;
  for (const auto& [x, y] : points) {
    if (std::isfinite(y)) values.push_back(y);
  }
  Range range;
  if (values.empty()) return range;
  std::sort(values.begin(), values.end());
  const size_t cut = values.size() / 50;
  const double low = values[cut], high = values[values.size() - 1 - cut];
  // Room beyond that for the first steps of a loss, which are few and belong to the picture.
  range.Add(std::max(values.front(), low - (high - low) / 2));
  range.Add(std::min(values.back(), high + (high - low) / 2));
  return range;
}

// Wild values pull the line only as far as the edge of the picture.
CurvePoints Smooth(const CurvePoints& points, const Range& typical, double weight) {
  weight = std::clamp(std::min(weight, 1 - 50.0 / static_cast<double>(std::max<size_t>(points.size(), 1))), 0.0, 0.999);
  CurvePoints out;
  out.reserve(points.size());
  double sum = 0, total = 0;
  for (const auto& [x, y] : points) {
    if (std::isfinite(y)) {
      sum = weight * sum + (1 - weight) * std::clamp(y, typical.low, typical.high);
      total = weight * total + (1 - weight);
    }
    out.emplace_back(x, std::isfinite(y) ? sum / total : y);
  }
  return out;
}

// 1, 2 or 5 times a power of ten, about `wanted` of them.
std::vector<double> Ticks(const Range& range, int wanted) {
  const double raw = (range.high - range.low) / std::max(wanted, 1);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power * 10;
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * 0.999) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (double at = std::ceil(range.low / step); at * step <= range.high + step * 1e-9 && ticks.size() < 100; ++at) {
    ticks.push_back(at * step);
  }
  return ticks;
}

std::string TickText(double value, double step) {
  if (std::abs(value) < step * 1e-6) return "0";
  if (std::abs(value) >= 1e6 || std::abs(value) < 1e-4) return fmt::format("{:.3g}", value);
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6);
  return fmt::format("{:.{}f}", value, digits);
}

}  // namespace

Picture DrawCurve(const Curve& curve) {
  const int width = std::clamp(curve.width, 160, 8192), height = std::clamp(curve.height, 120, 8192);
  Canvas canvas(width, height);
  const int scale = kFine * (width >= 480 ? 2 : 1);
  const int em = (kGlyphWidth + 1) * scale, line = (kGlyphHeight + 3) * scale;

  std::vector<CurvePoints> smooth;
  Range xs, ys;
  for (const CurveSeries& series : curve.series) {
    const Range typical = Typical(series.points);
    smooth.push_back(Smooth(series.points, typical, curve.smoothing));
    for (const auto& [x, y] : series.points) xs.Add(x);
    ys.Add(typical.low);
    ys.Add(typical.high);
  }
  const bool nothing = !(ys.low <= ys.high);
  xs.Widen(0);
  ys.Widen(0.05);

  const int left = 8 * em, right = canvas.width() - 2 * em, top = line * 2, bottom = canvas.height() - line * 3;
  auto x_at = [&](double x) { return left + (x - xs.low) / (xs.high - xs.low) * (right - left); };
  auto y_at = [&](double y) { return bottom - (y - ys.low) / (ys.high - ys.low) * (bottom - top); };

  const std::vector<double> x_ticks = Ticks(xs, std::max(2, (right - left) / (10 * em)));
  const std::vector<double> y_ticks = Ticks(ys, std::max(2, (bottom - top) / (3 * line)));
  const double x_step = x_ticks.size() > 1 ? x_ticks[1] - x_ticks[0] : 1;
  const double y_step = y_ticks.size() > 1 ? y_ticks[1] - y_ticks[0] : 1;
  for (double x : x_ticks) {
    const int at = static_cast<int>(x_at(x));
    canvas.Fill(at, top, at + kFine / 2, bottom, kGrid);
    const std::string text = TickText(x, x_step);
    const int from = std::clamp(at - Canvas::TextWidth(text, scale) / 2, 0,
                                std::max(0, canvas.width() - Canvas::TextWidth(text, scale)));
    canvas.Text(from, bottom + line / 2, text, scale, kInk);
  }
  for (double y : y_ticks) {
    const int at = static_cast<int>(y_at(y));
    canvas.Fill(left, at, right, at + kFine / 2, kGrid);
    const std::string text = TickText(y, y_step);
    canvas.Text(std::max(0, left - em / 2 - Canvas::TextWidth(text, scale)), at - kGlyphHeight * scale / 2, text, scale,
                kInk);
  }
  canvas.Fill(left - kFine, top, left, bottom + kFine, kInk);
  canvas.Fill(left - kFine, bottom, right, bottom + kFine, kInk);
  canvas.Text((left + right - Canvas::TextWidth("step", scale)) / 2, bottom + line * 7 / 4, "step", scale, kInk);
  canvas.Text(left, line / 2, curve.title, scale, kInk);

  canvas.Clip(left, top, right, bottom);
  auto draw = [&](const CurvePoints& points, int thick, Colour colour) {
    for (size_t i = 0; i < points.size(); ++i) {
      const auto& [x, y] = points[i];
      if (!std::isfinite(y) || !std::isfinite(x)) continue;
      // A point between two gaps is a dot.
      const bool joined = i > 0 && std::isfinite(points[i - 1].second) && std::isfinite(points[i - 1].first);
      const auto& [x0, y0] = joined ? points[i - 1] : points[i];
      const double limit = 4.0 * canvas.height();
      canvas.Line(x_at(x0), std::clamp(y_at(y0), -limit, limit), x_at(x), std::clamp(y_at(y), -limit, limit), thick,
                  colour);
    }
  };
  for (size_t i = 0; i < curve.series.size(); ++i) {
    draw(curve.series[i].points, kFine, Pale(kLines[i % std::size(kLines)]));
  }
  for (size_t i = 0; i < curve.series.size(); ++i) draw(smooth[i], 2 * kFine, kLines[i % std::size(kLines)]);
  canvas.NoClip();

  if (nothing) canvas.Text(left + em, (top + bottom) / 2, "no values", scale, kInk);
  // Names with the last value, from the right.
  int at = right;
  for (size_t i = curve.series.size(); i-- > 0;) {
    std::string text = curve.series[i].name;
    for (size_t j = smooth[i].size(); j-- > 0;) {
      if (!std::isfinite(smooth[i][j].second)) continue;
      text += fmt::format("{}{:.4g}", text.empty() ? "" : " ", smooth[i][j].second);
      break;
    }
    at -= Canvas::TextWidth(text, scale);
    canvas.Text(at, line / 2, text, scale, kLines[i % std::size(kLines)]);
    at -= 2 * em;
  }
  return canvas.Finish();
}

Picture DrawCurve(const CurvePoints& points, const std::string& title, const CurvePoints* second) {
  Curve curve;
  curve.title = title;
  curve.series.push_back({second != nullptr ? "train" : "", points});
  if (second != nullptr) curve.series.push_back({"validation", *second});
  return DrawCurve(curve);
}

}  // namespace lockstep::track
