#include "engine/phase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

using testing::HasSubstr;

Result<std::vector<PhaseSpec>> Read(const std::string& yaml) {
  Result<ConfigTree> tree = ConfigTree::Parse(yaml, "c.yaml", ConfigTree::Format::kYaml);
  EXPECT_TRUE(tree.ok()) << tree.status().ToString();
  return ReadPhases(tree->Take("phases"));
}

TEST(Phases, StepsCountThroughAndASchedulesStepsAreThoseOfItsOptimizer) {
  const auto phases = Read("phases: [{steps: 3}, {steps: 5, optimizer: fresh}, {steps: 7, optimizer: keep}]");
  ASSERT_TRUE(phases.ok()) << phases.status().ToString();
  struct {
    uint64_t begin, origin, schedule;
    bool keeps;
  } const expected[] = {{0, 0, 3, false}, {3, 3, 12, false}, {8, 3, 12, true}};
  for (size_t i = 0; i < 3; ++i) {
    const RunPhase phase = PlacePhase(*phases, i);
    EXPECT_EQ(phase.begin, expected[i].begin) << i;
    EXPECT_EQ(phase.origin, expected[i].origin) << i;
    EXPECT_EQ(phase.keeps_optimizer, expected[i].keeps) << i;
    EXPECT_EQ(phase.total, 15U) << i;
    EXPECT_EQ(ScheduleSteps(*phases, i), expected[i].schedule) << i;
  }
  std::vector<PhaseSpec> few = *phases;
  ShortenTo(8, &few);
  EXPECT_EQ(TotalSteps(few), 8U);
  EXPECT_TRUE(Read("train: {steps: 3}")->empty());
}

TEST(Phases, MistakesSayWhere) {
  struct {
    const char *yaml, *words;
  } const cases[] = {
      {"phases: 3", "c.yaml:1:9: phases: expected a list"},
      {"phases: [5]", "expected keys of a phase"},
      {"phases: [{data: {}}]", "phase 1 has no steps"},
      {"phases: [{steps: -1}]", "steps: expected a whole number above 0"},
      {"phases: [{steps: 1, optimizer: new}]", "expected keep or fresh"},
      {"phases: [{steps: 1, dta: {}}]", "unknown key 'dta' (did you mean 'data'?)"},
      {"phases: [{steps: 1, train: {steps: 4}}]", "a phase says them as `steps`"},
      {"phases: [{steps: 1, data: 7}]", "expected a section"},
  };
  for (const auto& one : cases) {
    const auto phases = Read(one.yaml);
    ASSERT_FALSE(phases.ok()) << one.yaml;
    EXPECT_THAT(phases.status().message(), HasSubstr(one.words));
  }
}

TEST(Phases, WhatAPhaseChangesLiesOverTheRest) {
  Result<ConfigTree> tree = ConfigTree::Parse(
      "train: {batch: 4, optimizer: {lr: 1, kind: adam}, groups: [1, 2]}\nphases: [{steps: 1, train: {optimizer: {lr: "
      "2}, "
      "groups: []}, data: {crop: 8}}]",
      "c.yaml", ConfigTree::Format::kYaml);
  ASSERT_TRUE(tree.ok());
  const auto phases = ReadPhases(tree->Take("phases"));
  ASSERT_TRUE(phases.ok());
  tree->Merge(phases->front().over);
  EXPECT_EQ(WriteYaml(tree->root()),
            "train:\n  batch: 4\n  optimizer:\n    lr: 2\n    kind: adam\n  groups: []\ndata:\n  crop: 8\n");
}

}  // namespace
}  // namespace lockstep::engine
