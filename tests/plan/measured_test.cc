// Steps that were measured on an H200 before the formulas were written (docs/benchmarks.md): what they must still say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plan/choices.h"

namespace lockstep::plan {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

LmSample Lm(int64_t vocabulary, int64_t width, int64_t layers, int64_t heads, int64_t kv_heads, int64_t mlp,
            int64_t length, bool tied = true) {
  return {.vocabulary = vocabulary,
          .width = width,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .mlp = mlp,
          .length = length,
          .tied = tied};
}

// Parameters of the blocks alone: all that weighs.
Workload Taehv(int64_t frames, int64_t side) {
  const TaehvSample sample{.frames = frames, .height = side, .width = side};
  Workload workload{.name = "taehv", .sample = sample};
  for (int unit = 0; unit < 6; ++unit) {
    workload.units.push_back(fmt::format("unit{}", unit));
    workload.parameters.push_back({fmt::format("p{}", unit), 11'315'539 / 6, unit});
  }
  return workload;
}

struct Case {
  std::string name;
  Workload workload;
  Setting setting;
  double gib, seconds;  // seconds 0: not compared
};

std::vector<Case> Cases() {
  Setting plain;
  Setting offload = plain;
  offload.parameter_bytes = 2;
  offload.recompute = true;
  offload.stage = 2;
  offload.offload = Offload::kOptimizer;
  offload.batch = 8;
  Setting divided = offload;
  divided.offload_share = 0.6;
  const auto with = [](Setting s, uint64_t batch) {
    s.batch = batch;
    return s;
  };
  const LmSample small = Lm(50257, 768, 12, 12, 12, 2048, 1024), large = Lm(151936, 1536, 28, 12, 2, 8960, 2048);
  const LmSample three = Lm(151936, 2048, 36, 16, 2, 11008, 4096);
  const LmSample seven = Lm(152064, 3584, 28, 28, 4, 18944, 4096, false);
  return {{"124 M, 32 x 1,024", LmWorkload("lm", small), with(plain, 32), 8.4, 0.0651},
          {"1.54 B, 8 x 2,048", LmWorkload("lm", large), with(plain, 8), 42.2, 0.316},
          {"3.1 B offloaded", LmWorkload("lm", three), offload, 28.7, 1.96},
          {"3.1 B, 60 % offloaded", LmWorkload("lm", three), divided, 33.3, 1.64},
          {"7.6 B offloaded", LmWorkload("lm", seven), offload, 71, 5.0},
          {"7.6 B, 60 % offloaded", LmWorkload("lm", seven), divided, 73.7, 3.79},
          {"TAEHV 16 x 12 x 64 px", Taehv(12, 64), with(plain, 16), 1.09, 0.00577},
          {"TAEHV 2 x 12 x 480 px", Taehv(12, 480), with(plain, 2), 5.98, 0.0223}};
}

TEST(Measured, MemoryWithin5AndTimeWithin20Percent) {
  Machine machine{*FindGpu("h200"), *FindCluster("h200-ib400")};
  for (const Case& c : Cases()) {
    const Line line = LineOf(c.workload, c.setting, machine);
    const double gib = static_cast<double>(line.memory.AllocatorPeak()) / kGiB;
    EXPECT_LT(std::abs(gib / c.gib - 1), 0.05) << c.name;
    EXPECT_LT(std::abs(line.time.Total() / c.seconds - 1), 0.20) << c.name;
  }
}

// The small end of --scale: a second rank on two cores (docs/benchmarks.md, "A second rank under ZeRO"), eight layers;
// milliseconds. The bandwidth is fitted to the first row. The optimizer's step is left out, as in the benchmark.
TEST(Measured, ASecondRankWithin20Percent) {
  struct Case {
    int64_t width;
    int stage;
    double alone, together;
  };
  const Case cases[] = {{1600, 1, 99.6, 122.6}, {1600, 2, 99.6, 120.9}, {1600, 3, 99.6, 131.5},
                        {512, 1, 10.8, 13.03},  {512, 2, 10.8, 13.16},  {512, 3, 10.8, 14.75}};
  for (const Case& c : cases) {
    Workload workload{.name = "layers"};
    for (int unit = 0; unit < 8; ++unit) {
      workload.units.push_back(fmt::format("u{}", unit));
      workload.parameters.push_back({fmt::format("p{}", unit), c.width * c.width, unit});
    }
    Setting s;
    s.ranks = s.batch = 2;
    s.stage = c.stage;
    s.gpu = false;
    Machine machine{.gpu = {.name = "core", .bandwidth = 1e30}, .links = *FindCluster("cpu")};
    machine.gpu.matmul = 6 * static_cast<double>(workload.trained()) / (c.alone / 1e3);
    machine.links.inside = 2.5e9;
    const double seconds = StepTimeOf(workload, s, machine).Total();
    EXPECT_LT(std::abs(seconds * 1e3 / c.together - 1), 0.20)
        << "stage " << c.stage << ", " << c.width << ": " << seconds * 1e3 << " ms of " << c.together;
  }
}

}  // namespace
}  // namespace lockstep::plan
