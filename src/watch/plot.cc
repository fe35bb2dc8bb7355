#include "watch/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace lockstep::watch {
namespace {

// Points of one cell: 2 x 4 in braille, else one.
struct Grid {
  int cell_width, cell_height;
  int columns, rows;
  std::vector<uint8_t> cells;

  void Set(int x, int y) {
    if (x < 0 || y < 0 || x >= columns * cell_width || y >= rows * cell_height) return;
    // Bits of U+2800: the left column is 1 2 3 7, the right one 4 5 6 8.
    static constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells[static_cast<size_t>(y / cell_height * columns + x / cell_width)] |=
        cell_width == 2 ? kBits[y % 4][x % 2] : uint8_t{1};
  }

  std::string Cell(int column, int row) const {
    const uint8_t bits = cells[static_cast<size_t>(row * columns + column)];
    if (cell_width == 1) return bits != 0 ? "*" : " ";
    if (bits == 0) return " ";
    const unsigned code = 0x2800u + bits;
    return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
            static_cast<char>(0x80 | (code & 0x3f))};
  }
};

}  // namespace

bool TerminalIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    std::string text = value;
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

std::vector<std::string> PlotText(const std::vector<std::pair<double, double>>& given, PlotSize size, bool utf8) {
  std::vector<std::pair<double, double>> points = given;
  if (size.log_scale) {
    for (auto& [x, y] : points) y = y > 0 ? std::log(y) : NAN;
  }
  size.columns = std::max(size.columns, 24);
  size.rows = std::max(size.rows, 3);
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  size_t finite = 0;
  for (const auto& [x, y] : points) {
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    ++finite;
    x_low = std::min(x_low, x);
    x_high = std::max(x_high, x);
    y_low = std::min(y_low, y);
    y_high = std::max(y_high, y);
  }
  if (finite < 2 || !(x_high > x_low)) return {};

  const auto value = [&](double y) { return fmt::format("{:.3g}", size.log_scale ? std::exp(y) : y); };
  const std::string top = value(y_high), bottom = value(y_low);
  const int label = static_cast<int>(std::max(top.size(), bottom.size()));
  Grid grid{.cell_width = utf8 ? 2 : 1,
            .cell_height = utf8 ? 4 : 1,
            .columns = size.columns - label - 2,
            .rows = size.rows,
            .cells = {}};
  grid.cells.resize(static_cast<size_t>(grid.columns * grid.rows));
  const double width = grid.columns * grid.cell_width - 1, height = grid.rows * grid.cell_height - 1;
  const double y_span = y_high > y_low ? y_high - y_low : 1;
  // A flat line runs through the middle.
  auto row_of = [&](double y) { return y_high > y_low ? (y_high - y) / y_span * height : height / 2; };
  bool joined = false;
  double x0 = 0, y0 = 0;
  for (const auto& [x, y] : points) {
    if (!std::isfinite(x) || !std::isfinite(y)) {
      joined = false;
      continue;
    }
    const double x1 = (x - x_low) / (x_high - x_low) * width, y1 = row_of(y);
    if (!joined) x0 = x1, y0 = y1;
    const int dots = std::max(1, static_cast<int>(std::max(std::abs(x1 - x0), std::abs(y1 - y0))));
    for (int i = 0; i <= dots; ++i) {
      grid.Set(static_cast<int>(std::lround(x0 + (x1 - x0) * i / dots)),
               static_cast<int>(std::lround(y0 + (y1 - y0) * i / dots)));
    }
    x0 = x1, y0 = y1, joined = true;
  }

  std::vector<std::string> lines;
  for (int row = 0; row < grid.rows; ++row) {
    const std::string& name = row == 0 ? top : row == grid.rows - 1 ? bottom : std::string();
    std::string line = fmt::format("{:>{}} {}", name, label, utf8 ? "\u2502" : "|");
    for (int column = 0; column < grid.columns; ++column) line += grid.Cell(column, row);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  const std::string first = fmt::format("{:.0f}", x_low), last = fmt::format("{:.0f}", x_high);
  const int gap = grid.columns - static_cast<int>(first.size() + last.size());
  lines.push_back(fmt::format("{:>{}}{}{:>{}}", "", label + 2, first, last,
                              std::max<size_t>(last.size(), last.size() + static_cast<size_t>(std::max(gap, 1)))));
  return lines;
}

}  // namespace lockstep::watch
