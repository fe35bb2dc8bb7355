#include "watch/web/goodput.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <functional>

#include "base/json.h"
#include "record/line_follower.h"
#include "record/metric_scan.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;

constexpr double kPauseFactor = 10;  // of the usual time: what a step without a stated time may take

struct TimedLine {
  int attempt = 0;
  uint64_t step = 0;
  double t = 0;
  std::optional<double> step_seconds, checkpoint_seconds;
  bool trained = false;  // it tells of the step itself, not only of a validation
};

void EachTimedLine(const std::string& path, const std::function<void(const TimedLine&)>& each) {
  record::LineFollower follower(path);
  record::ScannedLine line;
  record::MetricLine parsed;
  const auto take = [&](std::string_view text) {
    if (!ReadMetricLine(text, &line, &parsed)) return false;
    if (!line.step || !(line.t > 0)) return true;
    TimedLine timed{line.attempt, *line.step, line.t, {}, {}};
    for (const auto& [name, value] : line.scalars) {
      if (name == "loss" || name == "rank/loss" || name == "rank/time/step" || name == "time/step") {
        timed.trained = true;
      }
      if (!std::isfinite(value) || value < 0) continue;
      // A value of the rank itself comes before the one reduced over ranks.
      if (name == "rank/time/step" || (name == "time/step" && !timed.step_seconds)) timed.step_seconds = value;
      if (name == "rank/time/checkpoint" || name == "time/checkpoint") timed.checkpoint_seconds = value;
    }
    each(timed);
    return true;
  };
  while (follower.Read(take, 16u << 20)) {
  }
}

// What the events say: spans in seconds since 1970.
struct Timeline {
  double begin = 0;
  std::map<int, AttemptTimes> attempts;
  std::vector<std::pair<double, double>> stalls, down;
};

Timeline ReadTimeline(const std::vector<json>& events) {
  Timeline line;
  double ended = 0;  // the last launch; its last event where nobody wrote the end
  std::optional<double> stalled;
  const auto over = [&](double t) {
    if (stalled) line.stalls.emplace_back(*stalled, t);
    stalled.reset();
  };
  for (const json& event : events) {
    const double t = GetNumber(event, "t");
    const std::string type = GetString(event, "type");
    if (!(t > 0)) continue;
    const int attempt = static_cast<int>(GetInt(event, "attempt"));
    if (type == "run_started") {
      if (line.begin == 0) line.begin = t;
      if (ended > 0) line.down.emplace_back(ended, t);
      over(ended);
    } else if (type == "attempt_started") {
      line.attempts[attempt].started = t;
    } else if (type == "attempt_ended") {
      line.attempts[attempt].ended = t;
      over(t);
    } else if (type == "stalled" && !stalled) {
      stalled = t;
    } else if (type == "stall_over" || type == "run_ended") {
      over(t);
    }
    ended = t;
  }
  return line;
}

double Overlap(const std::vector<std::pair<double, double>>& spans, double from, double to) {
  double sum = 0;
  for (const auto& [begin, end] : spans) sum += std::max(0.0, std::min(end, to) - std::max(begin, from));
  return sum;
}

}  // namespace

std::optional<double> Goodput::ratio() const {
  if (steps == 0 || !(wall > 0)) return std::nullopt;
  return training / wall;
}

std::vector<Goodput::Part> Goodput::Parts() const {
  return {{"training", training, "steps that are part of the result"},
          {"repeated", repeated, "steps done again after a restart or a rollback"},
          {"startup", startup, "from the start of an attempt to its first step"},
          {"checkpoints", checkpoints, "steps held up by saving"},
          {"stalls", stalls, "nothing moved"},
          {"restarts", restarts, "from the last step of an attempt to the start of the next one"},
          {"down", down, "between two launches of the same name"},
          {"other", other, "between steps: validation, pictures, the end of the run"}};
}

