// Where the time of reading a sample goes. A source marks its stages; whoever reads puts a StageTimes in place for the
// thread and finds the seconds in it. Without one, marking costs a look at a thread-local pointer.
//
//   StageTimes times;
//   { const StageScope scope(&times); source.Read(draw, out); }
//   times.seconds[static_cast<size_t>(LoadStage::kDecode)]
#pragma once

#include <array>
#include <cstddef>

#include "base/clock.h"

namespace lockstep::data {

// In the order in which a sample passes through them. What is in none of them (drawing a generated scene) is kOther.
enum class LoadStage : size_t { kRead, kDecode, kTransform, kOther };
constexpr size_t kStages = 4;
constexpr std::array<const char*, kStages> kStageNames = {"read", "decode", "transform", "other"};

struct StageTimes {
  std::array<double, kStages> seconds{};
  void Add(const StageTimes& more) {
    for (size_t i = 0; i < kStages; ++i) seconds[i] += more.seconds[i];
  }
};

inline StageTimes*& CurrentStageTimes() {
  thread_local StageTimes* times = nullptr;
  return times;
}

class StageScope {
 public:
  explicit StageScope(StageTimes* times) : before_(CurrentStageTimes()) { CurrentStageTimes() = times; }
  ~StageScope() { CurrentStageTimes() = before_; }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  StageTimes* before_;
};

// Time from here to the end of scope belongs to the stage. Not nested.
class StageMark {
 public:
  explicit StageMark(LoadStage stage) : times_(CurrentStageTimes()), stage_(stage) {
    if (times_ != nullptr) start_ = Now();
  }
  ~StageMark() {
    if (times_ != nullptr) times_->seconds[static_cast<size_t>(stage_)] += SecondsSince(start_);
  }
  StageMark(const StageMark&) = delete;
  StageMark& operator=(const StageMark&) = delete;

 private:
  StageTimes* times_;
  LoadStage stage_;
  TimePoint start_;
};

}  // namespace lockstep::data
