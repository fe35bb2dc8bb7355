#include "base/own_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(OwnProgram, KnowsItsFile) { EXPECT_THAT(OwnExecutable(""), EndsWith("/base_test")); }

// Beside base_test there is none, so the variable and PATH decide.
TEST(OwnProgram, TheEngineIsFoundWhereTheVariableOrPathSay) {
  auto folder = TempDir::Create("engine");
  ASSERT_TRUE(folder.ok());
  const std::string file = *folder / kEngineName;
  ASSERT_TRUE(WriteFileAtomic(file, "#!/bin/sh\n", 0755).ok());
  const std::string path = std::getenv("PATH") == nullptr ? "" : std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  unsetenv("LOCKSTEP_TRAIN");
  EXPECT_THAT(FindEngine().status().message(), AllOf(HasSubstr("lockstep-train was not found"), HasSubstr("PATH")));
  EXPECT_THAT(FindEngine().status().hint(), HasSubstr("LOCKSTEP_TRAIN"));
  setenv("LOCKSTEP_TRAIN", file.c_str(), 1);
  EXPECT_EQ(*FindEngine(), file);
  unsetenv("LOCKSTEP_TRAIN");
  setenv("PATH", ("/nowhere:" + file.substr(0, file.rfind('/'))).c_str(), 1);
  EXPECT_EQ(*FindEngine(), file);
  setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace lockstep
