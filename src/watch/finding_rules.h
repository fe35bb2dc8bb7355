// The rules of findings.h: each looks at a window and adds what it finds. Not used outside this folder.
#pragma once

#include <vector>

#include "watch/findings.h"

namespace lockstep::watch {

// The median; reorders. 0 of nothing.
double Median(std::vector<double>* values);

// "0.31 s", "12 ms".
std::string SecondsText(double seconds);

// The steps that all ranks have done lately, with what each rank spent in them.
struct Compared {
  struct Rank {
    int rank = 0;
    double own = 0;         // median over the steps: what it did itself, without collectives
    double excess = 0;      // median over the steps: how much more than the other ranks
    double steady = 0;      // part of the steps in which it did more than the others, by a tenth of a step at least
    double collective = 0;  // median over the steps
    double mean_collective = 0;
    double worked = 0;                     // seconds over all steps that it did more than the others
    double data = 0;                       // mean
    double stage_excess[Window::kStages];  // medians
    double rest_excess = 0;                // what no stage explains
    std::map<int, double> waited_for;      // seconds over all steps, by the rank that came last
  };
  std::vector<Rank> ranks;
  bool stages = false;  // collectives are known
  double step = 0;      // median seconds of a step
  double together = 0;  // mean seconds of a step that even the rank that came last spent in collectives
  size_t steps = 0;
  double seconds = 0;  // of all of them
  uint64_t first = 0, last = 0;
  std::vector<uint64_t> numbers;  // of the steps, ascending
};
// Nothing when there is too little to compare, or it is too old.
std::optional<Compared> CompareRanks(const Window& window, double now);

using Findings = std::vector<Finding>;

void FindStragglers(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindRepeatedDelays(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindPauses(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindSlowLinks(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindBounds(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindStalls(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindGpuTrouble(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindLinkErrors(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindMemoryGrowth(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);
void FindLossTrouble(const Window& window, const std::optional<Compared>& compared, double now, Findings* out);

}  // namespace lockstep::watch
