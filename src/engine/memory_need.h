// What a rank's training state takes, and whether that fits, before any of it is allocated. A lower bound: activations,
// buckets on their way and units that are gathered come on top. Pure; no other rank.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "engine/config.h"

namespace lockstep::engine {

struct ModelSize {
  uint64_t trained = 0, frozen = 0;  // elements
  uint64_t frozen_bytes = 0;         // in their own types
};

// While its parameters have their elements: before any is sharded.
ModelSize SizeOf(const torch::nn::Module& model);

// Bytes of one rank: parameters, gradients, master, optimizer's state, EMA.
struct MemoryNeed {
  uint64_t device = 0, host = 0;
};
// `one_pass`: a step has one backward.
MemoryNeed NeedOf(const TrainConfig& train, const ModelSize& model, int world, bool one_pass);

struct MemoryThere {
  std::string device;         // its name; empty: the CPU, whose memory is the host's
  uint64_t device_bytes = 0;  // in all
  uint64_t host_bytes = 0;    // available; 0: unknown
  int ranks = 1;              // that share the host's
};
Status CheckMemory(const TrainConfig& train, const ModelSize& model, int world, bool one_pass,
                   const MemoryThere& there);

}  // namespace lockstep::engine
