// One sample of this machine and some processes on it (docs/formats/samples.md): CPU, memory, GPUs, links, and what the
// ranks write of their progress. Keeps what rates need from one sample to the next. Independent of the launcher's
// other parts; `lockstep watch` uses it for a log on this machine. One thread, which may block on the driver or on a
// dead file system.
//
//   NodeSampler sampler({.gpus = true});
//   record::NodeSample sample = sampler.Sample();
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "hardware/gpu_sampler.h"
#include "hardware/link_counters.h"
#include "hardware/proc_sampler.h"
#include "record/metrics.h"
#include "record/progress_tracker.h"
#include "record/samples.h"

namespace lockstep::launch {

struct NodeSamplerOptions {
  int attempt = 0, node = 0;
  bool machine = true;               // CPU, memory, GPUs and links; else the ranks alone
  bool gpus = false;                 // whether there are any: NVML is not even loaded otherwise
  std::vector<std::string> gpu_pci;  // those of the ranks, in CUDA's order; empty: all of the machine
  std::string towards;               // another host of the job: the link to it is sampled; empty: none
  std::vector<std::string> links;    // further links that the job uses
};

class NodeSampler {
 public:
  struct Rank {
    int rank = 0, local_rank = 0;
    pid_t pid = 0;
    std::string metrics;  // path; empty: none
  };

  explicit NodeSampler(NodeSamplerOptions options);
  ~NodeSampler();

  void AddRank(const Rank& rank);
  void RemoveRank(int rank);
  void AddLink(const std::string& name) { links_.Add(name); }
  // Tells of steps of ranks that write no metric lines; empty: nobody does.
  void set_progress(std::function<record::ProgressState(int rank)> progress) { progress_ = std::move(progress); }

  record::NodeSample Sample();

 private:
  struct Followed;
  void SampleMachine(double seconds, record::NodeSample* sample);
  void SampleGpus(record::NodeSample* sample);
  void SampleLinks(double seconds, record::NodeSample* sample);
  record::RankSample SampleRank(double seconds, Followed* of) const;

  const NodeSamplerOptions options_;
  std::string host_;
  int64_t launcher_;
  uint64_t count_ = 0;
  TimePoint last_{};
  hardware::MachineSampler machine_;
  std::optional<double> busy_;
  std::unique_ptr<hardware::GpuSampler> gpus_;
  bool gpus_tried_ = false;
  hardware::LinkCounters links_;
  bool links_known_ = false;
  std::map<std::string, std::pair<uint64_t, uint64_t>> link_bytes_;
  std::map<int, std::unique_ptr<Followed>> ranks_;
  std::map<pid_t, int> gpu_of_pid_;
  std::map<std::string, int> gpu_of_pci_;
  std::function<record::ProgressState(int rank)> progress_;
};

}  // namespace lockstep::launch
