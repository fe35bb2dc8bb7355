#include "track/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "track/axis.h"
#include "track/points.h"

namespace lockstep::track {
namespace {

constexpr double kCurveHeader = 74, kLegend = 26, kGap = 16, kFooter = 56;
constexpr size_t kSmoothedFrom = 60;   // points
constexpr double kMarkLabelRoom = 70;  // pixels between two labels of marks
constexpr double kPixelsPerTickX = 90, kPixelsPerTickY = 36;

constexpr Colour kMark = Colour::Hex(0x8c959f);

// A series as it is drawn.
struct Drawn {
  const CurveSeries* series;
  ValueRange typical;
  Points line;  // smoothed, or the points themselves
  bool pale = false;
};

Drawn Prepare(const CurveSeries& series) {
  Drawn drawn{&series, TypicalRange(series.points), series.points, false};
  if (series.look == Look::kNoisy && series.points.size() >= kSmoothedFrom) {
    const size_t count = series.points.size();
    drawn.line = Smooth(series.points, drawn.typical, std::max(count / 100, std::min<size_t>(count / 30, 5)));
    drawn.pale = true;
  }
  return drawn;
}

std::string Number(double value) { return fmt::format("{:.4g}", value); }

// Maps values to pixels of one panel.
struct Frame {
  Box box;
  Axis x, y;
  Point At(Point point) const {
    // Far outside is as good as further: Cairo's coordinates are limited.
    const auto near = [](double part) { return std::clamp(part, -4.0, 5.0); };
    return {box.x + box.width * near(x.Part(point.x)), box.bottom() - box.height * near(y.Part(point.y))};
  }
  Points At(Points points) const {
    for (Point& point : points) {
      if (std::isfinite(point.x) && std::isfinite(point.y)) point = At(point);
    }
    return points;
  }
};

class Plot {
 public:
  Plot(const Cairo& cairo, const Curve& curve)
      : curve_(curve), width_(std::clamp(curve.width, 320, 8192)), canvas_(cairo, width_, Height(curve)) {
    for (const CurvePanel& panel : curve.panels) {
      panels_.emplace_back();
      for (const CurveSeries& series : panel.series) panels_.back().push_back(Prepare(series));
    }
  }

  Result<Picture> Draw() {
    ValueRange xs;
    for (const CurvePanel& panel : curve_.panels) {
      for (const CurveSeries& series : panel.series) {
        for (const Point& point : series.points) xs.Add(point.x);
      }
    }
    const Axis x = MakeAxis(xs, 0.01, false);
    std::vector<Axis> ys;
    double numbers = 30;  // widest number beside a panel
    for (size_t i = 0; i < panels_.size(); ++i) {
      ys.push_back(ValueAxis(i));
      for (const Tick& tick : Ticks(ys[i], WantedTicks(i))) {
        numbers = std::max(numbers, canvas_.TextWidth(tick.text, kSmall));
      }
    }
    const double left = kMargin + kText + 10 + numbers + 8, right = width_ - kMargin;
    Title(right);
    double y = kCurveHeader;
    for (size_t i = 0; i < panels_.size(); ++i) {
      Legend(i, left, right, y + kLegend - 10);
      y += kLegend;
      const Frame frame{{left, y, right - left, static_cast<double>(curve_.panels[i].height)}, x, ys[i]};
      Panel(i, frame);
      y += frame.box.height + kGap;
    }
    canvas_.Text({(left + right) / 2, y - kGap + kFooter - 16}, curve_.x_label,
                 {.size = kText, .colour = kFaint, .align = Align::kCentre});
    return canvas_.Finish();
  }

 private:
  static int Height(const Curve& curve) {
    double height = kCurveHeader + kFooter - kGap;
    for (const CurvePanel& panel : curve.panels) height += kLegend + panel.height + kGap;
    return static_cast<int>(height);
  }

  int WantedTicks(size_t panel) const {
    return std::max(2, static_cast<int>(curve_.panels[panel].height / kPixelsPerTickY));
  }

  Axis ValueAxis(size_t panel) const {
    ValueRange range;
    for (const Drawn& drawn : panels_[panel]) range.Add(drawn.typical);
    return MakeAxis(range, 0.04, curve_.panels[panel].log_allowed);
  }

  void Title(double right) {
    canvas_.Text({kMargin, 36}, canvas_.Fit(curve_.title, kTitle, right - kMargin), {.size = kTitle});
    canvas_.Text({kMargin, 60}, canvas_.Fit(curve_.subtitle, kText, right - kMargin),
                 {.size = kText, .colour = kFaint});
  }

