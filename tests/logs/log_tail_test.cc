#include "logs/log_tail.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::logs {
namespace {

using namespace std::string_literals;

constexpr auto kIgnore = [](std::string_view) {};

std::vector<std::string> Visited(LogTail& tail, int stream, std::string_view data, int lines = 100) {
  std::vector<std::string> seen;
  tail.Feed(stream, data, lines, [&](std::string_view line) { seen.emplace_back(line); });
  return seen;
}

TEST(LogTail, HoldsTheLastLinesOfBothStreamsInOrder) {
  LogTail tail;
  tail.Feed(0, "a\nb\n", 0, kIgnore);
  tail.Feed(1, "error\n", 0, kIgnore);
  tail.Feed(0, "c\n", 0, kIgnore);
  EXPECT_EQ(tail.Text(64, 1000), "a\nb\nerror\nc\n");
  EXPECT_EQ(tail.Text(2, 1000), "error\nc\n");
  EXPECT_EQ(tail.Text(64, 9), "error\nc\n");
  EXPECT_EQ(tail.Text(0, 9), "");
}

TEST(LogTail, AnUnfinishedLineComesLastWithANewline) {
  LogTail tail;
  tail.Feed(0, "done\nnot do", 0, kIgnore);
  tail.Feed(1, "Segmentation fault", 0, kIgnore);
  EXPECT_EQ(tail.Text(64, 1000), "done\nnot do\nSegmentation fault\n");
  tail.Feed(0, "ne\n", 0, kIgnore);
  EXPECT_EQ(tail.Text(64, 1000), "done\nnot done\nSegmentation fault\n");
}

TEST(LogTail, ABarOfAThousandStatesTakesOneLine) {
  LogTail tail;
  tail.Feed(0, "before\n", 0, kIgnore);
  for (int i = 0; i <= 1000; ++i) tail.Feed(1, "\r step bar " + std::to_string(i) + "/1000", 0, kIgnore);
  EXPECT_EQ(tail.Text(64, 16384), "before\n step bar 1000/1000\n");
  tail.Feed(1, "\n", 0, kIgnore);
  tail.Feed(0, "after\n", 0, kIgnore);
  EXPECT_EQ(tail.Text(64, 16384), "before\n step bar 1000/1000\nafter\n");
}

TEST(LogTail, ATrailingCarriageReturnKeepsItsTextAndWindowsLinesLoseTheirs) {
  LogTail tail;
  tail.Feed(0, "50%\r", 0, kIgnore);
  EXPECT_EQ(tail.Text(64, 100), "50%\n");
  tail.Feed(0, "60%\r\nwindows\r\n", 0, kIgnore);
  EXPECT_EQ(tail.Text(64, 100), "60%\nwindows\n");
}

TEST(LogTail, AFloodLeavesItsEndAndBoundedMemory) {
  LogTail tail;
  std::string flood;
  for (int i = 0; i < 100000; ++i) flood += "line " + std::to_string(i) + "\n";
  for (size_t at = 0; at < flood.size(); at += 200000)
    tail.Feed(0, std::string_view(flood).substr(at, 200000), 0, kIgnore);
  EXPECT_EQ(tail.Text(3, 1000), "line 99997\nline 99998\nline 99999\n");
  const std::string all = tail.Text(1 << 20, 1 << 20);
  EXPECT_GE(all.size(), LogTail::kKeep - 200);
  EXPECT_LE(all.size(), 2 * LogTail::kKeep);
  EXPECT_TRUE(flood.ends_with(all));
}

TEST(LogTail, GarbageBecomesValidUtf8) {
  LogTail tail;
  tail.Feed(0, "ok \xC3\xA4 \xFF\xFE \xE2\x82 \xED\xA0\x80 nul\0 end\n"s, 0, kIgnore);
  EXPECT_EQ(tail.Text(1, 1000), "ok \xC3\xA4 \uFFFD\uFFFD \uFFFD\uFFFD \uFFFD\uFFFD\uFFFD nul  end\n");
}

TEST(LogTail, ALineTooLongForTheReportShowsItsEnd) {
  LogTail tail;
  tail.Feed(0, std::string(3000, 'x') + "THE END\n", 0, kIgnore);
  EXPECT_EQ(tail.Text(5, 10), "xxTHE END\n");
}

TEST(LogTail, VisitsLinesAndOverwrittenBarStatesUpToTheBudget) {
  LogTail tail;
  EXPECT_EQ(Visited(tail, 0, "a\nb\nc\nrest", 2), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Visited(tail, 0, " joined\n"), (std::vector<std::string>{"rest joined"}));
  EXPECT_EQ(Visited(tail, 1, "\r1/3\r2/3\r3/3\n"), (std::vector<std::string>{"1/3", "2/3", "3/3"}));
}

}  // namespace
}  // namespace lockstep::logs
