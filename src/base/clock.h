// The two clocks: Now() is monotonic and measures, UnixSeconds() is wall time and labels.
#pragma once

#include <chrono>

namespace lockstep {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Millis = std::chrono::milliseconds;

inline TimePoint Now() { return Clock::now(); }
inline double SecondsSince(TimePoint start) { return std::chrono::duration<double>(Now() - start).count(); }
inline double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
