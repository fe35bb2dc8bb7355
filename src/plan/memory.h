// Memory of one rank by component: what the engine allocates for a workload and a setting, from the same layout that it
// uses (layout.h), and what a pass takes beside it (pass.h). Bytes, exact for what the engine owns: paddings, buckets
// and staging included. Pure, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/pass.h"
#include "plan/setting.h"
#include "plan/workload.h"

namespace lockstep::plan {

enum class Component {
  kParameters,  // what the model computes with, whole or this rank's shards
  kGradients,   // whole ones, and this rank's part where it lies apart
  kMaster,      // float32 values that the optimizer updates, where they are not the parameters themselves
  kOptimizer,   // its state
  kEma,
  kFrozen,       // parameters that do not train
  kGathered,     // units that are whole at stage 3
  kBuckets,      // gradients on their way, where no buffer holds all of them; staging of an offloaded update
  kActivations,  // kept from forward to backward
  kTemporary,    // there for a moment of a pass; workspaces of libraries
  kContext,      // CUDA's and NCCL's own, not from torch's allocator
};
constexpr size_t kComponents = 11;
const char* NameOf(Component component);  // "parameters", "gradients", ...

struct MemoryBytes {
  std::array<int64_t, kComponents> device{}, host{};
  int64_t start = 0;   // of the device before the first step, while the module and the flat buffers exist together
  std::string moment;  // of the pass at which the sum is largest

  int64_t& operator[](Component c) { return device[static_cast<size_t>(c)]; }
  int64_t operator[](Component c) const { return device[static_cast<size_t>(c)]; }
  int64_t& OnHost(Component c) { return host[static_cast<size_t>(c)]; }
  // Of the device: all of it, and what torch's allocator hands out at most (without the context).
  int64_t DeviceTotal() const;
  int64_t AllocatorPeak() const;
  int64_t HostTotal() const;
};

// "8.4 GiB".
std::string SizeText(int64_t bytes);

// What the engine owns, a pass not counted. On a CPU `device` is host memory.
MemoryBytes StateOf(const Workload& workload, const Setting& setting);
// All of it, at the moment of a step when it is most.
MemoryBytes MemoryOf(const Workload& workload, const Setting& setting);

}  // namespace lockstep::plan
