#include "base/progress.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ProgressTest, SaysHowFarAndHowLong) {
  EXPECT_EQ(ProgressText("reading", "sample", 250, 1000, 10), "reading: 250 of 1000 samples, 25 %, ETA 30.0s");
  EXPECT_EQ(ProgressText("reading", "sample", 250, 1000, 1), "reading: 250 of 1000 samples, 25 %") << "too early";
  EXPECT_EQ(ProgressText("a", "unit", 0, 1, 10), "a: 0 of 1 unit, 0 %");
  EXPECT_EQ(ProgressText("a", "unit", 5, 5, 10), "a: 5 of 5 units, 100 %");
  EXPECT_EQ(ProgressText("a", "unit", 0, 0, 10), "a: 0 of 0 units");
}

TEST(ProgressTest, ATerminalIsLeftEmptyAndALogIsLeftAlone) {
  testing::internal::CaptureStderr();
  for (const bool terminal : {false, true}) {
    Progress progress("a", "unit", terminal);
    progress.Show(1, 2);  // too soon after the start for either
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace lockstep
