// What of a log is sent for a diagnosis: its end, and what was said before the end was flooded.
#include "logs/log_excerpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"

namespace lockstep::logs {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class Excerpt : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<TempDir>(std::move(*dir));
  }
  LogExcerpt Read(const std::string& text, size_t bytes) {
    const std::string path = *dir_ / "rank-0.log";
    std::ofstream(path) << text;
    return ReadExcerpt(path, bytes);
  }
  static std::string Flood(int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += "cleanup " + std::to_string(i) + "\n";
    return text;
  }

  std::unique_ptr<TempDir> dir_;
};

TEST_F(Excerpt, ASmallLogIsTakenWhole) {
  const LogExcerpt excerpt = Read("one\ntwo\n", 1024);
  EXPECT_EQ(excerpt.text, "one\ntwo\n");
  EXPECT_EQ(excerpt.first_line, 1u);
  EXPECT_THAT(excerpt.earlier, IsEmpty());
}

TEST_F(Excerpt, OfALargeOneTheLastLinesWithTheirNumber) {
  const LogExcerpt excerpt = Read(Flood(100000), 1024);
  EXPECT_LE(excerpt.text.size(), 1024u);
  EXPECT_THAT(excerpt.text, EndsWith("cleanup 99999\n"));
  // Line N says N - 1.
  EXPECT_THAT(excerpt.text, StartsWith("cleanup " + std::to_string(excerpt.first_line - 1) + "\n"));
  EXPECT_THAT(excerpt.earlier, IsEmpty());
}

TEST_F(Excerpt, ATracebackBeforeAFloodIsKeptWithItsLine) {
  const std::string trouble = "Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: seven\n";
  const LogExcerpt excerpt = Read("hello\n" + trouble + Flood(500), 1024);
  EXPECT_THAT(excerpt.text, EndsWith("cleanup 499\n"));
  EXPECT_THAT(excerpt.earlier, StartsWith(trouble));
  EXPECT_EQ(excerpt.earlier_line, 2u);
}

TEST_F(Excerpt, OfAVeryLongLineTheBeginningIsKept) {
  const LogExcerpt excerpt =
      Read("Traceback (most recent call last):\nValueError: " + std::string(300000, 'a') + "\n", 131072);
  EXPECT_THAT(excerpt.text, HasSubstr("Traceback"));
  EXPECT_THAT(excerpt.text, HasSubstr("ValueError: aaa"));
  EXPECT_LT(excerpt.text.size(), 10000u);
  EXPECT_EQ(excerpt.first_line, 1u);
}

TEST_F(Excerpt, WhatIsNotThereIsEmpty) { EXPECT_THAT(ReadExcerpt(*dir_ / "none.log", 1024).text, IsEmpty()); }

}  // namespace
}  // namespace lockstep::logs
