// The rows about all nodes: pure functions from the facts of all nodes and findings to results. A difference names who
// differs from whom, the minority first. Node 0 calls them; any thread.
#pragma once

#include <string>
#include <vector>

#include "launch/launcher_group.h"
#include "preflight/node_facts.h"

namespace lockstep::preflight {

// "node 1 (gpu-7)"; "nodes 1, 3 (a, c)", "nodes 1-7" where they are many.
std::string NodeNames(const std::vector<int>& nodes, const std::vector<NodeFacts>& all);

void AddProblem(CheckOutcome* outcome, State state, std::string text, std::string remedy, std::vector<int> nodes);

// From the facts alone.
std::vector<CheckResult> CompareFacts(const std::vector<NodeFacts>& all);
// The trees whose digests differ, whose entries are worth asking for.
std::vector<std::string> DifferingTrees(const std::vector<NodeFacts>& all);
// Adds which files differ to the problems of same-code, same-config and same-data.
void NameDifferences(const std::vector<Findings>& findings, std::vector<CheckResult>* results);

CheckResult CompareClocks(const std::vector<NodeFacts>& all, const std::vector<launch::ClockReading>& clocks);
CheckResult CompareNames(const std::vector<NodeFacts>& all, const std::vector<Findings>& findings, bool sampled);
CheckResult CompareReach(const std::vector<NodeFacts>& all, const std::vector<Findings>& findings, bool sampled);
CheckResult CompareRange(const std::vector<NodeFacts>& all, const std::vector<Findings>& findings);
CheckResult CompareMtu(const std::vector<NodeFacts>& all, const std::vector<Findings>& findings);

struct SlowPair {
  int from = -1, to = -1;
  std::string text;
};
// Far below the median of all, or below what the link is; worth a second measurement before anybody is accused.
std::vector<SlowPair> SlowPairs(const std::vector<NodeFacts>& all, const std::vector<PairRate>& rates);
CheckResult CompareRates(const std::vector<NodeFacts>& all, const std::vector<PairRate>& rates, bool sampled);

}  // namespace lockstep::preflight
