// A curve as a picture: axes, numbered ticks, the raw values pale and a smoothed line over them. Draws into plain RGB
// bytes with its own small font; the caller encodes (PNG lives elsewhere). Pure functions, any thread.
//
//   Picture picture = DrawCurve({.title = "loss", .series = {{"train", points}, {"validation", other}}});
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::track {

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // width * height * 3, rows from the top
};

using CurvePoints = std::vector<std::pair<double, double>>;  // (step, value); values that are not finite are gaps

struct CurveSeries {
  std::string name;
  CurvePoints points;
};

struct Curve {
  std::string title;
  std::vector<CurveSeries> series;  // one or two, more are allowed
  int width = 960;                  // at least 160 x 120
  int height = 540;
  double smoothing = 0.9;  // weight of the past, 0: none; short series are smoothed less
};

Picture DrawCurve(const Curve& curve);

// One series, optionally a second.
Picture DrawCurve(const CurvePoints& points, const std::string& title, const CurvePoints* second = nullptr);

}  // namespace lockstep::track
