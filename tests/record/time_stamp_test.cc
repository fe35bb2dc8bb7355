#include "record/time_stamp.h"

#include <gtest/gtest.h>

namespace lockstep::record {
namespace {

TEST(TimeStamps, AreReadInManyForms) {
  const double noon = 1763208000;  // 2025-11-15T12:00:00Z
  for (const char* text :
       {"2025-11-15T12:00:00Z x", "2025-11-15 12:00:00 x", "2025/11/15 12:00:00 x", "11/15/2025 12:00:00 - INFO",
        "2025-11-15T13:00:00+01:00 x", "2025-11-15_12:00:00", "I1115 12:00:00.000000 1 x", "Nov 15 12:00:00 host x",
        "Sat Nov 15 12:00:00 2025] x", "11-15 12:00:00 x", "25/11/15 12:00:00 INFO"}) {
    const auto stamp = ParseTimeStamp(text, 2025);
    ASSERT_TRUE(stamp) << text;
    EXPECT_DOUBLE_EQ(stamp->time, noon) << text;
  }
  EXPECT_NEAR(ParseTimeStamp("2025-11-15 12:00:00,250 x", 2025)->time, noon + 0.25, 1e-6);
  EXPECT_NEAR(ParseTimeStamp("E626 05:06:30.929096625 x", 2025)->time, 1750914390.929, 1e-3);
  for (const char* text : {"2025-13-15 12:00:00", "hello", "12:00:00", "2025-11-15", "E99999 12:00:00.0", ""}) {
    EXPECT_FALSE(ParseTimeStamp(text, 2025)) << text;
  }
}

}  // namespace
}  // namespace lockstep::record
