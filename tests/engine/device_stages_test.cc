// Stage times on the GPU's own clock. What the GPU is to have spent is a delay that these tests give it. For builds
// with CUDA.
#ifdef LOCKSTEP_CUDA
#include "engine/device_stages.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/cuda_graph.h"

namespace lockstep::engine {
namespace {

using std::chrono::milliseconds;

const at::Device kFirstGpu(at::kCUDA, 0);
constexpr double kNothing = 0.005;  // seconds: less is no work, whatever the machine does beside it

c10::impl::VirtualGuardImpl Guard() { return c10::impl::VirtualGuardImpl(at::kCUDA); }
void Synchronize() { Guard().synchronizeDevice(kFirstGpu.index()); }

// Stage times on a stream of their own: the default one cannot be captured.
struct Timed {
  c10::StreamGuard stream{Guard().getStreamFromGlobalPool(kFirstGpu)};
  std::unique_ptr<DeviceStages> stages = DeviceStages::Create(kFirstGpu);
  std::vector<double> taken;

  void Take() {
    const at::Tensor seconds = stages->Take().cpu();
    const auto* first = static_cast<const double*>(seconds.const_data_ptr());
    taken.assign(first, first + seconds.numel());
    ASSERT_EQ(taken.size(), kStageCount);
  }
  double Of(StepStage stage) const { return taken[static_cast<size_t>(stage)]; }
  double All() const { return std::accumulate(taken.begin(), taken.end(), 0.0); }
};

TEST(DeviceStages, AStageThatTakesLongerShowsInItsOwnTimeAlone) {
  Timed timed;
  DeviceStages* const stages = timed.stages.get();
  ASSERT_NE(stages, nullptr);
  stages->Delay(StepStage::kForward, milliseconds(30));
  stages->Begin();
  stages->End(StepStage::kForward);
  stages->End(StepStage::kBackward);
  timed.Take();
  EXPECT_GE(timed.Of(StepStage::kForward), 0.030);
  EXPECT_LE(timed.Of(StepStage::kForward), 0.045);
  EXPECT_LT(timed.All() - timed.Of(StepStage::kForward), kNothing);
  // What was taken is not told again; a delay that has ended is over.
  stages->Delay(StepStage::kForward, milliseconds(0));
  stages->Begin();
  stages->End(StepStage::kForward);
  timed.Take();
  EXPECT_LT(timed.All(), kNothing);
}

TEST(DeviceStages, AReplayedGraphMakesItsMarksAgain) {
  Timed timed;
  DeviceStages* const stages = timed.stages.get();
  ASSERT_NE(stages, nullptr);
  GraphPool pool(kFirstGpu);
  const auto graph = pool.Capture([&] {
    stages->End(StepStage::kForward);
    stages->End(StepStage::kBackward);
  });
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  timed.Take();
  EXPECT_EQ(timed.All(), 0);  // captured, not run
  // Set after the capture, as a trainer does.
  stages->Delay(StepStage::kBackward, milliseconds(10));
  stages->Begin();
  for (int i = 0; i < 5; ++i) (*graph)->Replay();
  timed.Take();
  EXPECT_GE(timed.Of(StepStage::kBackward), 0.050);
  EXPECT_LE(timed.Of(StepStage::kBackward), 0.065);
  EXPECT_LT(timed.Of(StepStage::kForward), kNothing);
}

// The wait for another stream that is busy counts as collective, not as the stage around it.
TEST(DeviceStages, WaitsAreTheCollectivesTime) {
  Timed timed;
  DeviceStages* const stages = timed.stages.get();
  ASSERT_NE(stages, nullptr);
  const c10::Stream other = Guard().getStreamFromGlobalPool(kFirstGpu);
  ASSERT_NE(other, timed.stream.current_stream());
  std::unique_ptr<DeviceStages> busy;
  {
    const c10::StreamGuard on(other);
    busy = DeviceStages::Create(kFirstGpu);
    busy->Delay(StepStage::kForward, milliseconds(20));
  }
  Synchronize();
  stages->Delay(StepStage::kForward, milliseconds(10));
  Synchronize();
  const auto wait_for_other = [&] {
    c10::Event done(at::kCUDA);
    {
      const c10::StreamGuard on(other);
      busy->End(StepStage::kForward);
      done.record(other);
      stages->Wait(true);  // on that stream: nothing
    }
    stages->Wait(true);
    done.block(timed.stream.current_stream());
    stages->Wait(false);
  };
  stages->Begin();
  wait_for_other();
  wait_for_other();  // waits add up
  stages->End(StepStage::kForward);
  stages->End(StepStage::kBackward);
  timed.Take();
  EXPECT_GE(timed.Of(StepStage::kCollective), 0.035);
  EXPECT_LE(timed.Of(StepStage::kCollective), 0.055);
  EXPECT_GE(timed.Of(StepStage::kForward), 0.010);
  EXPECT_LE(timed.Of(StepStage::kForward), 0.020);
  EXPECT_LT(timed.Of(StepStage::kBackward), kNothing);
  // A wait before Begin, as in a validation between steps, is nobody's.
  wait_for_other();
  stages->Begin();
  stages->End(StepStage::kBackward);
  timed.Take();
  EXPECT_LT(timed.All(), kNothing);
}

// While the host sleeps the device is idle: that is the time of the stage that ends next, or of none after a Begin.
TEST(DeviceStages, IdleTimeIsTheStagesThatEndsNext) {
  Timed timed;
  DeviceStages* const stages = timed.stages.get();
  ASSERT_NE(stages, nullptr);
  stages->Begin();
  Synchronize();
  std::this_thread::sleep_for(milliseconds(20));
  stages->End(StepStage::kData);
  Synchronize();
  std::this_thread::sleep_for(milliseconds(20));
  stages->Begin();
  stages->End(StepStage::kOptimizer);
  timed.Take();
  EXPECT_GE(timed.Of(StepStage::kData), 0.019);
  EXPECT_LE(timed.Of(StepStage::kData), 0.100);
  EXPECT_LT(timed.All() - timed.Of(StepStage::kData), kNothing);
}

}  // namespace
}  // namespace lockstep::engine
#endif
