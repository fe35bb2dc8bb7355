#include "record/log_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "base/files.h"

namespace lockstep::record {
namespace {

class LogTailTest : public testing::Test {
 protected:
  // A writer as the format describes it: shift the numbers up, drop beyond keep, rename, open anew.
  void Rotate(int keep) {
    std::error_code ignored;
    std::filesystem::remove(fmt::format("{}.{}", path_, keep), ignored);
    for (int i = keep - 1; i >= 1; --i) {
      std::filesystem::rename(fmt::format("{}.{}", path_, i), fmt::format("{}.{}", path_, i + 1), ignored);
    }
    std::filesystem::rename(path_, path_ + ".1", ignored);
  }
  void Write(const std::string& line) { ASSERT_TRUE(AppendLine(path_, line).ok()); }
  static std::string ReadAll(LogTail* tail) {
    std::string text;
    while (tail->Read(&text)) {
    }
    return text;
  }

  TempDir dir_ = *TempDir::Create();
  std::string path_ = dir_ / "rank-0.log";
};

TEST_F(LogTailTest, AMissingLogHasNothingUntilItAppears) {
  LogTail tail(path_);
  EXPECT_EQ(ReadAll(&tail), "");
  Write("a");
  EXPECT_EQ(ReadAll(&tail), "a\n");
  EXPECT_EQ(ReadAll(&tail), "");
}

TEST_F(LogTailTest, RotatedFilesAreReadOldestFirst) {
  for (const char* line : {"1", "2", "3"}) {
    Write(line);
    Rotate(5);
  }
  Write("4");
  LogTail tail(path_);
  EXPECT_EQ(ReadAll(&tail), "1\n2\n3\n4\n");
}

TEST_F(LogTailTest, WhatWasWrittenBetweenTheLastReadAndARotationIsNotLost) {
  Write("1");
  LogTail tail(path_);
  EXPECT_EQ(ReadAll(&tail), "1\n");
  Write("2");
  Rotate(5);
  EXPECT_EQ(ReadAll(&tail), "2\n");  // between rename and the new file
  Write("3");
  Rotate(5);
  Write("4");
  Rotate(5);
  Write("5");
  EXPECT_EQ(ReadAll(&tail), "3\n4\n5\n");
  EXPECT_EQ(tail.gaps(), 0u);
}

TEST_F(LogTailTest, LinesRotatedAwayUnreadAreAGapThatIsCounted) {
  Write("1");
  LogTail tail(path_);
  EXPECT_EQ(ReadAll(&tail), "1\n");
  for (const char* line : {"2", "3", "4"}) {
    Rotate(1);
    Write(line);
  }
  std::string text;
  for (int i = 0; i < 5; ++i) text += ReadAll(&tail);
  EXPECT_EQ(text, "3\n4\n");
  EXPECT_EQ(tail.gaps(), 1u);
}

TEST_F(LogTailTest, ATruncatedLogIsReadFromItsBeginning) {
  Write("a long first line");
  LogTail tail(path_);
  ReadAll(&tail);
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  Write("b");
  EXPECT_EQ(ReadAll(&tail), "b\n");
  EXPECT_EQ(tail.gaps(), 1u);
}

TEST_F(LogTailTest, TheLastLinesAreCountedAcrossRotatedFiles) {
  Write("1");
  Write("2");
  Rotate(5);
  Write("3");
  Write("4");
  for (auto [lines, expected] :
       {std::pair(0, ""), std::pair(1, "4\n"), std::pair(2, "3\n4\n"), std::pair(3, "2\n3\n4\n"),
        std::pair(4, "1\n2\n3\n4\n"), std::pair(99, "1\n2\n3\n4\n")}) {
    LogTail tail(path_);
    tail.SkipToLast(static_cast<size_t>(lines));
    EXPECT_EQ(ReadAll(&tail), expected) << lines;
  }
}

TEST_F(LogTailTest, AnUnfinishedLastLineIsALine) {
  ASSERT_TRUE(WriteFileAtomic(path_, "1\n2\n3").ok());
  LogTail tail(path_);
  tail.SkipToLast(2);
  EXPECT_EQ(ReadAll(&tail), "2\n3");
}

TEST_F(LogTailTest, TheLastLinesOfALogLargerThanAnyBufferAreExact) {
  std::string text, expected;
  for (int i = 0; i < 20000; ++i) {
    std::string line = fmt::format("line {} {}\n", i, std::string(static_cast<size_t>(i % 97), 'x'));
    text += line;
    if (i >= 20000 - 5000) expected += line;
  }
  ASSERT_TRUE(WriteFileAtomic(path_, text).ok());
  LogTail tail(path_);
  tail.SkipToLast(5000);
  EXPECT_EQ(ReadAll(&tail), expected);
}

TEST_F(LogTailTest, AReaderBesideARotatingWriterSeesEveryLineOnceAndInOrder) {
  constexpr int kLines = 3000;
  std::thread writer([&] {
    std::mt19937 random(7);
    for (int i = 0; i < kLines; ++i) {
      if (random() % 50 == 0) Rotate(1000);  // keeps all: then nothing may be missing
      (void)AppendLine(path_, std::to_string(i));
    }
    (void)AppendLine(path_, "end");
  });
  LogTail tail(path_);
  std::string text;
  while (!text.ends_with("end\n")) tail.Read(&text);
  writer.join();
  std::string expected;
  for (int i = 0; i < kLines; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(text, expected + "end\n");
  EXPECT_EQ(tail.gaps(), 0u);
}

}  // namespace
}  // namespace lockstep::record
