// A run of several phases is one training after another in the same processes, with one count of steps and one row of
// checkpoints: each phase has a configuration of its own and starts with the weights and averages of the one before. A
// phase ends with a checkpoint, from which the next one begins, whether or not the processes were started anew in
// between: an interrupted run gives the same bits as one that was not. The section `phases` of a configuration says
// them, with what each changes in the sections above it (docs/training.md):
//
//   phases:
//     - {steps: 4000, data: {crop: 192}, train: {batch: 96}}
//     - {steps: 6000, optimizer: keep, data: {crop: 128}, train: {batch: 16}}
//
// Plain values, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/config_tree.h"
#include "base/status.h"

namespace lockstep::engine {

// One of them: optimizer steps [begin, config.train.steps). The only phase of a run is the default.
struct RunPhase {
  uint64_t begin = 0;
  // From where schedule, freezing and intervals count: `begin`, or that of an earlier phase whose optimizer goes on.
  uint64_t origin = 0;
  uint64_t total = 0;  // steps of all phases; 0: there is one
  int index = 0, count = 1;
  bool keeps_optimizer = false;  // of the phase before
  bool takes_over = false;       // the checkpoint to start from is the end of the phase before
};

struct PhaseSpec {
  uint64_t steps = 0;
  bool keeps_optimizer = false;
  ConfigNode over;  // sections that replace those of the configuration, key by key
};

// Nothing for a configuration without the section.
Result<std::vector<PhaseSpec>> ReadPhases(const ConfigNode& section);

uint64_t TotalSteps(const std::vector<PhaseSpec>& phases);
// So many steps in all, shared between the phases alike: for a dry run.
void ShortenTo(uint64_t steps, std::vector<PhaseSpec>* phases);

// Phase `index` of them, and the steps that its schedule has: those of all phases with the same optimizer.
RunPhase PlacePhase(const std::vector<PhaseSpec>& phases, size_t index);
uint64_t ScheduleSteps(const std::vector<PhaseSpec>& phases, size_t index);

}  // namespace lockstep::engine
