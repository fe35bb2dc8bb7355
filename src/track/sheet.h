// A sheet of pictures to look at: rows of samples, columns such as input, reconstruction and error, with a header, a
// line of text above each row, and a colour scale for maps of numbers. Knows tiles, labels and numbers, not models; a
// recipe fills the rows (engine/recipe.h), the engine title and subtitle. Pure functions, any thread.
//
//   Sheet sheet{.title = "night-1", .columns = {"input", "reconstruction", "error"}};
//   sheet.rows.push_back({.title = "clip 7", .score = "PSNR 31.20 dB", .cells = {{in}, {out}, {AbsoluteError(in,
//   out)}}}); Result<Picture> picture = DrawSheet(*cairo, sheet);
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "track/canvas.h"

namespace lockstep::track {

// Numbers from zero up, one per pixel. All maps of a sheet share one colour scale; what is not finite is grey.
struct NumberMap {
  int width = 0;
  int height = 0;
  std::vector<float> values;  // width * height, rows from the top
};

using Tile = std::variant<Picture, NumberMap>;

struct SheetRow {
  std::string title;   // of the sample; too long a title loses its beginning
  std::string detail;  // beside it: "frames 0 and 11"
  std::string score;   // at the right: "PSNR 31.20 dB"
  // By column; a cell may hold several tiles side by side, such as frames in time. Tiles of a row have one size.
  std::vector<std::vector<Tile>> cells;
  // Its frames in time, what belongs side by side already beside each other: shown as a video; empty: none.
  std::vector<Picture> clip;
};

struct Sheet {
  std::string title, subtitle;
  std::vector<std::string> columns;
  std::vector<SheetRow> rows;
  std::string map_label;  // what the numbers of maps are
};

// Small tiles are enlarged by a whole factor, so that the sheet is about 900 to 1,200 pixels wide; large ones are
// reduced. Rows that would make the picture higher than 16,000 pixels are left out, and the sheet says so.
Result<Picture> DrawSheet(const Cairo& cairo, const Sheet& sheet);

// |a - b| as the mean over red, green and blue, in 8-bit levels: 0 to 255. Sizes must agree.
NumberMap AbsoluteError(const Picture& a, const Picture& b);
inline constexpr const char* kAbsoluteError = "absolute error, mean of R, G and B, in levels of 0 to 255";

// What the end of the colour scale stands for: a round number that 99.5 % of the values do not exceed.
double MapScale(const Sheet& sheet);

}  // namespace lockstep::track
