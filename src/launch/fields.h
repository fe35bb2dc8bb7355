// How a struct names the fields of its JSON form, once: LOCKSTEP_FIELDS lists a call of `visit` for each. messages.cc
// writes, parses and lists with it.
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::launch {

// What an integer field may be; anything else is refused.
struct Range {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
};

inline constexpr Range kSignals{1, 64};

}  // namespace lockstep::launch

#define LOCKSTEP_FIELDS(...)                   \
  template <typename Self, typename Visit>     \
  static void Each(Self& self, Visit& visit) { \
    (void)self, (void)visit;                   \
    __VA_ARGS__;                               \
  }
