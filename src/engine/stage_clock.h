// Where the time of this rank's steps goes: data, forward, backward, collective, optimizer, checkpoint, in seconds.
// Time that is spent waiting in collectives counts as collective, whatever stage it happens in. On the CPU it is the
// time of the training thread, at the cost of two looks at the clock for each stage. On a GPU, whose kernels run later,
// it is the GPU's (device_stages.h), known when the numbers of the step are; where its kernels do not run (no NVRTC),
// data, collective and checkpoint are the training thread's, and the others are not known. Owned by the training
// thread.
//
//   clock.Begin();
//   ... forward ...
//   clock.End(StepStage::kForward);
//
// For tests: LOCKSTEP_TEST_DELAY="rank:stage:step:milliseconds" makes that rank slower in that stage, from that step
// on, at each End of it: the GPU in forward, backward and optimizer where it is timed, else the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/torch/tensor_comm.h"

namespace lockstep::engine {

// In the order of record::kStageNames.
enum class StepStage { kData, kForward, kBackward, kCollective, kOptimizer, kCheckpoint };
inline constexpr size_t kStageCount = 6;

class DeviceStages;

// What the host only queues on a GPU.
constexpr bool IsComputed(StepStage stage) {
  return stage == StepStage::kForward || stage == StepStage::kBackward || stage == StepStage::kOptimizer;
}

struct StageTimes {
  std::array<double, kStageCount> seconds{};
  bool computed_known = true;                          // false: forward, backward and optimizer are not known
  std::optional<std::pair<int, double>> longest_wait;  // the rank waited for longest in collectives, and how long
};

class StageClock {
 public:
  // On a GPU: with its compute stream current.
  StageClock(comm::TensorCommunicator* ranks, int rank, at::Device device);
  ~StageClock();
  StageClock(const StageClock&) = delete;
  StageClock& operator=(const StageClock&) = delete;

  void Begin();
  // What passed since Begin, or since the End before.
  void End(StepStage stage);
  void SetStep(uint64_t step);
  // Since the last call.
  StageTimes Take();
  // The same of the GPU, to be read back with the other numbers of the step; undefined where it is not timed.
  at::Tensor TakeOnDevice();
  // Puts what TakeOnDevice gave, the last of the step's numbers, into that step's times. Nothing where the GPU is not
  // timed.
  void Read(const std::vector<double>& numbers, StageTimes* times) const;

 private:
  struct Delay {
    StepStage stage;
    uint64_t step;
    std::chrono::milliseconds each;
  };

  bool DelaysOnDevice() const { return device_ && delay_ && IsComputed(delay_->stage); }

  comm::TensorCommunicator* const ranks_;
  const bool on_cpu_;
  std::unique_ptr<DeviceStages> device_;  // null: not timed
  TimePoint mark_ = Now();
  double waited_ = 0;  // of the communicator, at the mark
  std::vector<double> waits_;
  StageTimes times_;
  uint64_t step_ = 0;
  std::optional<Delay> delay_;  // of this rank
};

}  // namespace lockstep::engine
