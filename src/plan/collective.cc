#include "plan/collective.h"

#include <algorithm>
#include <cmath>

namespace lockstep::plan {

// Rings through all nodes move 2 (n - 1) / n of the bytes over the slowest link: inside a node, or all ports of a node
// together, as NCCL has a ring for each of them. They take 2 (n - 1) steps of one hop. A tree moves every byte up and
// down once, in 2 log2(nodes) hops between nodes and a chain inside each.
double SecondsOf(Collective collective, Algorithm algorithm, double bytes, int ranks, const Links& links) {
  if (ranks <= 1 || bytes <= 0) return 0;
  const int inside = std::min(ranks, links.gpus_per_node);
  const int nodes = (ranks + links.gpus_per_node - 1) / links.gpus_per_node;
  // Every GPU of a node has a ring through its own share of the ports, so together they have all of the node's.
  const double border = links.between * ranks / nodes;
  const double slowest = nodes > 1 ? std::min(links.inside, border) : links.inside;
  const double n = ranks, rounds = collective == Collective::kAllReduce ? 2 : 1;
  if (algorithm == Algorithm::kTree && collective == Collective::kAllReduce) {
    const double hops =
        2 * std::ceil(std::log2(std::max(nodes, 1))) * links.between_latency + 2 * (inside - 1) * links.inside_latency;
    return hops + 2 * bytes / slowest;
  }
  const double hops = rounds * ((nodes > 1 ? nodes : 0) * links.between_latency +
                                (n - (nodes > 1 ? nodes : 0) - 1) * links.inside_latency);
  return std::max(0.0, hops) + rounds * (n - 1) / n * bytes / slowest;
}

double BestSecondsOf(Collective collective, double bytes, int ranks, const Machine& machine, Algorithm* chosen) {
  const double ring = SecondsOf(collective, Algorithm::kRing, bytes, ranks, machine.links);
  Algorithm best = Algorithm::kRing;
  double seconds = ring;
  if (collective == Collective::kAllReduce && !machine.ring_only) {
    const double tree = SecondsOf(collective, Algorithm::kTree, bytes, ranks, machine.links);
    if (machine.tree_only || tree < ring) {
      best = Algorithm::kTree;
      seconds = tree;
    }
  }
  if (chosen != nullptr) *chosen = best;
  return seconds;
}

}  // namespace lockstep::plan
