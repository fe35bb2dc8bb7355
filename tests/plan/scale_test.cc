#include "plan/scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "plan/collective.h"
#include "plan/exceeded.h"
#include "plan/print.h"

namespace lockstep::plan {
namespace {

TEST(Scale, RangesAndLists) {
  EXPECT_EQ(*ParseScale("8..64"), (std::vector<int>{8, 16, 32, 64}));
  EXPECT_EQ(*ParseScale("8..50"), (std::vector<int>{8, 16, 32, 50}));
  EXPECT_EQ(*ParseScale("1,3,96"), (std::vector<int>{1, 3, 96}));
  EXPECT_EQ(*ParseScale("4"), (std::vector<int>{4}));
  for (const char* wrong :
       {"", "..", "8..", "..8", "64..8", "0..8", "-8..8", "8,8", "8,4", "a..b", "1..99999999", "8.5"}) {
    const auto points = ParseScale(wrong);
    ASSERT_FALSE(points.ok()) << wrong;
    EXPECT_NE(points.status().ToString().find("8..16384"), std::string::npos) << points.status().ToString();
  }
}

// By hand: 1 GB over rings and trees of 100 GB/s links without latency.
TEST(Collectives, RingAndTree) {
  Links links{
      .name = "x", .gpus_per_node = 4, .inside = 100e9, .inside_latency = 0, .between = 10e9, .between_latency = 0};
  const auto ring = [&](Collective c, int n) { return SecondsOf(c, Algorithm::kRing, 1e9, n, links); };
  EXPECT_EQ(ring(Collective::kAllReduce, 1), 0);
  EXPECT_NEAR(ring(Collective::kAllReduce, 4), 2 * 0.75 * 0.01, 1e-9);
  EXPECT_NEAR(ring(Collective::kAllGather, 4), 0.75 * 0.01, 1e-9);
  EXPECT_NEAR(ring(Collective::kAllReduce, 8), 2 * 7.0 / 8 * 0.025, 1e-9) << "four GPUs of 10 GB/s leave a node";
  EXPECT_NEAR(SecondsOf(Collective::kAllReduce, Algorithm::kTree, 1e9, 8, links), 0.05, 1e-9);
  links.between = 40e9;
  EXPECT_NEAR(ring(Collective::kAllReduce, 8), 2 * 7.0 / 8 * 0.01, 1e-9) << "not faster than inside a node";
  links.between = 10e9;
  links.between_latency = 1e-3;
  Algorithm chosen = Algorithm::kRing;
  const Machine machine{.gpu = {}, .links = links};
  BestSecondsOf(Collective::kAllReduce, 1e3, 4096, machine, &chosen);
  EXPECT_EQ(chosen, Algorithm::kTree) << "latency grows with the logarithm";
  BestSecondsOf(Collective::kAllReduce, 1e9, 8, machine, &chosen);
  EXPECT_EQ(chosen, Algorithm::kRing);
}

// Daly's own example: M = 24 h, delta = 5 min -> about 2 h; the best share is at his interval.
TEST(Goodput, DalysIntervalIsTheBest) {
  const Reliability r{.failures_per_node_hour = 1.0 / 24, .save = 300, .restart = 600};
  const Goodput g = GoodputOf(1, r);
  EXPECT_NEAR(g.young, std::sqrt(2 * 300.0 * 86400), 1);
  EXPECT_NEAR(g.daly, 7000, 100);
  for (const double other : {0.5, 0.8, 1.25, 2.0}) {
    EXPECT_LT(TrainingShare(other * g.daly, r.save, r.restart, g.mean_time), g.training) << other;
  }
  EXPECT_LT(GoodputOf(1000, r).training, g.training);
  EXPECT_EQ(GoodputOf(1000, {.failures_per_node_hour = 0}).training, 1);
}

LmSample Small() { return LmOfSize(1'000'000'000, 32000, 2048); }
Machine Here() { return {*FindGpu("h100"), *FindCluster("h100-ib400"), int64_t{1} << 40}; }
Setting Base(int ranks) {
  Setting s;
  s.ranks = ranks;
  s.batch = static_cast<uint64_t>(16 * ranks);
  return s;
}

TEST(Scale, CommunicationGrowsAndMemoryShrinks) {
  const Workload workload = LmWorkload("lm", Small());
  Setting base = Base(8);
  base.stage = 3;
  const auto points = ScaleOf(workload, base, Here(), {8, 64, 1024, 16384}, Scaling::kWeak, {});
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].ring, points[i - 1].ring);
    EXPECT_LE(points[i].line.memory[Component::kOptimizer], points[i - 1].line.memory[Component::kOptimizer]);
    EXPECT_LE(points[i].efficiency, 1.2) << "the update of a smaller shard is shorter";
    EXPECT_LT(points[i].goodput.training, points[i - 1].goodput.training);
  }
  EXPECT_EQ(points.back().nodes, 2048);
  base.stage = 0;
  for (const ScalePoint& point : ScaleOf(workload, base, Here(), {8, 64, 1024, 16384}, Scaling::kWeak, {})) {
    EXPECT_LE(point.efficiency, 1.0001) << point.gpus;
  }
}

TEST(Choices, AllThatTheEngineCanRun) {
  const Workload workload = LmWorkload("lm", Small());
  EXPECT_EQ(LinesOf(workload, Base(8), Here()).size(), 18u) << "4 stages x 2 offloads + 1, x 2";
  EXPECT_EQ(LinesOf(workload, Base(1), Here()).size(), 6u);
  Setting cpu = Base(2);
  cpu.gpu = false;
  EXPECT_EQ(LinesOf(workload, cpu, Here()).size(), 8u);
  Workload plain = workload;
  plain.units.clear();
  EXPECT_EQ(LinesOf(plain, Base(8), Here()).size(), 6u) << "without units neither stage 3 nor recomputing";
}

TEST(Choices, TheFastestThatFitsIsRecommended) {
  const Workload workload = LmWorkload("lm", Small());
  Machine machine = Here();
  const auto recommended = [&] {
    const auto lines = LinesOf(workload, Base(8), machine);
    const Advice advice = Recommend(lines, machine);
    return advice.best ? lines[*advice.best].Name() : "nothing";
  };
  EXPECT_EQ(recommended(), "stage 0") << "less than 5 % is not worth a stage";
  machine.gpu.memory = int64_t{24} << 30;
  EXPECT_NE(recommended(), "stage 0");
  machine.gpu.memory = int64_t{1} << 30;
  EXPECT_EQ(recommended(), "nothing");
}

TEST(OutOfMemory, NamesTheComponentTheExcessAndTheNearestChoice) {
  const Workload workload = LmWorkload("lm", Small());
  Machine machine = Here();
  const Line planned = LineOf(workload, Base(8), machine);
  const MemoryBytes owned = StateOf(workload, Base(8));
  // Twice the activations of the plan.
  const int64_t peak = planned.memory.AllocatorPeak() + planned.memory[Component::kActivations];
  Explanation e = ExplainOutOfMemory(workload, planned, machine, owned, peak);
  EXPECT_NE(e.what.find("activations exceeded the plan"), std::string::npos) << e.what;
  EXPECT_NE(e.what.find(SizeText(planned.memory[Component::kActivations])), std::string::npos) << e.what;
  EXPECT_NE(e.remedy.find("the nearest choice that fits: train."), std::string::npos) << e.remedy;
  machine.gpu.memory = int64_t{10} << 30;
  e = ExplainOutOfMemory(workload, LineOf(workload, Base(8), machine), machine, owned, peak);
  EXPECT_NE(e.what.find("of the GPU's 10.0 GiB"), std::string::npos) << e.what;
  EXPECT_NE(WhyNot(workload, LineOf(workload, Base(8), machine), machine), "");
  EXPECT_EQ(WhyNot(workload, planned, Here()), "");
}

TEST(Presets, UnknownOnesAreNamedWithTheNearest) {
  EXPECT_NE(FindGpu("h20").status().ToString().find("did you mean 'h200'"), std::string::npos);
  EXPECT_NE(FindCluster("h100-ib40").status().ToString().find("h100-ib400"), std::string::npos);
  EXPECT_EQ(GpuNamed("NVIDIA H200")->name, "h200");
  EXPECT_EQ(GpuNamed("NVIDIA A100-SXM4-40GB")->name, "a100-40");
  EXPECT_EQ(GpuNamed("Radeon"), nullptr);
}

TEST(Workloads, JsonRoundTripAndSizes) {
  for (const int64_t count : {int64_t{124'000'000}, int64_t{7'000'000'000}, int64_t{70'000'000'000}}) {
    const Workload workload = LmWorkload("lm", LmOfSize(count, 32000, 2048));
    EXPECT_NEAR(static_cast<double>(workload.trained()) / static_cast<double>(count), 1, 0.05) << count;
  }
  Workload workload = LmWorkload("lm", Small());
  workload.notes = {"a"};
  const Result<Workload> back = WorkloadFromJson(ToJson(workload));
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(ToJson(*back), ToJson(workload));
  EXPECT_FALSE(WorkloadFromJson(nlohmann::json::array()).ok());
  const Result<Setting> setting = SettingFromJson(ToJson(Base(8)));
  ASSERT_TRUE(setting.ok());
  EXPECT_EQ(ToJson(*setting), ToJson(Base(8)));
}

TEST(Print, TextJsonAndPictureAgreeOnTheRecommendation) {
  Plan plan{.workload = LmWorkload("lm", Small()), .base = Base(8), .machine = Here()};
  plan.lines = LinesOf(plan.workload, plan.base, plan.machine);
  plan.advice = Recommend(plan.lines, plan.machine);
  plan.configured = plan.lines.front();
  plan.gains = GainsOf(plan.workload, plan.base, plan.machine, {.data_seconds = 10});
  plan.scale = ScaleOf(plan.workload, plan.base, plan.machine, {8, 16}, Scaling::kWeak, {});
  const std::string name = plan.lines[*plan.advice.best].Name();
  EXPECT_NE(ToText(plan).find("recommended: " + name), std::string::npos);
  EXPECT_NE(Picture(plan).find("recommended: " + name), std::string::npos);
  const nlohmann::json json = ToJson(plan);
  EXPECT_EQ(json["recommended"]["line"], *plan.advice.best);
  EXPECT_EQ(json["lines"].size(), plan.lines.size());
  EXPECT_EQ(json["scale"].size(), 2u);
  EXPECT_NEAR(json["gains"][0]["factor"].get<double>(), 10 / json["gains"][0]["after"].get<double>(), 1e-6);
}

}  // namespace
}  // namespace lockstep::plan
