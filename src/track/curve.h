// Curves over steps as a picture: one or more panels under each other that share the x axis, with title, legend,
// numbered axes and vertical marks. Knows series and labels, not what they mean (run_curve.h does). Pure function, any
// thread.
//
//   Curve curve{.title = "night-1", .panels = {{.label = "loss", .series = {{.name = "training", .points = points}}}}};
//   Result<Picture> picture = DrawCurve(*cairo, curve);
#pragma once

#include <string>
#include <vector>

#include "track/canvas.h"

namespace lockstep::track {

enum class Look {
  kNoisy,    // the values pale, a smoothed line over them
  kMarkers,  // few values: a line with a disc at each
  kLine,
};

struct CurveSeries {
  std::string name;
  Points points;  // in ascending x
  Look look = Look::kNoisy;
  Colour colour = kBlue;
  std::string note;  // after name and last value in the legend
};

struct CurvePanel {
  std::string label;  // of the value axis
  std::vector<CurveSeries> series;
  int height = 300;
  bool log_allowed = true;
};

// Something that happened at a step: a vertical line through all panels.
struct CurveMark {
  double x = 0;
  std::string text;
};

struct Curve {
  std::string title, subtitle;
  std::vector<CurvePanel> panels;
  std::vector<CurveMark> marks;
  std::string x_label = "step";
  int width = 1120;  // at least 320
};

Result<Picture> DrawCurve(const Cairo& cairo, const Curve& curve);

}  // namespace lockstep::track
