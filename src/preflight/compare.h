// The rows about all nodes: pure functions from everybody's facts and findings to results. A difference names who
// differs from whom, the minority first. Node 0 calls them; any thread.
#pragma once

#include <string>
#include <vector>

#include "launch/gathering.h"
#include "preflight/facts.h"

namespace lockstep::preflight {

// "node 1 (gpu-7)"; "nodes 1, 3 (a, c)", "nodes 1-7" where they are many.
std::string NodeNames(const std::vector<int>& nodes, const std::vector<Facts>& all);

// From the facts alone.
std::vector<CheckResult> CompareFacts(const std::vector<Facts>& all);
// The trees whose digests differ, whose entries are worth asking for.
std::vector<std::string> DifferingTrees(const std::vector<Facts>& all);
// Adds which files differ to the problems of same-code, same-config and same-data.
void NameDifferences(const std::vector<Findings>& findings, std::vector<CheckResult>* results);

CheckResult CompareClocks(const std::vector<Facts>& all, const std::vector<launch::ClockReading>& clocks);
CheckResult CompareNames(const std::vector<Facts>& all, const std::vector<Findings>& findings, bool sampled);
CheckResult CompareReach(const std::vector<Facts>& all, const std::vector<Findings>& findings, bool sampled);
CheckResult CompareRange(const std::vector<Facts>& all, const std::vector<Findings>& findings);
CheckResult CompareMtu(const std::vector<Facts>& all, const std::vector<Findings>& findings);

struct SlowPair {
  int from = -1, to = -1;
  std::string text;
};
// Far below the median of all, or below what the link is; worth a second measurement before anybody is accused.
std::vector<SlowPair> SlowPairs(const std::vector<Facts>& all, const std::vector<PairRate>& rates);
CheckResult CompareRates(const std::vector<Facts>& all, const std::vector<PairRate>& rates, bool sampled);

}  // namespace lockstep::preflight
