#include "launch/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace lockstep::launch {
namespace {

using place::Level;
using place::Starts;
using ::testing::HasSubstr;

// What was asked stays as it was asked, whatever is resolved from it.
static_assert(std::is_const_v<decltype(LaunchPlan::options)>);

struct Row {
  const char* what;
  Purpose purpose;
  bool nested;
  Starts starts;
  Level level;
  int nnodes;
  RunOptions asked;
  std::optional<Action> action;
  const char* error = "";
};

RunOptions Asked(bool dry_run, bool exec, const char* nproc = nullptr) {
  RunOptions options;
  options.dry_run = dry_run;
  options.exec = exec;
  if (nproc != nullptr) options.place.nproc_per_node = nproc;
  return options;
}

TEST(Prepare, WhatARunDoesFollowsFromItsPlacementAndItsFlags) {
  constexpr auto kRun = Purpose::kRun, kCheck = Purpose::kPreflight, kExplain = Purpose::kExplain;
  const RunOptions plain = Asked(false, false), dry = Asked(true, false), exec = Asked(false, true);
  const RunOptions eight = Asked(false, false, "8");
  const Row rows[] = {
      {"one node", kRun, false, Starts::kPerNode, Level::kNode, 1, plain, Action::kLaunch},
      {"one launcher per node", kRun, false, Starts::kPerNode, Level::kNode, 2, plain, Action::kLaunch},
      {"one launcher per rank", kRun, false, Starts::kPerProcess, Level::kProcess, 2, plain, Action::kLaunch},
      {"--exec", kRun, false, Starts::kPerProcess, Level::kProcess, 2, exec, Action::kExecRank},
      {"--exec per node", kRun, false, Starts::kPerNode, Level::kNode, 1, exec, {}, "started per node (8 ranks"},
      {"batch script", kRun, false, Starts::kOnce, Level::kNode, 2, plain, Action::kFanOut},
      {"batch script with --exec", kRun, false, Starts::kOnce, Level::kNode, 2, exec, Action::kFanOut},
      {"batch script of one node", kRun, false, Starts::kOnce, Level::kNode, 1, plain, Action::kLaunch},
      {"nested", kRun, true, Starts::kPerProcess, Level::kProcess, 1, plain, Action::kExecNested},
      {"nested, once", kRun, true, Starts::kOnce, Level::kNode, 2, plain, Action::kExecNested},
      {"nested with ranks", kRun, true, Starts::kPerNode, Level::kNode, 1, eight, {}, "asked to start 8 ranks"},
      {"dry run", kRun, false, Starts::kPerNode, Level::kNode, 1, dry, Action::kDescribe},
      {"dry run, once", kRun, false, Starts::kOnce, Level::kNode, 2, dry, Action::kDescribe},
      {"dry run, nested", kRun, true, Starts::kPerNode, Level::kNode, 1, dry, Action::kDescribe},
      {"explain, once", kExplain, false, Starts::kOnce, Level::kNode, 2, plain, Action::kDescribe},
      {"preflight", kCheck, false, Starts::kPerNode, Level::kNode, 2, plain, Action::kLaunch},
      {"preflight, once", kCheck, false, Starts::kOnce, Level::kNode, 2, plain, Action::kFanOut},
      {"preflight in a rank", kCheck, true, Starts::kPerNode, Level::kNode, 1, eight, Action::kLaunch},
  };
  for (const Row& row : rows) {
    LaunchPlan plan(row.asked, {});
    plan.placement.nested = row.nested;
    plan.placement.starts = row.starts;
    plan.placement.level = row.level;
    plan.placement.nnodes = row.nnodes;
    plan.placement.nproc_per_node = 8;
    const Result<Action> action = ChooseAction(plan, row.purpose);
    EXPECT_EQ(action.ok(), row.action.has_value()) << row.what;
    if (action.ok() && row.action) {
      EXPECT_EQ(*action, *row.action) << row.what;
    }
    EXPECT_THAT(action.status().message(), HasSubstr(row.error)) << row.what;
  }
}

TEST(Prepare, TheCountsOfAFanOutAreNumbersOrAnErrorThatNamesTheVariable) {
  const struct {
    const char* counts;
    const char* node;
    std::optional<int> nproc;
    const char* error;
  } rows[] = {
      {"4", "1", 4, ""},
      {"2,1", "1", 1, ""},
      {"2,1", "7", 1, ""},
      {"", "0", {}, "LOCKSTEP_NPROC_BY_NODE"},
      {"2,x", "0", {}, "LOCKSTEP_NPROC_BY_NODE"},
      {"0", "0", {}, "LOCKSTEP_NPROC_BY_NODE"},
      {"2,1", "one", {}, "SLURM_NODEID"},
  };
  for (const auto& row : rows) {
    const place::MachineOptions machine{.gpus = 0, .cpus = 1, .host = "node1", .foreign_environment = true};
    const auto prepared =
        Prepare({}, {{"LOCKSTEP_NPROC_BY_NODE", row.counts}, {"SLURM_NODEID", row.node}}, Purpose::kExplain, machine);
    ASSERT_TRUE(prepared.ok());
    const place::Placement& placement = prepared->plan.placement;
    if (row.nproc) {
      EXPECT_EQ(placement.nproc_per_node, row.nproc) << row.counts;
    }
    EXPECT_THAT(placement.error.message(), HasSubstr(row.error)) << row.counts;
    EXPECT_FALSE(prepared->plan.options.place.nproc_per_node) << "the user asked for none";
  }
}

}  // namespace
}  // namespace lockstep::launch