  // Names with their last value, from the left.
  void Legend(size_t panel, double left, double right, double baseline) {
    double x = left;
    for (const Drawn& drawn : panels_[panel]) {
      const CurveSeries& series = *drawn.series;
      std::string text = series.name;
      for (size_t i = drawn.line.size(); i-- > 0;) {
        if (!std::isfinite(drawn.line[i].y)) continue;
        text += "  " + Number(drawn.line[i].y);
        break;
      }
      if (!series.note.empty()) text += "  " + series.note;
      const double room = right - x - 30;
      if (room < 40) return;
      const double middle = baseline - 4.5;
      const Point sample[] = {{x, middle}, {x + 22, middle}};
      if (drawn.pale) {
        const Points zigzag = {
            {x, middle + 3}, {x + 5, middle - 4}, {x + 10, middle + 4}, {x + 16, middle - 4}, {x + 22, middle + 3}};
        canvas_.Line(zigzag, {.colour = Pale(series.colour), .width = 1});
      }
      canvas_.Line(sample, {.colour = series.colour, .width = 2});
      if (series.look == Look::kMarkers) canvas_.Disc({x + 11, middle}, 3.5, kPaper, series.colour);
      text = canvas_.Fit(text, kSmall, room);
      canvas_.Text({x + 30, baseline}, text, {.size = kSmall});
      x += 30 + canvas_.TextWidth(text, kSmall) + 28;
    }
  }

  static Colour Pale(Colour colour) {
    colour.alpha = 0.35;
    return colour;
  }

  void Panel(size_t index, const Frame& frame) {
    const Box& box = frame.box;
    Grid(index, frame);
    Marks(index, frame);
    bool any = false;
    {
      const Canvas::Clip clip = canvas_.Inside({box.x, box.y - 1, box.width + 5, box.height + 2});
      const auto columns = static_cast<size_t>(box.width);
      for (const Drawn& drawn : panels_[index]) {
        if (drawn.pale) {
          canvas_.Line(frame.At(Thin(drawn.series->points, columns)),
                       {.colour = Pale(drawn.series->colour), .width = 1});
        }
      }
      for (const Drawn& drawn : panels_[index]) {
        any = any || !drawn.typical.empty();
        canvas_.Line(frame.At(Thin(drawn.line, columns)), {.colour = drawn.series->colour, .width = 2});
        if (drawn.series->look != Look::kMarkers && drawn.line.size() > 1) continue;
        // Discs side by side would hide the line.
        if (static_cast<double>(drawn.line.size()) > box.width / 10) continue;
        for (const Point& point : drawn.line) {
          if (std::isfinite(point.y)) canvas_.Disc(frame.At(point), 3.5, kPaper, drawn.series->colour);
        }
      }
    }
    if (!any) {
      canvas_.Text({box.x + box.width / 2, box.y + box.height / 2}, "no values yet",
                   {.size = kText, .colour = kFaint, .align = Align::kCentre});
    }
  }

  void Grid(size_t index, const Frame& frame) {
    const Box& box = frame.box;
    const bool last = index + 1 == panels_.size();
    for (const Tick& tick : Ticks(frame.x, std::max(2, static_cast<int>(box.width / kPixelsPerTickX)))) {
      const double x = Sharp(frame.At(Point{tick.value, 0}).x);
      const Point line[] = {{x, box.y}, {x, box.bottom()}};
      canvas_.Line(line, {.colour = kGrid});
      if (last) {
        canvas_.Text({x, box.bottom() + 18}, tick.text, {.size = kSmall, .colour = kFaint, .align = Align::kCentre});
      }
    }
    for (const Tick& tick : Ticks(frame.y, WantedTicks(index))) {
      const double y = Sharp(frame.At(Point{0, tick.value}).y);
      const Point line[] = {{box.x, y}, {tick.text.empty() ? box.x + 5 : box.right(), y}};
      canvas_.Line(line, {.colour = tick.text.empty() ? kEdge : kGrid});
      canvas_.Text({box.x - 8, y + 4}, tick.text, {.size = kSmall, .colour = kFaint, .align = Align::kRight});
    }
    canvas_.Frame({Sharp(box.x), Sharp(box.y), std::floor(box.width), box.height}, {.colour = kEdge});
    const std::string label = curve_.panels[index].label + (frame.y.log ? ", log scale" : "");
    canvas_.Text({kMargin + kText - 3, box.y + box.height / 2}, canvas_.Fit(label, kText, box.height),
                 {.size = kText, .colour = kInk, .align = Align::kCentre, .upward = true});
  }

  void Marks(size_t index, const Frame& frame) {
    double free = -INFINITY;  // where the next label may begin
    for (const CurveMark& mark : curve_.marks) {
      const double x = Sharp(frame.At(Point{mark.x, 0}).x);
      const Point line[] = {{x, frame.box.y}, {x, frame.box.bottom()}};
      canvas_.Line(line, {.colour = kMark, .width = 1, .dash = 4});
      if (index > 0 || x < free || x + kMarkLabelRoom > frame.box.right()) continue;
      canvas_.Text({x + 5, frame.box.y + 15}, mark.text, {.size = kSmall - 1, .colour = kFaint});
      free = x + kMarkLabelRoom;
    }
  }

  // One pixel, not two halves.
  static double Sharp(double at) { return std::floor(at) + 0.5; }

  const Curve& curve_;
  int width_;
  Canvas canvas_;
  std::vector<std::vector<Drawn>> panels_;
};

}  // namespace

Result<Picture> DrawCurve(const Cairo& cairo, const Curve& curve) { return Plot(cairo, curve).Draw(); }

}  // namespace lockstep::track
