#include "base/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

TEST(VersionTest, NamesVersionCommitAndItsDate) {
  EXPECT_EQ(VersionText("lockstep", {"0.2.0", "1a2b3c4", "2026-11-16"}), "lockstep 0.2.0 (commit 1a2b3c4, 2026-11-16)");
  EXPECT_EQ(VersionText("lockstep-train", {"0.2.0", "1a2b3c4-dirty", "2026-11-16"}),
            "lockstep-train 0.2.0 (commit 1a2b3c4-dirty, 2026-11-16)");
}

TEST(VersionTest, SaysPlainlyThatTheCommitIsUnknown) {
  EXPECT_EQ(VersionText("lockstep", {"0.2.0", "", ""}),
            "lockstep 0.2.0 (commit unknown: built from sources without git)");
}

TEST(VersionTest, AnUnknownCommitIsNullInJson) {
  EXPECT_EQ(VersionJson("lockstep", {"0.2.0", "1a2b3c4", "2026-11-16"}).dump(),
            R"({"commit":"1a2b3c4","commit_date":"2026-11-16","program":"lockstep","version":"0.2.0"})");
  EXPECT_EQ(VersionJson("lockstep", {"0.2.0", "", ""}).dump(),
            R"({"commit":null,"commit_date":null,"program":"lockstep","version":"0.2.0"})");
}

TEST(VersionTest, TheVersionIsCompiledInAndTestsAreNotRelinkedForACommit) {
  EXPECT_THAT(ThisBuild().version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_EQ(ThisBuild().commit, "");
}

}  // namespace
}  // namespace lockstep
