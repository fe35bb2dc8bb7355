#include "data/auto_threads.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::data {

ThreadPlan PlanThreads(const StageTimes& seconds, double rate, double cores) {
  constexpr double kSpare = 1.25;
  ThreadPlan plan;
  // Little's law: so many samples are in a stage at once.
  for (size_t i = 0; i < kStages; ++i) plan.in_stage[i] = std::max(rate * kSpare * seconds.seconds[i], 0.0);
  const double all = std::accumulate(plan.in_stage.begin(), plan.in_stage.end(), 0.0);
  const double computing = all - plan.in_stage[static_cast<size_t>(LoadStage::kRead)];
  double slower = 1;
  if (computing > cores) slower = cores / computing;
  if (all * slower > kMostThreads) slower = kMostThreads / all;
  plan.limited = slower < 1;
  for (double& threads : plan.in_stage) threads *= slower;
  // A hundredth of a thread more is no reason for another one.
  plan.threads = std::clamp(static_cast<int>(std::ceil(all * slower - 0.01)), 1, kMostThreads);
  return plan;
}

std::optional<ThreadPlan> AutoThreads::Look(const LoaderStats& stats, double seconds, double waited) {
  busy_seconds_ += std::max(seconds - waited, 0.0);
  if (++steps_ < every_) return std::nullopt;
  const auto samples =
      static_cast<double>(stats.samples_read + stats.samples_bad - before_.samples_read - before_.samples_bad);
  StageTimes each;
  for (size_t i = 0; i < kStages && samples > 0; ++i) {
    each.seconds[i] = (stats.stages.seconds[i] - before_.stages.seconds[i]) / samples;
  }
  const double rate = samples / std::max(busy_seconds_, 1e-6);
  steps_ = 0;
  busy_seconds_ = 0;
  before_ = stats;
  every_ = std::min(every_ * 2, kLongest);
  if (samples == 0) return std::nullopt;
  return PlanThreads(each, rate, cores_);
}

}  // namespace lockstep::data
