// Samples of this node, taken about once a second while ranks run, and the files of all nodes' samples on node 0
// (docs/formats/samples.md). Both work on threads of their own, because a driver or a dead file system can block, and
// neither holds up supervision: what nobody takes in time is dropped and counted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "launch/node_sampler.h"
#include "record/samples.h"

namespace lockstep::launch {

// The interval of a job: longer with hundreds of nodes, so that node 0 is not flooded.
Millis SampleInterval(Millis asked, int nnodes);

// Of one agent.
class Telemetry {
 public:
  // `send` gets the samples, on the loop's thread; false: it could not be sent now.
  Telemetry(Loop& loop, const logs::LogPump& pump, std::function<bool(const record::NodeSample&)> send);
  ~Telemetry();

  // Samples these ranks every `every` (zero: never) until Stop.
  void Start(NodeSamplerOptions options, std::vector<NodeSampler::Rank> ranks, Millis every);
  void Stop();
  void Ended(int rank);
  // A link that the job was found to use.
  void AddLink(const std::string& name);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

// Node 0's files. Take returns at once.
class SampleStore {
 public:
  SampleStore(std::string run_path, int nnodes);
  ~SampleStore();  // waits a moment for what was taken

  void Take(record::NodeSample sample);
  uint64_t lost() const;  // because the disk was slow or refused them

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::launch
