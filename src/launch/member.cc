#include "launch/member.h"

#include <fmt/format.h>

namespace lockstep::launch {

const char* SeatWord(place::Level level) { return level == place::Level::kNode ? "node" : "rank"; }

std::string Member::Seat() const {
  return index < 0 ? fmt::format("a {}", SeatWord(level)) : fmt::format("{} {}", SeatWord(level), index);
}

std::string Member::Who() const { return fmt::format("{} (pid {} on {})", Seat(), pid, host); }

}  // namespace lockstep::launch
