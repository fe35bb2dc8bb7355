#include "cli/plan_flags.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(PlanFlags, NumbersOfParameters) {
  for (const auto& [text, count] : {std::pair("124M", int64_t{124'000'000}),
                                    {"7B", 7'000'000'000},
                                    {"1.5B", 1'500'000'000},
                                    {"7e9", 7'000'000'000},
                                    {"123578880", 123'578'880}}) {
    const Result<int64_t> read = ParseParameterCount(text);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_EQ(*read, count);
  }
  for (const char* wrong : {"", "B", "-7B", "0", "7G", "7 B", "nan", "inf", "1e99", "12"}) {
    EXPECT_FALSE(ParseParameterCount(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::cli
