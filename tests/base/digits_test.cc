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

TEST(Digits, ThoseATextBeginsWithAreTakenAndTheRestIsLeft) {
  const struct {
    std::string_view text;
    std::optional<int> number;
    std::string_view rest;
  } cases[] = {
      {"12.4", 12, ".4"}, {"7", 7, ""},     {"x1", {}, "x1"},
      {"", {}, ""},       {"-3", {}, "-3"}, {"99999999999,", {}, "99999999999,"},
  };
  for (const auto& test : cases) {
    std::string_view rest = test.text;
    EXPECT_EQ(TakeDigits(&rest), test.number) << test.text;
    EXPECT_EQ(rest, test.rest) << test.text;
    EXPECT_EQ(LeadingDigits(test.text), test.number) << test.text;
  }
}

TEST(Digits, AnIntegerMayHaveOneMinus) {
  EXPECT_EQ(ParseInteger("-9"), -9);
  EXPECT_EQ(ParseInteger("9"), 9);
  for (const char* text : {"", "-", "--9", "+9", "- 9", "9-"}) EXPECT_FALSE(ParseInteger(text)) << text;
}

}  // namespace
}  // namespace lockstep
