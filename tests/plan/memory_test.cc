// State of a rank by component, against the arithmetic of the ZeRO paper with float32 gradients (docs/benchmarks.md).
#include "plan/memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/gathering.h"

namespace lockstep::plan {
namespace {

// Four units of 1,024 elements: no padding on up to 64 ranks.
Workload Even() {
  Workload workload{.name = "even"};
  for (int unit = 0; unit < 4; ++unit) {
    workload.units.push_back(fmt::format("u{}", unit));
    workload.parameters.push_back({fmt::format("p{}", unit), 1024, unit});
  }
  return workload;
}

Setting Of(int stage, int ranks, int bytes, Offload offload = Offload::kNone) {
  Setting s;
  s.stage = stage;
  s.ranks = ranks;
  s.parameter_bytes = bytes;
  s.offload = offload;
  s.persistent = 0;
  s.bucket = s.first_bucket = 1024;
  s.batch = static_cast<uint64_t>(ranks);
  return s;
}

TEST(State, BytesOfAParameterByStage) {
  struct Case {
    int stage, ranks, bytes;
    double parameters, gradients, master, optimizer;  // of one parameter
  };
  const Case cases[] = {{0, 1, 4, 4, 4, 0, 8},   {0, 1, 2, 2, 4, 4, 8}, {0, 2, 4, 4, 4, 0, 8}, {1, 2, 4, 4, 4, 0, 4},
                        {2, 2, 4, 4, 2, 0, 4},   {3, 2, 4, 2, 2, 0, 4}, {1, 4, 2, 2, 4, 1, 2}, {2, 4, 2, 2, 1, 1, 2},
                        {3, 4, 2, 0.5, 1, 1, 2}, {3, 1, 4, 4, 4, 0, 8}};  // one rank shares nothing
  for (const Case& c : cases) {
    const MemoryBytes state = StateOf(Even(), Of(c.stage, c.ranks, c.bytes));
    const std::string name = fmt::format("stage {}, {} ranks, {} bytes", c.stage, c.ranks, c.bytes);
    EXPECT_EQ(state[Component::kParameters], 4096 * c.parameters) << name;
    EXPECT_EQ(state[Component::kGradients], 4096 * c.gradients) << name;
    EXPECT_EQ(state[Component::kMaster], 4096 * c.master) << name;
    EXPECT_EQ(state[Component::kOptimizer], 4096 * c.optimizer) << name;
    EXPECT_EQ(state.HostTotal(), 0) << name;
  }
}

TEST(State, OffloadMovesTheMasterAndTheOptimizer) {
  const MemoryBytes one = StateOf(Even(), Of(0, 1, 2, Offload::kOptimizer));
  EXPECT_EQ(one[Component::kParameters], 4096 * 2);
  EXPECT_EQ(one[Component::kGradients], 4096 * 2) << "a single backward's gradients stay bf16";
  EXPECT_EQ(one.host[static_cast<size_t>(Component::kMaster)], 4096 * 4);
  EXPECT_EQ(one.host[static_cast<size_t>(Component::kOptimizer)], 4096 * 8);
  EXPECT_EQ(one.host[static_cast<size_t>(Component::kBuckets)], 4 * 4096 * (2 + 2)) << "four stagings";
  const MemoryBytes parameters = StateOf(Even(), Of(3, 2, 4, Offload::kParameters));
  EXPECT_EQ(parameters[Component::kParameters], 0);
  EXPECT_EQ(parameters.host[static_cast<size_t>(Component::kParameters)], 2048 * 4) << "float32 ones are the master";
  EXPECT_EQ(parameters.host[static_cast<size_t>(Component::kMaster)], 0);
  Setting cpu = Of(1, 2, 4, Offload::kOptimizer);
  cpu.gpu = false;
  EXPECT_EQ(StateOf(Even(), cpu).HostTotal(), 0) << "a CPU has nothing to offload";
}

TEST(State, ACpuKeepsPiecesForBucketsAndUnits) {
  Setting s = Of(3, 2, 4);
  s.gpu = false;
  const MemoryBytes state = StateOf(Even(), s);
  EXPECT_EQ(state[Component::kBuckets], 3 * 1024 * 4) << "two on their way and one that is filled";
  EXPECT_EQ(state[Component::kGathered], 4 * 1024 * 4) << "prefetch reaches all units";
  s.prefetch = 1;
  EXPECT_EQ(StateOf(Even(), s)[Component::kGathered], 2 * 1024 * 4) << "one computes, one is ahead";
}

// Found by measuring: down, up, gate and the rest of a layer lie in four buckets, all open until its first norm came.
TEST(State, AllBucketsOfADecodersLayerAreOpenAtOnce) {
  const LmSample tiny{
      .vocabulary = 257, .width = 128, .layers = 4, .heads = 4, .kv_heads = 2, .mlp = 512, .length = 64};
  Setting s = Of(2, 4, 4);
  s.gpu = false;
  s.bucket = 256 << 10;
  s.first_bucket = 64 << 10;
  EXPECT_EQ(StateOf(LmWorkload("lm", tiny), s)[Component::kBuckets], 1843200);
}

TEST(State, FrozenParametersAreWholeBelowStage3) {
  Workload workload = Even();
  workload.parameters[1].trained = false;
  EXPECT_EQ(StateOf(workload, Of(2, 2, 4))[Component::kFrozen], 1024 * 4);
  EXPECT_EQ(StateOf(workload, Of(3, 2, 4))[Component::kFrozen], 512 * 4);
}

TEST(GatheredUnits, FollowsPrefetchReuseAndLive) {
  const std::vector<int64_t> sizes = {10, 10, 10};
  const auto most = [&](const GatherLimits& limits) {
    int64_t elements = 0;
    for (const Gathered& use : GatheredInPass(sizes, limits)) elements = std::max(elements, use.elements);
    return elements;
  };
  EXPECT_EQ(most({0, 0, 1000}), 10);
  EXPECT_EQ(most({1, 0, 1000}), 20);
  EXPECT_EQ(most({1000, 0, 1000}), 30);
  EXPECT_EQ(most({1000, 0, 20}), 20) << "no more than `live`";
  EXPECT_EQ(most({0, 1000, 1000}), 30) << "units stay for backward";
}

TEST(Memory, RecomputingTradesActivationsAndTheStartCounts) {
  const LmSample sample{
      .vocabulary = 1000, .width = 256, .layers = 8, .heads = 4, .kv_heads = 4, .mlp = 1024, .length = 512};
  const Workload workload = LmWorkload("lm", sample);
  Setting s;
  s.batch = 16;
  const MemoryBytes plain = MemoryOf(workload, s);
  s.recompute = true;
  const MemoryBytes again = MemoryOf(workload, s);
  EXPECT_LT(again[Component::kActivations], plain[Component::kActivations] / 2);
  EXPECT_EQ(again[Component::kOptimizer], plain[Component::kOptimizer]);
  // The module and its flat copy: 8 bytes a parameter in float32; 10 with bf16 ones.
  EXPECT_NEAR(static_cast<double>(plain.start), 8.0 * static_cast<double>(workload.trained()), 1e5);
  s.parameter_bytes = 2;
  EXPECT_NEAR(static_cast<double>(MemoryOf(workload, s).start), 10.0 * static_cast<double>(workload.trained()), 1e5);
}

}  // namespace
}  // namespace lockstep::plan
