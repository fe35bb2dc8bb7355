#include "track/run_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "track/score_text.h"

namespace lockstep::track {
namespace {

constexpr int kLossHeight = 330, kScoreHeight = 170, kRateHeight = 84;

void Put(Points* points, Point point) {
  // Nearly always at the end.
  auto at = std::lower_bound(points->begin(), points->end(), point, [](Point a, Point b) { return a.x < b.x; });
  if (at != points->end() && at->x == point.x) {
    at->y = point.y;
  } else {
    points->insert(at, point);
  }
}

}  // namespace

RunCurve::RunCurve(RunCurveOptions options) : options_(std::move(options)), lines_(options_.metrics_path) {
  for (const std::string& name :
       {std::string("loss"), std::string("val/loss"), "val/" + options_.score, std::string("lr")}) {
    series_[name];
  }
}

void RunCurve::Take(const record::MetricLine& line) {
  if (!line.step) return;
  const auto step = static_cast<double>(*line.step);
  if (attempt_ && line.attempt > *attempt_) {
    for (auto& [name, points] : series_) {
      std::erase_if(points, [step](const Point& point) { return point.x >= step; });
    }
    std::erase_if(marks_, [step](const CurveMark& mark) { return mark.x >= step; });
    last_step_ = 0;
    for (const auto& [name, points] : series_) {
      if (!points.empty()) last_step_ = std::max(last_step_, static_cast<uint64_t>(points.back().x));
    }
    marks_.push_back({step, fmt::format("attempt {}", line.attempt)});
  }
  attempt_ = std::max(attempt_.value_or(line.attempt), line.attempt);
  last_step_ = std::max(last_step_, *line.step);
  for (auto& [name, points] : series_) {
    if (const std::optional<double> value = line.Find(name)) Put(&points, {step, *value});
  }
}

const Points& RunCurve::Of(const std::string& name) const { return series_.at(name); }

CurvePanel RunCurve::ScorePanel() const {
  const Points& points = Of("val/" + options_.score);
  const std::string label = ScoreLabel(options_.score);
  CurveSeries series{.name = "validation", .points = points, .look = Look::kMarkers, .colour = kOrange};
  const Point* best = nullptr;
  for (const Point& point : points) {
    if (!std::isfinite(point.y)) continue;
    if (best == nullptr || (options_.more_is_better ? point.y > best->y : point.y < best->y)) best = &point;
  }
  if (best != nullptr) series.note = fmt::format("(best {:.4g} at step {:.0f})", best->y, best->x);
  return {.label = label, .series = {std::move(series)}, .height = kScoreHeight, .log_allowed = false};
}

Curve RunCurve::Read() {
  while (lines_.Read([this](const record::MetricLine& line) { Take(line); })) {
  }
  Curve curve;
  curve.title = options_.title;
  curve.subtitle = options_.recipe;
  const std::string of = options_.steps > 0 ? fmt::format(" of {}", options_.steps) : "";
  curve.subtitle += fmt::format("{}step {}{}", curve.subtitle.empty() ? "" : "  ·  ", last_step_, of);
  if (!marks_.empty()) curve.subtitle += fmt::format("  ·  {} attempts", attempt_.value_or(0) + 1);
  curve.marks = marks_;
  CurvePanel loss{.label = "loss", .height = kLossHeight};
  loss.series.push_back({.name = "training", .points = Of("loss")});
  if (!Of("val/loss").empty()) {
    loss.series.push_back({.name = "validation", .points = Of("val/loss"), .look = Look::kMarkers, .colour = kOrange});
  }
  curve.panels.push_back(std::move(loss));
  if (options_.score != "loss" && !Of("val/" + options_.score).empty()) curve.panels.push_back(ScorePanel());
  if (!Of("lr").empty()) {
    CurveSeries rate{.name = "learning rate", .points = Of("lr"), .look = Look::kLine, .colour = kPurple};
    curve.panels.push_back({.label = "lr", .series = {std::move(rate)}, .height = kRateHeight, .log_allowed = false});
  }
  return curve;
}

}  // namespace lockstep::track
