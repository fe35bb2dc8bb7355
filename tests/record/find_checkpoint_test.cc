#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "record/checkpoint_folder.h"
#include "small_state.h"

namespace lockstep::record {
namespace {

using testing::HasSubstr;

// Runs as this process would see them were it a rank of one of them.
class FindCheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [name, started, step] :
         {std::tuple("night-1", 100, 7), std::tuple("night-2", 200, 9), std::tuple("newest", 300, 0)}) {
      const std::string run = root_ + "/" + name;
      ASSERT_TRUE(MakeDirs(run).ok());
      ASSERT_TRUE(WriteFileAtomic(run + "/run.json", "{\"started\": " + std::to_string(started) + "}").ok());
      if (step > 0) {
        ASSERT_TRUE(WriteCheckpoint(run + "/checkpoints", SmallState(step).content, *PosixStorage()).ok());
      }
    }
    ASSERT_TRUE(WriteFileAtomic(dir_ / "weights.safetensors", "x").ok());
    setenv("LOCKSTEP_RUN_DIR", (root_ + "/newest").c_str(), 1);
  }
  void TearDown() override { unsetenv("LOCKSTEP_RUN_DIR"); }

  TempDir dir_ = *TempDir::Create();
  std::string root_ = dir_ / "runs";
};

TEST_F(FindCheckpointTest, ARunIsFoundAsWatchFindsIt) {
  const std::string first = root_ + "/night-1/checkpoints/step-7", second = root_ + "/night-2/checkpoints/step-9";
  for (const std::string& word : {std::string("night-1"), root_ + "/night-1", root_ + "/night-1/checkpoints", first}) {
    EXPECT_EQ(*FindCheckpoint(word), first) << word;
  }
  // Of the newest run that has one: the very newest may have only begun.
  for (const std::string& word : {std::string("latest"), root_ + "/latest"}) {
    EXPECT_EQ(*FindCheckpoint(word), second) << word;
  }
}

TEST_F(FindCheckpointTest, WhatIsNoRunIsLeftToOthersOrNamed) {
  for (const std::string& word :
       {dir_ / "weights.safetensors", dir_ / "nowhere", std::string("nowhere.pth"), dir_.path()}) {
    EXPECT_EQ(*FindCheckpoint(word), "") << word;
  }
  EXPECT_THAT(FindCheckpoint("nihgt-1").status().message(),
              testing::AllOf(HasSubstr("neither a file nor a run"), HasSubstr("did you mean 'night-1'?")));
  EXPECT_THAT(FindCheckpoint("night").status().message(), HasSubstr("fits 2 runs"));
  EXPECT_THAT(FindCheckpoint("newest").status().message(), HasSubstr("has no checkpoint"));
}

}  // namespace
}  // namespace lockstep::record