Goodput MeasureGoodput(const std::string& metrics_path, const std::vector<json>& events, double end) {
  Goodput result;
  Timeline timeline = ReadTimeline(events);
  result.attempts = std::move(timeline.attempts);
  double first_t = 0;
  std::map<int, double> last_t;
  std::vector<double> moved(timeline.stalls.size());  // the last line before each stall was noticed
  EachTimedLine(metrics_path, [&](const TimedLine& line) {
    AttemptTimes& attempt = result.attempts[line.attempt];
    if (!attempt.first_step) attempt.first_step = line.step;
    attempt.last_step = std::max(attempt.last_step.value_or(0), line.step);
    if (first_t == 0) first_t = line.t;
    last_t[line.attempt] = line.t;
    for (size_t i = 0; i < moved.size(); ++i) {
      if (line.t <= timeline.stalls[i].first) moved[i] = std::max(moved[i], line.t);
    }
  });
  if (first_t == 0) return result;
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i] > 0) timeline.stalls[i].first = moved[i];
  }
  // A launcher that was killed wrote no end: its run went on at least to its last metric line.
  for (auto& [from, to] : timeline.down) {
    for (const auto& [attempt, t] : last_t) from = t < to ? std::max(from, t) : from;
  }
  // A step counts unless a later attempt begins at it or before.
  std::map<int, uint64_t> cut;
  uint64_t least = UINT64_MAX;
  for (auto it = result.attempts.rbegin(); it != result.attempts.rend(); ++it) {
    cut[it->first] = least;
    if (it->second.first_step) least = std::min(least, *it->second.first_step);
  }

  const double begin = timeline.begin > 0 ? std::min(timeline.begin, first_t) : first_t;
  double cursor = begin, usual = 0;
  int attempt = -1;
  uint64_t step = 0;
  const auto idle = [&](double to, double* into) {
    const double span = std::max(0.0, to - cursor);
    const double still = std::min(span, Overlap(timeline.stalls, cursor, to));
    const double down = std::min(span - still, Overlap(timeline.down, cursor, to));
    result.stalls += still;
    result.down += down;
    *into += span - still - down;
    cursor = std::max(cursor, to);
  };
  EachTimedLine(metrics_path, [&](const TimedLine& line) {
    if (line.attempt < attempt) return;
    if (line.attempt == attempt && line.step < step && !line.trained) return;  // a validation's value that came late
    double* rest = &result.other;
    uint64_t steps = line.step > step ? line.step - step : 0;
    if (line.attempt > attempt) {
      const double started = result.attempts[line.attempt].started;
      if (started > 0 && attempt >= 0) idle(started, &result.restarts);
      attempt = line.attempt;
      steps = 1;
      rest = &result.startup;
    } else if (line.step < step) {  // a rollback: what it takes back was training until now
      const uint64_t back = std::min(result.steps, step - line.step + 1);
      const double lost =
          result.steps > 0 ? result.training * static_cast<double>(back) / static_cast<double>(result.steps) : 0;
      result.training -= lost;
      result.repeated += lost;
      result.steps -= back;
      result.repeated_steps += back;
      steps = 1;
    }
    const double span = std::max(0.0, line.t - cursor), count = static_cast<double>(steps);
    double work = 0;
    if (steps > 0) {
      const double longest = usual > 0 ? kPauseFactor * usual * count : span;
      work = std::min(span, line.step_seconds ? *line.step_seconds * count : rest == &result.startup ? 0 : longest);
      if (work > 0) usual = usual > 0 ? 0.9 * usual + 0.1 * work / count : work / count;
    }
    const double saving = std::min(work, line.checkpoint_seconds.value_or(0) * count);
    const bool kept = line.step < cut[line.attempt];
    (kept ? result.training : result.repeated) += work - saving;
    (kept ? result.steps : result.repeated_steps) += steps;
    result.checkpoints += saving;
    cursor = std::min(line.t, cursor + work) > cursor ? cursor + work : cursor;
    idle(line.t, rest);
    step = line.step;
  });
  if (end > cursor) idle(end, &result.other);
  result.wall = cursor - begin;
  return result;
}

}  // namespace lockstep::watch
