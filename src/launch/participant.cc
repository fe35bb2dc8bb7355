#include "launch/participant.h"

#include <fmt/format.h>

namespace lockstep::launch {

const char* ParticipantWord(place::Level level) { return level == place::Level::kNode ? "node" : "rank"; }

std::string Participant::Name() const {
  return index < 0 ? fmt::format("a {}", ParticipantWord(level)) : fmt::format("{} {}", ParticipantWord(level), index);
}

std::string Participant::Who() const { return fmt::format("{} (pid {} on {})", Name(), pid, host); }

}  // namespace lockstep::launch
