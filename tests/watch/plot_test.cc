#include "watch/plot.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::watch {
namespace {

using Points = std::vector<std::pair<double, double>>;

TEST(PlotText, AStraightFallInAsciiIsADiagonal) {
  const std::vector<std::string> lines = PlotText({{0, 3}, {10, 0}}, {.columns = 24, .rows = 4}, false);
  const std::vector<std::string> expected = {
      "3 |****", "  |    ******", "  |          *******", "0 |                 ****", "   0                  10",
  };
  // 21 columns: column x stands in row 3x/20, rounded, halves away from zero.
  EXPECT_EQ(lines, expected);
}

TEST(PlotText, BrailleHasEightDotsToACell) {
  const std::vector<std::string> lines = PlotText({{0, 1}, {1, 1}, {2, 0}}, {.columns = 24, .rows = 3}, true);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[0].starts_with("1 │⠉⠉⠉")) << lines[0];
  EXPECT_TRUE(lines[2].ends_with("⢀") || lines[2].ends_with("⣀") || lines[2].ends_with("⠢") || lines[2].ends_with("⢄"))
      << lines[2];
}

TEST(PlotText, NoLineIsLongerThanAsked) {
  for (bool utf8 : {false, true}) {
    for (int columns : {24, 40, 100}) {
      Points points;
      for (int i = 0; i < 1000; ++i) points.emplace_back(i * 1e6, std::sin(i) * 1e-7);
      for (const std::string& line : PlotText(points, {columns, 5}, utf8)) {
        int characters = 0;
        for (char c : line) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
        EXPECT_LE(characters, columns) << line;
      }
    }
  }
}

TEST(PlotText, NothingToDrawIsNoPlot) {
  EXPECT_TRUE(PlotText({}, {}, true).empty());
  EXPECT_TRUE(PlotText({{1, 1}}, {}, true).empty());
  EXPECT_TRUE(PlotText({{1, 1}, {1, 2}}, {}, true).empty());
  EXPECT_TRUE(PlotText({{1, std::nan("")}, {2, INFINITY}}, {}, true).empty());
}

TEST(PlotText, AFlatLineIsDrawn) {
  const std::vector<std::string> lines = PlotText({{0, 5}, {9, 5}}, {.columns = 24, .rows = 3}, false);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(lines[1].find("*****"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::watch
