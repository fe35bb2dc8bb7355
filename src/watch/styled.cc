#include "watch/styled.h"

#include <algorithm>
#include <numeric>

#include "base/columns.h"
#include "watch/numbers.h"

namespace lockstep::watch {
namespace {

constexpr size_t kGap = 1;  // blanks between two columns

bool Says(const std::string& text) { return !text.empty() && text != kUnknown; }

// The columns that are shown, in their order.
std::vector<size_t> Choose(const std::vector<GridColumn>& columns, const std::vector<size_t>& widths, size_t width) {
  std::vector<size_t> shown;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (widths[i] > 0) shown.push_back(i);
  }
  const auto needed = [&] {
    size_t sum = 0;
    for (const size_t i : shown) sum += widths[i] + kGap;
    return sum > 0 ? sum - kGap : 0;
  };
  while (width > 0 && shown.size() > 1 && needed() > width) {
    // Of equals the rightmost goes.
    const auto least = std::min_element(shown.rbegin(), shown.rend(), [&](size_t a, size_t b) {
      return columns[a].importance < columns[b].importance;
    });
    shown.erase(std::next(least).base());
  }
  return shown;
}

}  // namespace

void StyledLine::Add(std::string text, Style style) {
  if (!text.empty()) spans_.push_back({std::move(text), style});
}

size_t StyledLine::Width() const {
  return std::accumulate(spans_.begin(), spans_.end(), size_t{0},
                         [](size_t sum, const Span& span) { return sum + TextWidth(span.text); });
}

void StyledLine::PadTo(size_t columns, Style style) {
  if (const size_t width = Width(); width < columns) Add(std::string(columns - width, ' '), style);
}

void StyledLine::CutTo(size_t columns) {
  size_t used = 0;
  for (size_t i = 0; i < spans_.size(); ++i) {
    const size_t width = TextWidth(spans_[i].text);
    if (used + width <= columns) {
      used += width;
      continue;
    }
    // Cut without dots: a bar or a number beside it says more.
    std::string cut;
    for (size_t at = 0; at < spans_[i].text.size();) {
      size_t next = at + 1;
      while (next < spans_[i].text.size() && (static_cast<unsigned char>(spans_[i].text[next]) & 0xc0) == 0x80) ++next;
      const std::string one = spans_[i].text.substr(at, next - at);
      if (used + TextWidth(one) > columns) break;
      used += TextWidth(one);
      cut += one;
      at = next;
    }
    spans_[i].text = cut;
    spans_.resize(i + 1);
    return;
  }
}

void StyledLine::SetStyle(Style style) {
  for (Span& span : spans_) span.style = style;
}

std::string StyledLine::Text() const {
  std::string text;
  for (const Span& span : spans_) text += span.text;
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

StyledLines FitGrid(const std::vector<GridColumn>& columns, const std::vector<GridRow>& rows, size_t width) {
  std::vector<size_t> widths(columns.size(), 0);
  for (size_t i = 0; i < columns.size(); ++i) {
    bool any = false;
    size_t widest = TextWidth(columns[i].title);
    for (const GridRow& row : rows) {
      any = any || Says(row[i].text);
      widest = std::max(widest, TextWidth(row[i].text));
    }
    if (any) widths[i] = widest;
  }
  const std::vector<size_t> shown = Choose(columns, widths, width);
  StyledLines lines;
  const auto add = [&](const auto& cell_of, bool heading) {
    StyledLine line;
    for (const size_t i : shown) {
      const Span cell = cell_of(i);
      const size_t fill = widths[i] - std::min(widths[i], TextWidth(cell.text));
      const Style blank = heading ? Style::kHeading : Style::kPlain;
      if (line.Width() > 0) line.Add(std::string(kGap, ' '), blank);
      if (!columns[i].left) line.Add(std::string(fill, ' '), blank);
      line.Add(cell.text, cell.style);
      if (columns[i].left) line.Add(std::string(fill, ' '), blank);
    }
    if (width > 0) line.CutTo(width);
    lines.push_back(std::move(line));
  };
  add([&](size_t i) { return Span{columns[i].title, Style::kHeading}; }, true);
  for (const GridRow& row : rows) add([&](size_t i) { return row[i]; }, false);
  return lines;
}

}  // namespace lockstep::watch
