#include "launch/fanout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

FanOut Plan(const Environment& env, const place::Placement& placement) {
  RunOptions options;
  options.argv = {"--max-restarts", "2", "train.py", "--lr", "1"};
  LaunchPlan plan(options, env);
  plan.placement = placement;
  auto fan_out = PlanFanOut(plan, {"/shared/lockstep", "run"});
  EXPECT_TRUE(fan_out.ok());
  return *fan_out;
}

place::Placement TwoNodes() {
  place::Placement placement;
  placement.starts = place::Starts::kOnce;
  placement.nnodes = 2;
  return placement;
}

TEST(FanOut, OneLauncherPerNodeWithTheSameCommandLine) {
  const FanOut plan = Plan({{"SLURM_JOB_ID", "7"}}, TwoNodes());
  EXPECT_EQ(plan.argv.front(), "srun");
  EXPECT_THAT(plan.argv, Contains("--nodes=2"));
  EXPECT_THAT(plan.argv, Contains("--ntasks-per-node=1"));
  const std::vector<std::string> tail(plan.argv.end() - 7, plan.argv.end());
  EXPECT_EQ(tail,
            (std::vector<std::string>{"/shared/lockstep", "run", "--max-restarts", "2", "train.py", "--lr", "1"}));
}

TEST(FanOut, ALauncherGetsAllOfItsNodeNotATasksShare) {
  const FanOut plan = Plan({{"SLURM_JOB_CPUS_PER_NODE", "32(x1),16"},
                            {"SLURM_GPUS_PER_TASK", "1"},
                            {"SLURM_NTASKS_PER_NODE", "8"},
                            {"SLURM_CPUS_PER_TASK", "4"},
                            {"KEEP", "me"}},
                           TwoNodes());
  EXPECT_THAT(plan.argv, Contains("--cpus-per-task=16"));
  EXPECT_THAT(plan.env, Contains("KEEP=me"));
  EXPECT_THAT(plan.env, Not(Contains("SLURM_GPUS_PER_TASK=1")));
  EXPECT_THAT(plan.env, Not(Contains("SLURM_NTASKS_PER_NODE=8")));
}

TEST(FanOut, WhatTheScriptAskedForPerNodeIsPassedOn) {
  place::Placement placement = TwoNodes();
  placement.nproc_by_node = {2, 1};
  EXPECT_THAT(Plan({}, placement).env, Contains("LOCKSTEP_NPROC_BY_NODE=2,1"));
  placement.nproc_by_node.clear();
  placement.nproc_per_node = 4;
  placement.nproc_explicit = true;
  EXPECT_THAT(Plan({}, placement).env, Contains("LOCKSTEP_NPROC_BY_NODE=4"));
}

TEST(FanOut, ANodeListThatIsNoneIsAnErrorThatNamesItsVariable) {
  LaunchPlan plan({}, {{"SLURM_JOB_CPUS_PER_NODE", "many"}});
  plan.placement = TwoNodes();
  const auto fan_out = PlanFanOut(plan, {"/shared/lockstep", "run"});
  ASSERT_FALSE(fan_out.ok());
  EXPECT_THAT(fan_out.status().message(), HasSubstr("SLURM_JOB_CPUS_PER_NODE"));
}

}  // namespace
}  // namespace lockstep::launch
