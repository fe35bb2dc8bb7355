// Which runs of a folder can go, and their removal (`lockstep runs clean`). The choice is a pure function of what is
// there; nothing is removed that runs, that may run elsewhere, or that is no run.
//
//   Result<std::vector<CleanEntry>> plan = PlanClean("runs", {.older_than = std::chrono::hours(24 * 30), .keep_last =
//   5}); for (const CleanEntry& entry : *plan) if (entry.goes) Remove(entry.run.path);
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "record/reader.h"

namespace lockstep::record {

struct CleanRules {
  // A run goes where it matches all of these that are given, at least one.
  std::optional<std::chrono::milliseconds> older_than;  // since it ended
  std::optional<uint64_t> larger_than;                  // bytes
  std::vector<std::string> states;                      // "failed", "lost", ...
  // And the oldest go until the others together have at most so many bytes.
  std::optional<uint64_t> total;
  // Whatever matches, these stay.
  uint64_t keep_last = 0;  // the newest
  uint64_t keep_best = 0;  // by the best value of `metric` in the lines of rank 0
  std::string metric = "val/loss";
  bool highest = false;  // more is better

  bool given() const { return older_than || larger_than || !states.empty() || total; }
};

struct CleanEntry {
  RunSummary run;
  uint64_t bytes = 0;
  double ended = 0;            // seconds since 1970
  std::optional<double> best;  // of the metric, where it was asked for
  bool goes = false;
  std::string why;  // it goes or stays
};

// Every run, newest first. `now`: seconds since 1970. An error where the best shall stay and no run has the metric: a
// misspelt name must not remove them.
Result<std::vector<CleanEntry>> PlanClean(const std::string& root, const CleanRules& rules, double now);

// Takes the lock of the run, so that no launch begins in it meanwhile, sets it aside and removes it. An error where it
// runs by now.
Status RemoveRun(const std::string& path);

// Finishes removals that were interrupted.
Status RemoveLeftovers(const std::string& root);

}  // namespace lockstep::record
