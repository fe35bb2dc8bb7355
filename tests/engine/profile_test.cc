#include "engine/profile.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "engine/train_on.h"

namespace lockstep::engine {
namespace {

TEST(Profile, TracesTheStepsItIsAskedFor) {
  const Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string file = dir->path() + "/profile/rank-0.json";
  Profile profile({.start = 2, .steps = 2}, file, /*rank=*/3, /*cuda=*/false);
  std::vector<uint64_t> turns;
  std::optional<record::TraceSummary> seen;
  for (uint64_t step = 0; step < 6; ++step) {
    if (profile.Due(step)) {
      turns.push_back(step);
      const auto turned = profile.Turn();
      ASSERT_TRUE(turned.ok()) << turned.status().ToString();
      ASSERT_EQ(turned->has_value(), step == 4);
      seen = *turned;
    }
    const TraceScope scope(record::kStepScope, step + 1);
    const TraceScope forward(record::kForwardScope);
    at::mm(at::ones({8, 8}), at::ones({8, 8}));
  }
  EXPECT_EQ(turns, (std::vector<uint64_t>{2, 4}));
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->rank, 3);
  EXPECT_EQ(seen->steps, 2u);
  EXPECT_GT(seen->host.at("forward"), 0);
  EXPECT_LE(seen->host.at("forward"), seen->seconds);
  std::ifstream in(file);
  const auto trace = nlohmann::json::parse(in);
  int products = 0;
  for (const auto& event : trace["traceEvents"]) products += event.value("name", "") == "aten::mm" ? 1 : 0;
  EXPECT_EQ(products, 2);
  EXPECT_FALSE(Profile({}, file, 0, false).Due(0)) << "none unless asked";
}

// What is traced is the fifth step of the process: none of a first phase of three, the second of the phase after, and
// none of one that begins later.
TEST(Profile, CountsTheStepsOfTheProcessThroughItsPhases) {
  const struct {
    uint64_t before;
    std::optional<int> traced;
  } rows[] = {{0, std::nullopt}, {3, 2}, {6, std::nullopt}};
  for (const auto& row : rows) {
    const Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    Job job;
    job.config.train.steps = 3;
    job.config.track.profile = {.start = 4, .steps = 1};
    job.options.run_dir = dir->path();
    job.options.steps_before = row.before;
    const Outcome done = TrainOn(1, job).front();
    ASSERT_TRUE(done.status.ok()) << done.status.ToString();
    std::ifstream in(dir->path() + "/profile/rank-0.json");
    ASSERT_EQ(in.is_open(), row.traced.has_value()) << row.before;
    if (!row.traced) continue;
    std::vector<std::string> steps;
    const auto trace = nlohmann::json::parse(in);
    for (const auto& event : trace["traceEvents"]) {
      const std::string name = event.value("name", "");
      if (name.starts_with(record::kStepScope)) steps.push_back(name);
    }
    EXPECT_EQ(steps, std::vector{record::kStepScope + std::to_string(*row.traced)});
  }
}

}  // namespace
}  // namespace lockstep::engine
