#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/text.h"

namespace lockstep {
namespace {

class LogTest : public testing::Test {
 protected:
  void TearDown() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_F(LogTest, LinesNameTheirLevelAndGoToStderr) {
  SetLogLevel(LogLevel::kDebug);
  testing::internal::CaptureStderr();
  LogDebug("d {}", 1);
  LogInfo("i {}", 2);
  LogWarn("w {}", 3);
  LogError("e {} {{}}", 4);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: debug: d 1\nlockstep: i 2\nlockstep: warning: w 3\nlockstep: error: e 4 {}\n");
}

TEST_F(LogTest, LinesBelowTheLevelAreNotWritten) {
  SetLogLevel(LogLevel::kWarn);
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  testing::internal::CaptureStderr();
  LogInfo("quiet");
  LogWarn("loud");
  SetLogLevel(LogLevel::kOff);
  LogError("silent");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "lockstep: warning: loud\n");
}

TEST_F(LogTest, ThreadsDoNotMixTheirLines) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (char c : {'a', 'b', 'c'}) {
    threads.emplace_back([c] {
      for (int i = 0; i < 100; ++i) LogInfo("{}", std::string(200, c));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> lines = Split(testing::internal::GetCapturedStderr(), '\n');
  ASSERT_EQ(lines.size(), 301u);
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(lines[i], "lockstep: " + std::string(200, lines[i].back()));
}

}  // namespace
}  // namespace lockstep
