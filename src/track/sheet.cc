#include "track/sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "track/axis.h"
#include "track/colour_map.h"
#include "track/points.h"

namespace lockstep::track {
namespace {

constexpr double kSheetHeader = 76, kHeadings = 26, kRowText = 24, kRowGap = 14;
constexpr double kTileGap = 4, kColumnGap = 20;
constexpr double kBar = 12, kBarFooter = 76;  // height of the colour scale, and of the footer around it
constexpr double kWidth = 1200;               // wanted of a sheet of small tiles
constexpr double kLargestSide = 256;          // of an enlarged tile
constexpr double kReducedSide = 240;          // of a reduced one
constexpr double kNarrowest = 560;            // room for title and scores
constexpr double kHighest = 16000;
constexpr double kPercentile = 0.995;

struct Size {
  int width = 0, height = 0;
};

Size SizeOf(const Tile& tile) {
  return std::visit([](const auto& t) { return Size{t.width, t.height}; }, tile);
}

// The first tile speaks for its row.
Size TileSize(const SheetRow& row) {
  for (const auto& cell : row.cells) {
    if (!cell.empty()) return SizeOf(cell.front());
  }
  return {};
}

template <typename Each>
void ForEachMap(const Sheet& sheet, Each each) {
  for (const SheetRow& row : sheet.rows) {
    for (const auto& cell : row.cells) {
      for (const Tile& tile : cell) {
        if (const auto* map = std::get_if<NumberMap>(&tile)) each(*map);
      }
    }
  }
}

std::vector<float> AllNumbers(const Sheet& sheet) {
  std::vector<float> values;
  ForEachMap(sheet, [&](const NumberMap& map) { values.insert(values.end(), map.values.begin(), map.values.end()); });
  return values;
}

// How large the tiles of a row are drawn: `room` pixels are there for each in a sheet of the wanted width.
Size Shown(Size tile, double room) {
  const double side = std::max(tile.width, tile.height);
  if (side <= 0) return {};
  const double goal = std::min(room, kLargestSide);
  if (side <= goal) {
    const int zoom = std::max(1, static_cast<int>(goal / side));
    return {tile.width * zoom, tile.height * zoom};
  }
  const double factor = std::min(1.0, kReducedSide / side);
  return {std::max(1, static_cast<int>(tile.width * factor)), std::max(1, static_cast<int>(tile.height * factor))};
}

class Layout {
 public:
  explicit Layout(const Sheet& sheet) {
    size_t columns = sheet.columns.size();
    for (const SheetRow& row : sheet.rows) columns = std::max(columns, row.cells.size());
    std::vector<size_t> tiles(columns, 1);  // side by side in each column
    for (const SheetRow& row : sheet.rows) {
      for (size_t c = 0; c < row.cells.size(); ++c) tiles[c] = std::max(tiles[c], row.cells[c].size());
    }
    double across = 0, gaps = kColumnGap * (static_cast<double>(columns) - 1);
    for (const size_t n : tiles) {
      across += static_cast<double>(n);
      gaps += kTileGap * (static_cast<double>(n) - 1);
    }
    const double room = (kWidth - 2 * kMargin - gaps) / std::max(across, 1.0);
    double widest = 0;
    height = kSheetHeader + kHeadings;
    for (const SheetRow& row : sheet.rows) {
      const Size size = Shown(TileSize(row), room);
      if (height + kRowText + size.height + kRowGap + kBarFooter > kHighest && !shown.empty()) break;
      shown.push_back(size);
      widest = std::max(widest, static_cast<double>(size.width));
      height += kRowText + size.height + kRowGap;
    }
    double x = kMargin;
    for (const size_t n : tiles) {
      column_x.push_back(x);
      const double count = static_cast<double>(n);
      column_width.push_back(count * widest + (count - 1) * kTileGap);
      x += column_width.back() + kColumnGap;
    }
    width = std::max(x - kColumnGap + kMargin, kNarrowest);
    ForEachMap(sheet, [this](const NumberMap&) { has_maps = true; });
    height += has_maps ? kBarFooter : kMargin;
  }

  double width = 0, height = 0;
  std::vector<double> column_x, column_width;
  std::vector<Size> shown;  // by row; shorter than the rows where not all fit
  bool has_maps = false;
};

class Drawing {
 public:
  Drawing(const Cairo& cairo, const Sheet& sheet)
      : sheet_(sheet),
        layout_(sheet),
        canvas_(cairo, static_cast<int>(std::ceil(layout_.width)), static_cast<int>(std::ceil(layout_.height))) {
    if (layout_.has_maps) scale_ = MapScale(sheet);
  }

  Result<Picture> Draw() {
    const double right = layout_.width - kMargin;
    canvas_.Text({kMargin, 36}, canvas_.Fit(sheet_.title, kTitle, right - kMargin), {.size = kTitle});
    canvas_.Text({kMargin, 60}, canvas_.Fit(sheet_.subtitle, kText, right - kMargin),
                 {.size = kText, .colour = kFaint});
    for (size_t c = 0; c < sheet_.columns.size(); ++c) {
      canvas_.Text({layout_.column_x[c], kSheetHeader + 18},
                   canvas_.Fit(sheet_.columns[c], kText, layout_.column_width[c]), {.size = kText});
    }
    double y = kSheetHeader + kHeadings;
    for (size_t r = 0; r < layout_.shown.size(); ++r) {
      RowText(sheet_.rows[r], right, y);
      y += kRowText;
      Tiles(sheet_.rows[r], layout_.shown[r], y);
      y += layout_.shown[r].height + kRowGap;
    }
    if (layout_.has_maps) Scale(right, y);
    if (layout_.shown.size() < sheet_.rows.size()) {
      canvas_.Text({kMargin, layout_.height - 12},
                   fmt::format("the first {} of {} rows", layout_.shown.size(), sheet_.rows.size()), {.size = kSmall});
    }
    return canvas_.Finish();
  }

