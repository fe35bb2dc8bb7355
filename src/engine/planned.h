// A training in the terms of the plan (plan/): its model and its configuration as numbers, and what its ranks really
// hold, by the same components. Pure but for the tensors it looks at; the training thread, no other rank.
#pragma once

#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/devices.h"
#include "engine/learner.h"
#include "engine/recipe.h"
#include "engine/units.h"
#include "plan/choices.h"
#include "plan/memory.h"

namespace lockstep::engine {

// While parameters have their shapes: before any is sharded.
plan::Workload WorkloadOf(const std::string& recipe, const torch::nn::Module& model, const std::vector<Unit>& units,
                          const PlanFacts& facts);
// `gpu`: none on a CPU. train.precision must be chosen; `auto` counts as bf16 on a GPU and fp32 on a CPU.
plan::Setting SettingOf(const TrainConfig& train, int world, const std::optional<GpuFacts>& gpu);
// The speeds of the GPU where they are known by its name, else those of the first preset; its memory is its own.
plan::Machine MachineOf(const std::optional<GpuFacts>& gpu, int local_ranks, uint64_t host_bytes);

// Bytes of this rank's tensors, each memory counted once. Activations and temporaries are none of them.
plan::MemoryBytes OwnedBytes(const torch::nn::Module& model, Learner& learner);

}  // namespace lockstep::engine
