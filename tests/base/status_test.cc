#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace lockstep {
namespace {

TEST(Status, CarriesWhatWhereAndWhatToDo) {
  const Status status = Status(Code::kUsage, "expected a number, found 'x'", "give a number").Context("--grace");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString(), "--grace: expected a number, found 'x'\n  do: give a number");
  EXPECT_TRUE(Status().Context("ignored").ok());
}

TEST(Status, ClassesHaveTheExitCodesOfTheContract) {
  const std::pair<Code, int> expected[] = {{Code::kOk, 0},         {Code::kUsage, 2},      {Code::kEnvironment, 3},
                                           {Code::kRendezvous, 4}, {Code::kRankFailed, 5}, {Code::kNodeLost, 6},
                                           {Code::kStalled, 7}};
  for (const auto& [code, exit] : expected) EXPECT_EQ(ExitCode(Status(code, "x")), exit);
}

TEST(Status, AResultIsAValueOrAReason) {
  const auto half = [](int n) -> Result<int> {
    if (n % 2 != 0) return Status(Code::kUsage, "odd");
    return n / 2;
  };
  EXPECT_EQ(*half(4), 2);
  EXPECT_EQ(half(3).status().message(), "odd");
  Result<std::unique_ptr<int>> moved = std::make_unique<int>(5);
  EXPECT_EQ(**moved, 5);
}

TEST(Status, ErrnoHasNameAndWords) { EXPECT_EQ(ErrnoText(ENOENT), "ENOENT: No such file or directory"); }

}  // namespace
}  // namespace lockstep
