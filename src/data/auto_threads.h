// How many threads a loader has, from what its stages take. A thread takes a sample through all stages, so threads are
// not bound to stages: the threads of a stage are those that are in it on average, and their sum is what a loader
// needs. Decoding and transforming keep a core busy; reading waits for storage. Plain values; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "data/loader.h"
#include "data/stages.h"

namespace lockstep::data {

struct ThreadPlan {
  std::array<double, kStages> in_stage{};  // threads in each stage on average
  int threads = 1;
  bool limited = false;  // by the cores: samples come more slowly than they are wanted
};

// For `seconds` of a sample in each stage and `rate` samples wanted each second, with a quarter to spare. The stages
// that compute have at most `cores` threads in them; there are at most kMostThreads.
constexpr int kMostThreads = 64;
ThreadPlan PlanThreads(const StageTimes& seconds, double rate, double cores);

// Looks at a training after 4, 8, 16, ... steps, then after every 256.
class AutoThreads {
 public:
  explicit AutoThreads(double cores) : cores_(cores) {}
  // After a step: totals of the loader so far, how long the step took, and how long it waited for data. A plan where it
  // is time for one and something is known.
  std::optional<ThreadPlan> Look(const LoaderStats& stats, double seconds, double waited);

 private:
  static constexpr uint64_t kFirst = 4, kLongest = 256;
  double cores_;
  uint64_t every_ = kFirst, steps_ = 0;
  double busy_seconds_ = 0;  // since the last look, without waiting for data
  LoaderStats before_;
};

}  // namespace lockstep::data
