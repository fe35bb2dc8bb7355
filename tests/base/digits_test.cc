#include "base/digits.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Digits, NothingButDigitsThatFit) {
  struct {
    const char* text;
    bool digits;
    std::optional<int> number;
  } const cases[] = {
      {"0", true, 0},           {"007", true, 7},   {"2147483647", true, 2147483647},
      {"2147483648", true, {}}, {"", false, {}},    {"-1", false, {}},
      {"+1", false, {}},        {" 1", false, {}},  {"1 ", false, {}},
      {"1x", false, {}},        {"0x1", false, {}}, {"1.0", false, {}},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(IsDigits(test.text), test.digits) << test.text;
    EXPECT_EQ(ParseDigits(test.text), test.number) << test.text;
  }
  EXPECT_EQ(ParseDigits<long>("2147483648"), 2147483648);
}

}  // namespace
}  // namespace lockstep
