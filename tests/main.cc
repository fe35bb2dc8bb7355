// main() of every unit test program. A run that left a test out although none failed ends with 77, which ctest counts
// as skipped: with several cases in one run nobody would notice otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  return code == 0 && testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? 77 : code;
}
