// Samples of nodes (docs/formats/samples.md) as views: the newest of each node, its GPUs and links, and what they say
// of ranks. One thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "record/samples.h"
#include "watch/view.h"

namespace lockstep::watch {

class NodeSamples {
 public:
  void Take(const record::NodeSample& sample);
  // Nodes in their order, written over what is there.
  void CopyTo(std::vector<NodeView>* list) const;
  // What a sample says of one rank; what is unknown there stays. Steps and speed only where `steps` (a rank whose own
  // files are elsewhere).
  static void Apply(const record::NodeSample& sample, const record::RankSample& from, bool steps, RankView* rank);

 private:
  std::map<int, NodeView> nodes_;
  std::map<std::pair<int, std::string>, double> first_errors_;  // of each link
};

GpuView GpuOfSample(int node, const record::GpuSample& gpu);

}  // namespace lockstep::watch
