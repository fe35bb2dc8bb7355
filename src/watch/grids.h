// The tables of the screen and of `watch --once`: ranks, nodes, GPUs, links, runs. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "watch/styled.h"
#include "watch/view.h"

namespace lockstep::watch {

// What ranks can be sorted by; kTrouble: those to look at first.
enum class RankOrder {
  kRank,
  kStep,
  kSeconds,
  kData,
  kCollective,
  kUtilisation,
  kMemory,
  kTemperature,
  kCpu,
  kRss,
  kLoss,
  kSeen,
  kTrouble
};
std::string_view RankOrderName(RankOrder order);
RankOrder NextRankOrder(RankOrder order);  // kTrouble is followed by kRank

// Positions in view.ranks. Ranks for which the value is unknown come last.
std::vector<size_t> OrderRanks(const RunView& view, RankOrder order, bool reverse, double now);

// A heading and one line for each of `which`, positions in view.ranks.
StyledLines RankGrid(const RunView& view, const std::vector<size_t>& which, double now, size_t width);
// What the ranks that are not shown would say: "... and 992 more ranks, steps 118 to 120, 0.519 to 0.540 s/it".
StyledLine RestOfRanks(const RunView& view, const std::vector<size_t>& order, size_t shown);
// "no step yet of ranks 4-7"; empty: every rank was heard of.
std::string MissingRanks(const RunView& view);

// Empty where nothing is known.
StyledLines NodeGrid(const RunView& view, double now, size_t width);
StyledLines GpuGrid(const RunView& view, size_t width);
StyledLines LinkGrid(const RunView& view, size_t width);
StyledLines RunGrid(const std::vector<const RunView*>& views, size_t width);

// "running" in green, "failed" in red.
Style StateStyle(std::string_view state);

}  // namespace lockstep::watch
