#include "watch/line_values.h"

#include <iterator>

namespace lockstep::watch {
namespace {

constexpr std::string_view kValueNames[] = {"time/data",
                                            "time/forward",
                                            "time/backward",
                                            "time/collective",
                                            "time/optimizer",
                                            "time/checkpoint",
                                            "loss",
                                            "time/step",
                                            "time/comm_exposed",
                                            "memory/host",
                                            "memory/device",
                                            "samples_per_second",
                                            "tokens_per_second",
                                            "lr",
                                            "grad_norm",
                                            "wait/peer",
                                            "wait/seconds"};
static_assert(std::size(kValueNames) == LineValues::kNames);

constexpr bool StagesComeFirst() {
  for (size_t i = 0; i < std::size(record::kStageNames); ++i) {
    if (kValueNames[i].substr(5) != record::kStageNames[i]) return false;
  }
  return true;
}
static_assert(StagesComeFirst());

}  // namespace

LineValues::LineValues(const record::ScannedLine& line) {
  for (const auto& [key, value] : line.scalars) {
    std::string_view name = key;
    const bool alone = name.starts_with("rank/");
    if (alone) name.remove_prefix(5);
    for (size_t at = 0; at < kNames; ++at) {
      if (name != kValueNames[at]) continue;
      (alone ? own : reduced)[at] = value;
      break;
    }
  }
}

}  // namespace lockstep::watch
