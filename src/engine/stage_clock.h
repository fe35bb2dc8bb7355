// Where the time of this rank's steps goes: data, forward, backward, collective, optimizer, checkpoint, in seconds.
// Time that the training thread is blocked in collectives of the host communicator counts as collective, whatever stage
// it happens in. Host time only: on a GPU, whose kernels run later, forward, backward and optimizer are not told. Costs
// two looks at the clock for each stage. Owned by the training thread.
//
//   clock.Begin();
//   ... forward ...
//   clock.End(StepStage::kForward);
//
// For tests: LOCKSTEP_TEST_DELAY="rank:stage:step:milliseconds" makes that rank slower in that stage, from that step
// on.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/torch/tensor_comm.h"

namespace lockstep::engine {

// In the order of record::kStageNames.
enum class StepStage { kData, kForward, kBackward, kCollective, kOptimizer, kCheckpoint };
inline constexpr size_t kStageCount = 6;

struct StageTimes {
  std::array<double, kStageCount> seconds{};
  std::optional<std::pair<int, double>> longest_wait;  // the rank waited for longest in collectives, and how long
};

class StageClock {
 public:
  StageClock(comm::TensorCommunicator* ranks, int rank);

  void Begin();
  // What passed since Begin, or since the End before.
  void End(StepStage stage);
  void set_step(uint64_t step) { step_ = step; }
  // Since the last call.
  StageTimes Take();

 private:
  struct Delay {
    StepStage stage;
    uint64_t step;
    std::chrono::milliseconds each;
  };

  comm::TensorCommunicator* const ranks_;
  TimePoint mark_ = Now();
  double waited_ = 0;  // of the communicator, at the mark
  std::vector<double> waits_;
  StageTimes times_;
  uint64_t step_ = 0;
  std::optional<Delay> delay_;  // of this rank
};

}  // namespace lockstep::engine
