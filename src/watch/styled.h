// Lines of the screen before anything draws them: pieces of text with a meaning each, and tables fitted to a width. The
// terminal's colours are chosen where they are drawn. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep::watch {

enum class Style { kPlain, kDim, kBold, kTitle, kHeading, kGood, kWarn, kBad, kAccent, kChosen };

struct Span {
  std::string text;
  Style style = Style::kPlain;
};

// One line; Text() is what a terminal without colours shows.
class StyledLine {
 public:
  StyledLine() = default;
  StyledLine(std::initializer_list<Span> spans) : spans_(spans) {}

  void Add(std::string text, Style style = Style::kPlain);
  // Blanks up to this column, or nothing where the line is longer.
  void PadTo(size_t columns, Style style = Style::kPlain);
  void CutTo(size_t columns);
  // Every piece in this style: a chosen row, a title.
  void SetStyle(Style style);
  size_t Width() const;
  std::string Text() const;
  const std::vector<Span>& spans() const { return spans_; }

 private:
  std::vector<Span> spans_;
};

using StyledLines = std::vector<StyledLine>;

struct GridColumn {
  std::string title;
  int importance = 0;  // the least important columns are left out first
  bool left = false;   // aligned to the left
};

using GridRow = std::vector<Span>;  // one for each column

// A heading and the rows, each column as wide as its widest cell of these rows. Columns in which no row has a value
// ("-" or nothing) are left out, then those of least importance until the rest fits; columns = 0: all of them.
StyledLines FitGrid(const std::vector<GridColumn>& columns, const std::vector<GridRow>& rows, size_t width);

}  // namespace lockstep::watch
