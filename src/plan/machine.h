// Speeds of a GPU, its host and the links between GPUs: given, measured (`lockstep plan --measure`) or of a preset.
// Presets are rows of data. Plain values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::plan {

struct Gpu {
  std::string name;
  int64_t memory = 0;                        // bytes
  int compute_capability = 90;               // times ten
  double matmul = 0;                         // flops per second that half-precision matrix products reach in training
  double attention64 = 0, attention128 = 0;  // of attention, heads of 64 and of 128
  double convolution = 0;                    // of convolutions with what stands between them
  double bandwidth = 0;                      // bytes per second that passes over its memory reach
  double host_link = 0;                      // bytes per second to the host, one direction
  double launch = 2e-6;                      // seconds lost between two kernels
  double host_launch = 16e-6;                // seconds of the host for one kernel, with all of torch around it
  std::string source;                        // where the numbers come from
};

// Between GPUs. Bytes per second in one direction: `inside` as bus bandwidth counts them; `between` is the share of one
// GPU in the ports of its node, whose bus bandwidth is that times the GPUs of a node. Seconds of latency of one hop.
struct Links {
  std::string name;
  int gpus_per_node = 8;
  double inside = 0, inside_latency = 3e-6;
  double between = 0, between_latency = 8e-6;
  std::string source;
};

struct Machine {
  Gpu gpu;
  Links links;
  int64_t host_memory = 0;       // of a node; 0: unknown
  double host_bandwidth = 90e9;  // bytes per second of an offloaded update, of a node
  bool ring_only = false, tree_only = false;
};

const std::vector<Gpu>& Gpus();
const std::vector<Links>& Clusters();
// Errors have the nearest name.
Result<Gpu> FindGpu(const std::string& name);
Result<Links> FindCluster(const std::string& name);
// The row whose name is in the driver's ("NVIDIA H200"); none: null.
const Gpu* GpuNamed(const std::string& drivers_name);

}  // namespace lockstep::plan
