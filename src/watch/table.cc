#include "watch/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/columns.h"
#include "base/text.h"
#include "base/units.h"
#include "watch/plot.h"

namespace lockstep::watch {
namespace {

constexpr size_t kMostRows = 32;  // rows without a limit by the terminal
constexpr char kDash[] = "-";

enum Column { kRank, kStep, kSeconds, kRate, kEta, kLoss, kHost, kDevice, kSign, kColumns };
using Row = std::array<std::string, kColumns>;

std::string LossText(const std::optional<double>& loss) {
  if (!loss) return kDash;
  if (!std::isfinite(*loss) || (std::abs(*loss) >= 0.001 && std::abs(*loss) < 1e4)) return fmt::format("{:.4f}", *loss);
  return fmt::format("{:.3e}", *loss);
}

std::string SecondsText(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.3f}", *seconds) : kDash;
}

std::string RateText(const std::optional<double>& seconds) {
  return seconds && *seconds > 0 ? fmt::format("{:.2f}", 1 / *seconds) : kDash;
}

std::string TimeText(double seconds) {
  if (!(seconds >= 0 && seconds < 1e10)) return kDash;
  return FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

std::string BytesText(const std::optional<double>& bytes) {
  if (!bytes || !(*bytes >= 0 && *bytes < 1e18)) return kDash;
  return FormatSize(static_cast<uint64_t>(*bytes));
}

std::string StepText(const std::optional<uint64_t>& step, const std::optional<uint64_t>& total) {
  if (!step) return kDash;
  return total ? fmt::format("{}/{}", *step, *total) : fmt::format("{}", *step);
}

// Well beyond what its own speed explains.
bool Silent(const RankView& rank, double now, const RunView& view) {
  if (view.ended || rank.last_sign <= 0) return false;
  return now - rank.last_sign > std::max(30.0, 5 * rank.seconds_per_step.value_or(0));
}

Row RankRow(const RankView& rank, const RunView& view, double now) {
  Row row;
  row[kRank] = fmt::format("{}", rank.rank);
  row[kStep] = StepText(rank.step, view.total);
  row[kSeconds] = SecondsText(rank.seconds_per_step);
  row[kRate] = RateText(rank.seconds_per_step);
  row[kEta] = kDash;
  if (!view.ended && view.total && rank.step && rank.seconds_per_step && *view.total > *rank.step) {
    row[kEta] = TimeText(*rank.seconds_per_step * static_cast<double>(*view.total - *rank.step));
  }
  row[kLoss] = LossText(rank.loss);
  row[kHost] = BytesText(rank.memory_host);
  row[kDevice] = BytesText(rank.memory_device);
  row[kSign] = rank.last_sign > 0 ? TimeText(std::max(0.0, now - rank.last_sign)) + " ago" : kDash;
  if (Silent(rank, now, view)) row[kSign] += " (silent)";
  if (rank.attempt < view.attempt) row[kSign] += fmt::format(" (attempt {})", rank.attempt);
  return row;
}

std::string Headline(const RunView& view) {
  std::vector<std::string> parts = {fmt::format("{} {}", view.log ? "log" : "run", Printable(view.name)), view.state};
  if (view.attempt > 0) parts.push_back(fmt::format("attempt {}", view.attempt));
  if (view.epoch) {
    parts.push_back(fmt::format("epoch {}{}: {}/{}", view.epoch->number,
                                view.epoch->of ? fmt::format("/{}", *view.epoch->of) : "", view.epoch->step,
                                view.epoch->total));
  }
  if (view.step) {
    std::string text = "step " + StepText(view.step, view.total);
    if (view.total && *view.total > 0) {
      text += fmt::format(" ({:.0f}%)",
                          std::floor(100.0 * static_cast<double>(*view.step) / static_cast<double>(*view.total)));
    }
    parts.push_back(text);
  }
  if (view.seconds_per_step) parts.push_back(SecondsText(view.seconds_per_step) + " s/it");
  if (view.loss) parts.push_back("loss " + LossText(view.loss));
  if (view.eta) parts.push_back("ETA " + TimeText(*view.eta));
  if (!view.log && view.duration > 0) parts.push_back("for " + TimeText(view.duration));
  return Join(parts, " | ");
}

// Ranks as "0-3,7".
std::string Ranges(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (j > i) text += fmt::format("-{}", ranks[j]);
    i = j + 1;
  }
  return text;
}

// What the rows that found no place would have said.
std::string RestText(const RunView& view, size_t shown) {
  uint64_t low = UINT64_MAX, high = 0;
  double fast = INFINITY, slow = 0;
  int slowest = -1;
  for (size_t i = shown; i < view.ranks.size(); ++i) {
    const RankView& rank = view.ranks[i];
    if (rank.step) low = std::min(low, *rank.step), high = std::max(high, *rank.step);
    if (!rank.seconds_per_step) continue;
    fast = std::min(fast, *rank.seconds_per_step);
    if (*rank.seconds_per_step > slow) slow = *rank.seconds_per_step, slowest = rank.rank;
  }
  std::string text =
      fmt::format("... and {} more rank{}", view.ranks.size() - shown, view.ranks.size() - shown == 1 ? "" : "s");
  if (low <= high) text += fmt::format(", steps {} to {}", low, high);
  if (slowest >= 0) text += fmt::format(", {:.3f} to {:.3f} s/it, slowest rank {}", fast, slow, slowest);
  return text;
}

std::string MissingText(const RunView& view) {
  std::vector<int> missing;
  size_t next = 0;
  for (int rank = 0; rank < view.world && rank < 1 << 20; ++rank) {
    while (next < view.ranks.size() && view.ranks[next].rank < rank) ++next;
    const bool here = next < view.ranks.size() && view.ranks[next].rank == rank;
    if (!here) missing.push_back(rank);
  }
  if (missing.empty()) return "";
  const std::string none = view.ended ? "no step" : "no step yet";
  if (view.ranks.empty()) return view.world == 1 ? none : fmt::format("{} of any of the {} ranks", none, view.world);
  return fmt::format("{} of rank{} {}", none, missing.size() > 1 ? "s" : "", Ranges(missing));
}

// Cut to so many characters; a character of several bytes counts once.
std::string CutTo(const std::string& line, size_t columns) {
  if (columns == 0) return line;
  size_t seen = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xc0) == 0x80) continue;
    if (seen++ == columns) return line.substr(0, i);
  }
  return line;
}

