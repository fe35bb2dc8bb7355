#include "watch/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/columns.h"
#include "base/text.h"
#include "watch/grids.h"
#include "watch/numbers.h"
#include "watch/sections.h"
#include "watch/styled.h"

namespace lockstep::watch {
namespace {

constexpr size_t kMostRows = 32;   // of ranks, without a limit by the terminal
constexpr size_t kMostEvents = 8;  // of events

// Escape sequences of a style; none for what stands out in no way.
std::string_view AnsiOf(Style style) {
  switch (style) {
    case Style::kBold:
      return "\x1b[1m";
    case Style::kDim:
    case Style::kHeading:
      return "\x1b[2m";
    case Style::kGood:
      return "\x1b[32m";
    case Style::kWarn:
      return "\x1b[33m";
    case Style::kBad:
      return "\x1b[31m";
    default:
      return "";
  }
}

std::string Drawn(const StyledLine& line, const TableStyle& style) {
  constexpr std::string_view kCut = "...";
  StyledLine cut = line;
  if (style.columns > kCut.size() && cut.Width() > style.columns) {
    cut.CutTo(style.columns - kCut.size());
    cut.Add(std::string(kCut));
  }
  if (!style.colour) return cut.Text();
  std::string text;
  for (const Span& span : cut.spans()) {
    const std::string_view ansi = AnsiOf(span.style);
    text += ansi.empty() ? span.text : fmt::format("{}{}\x1b[0m", ansi, span.text);
  }
  return text;
}

// The rank table of plain text: what the screen has in its headline is in every row here.
StyledLines PlainRanks(const RunView& view, const std::vector<size_t>& which, double now, size_t width) {
  static const std::vector<GridColumn> kColumns = {
      {"RANK", 100}, {"STEP", 95},           {"S/IT", 90},       {"STEPS/S", 85},        {"ETA", 80},
      {"LOSS", 88},  {"HOST MEM", 60},       {"DEVICE MEM", 59}, {"DATA", 58},           {"COLLECTIVE", 57},
      {"GPU", 30},   {"UTIL", 56},           {"GPU MEM", 55},    {"TEMP", 50},           {"POWER", 45},
      {"CLOCK", 40}, {"THROTTLE", 42, true}, {"CPU", 48},        {"LAST LINE", 84, true}};
  std::vector<GridRow> rows;
  for (const size_t at : which) {
    const RankView& rank = view.ranks[at];
    static const GpuView kNone;
    const GpuView* found = view.GpuOf(rank);
    const GpuView& gpu = found != nullptr ? *found : kNone;
    const bool silent = !view.ended && rank.Silent(now);
    const Style style = silent ? Style::kWarn : Style::kPlain;
    std::string eta = kUnknown;
    if (!view.ended && view.total && rank.step && rank.seconds_per_step && *view.total > *rank.step) {
      eta = TimeText(*rank.seconds_per_step * static_cast<double>(*view.total - *rank.step));
    }
    std::string seen = rank.last_seen > 0 ? TimeText(std::max(0.0, now - rank.last_seen)) + " ago" : kUnknown;
    if (silent) seen += " (silent)";
    if (rank.attempt < view.attempt) seen += fmt::format(" (attempt {})", rank.attempt);
    const auto unit = [](const std::optional<double>& value, std::string_view name) {
      return value ? fmt::format("{:.0f}{}", *value, name) : std::string(kUnknown);
    };
    const std::optional<double> rate =
        rank.seconds_per_step && *rank.seconds_per_step > 0 ? std::optional(1 / *rank.seconds_per_step) : std::nullopt;
    rows.push_back({{fmt::format("{}", rank.rank), style},
                    {StepText(rank.step, view.total), style},
                    {SecondsText(rank.seconds_per_step), style},
                    {rate ? fmt::format("{:.2f}", *rate) : kUnknown, style},
                    {eta, style},
                    {LossText(rank.loss), style},
                    {BytesText(rank.memory_host ? rank.memory_host : rank.rss), style},
                    {BytesText(rank.memory_device), style},
                    {PercentText(rank.DataWait()), style},
                    {PercentText(rank.CollectiveWait()), style},
                    {rank.gpu >= 0 ? fmt::format("{}", rank.gpu) : kUnknown, style},
                    {unit(gpu.utilisation, "%"), style},
                    {BytesText(gpu.memory_used), style},
                    {unit(gpu.temperature, "C"), style},
                    {unit(gpu.power, "W"), style},
                    {unit(gpu.clock, "MHz"), style},
                    {Join(gpu.throttle, ", "), Style::kWarn},
                    {unit(rank.cpu, "%"), style},
                    {seen, style}});
  }
  return FitGrid(kColumns, rows, width);
}

}  // namespace

std::vector<std::string> Render(const RunView& view, double now, const TableStyle& style) {
  StyledLines lines = {{{Headline(view, style.columns), Style::kBold}}};
  StyledLines notes = FindingLines(view, now, 0);
  const auto note = [&](std::string text) { notes.push_back({{std::move(text)}}); };
  if (std::string text = MissingRanks(view); !text.empty()) note(text);
  if (view.bad_lines > 0) {
    note(fmt::format("{} could not be read", Count(static_cast<int64_t>(view.bad_lines), "metric line")));
  }
  if (view.read < 0.999) note(fmt::format("{:.0f}% of the history has been read", 100 * view.read));

  StyledLines plot;
  if (style.plot_rows > 0) {
    const size_t columns = style.columns == 0 ? 72 : std::min<size_t>(style.columns, 100);
    plot = LossPlot(view, columns, style.plot_rows, style.utf8);
  }
  // The table comes first; what does not fit beside it is left out, the plot before any rank.
  size_t most = kMostRows;
  if (style.rows > 0) {
    const size_t fixed = 2 + notes.size();
    const size_t free = style.rows > fixed ? style.rows - fixed : 1;
    if (std::min(view.ranks.size(), size_t{4}) + plot.size() > free) plot.clear();
    most = std::max<size_t>(1, std::min(most, free - std::min(free - 1, plot.size())));
  }
  if (!view.ranks.empty()) {
    const size_t shown = view.ranks.size() <= most ? view.ranks.size() : most - 1;
    const std::vector<size_t> order = OrderRanks(view, RankOrder::kRank, false, now);
    for (StyledLine& line :
         PlainRanks(view, {order.begin(), order.begin() + static_cast<long>(shown)}, now, style.columns)) {
      lines.push_back(std::move(line));
    }
    if (shown < order.size()) lines.push_back(RestOfRanks(view, order, shown));
  }
  for (StyledLine& line : notes) lines.push_back(std::move(line));
  if (style.all) {
    struct Part {
      StyledLines lines;
      std::string_view of;
    };
    std::array parts{Part{NodeGrid(view, now, style.columns), "node"}, Part{GpuGrid(view, style.columns), "GPU"},
                     Part{LinkGrid(view, style.columns), "link"},
                     Part{EventLines(view, kMostEvents, style.columns), "event"}};
    for (Part& part : parts) {
      const size_t shown = std::min(part.lines.size(), kMostRows + 1);
      for (size_t i = 0; i < shown; ++i) lines.push_back(std::move(part.lines[i]));
      if (shown < part.lines.size()) {
        lines.push_back({{fmt::format(
            "... and {}", Count(static_cast<int64_t>(part.lines.size() - shown), fmt::format("more {}", part.of)))}});
      }
    }
  }
  for (StyledLine& line : plot) lines.push_back(std::move(line));
  if (style.rows > 0 && lines.size() > style.rows) lines.resize(style.rows);
  std::vector<std::string> text;
  for (const StyledLine& line : lines) text.push_back(Drawn(line, style));
  return text;
}

std::string EndText(const RunView& view) {
  return fmt::format("{} '{}' has ended: {}{}{}", view.log ? "log" : "run", Printable(view.name), view.state,
                     view.reason.empty() ? "" : ", ", OneLine(view.reason, 400));
}

}  // namespace lockstep::watch
