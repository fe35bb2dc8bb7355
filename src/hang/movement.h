// Whether a job moves, from two looks at it a few seconds apart: nobody is called stuck after a single one. Steps are
// the best sign; where none are recognised, ranks whose stacks differ or that wake up all the time move too. Pure
// functions, any thread.
//
//   const StackPrint before = PrintOf(stacks);   // ... a few seconds ...
//   if (Moved(before, PrintOf(stacks_again), seconds)) ...
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hang/hang.h"
#include "hang/stacks.h"

namespace lockstep::hang {

// What two looks at one rank are compared by; small, so that it may cross the wire for thousands of ranks.
struct StackPrint {
  int rank = -1;
  int64_t pid = 0;
  bool gone = false;
  uint64_t frames = 0;    // of the main thread: a digest; 0: none were seen
  int64_t switches = -1;  // of the main thread
};
StackPrint PrintOf(const ProcessStacks& process);
nlohmann::json ToJson(const StackPrint& print);
StackPrint PrintFromJson(const nlohmann::json& json);

bool Moved(const StackPrint& before, const StackPrint& after, double seconds);
// Every rank that is there at both looks moved; false where there is none.
bool AllMoved(const std::vector<StackPrint>& before, const std::vector<StackPrint>& after, double seconds);

// What was seen between the two looks.
struct Movement {
  double seconds = 0;                     // between the looks
  std::map<int, uint64_t> before, after;  // last step of each rank whose steps are recognised
  bool stacks_moved = false;              // AllMoved
  std::optional<double> quiet, usual;     // seconds since the last step, and the longest usual time between two
};

// Takes the blame back where the job moves: the verdict then says so, names nobody and is healthy. A rank that is
// stopped, or sits in an uninterruptible wait, is named all the same.
void Consider(const Movement& movement, HangVerdict* verdict);

}  // namespace lockstep::hang