void AddTable(const RunView& view, double now, const TableStyle& style, size_t most, std::vector<std::string>* lines) {
  std::vector<Row> rows = {{"RANK", "STEP", "S/IT", "STEPS/S", "ETA", "LOSS", "HOST MEM", "DEVICE MEM", "LAST SIGN"}};
  const size_t shown = view.ranks.size() <= most ? view.ranks.size() : most - 1;
  for (size_t i = 0; i < shown; ++i) rows.push_back(RankRow(view.ranks[i], view, now));
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t column = 0; column < kColumns; ++column) widths[column] = std::max(widths[column], row[column].size());
  }
  // Columns nobody has anything for are left out.
  for (size_t column : {kHost, kDevice, kLoss}) {
    if (std::all_of(rows.begin() + 1, rows.end(), [&](const Row& row) { return row[column] == kDash; })) {
      widths[column] = 0;
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string line;
    for (size_t column = 0; column < kColumns; ++column) {
      if (widths[column] == 0) continue;
      line += column == kSign ? rows[i][column] : fmt::format("{:>{}}  ", rows[i][column], widths[column]);
    }
    line = CutTo(line, style.columns);
    const bool silent = i > 0 && Silent(view.ranks[i - 1], now, view);
    if (style.colour && i == 0) line = "\x1b[2m" + line + "\x1b[0m";
    if (style.colour && silent) line = "\x1b[33m" + line + "\x1b[0m";
    lines->push_back(line);
  }
  if (shown < view.ranks.size()) lines->push_back(CutTo(RestText(view, shown), style.columns));
}

}  // namespace

std::vector<std::string> Render(const RunView& view, double now, const TableStyle& style) {
  std::vector<std::string> lines = {CutTo(Headline(view), style.columns)};
  if (style.colour) lines[0] = "\x1b[1m" + lines[0] + "\x1b[0m";

  std::vector<std::string> notes;
  if (std::string text = MissingText(view); !text.empty()) notes.push_back(text);
  if (view.ranks.empty() && view.world == 0) notes.push_back("no step seen yet");
  if (view.bad_lines > 0) {
    notes.push_back(fmt::format("{} metric line{} could not be read", view.bad_lines, view.bad_lines > 1 ? "s" : ""));
  }

  std::vector<std::string> plot;
  if (style.plot_rows > 0) {
    std::vector<std::pair<double, double>> points;
    for (const SeriesPoint& point : view.curve.points()) points.emplace_back(point.step, point.mean());
    const int columns = static_cast<int>(style.columns == 0 ? 72 : std::min<size_t>(style.columns, 100));
    plot = PlotText(points, {columns, style.plot_rows}, style.utf8);
    if (!plot.empty()) plot.insert(plot.begin(), "loss");
  }
  // The table comes first; what does not fit beside it is left out, the plot before any rank.
  size_t most = kMostRows;
  if (style.rows > 0) {
    const size_t fixed = 2 + notes.size();
    const size_t free = style.rows > fixed ? style.rows - fixed : 1;
    if (std::min(view.ranks.size(), size_t{4}) + plot.size() > free) plot.clear();
    most = std::max<size_t>(1, std::min(most, free - std::min(free - 1, plot.size())));
  }
  if (!view.ranks.empty()) AddTable(view, now, style, most, &lines);
  for (const std::string& note : notes) lines.push_back(CutTo(note, style.columns));
  for (const std::string& line : plot) lines.push_back(CutTo(line, style.columns));
  if (style.rows > 0 && lines.size() > style.rows) lines.resize(style.rows);
  return lines;
}

std::string EndText(const RunView& view) {
  return fmt::format("{} '{}' has ended: {}{}{}", view.log ? "log" : "run", Printable(view.name), view.state,
                     view.reason.empty() ? "" : ", ", OneLine(view.reason, 400));
}

}  // namespace lockstep::watch