 private:
  void RowText(const SheetRow& row, double right, double y) {
    const Point line[] = {{kMargin, std::floor(y) + 0.5}, {right, std::floor(y) + 0.5}};
    canvas_.Line(line, {.colour = kGrid});
    const double baseline = y + 17;
    const std::string score = canvas_.Fit(row.score, kSmall, (right - kMargin) / 2);
    canvas_.Text({right, baseline}, score, {.size = kSmall, .align = Align::kRight});
    double room = right - kMargin - canvas_.TextWidth(score, kSmall) - kColumnGap;
    const double detail = row.detail.empty() ? 0 : canvas_.TextWidth(row.detail, kSmall) + 10;
    const std::string title = canvas_.Fit(row.title, kSmall, std::max(room - detail, room / 2), /*keep_end=*/true);
    canvas_.Text({kMargin, baseline}, title, {.size = kSmall});
    const double used = canvas_.TextWidth(title, kSmall) + (title.empty() ? 0 : 10);
    room -= used;
    if (room > 40) {
      canvas_.Text({kMargin + used, baseline}, canvas_.Fit(row.detail, kSmall, room),
                   {.size = kSmall, .colour = kFaint});
    }
  }

  void Tiles(const SheetRow& row, Size size, double y) {
    for (size_t c = 0; c < row.cells.size(); ++c) {
      double x = layout_.column_x[c];
      for (const Tile& tile : row.cells[c]) {
        const Box box{x, y, static_cast<double>(size.width), static_cast<double>(size.height)};
        if (const auto* map = std::get_if<NumberMap>(&tile)) {
          canvas_.Image(box, Coloured(*map, scale_));
        } else {
          canvas_.Image(box, std::get<Picture>(tile));
        }
        x += size.width + kTileGap;
      }
    }
  }

  // Below the column of the maps.
  void Scale(double right, double y) {
    size_t column = 0;
    for (const SheetRow& row : sheet_.rows) {
      for (size_t c = 0; c < row.cells.size(); ++c) {
        if (!row.cells[c].empty() && std::holds_alternative<NumberMap>(row.cells[c].front())) column = c;
      }
    }
    const Box bar{layout_.column_x[column], y + 6, std::min(layout_.column_width[column], 320.0), kBar};
    for (double x = 0; x < bar.width; ++x) {
      canvas_.Fill({bar.x + x, bar.y, std::min(1.0, bar.width - x), bar.height}, MagmaColour(x / (bar.width - 1)));
    }
    const Axis axis{0, scale_, false};
    const double step = scale_ / 2;
    for (const double value : {0.0, step, scale_}) {
      const double at = bar.x + bar.width * axis.Part(value);
      const Align align = value == 0 ? Align::kLeft : value == scale_ ? Align::kRight : Align::kCentre;
      canvas_.Text({at, bar.bottom() + 15}, fmt::format("{:g}", value),
                   {.size = kSmall, .colour = kFaint, .align = align});
    }
    std::vector<float> values = AllNumbers(sheet_);
    size_t whole = 0, above = 0;
    for (const float value : values) {
      whole += std::isfinite(value);
      above += std::isfinite(value) && value > scale_;
    }
    std::string text = sheet_.map_label.empty() ? "colour scale" : sheet_.map_label;
    if (above > 0) {
      text += fmt::format("; {:.2g} % of the pixels are above {:g}",
                          100.0 * static_cast<double>(above) / static_cast<double>(whole), scale_);
    }
    if (whole < values.size()) text += "; grey: not a number";
    canvas_.Text({right, bar.bottom() + 36}, canvas_.Fit(text, kSmall, right - kMargin),
                 {.size = kSmall, .colour = kFaint, .align = Align::kRight});
  }

  const Sheet& sheet_;
  Layout layout_;
  Canvas canvas_;
  double scale_ = 1;
};

}  // namespace

double MapScale(const Sheet& sheet) {
  const double high = Percentile(AllNumbers(sheet), kPercentile);
  if (!(high > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(high)));
  for (const double factor : {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0}) {
    if (high <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

NumberMap AbsoluteError(const Picture& a, const Picture& b) {
  NumberMap map{a.width, a.height, {}};
  if (a.width != b.width || a.height != b.height) {
    map.values.assign(static_cast<size_t>(a.width) * static_cast<size_t>(a.height),
                      std::numeric_limits<float>::quiet_NaN());
    return map;
  }
  map.values.reserve(a.rgb.size() / 3);
  for (size_t i = 0; i + 2 < a.rgb.size(); i += 3) {
    int sum = 0;
    for (size_t c = i; c < i + 3; ++c) sum += std::abs(int{a.rgb[c]} - int{b.rgb[c]});
    map.values.push_back(static_cast<float>(sum) / 3);
  }
  return map;
}

Result<Picture> DrawSheet(const Cairo& cairo, const Sheet& sheet) { return Drawing(cairo, sheet).Draw(); }

}  // namespace lockstep::track
