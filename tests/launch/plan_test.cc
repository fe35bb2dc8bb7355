#include "launch/plan.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(Plan, ARunIsNamedAfterWhatItsCommandNames) {
  const struct {
    const char* program;
    bool module;
    const char* expected;
  } rows[] = {
      {"train.py", false, "train.py"},       {"src/pkg/train.py", false, "train.py"},
      {"pkg.sub.mod", true, "mod"},          {"mod", true, "mod"},
      {"pkg.sub.__main__", true, "sub"},     {"pkg/tool/__main__.py", false, "tool"},
      {"__main__.py", false, "__main__.py"}, {"pkg/tool/", false, "tool"},
      {"./a.out", false, "a.out"},
  };
  for (const auto& row : rows) {
    RunOptions options;
    options.program = row.program;
    options.module = row.module;
    EXPECT_EQ(NameStem(options), row.expected) << row.program;
  }
  RunOptions engine;
  engine.program = "/opt/bin/my-train";
  engine.train_program = true;
  engine.args = {"train", "taehv", "--smoke"};
  EXPECT_EQ(NameStem(engine), "taehv");
}

// The launcher picks the workers' port at the rendezvous, unless the platform started each rank and chose one.
TEST(Plan, ADryRunShowsThePortOfThePlatformWhereItStartsTheRanks) {
  const struct {
    place::Level level;
    const char* port;
  } rows[] = {{place::Level::kNode, "(decided at the start)"}, {place::Level::kProcess, "31007"}};
  for (const auto& row : rows) {
    LaunchPlan plan({}, {});
    plan.placement.level = row.level;
    plan.placement.master_port = 31007;
    const auto document = nlohmann::json::parse(DescribePlan(plan, /*json=*/true));
    EXPECT_EQ(document["environment"]["MASTER_PORT"], row.port);
  }
}

}  // namespace
}  // namespace lockstep::launch
