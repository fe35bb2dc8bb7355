#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(ParseSizeTest, ReadsBytesAndUnitsExactly) {
  for (auto [text, bytes] : {std::pair<const char*, uint64_t>{"0", 0},
                             {"4096", 4096},
                             {"512B", 512},
                             {"25MiB", 26214400},
                             {"25 MiB", 26214400},
                             {" 100MB ", 100000000},
                             {"1.5GiB", 1610612736},
                             {"0.5KiB", 512},
                             {".5KiB", 512},
                             {"1.1KB", 1100},
                             {"1.0001KB", 1000},  // 1000.1 bytes, rounded down
                             {"2TB", 2000000000000},
                             {"16PiB", 18014398509481984},
                             {"5e8", 500000000},
                             {"1.5e3", 1500},
                             {"1E+3", 1000},
                             {"18446744073709551615", std::numeric_limits<uint64_t>::max()}}) {
    Result<uint64_t> parsed = ParseSize(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseSizeTest, RefusesWhatIsNoSize) {
  for (const char* text : {"",         " ",
                           "B",        "MiB",
                           "-1",       "-1MiB",
                           "+1",       "1.5",
                           "1.5B",     "1e-3",
                           "1e",       "1ee3",
                           "1e3MiB",   "25M",
                           "25k",      "25mib",
                           "25Mib",    "25 MiB x",
                           "1..5MiB",  "1.MiB",
                           "0x10",     "1_000",
                           "nan",      "inf",
                           "1,5MiB",   "18446744073709551616",
                           "16385PiB", "99999999999999999999",
                           "1e20",     "1e99",
                           "1e999"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(ParseSizeTest, SaysWhatItExpectedFoundAndMeant) {
  EXPECT_THAT(ParseSize("25M").status().message(), HasSubstr("'M' is ambiguous, write MiB (1024s) or MB (thousands)"));
  EXPECT_THAT(ParseSize("25mib").status().message(), HasSubstr("did you mean 'MiB'?"));
  EXPECT_THAT(ParseSize("x").status().message(), HasSubstr("found 'x'"));
  EXPECT_EQ(ParseSize("x").status().code(), Code::kUsage);
}

TEST(ParseDurationTest, ReadsUnitsInFallingOrder) {
  for (auto [text, ms] : {std::pair<const char*, int64_t>{"30s", 30000},
                          {"250ms", 250},
                          {"5m", 300000},
                          {"1h30m", 5400000},
                          {"2d", 172800000},
                          {"1d2h3m4s5ms", 93784005},
                          {"2.5s", 2500},
                          {"0.001s", 1},
                          {"0s", 0},
                          {" 3s ", 3000}}) {
    Result<milliseconds> parsed = ParseDuration(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
    EXPECT_EQ(parsed->count(), ms) << text;
  }
}

TEST(ParseDurationTest, ABareNumberIsSecondsOnlyWhereTheCallerSaysSo) {
  EXPECT_THAT(ParseDuration("30").status().message(), HasSubstr("write 30s for seconds"));
  EXPECT_EQ(ParseDuration("30", BareNumber::kSeconds)->count(), 30000);
  EXPECT_EQ(ParseDuration("0.25", BareNumber::kSeconds)->count(), 250);
  EXPECT_EQ(ParseDuration("5m", BareNumber::kSeconds)->count(), 300000);
  EXPECT_FALSE(ParseDuration("5m30", BareNumber::kSeconds).ok());
}

TEST(ParseDurationTest, RefusesWhatIsNoDuration) {
  for (const char* text : {"", " ", "s", "-1s", "+1s", "30m1h", "1s1s", "1ms1s", "1x", "1 s x", "1us", "1min",
                           "0.0001s", "1..5s", "1.s", "106751991168d", "99999999999999999999s", "1e3s", "m5"}) {
    EXPECT_FALSE(ParseDuration(text, BareNumber::kSeconds).ok()) << text;
  }
}

TEST(FormatTest, IsForPeople) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(1023), "1023 B");
  EXPECT_EQ(FormatSize(26214400), "25.0 MiB");
  EXPECT_EQ(FormatSize(1610612736), "1.5 GiB");
  for (auto [ms, text] : {std::pair<int64_t, const char*>{0, "0ms"},
                          {250, "250ms"},
                          {999, "999ms"},
                          {3200, "3.2s"},
                          {59949, "59.9s"},
                          {59950, "1m00s"},
                          {60000, "1m00s"},
                          {307000, "5m07s"},
                          {3599499, "59m59s"},
                          {3599500, "1h00m"},
                          {3720000, "1h02m"},
                          {183600000, "2d03h"},
                          {-1500, "-1.5s"}}) {
    EXPECT_EQ(FormatDuration(milliseconds(ms)), text) << ms;
  }
}

TEST(ExactTest, ReadsBackToTheSameValueForRandomValues) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    uint64_t bytes = random() >> (random() % 64);
    if (i % 3 == 0) bytes = (bytes >> 30) << (random() % 30);  // round numbers, so that every unit is met
    EXPECT_EQ(*ParseSize(ExactSize(bytes)), bytes) << ExactSize(bytes);
    milliseconds ms(static_cast<int64_t>(random() >> (1 + random() % 63)));
    EXPECT_EQ(*ParseDuration(ExactDuration(ms)), ms) << ExactDuration(ms);
  }
  EXPECT_EQ(ExactSize(26214400), "25MiB");
  EXPECT_EQ(ExactSize(100000000), "100MB");
  EXPECT_EQ(ExactDuration(milliseconds(60250)), "1m250ms");
}

TEST(ParseSizeTest, RandomTextIsNeverMoreThanAnError) {
  std::mt19937 random(2);
  const std::string alphabet = "0123456789.eE+- KMGTPkmib\xff";
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    for (unsigned n = random() % 12; n > 0; --n) text += alphabet[random() % alphabet.size()];
    accepted += ParseSize(text).ok() ? 1 : 0;
    (void)ParseDuration(text, BareNumber::kSeconds);
  }
  EXPECT_GT(accepted, 100);  // the loop meets valid text too
}

}  // namespace
}  // namespace lockstep
