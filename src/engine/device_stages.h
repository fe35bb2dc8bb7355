// Times of the stages of a step on a GPU, which works behind the host: kernels of one thread on the training stream
// that read the GPU's clock. They are captured in CUDA graphs with what is around them and repeat at every replay. A
// stage's time includes what the GPU was idle in it, as it is while it waits for the loader. Each mark costs the device
// about two microseconds, the host one launch; a step has about ten, and two for each wait for other ranks. Used by the
// training thread, and by autograd's while that one waits for it.
//
//   std::unique_ptr<DeviceStages> stages = DeviceStages::Create(device);
//   stages->Begin();
//   ... forward ...
//   stages->End(StepStage::kForward);
//   at::Tensor seconds = stages->Take();      // queued as well: of all stages since the last Take
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "engine/stage_clock.h"

namespace lockstep::engine {

class DeviceStages {
 public:
  // With the training stream current. Null where there is no GPU or no NVRTC. Compiles at the first call.
  static std::unique_ptr<DeviceStages> Create(const at::Device& device);

  // What passed since the last mark belongs to no stage, nor do the waits in it.
  void Begin();
  // What passed since the last mark, less the waits in it, which are the collective's.
  void End(StepStage stage);
  // Around what makes the current stream wait for other ranks. On other streams than the training stream: nothing.
  void Wait(bool begins);
  // float64, seconds of each stage.
  at::Tensor Take();
  // For tests: every End of the stage takes so much longer, replayed ones too.
  void Delay(StepStage stage, std::chrono::milliseconds each);

 private:
  explicit DeviceStages(const at::Device& device);
  void Launch(int kernel, int64_t slot);

  const c10::Stream stream_;
  const at::Tensor like_;  // empty: its type chooses the kernels, which know doubles and integers alone
  at::Tensor seconds_;     // of all slots: the stages, and what belongs to none
  at::Tensor clock_;       // int64, nanoseconds: last mark, begin of a wait, waited since the mark; delays of all slots
};

}  // namespace lockstep::engine
