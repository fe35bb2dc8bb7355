#include "watch/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/columns.h"
#include "base/text.h"
#include "watch/grids.h"
#include "watch/numbers.h"
#include "watch/plot.h"

namespace lockstep::watch {
namespace {

constexpr double kWideRange = 20;  // of losses: from there on the scale is logarithmic

std::string Bar(double part, size_t width, bool utf8) {
  part = std::clamp(part, 0.0, 1.0);
  const auto full = static_cast<size_t>(part * static_cast<double>(width));
  std::string text;
  for (size_t i = 0; i < width; ++i) text += i < full ? (utf8 ? "\u2588" : "#") : (utf8 ? "\u2591" : "-");
  return text;
}

// Values that are known, as "name value" with two blanks between them; what does not fit is left out.
StyledLine ValueLine(const std::vector<std::pair<std::string, Span>>& values, size_t width) {
  StyledLine line;
  for (const auto& [name, value] : values) {
    if (value.text.empty() || value.text == kUnknown) continue;
    const size_t needed = TextWidth(name) + TextWidth(value.text) + (line.Width() > 0 ? 3 : 1);
    if (line.Width() + needed > width) continue;
    line.Add(line.Width() > 0 ? "  " : " ");
    if (!name.empty()) line.Add(name + " ", Style::kDim);
    line.Add(value.text, value.style);
  }
  return line;
}

Style PartStyle(const std::optional<double>& part) {
  return part && *part >= 0.5 ? Style::kBad : part && *part >= 0.25 ? Style::kWarn : Style::kBold;
}

// "10/100"; where a program says nothing but the epoch, "1.50/3".
std::string PlaceText(const RunView& view) {
  if (!view.epochs_done) return StepText(view.step, view.total);
  return fmt::format("{:.2f}{}", *view.epochs_done, view.total ? fmt::format("/{}", *view.total) : "");
}

// Of a run whose step and total are known.
double PartDone(const RunView& view) {
  return view.epochs_done.value_or(static_cast<double>(*view.step)) / static_cast<double>(*view.total);
}

// Two or three lines: how far, how fast, how well.
StyledLines SummaryLines(const RunView& view, size_t width, bool utf8) {
  StyledLines lines;
  StyledLine progress;
  progress.Add(" ");
  if (view.epoch) {
    progress.Add(fmt::format("epoch {}{}: {}/{}  ", view.epoch->number,
                             view.epoch->of ? fmt::format("/{}", *view.epoch->of) : "", view.epoch->step,
                             view.epoch->total));
  }
  progress.Add(view.epochs_done ? "epoch " : "step ", Style::kDim);
  progress.Add(PlaceText(view), Style::kBold);
  if (view.total && *view.total > 0 && view.step) {
    const double part = PartDone(view);
    const std::string eta = view.eta ? fmt::format("  ETA {}", TimeText(*view.eta)) : "";
    progress.Add(fmt::format(" {:3.0f}% ", std::floor(100 * part)));
    if (const size_t used = progress.Width() + eta.size() + 1; used + 8 < width) {
      progress.Add(Bar(part, std::min<size_t>(width - used, 100), utf8), Style::kAccent);
    }
    progress.Add(eta, Style::kBold);
  }
  lines.push_back(std::move(progress));
  const auto bold = [](std::string text) { return Span{std::move(text), Style::kBold}; };
  std::string speed = SecondsText(view.seconds_per_step);
  if (speed != kUnknown) speed += " s/it";
  lines.push_back(ValueLine({{"", bold(speed)},
                             {"samples/s", bold(PerSecondText(view.samples_per_second))},
                             {"tokens/s", bold(PerSecondText(view.tokens_per_second))},
                             {"data wait", {PercentText(view.data_wait), PartStyle(view.data_wait)}},
                             {"collectives", bold(PercentText(view.collective_wait))},
                             {"host", bold(ShortBytes(view.memory_host))},
                             {"GPU", bold(ShortBytes(view.memory_device))}},
                            width));
  const bool bad = view.loss && !std::isfinite(*view.loss);
  StyledLine values =
      ValueLine({{"loss", {LossText(view.loss), bad ? Style::kBad : Style::kBold}},
                 {"lr", bold(view.learning_rate ? fmt::format("{:.3g}", *view.learning_rate) : "")},
                 {"gradient norm", bold(view.gradient_norm ? fmt::format("{:.3g}", *view.gradient_norm) : "")}},
                width);
  if (values.Width() > 0) lines.push_back(std::move(values));
  if (lines[1].Width() == 0) lines.erase(lines.begin() + 1);
  if (view.ended && !view.reason.empty()) {
    lines.push_back({{" " + view.state, StateStyle(view.state)}, {": " + OneLine(view.reason, 400)}});
  }
  return lines;
}

// Two columns of lines, the left one of a fixed width.
StyledLines Beside(StyledLines left, const StyledLines& right, size_t left_width) {
  StyledLines lines;
  for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    StyledLine line = i < left.size() ? std::move(left[i]) : StyledLine();
    line.CutTo(left_width - 2);
    line.PadTo(left_width);
    if (i < right.size()) {
      for (const Span& span : right[i].spans()) line.Add(span.text, span.style);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// Nodes, GPUs where there are few, links.
StyledLines MachineLines(const RunView& view, double now, size_t width, size_t most) {
  size_t gpus = 0, links = 0;
  for (const NodeView& node : view.nodes) gpus += node.gpus.size(), links += node.links.size();
  if (view.nodes.size() + 1 > most) return {};
  StyledLines lines = NodeGrid(view, now, width);
  // Tables that do not fit are not made.
  const auto add = [&](size_t rows, const auto& grid) {
    if (rows == 0 || lines.size() + rows + 2 > most) return;
    if (!lines.empty()) lines.emplace_back();
    Append(grid(), &lines);
  };
  add(gpus, [&] { return GpuGrid(view, width); });
  add(links, [&] { return LinkGrid(view, width); });
  if (lines.size() > most) lines.resize(most);
  return lines;
}

StyledLines LogTailLines(const ScreenInput& input, const ScreenState& state, size_t rows, size_t width) {
  StyledLines lines;
  if (input.log_lines == nullptr || input.log_lines->empty() || rows < 2) return lines;
  lines.push_back(SectionLine(fmt::format("LOG OF RANK {}", state.rank)));
  const size_t shown = std::min(rows - 1, input.log_lines->size());
  for (size_t i = input.log_lines->size() - shown; i < input.log_lines->size(); ++i) {
    lines.push_back({{CutToWidth((*input.log_lines)[i], width)}});
  }
  return lines;
}

// The table of ranks in so many lines, with what is left out in one of them.
StyledLines RankLines(const RunView& view, const std::vector<size_t>& order, size_t rows, double now, size_t width) {
  if (view.ranks.empty() || rows < 2) return {};
  const size_t shown = order.size() + 1 <= rows ? order.size() : rows > 2 ? rows - 2 : 1;
  StyledLines lines = RankGrid(view, {order.begin(), order.begin() + static_cast<long>(shown)}, now, width);
  if (shown < order.size() && lines.size() < rows) lines.push_back(RestOfRanks(view, order, shown));
  return lines;
}

}  // namespace

StyledLine SectionLine(std::string text) { return {{std::move(text), Style::kHeading}}; }

void Append(StyledLines more, StyledLines* lines) { std::move(more.begin(), more.end(), std::back_inserter(*lines)); }

std::string Headline(const RunView& view, size_t width) {
  std::vector<std::string> parts = {fmt::format("{} {}", view.log ? "log" : "run", Printable(view.name)), view.state};
  if (view.attempt > 0) parts.push_back(fmt::format("attempt {}", view.attempt));
  if (view.epoch) {
    parts.push_back(fmt::format("epoch {}{}: {}/{}", view.epoch->number,
                                view.epoch->of ? fmt::format("/{}", *view.epoch->of) : "", view.epoch->step,
                                view.epoch->total));
  }
  if (view.step) {
    std::string text = (view.epochs_done ? "epoch " : "step ") + PlaceText(view);
    if (view.total && *view.total > 0) {
      text += fmt::format(" ({:.0f}%)", std::floor(100 * PartDone(view)));
    }
    parts.push_back(text);
  }
  if (view.seconds_per_step) parts.push_back(SecondsText(view.seconds_per_step) + " s/it");
  if (view.loss) parts.push_back("loss " + LossText(view.loss));
  if (view.eta) parts.push_back("ETA " + TimeText(*view.eta));
  if (view.samples_per_second) parts.push_back(PerSecondText(view.samples_per_second) + " samples/s");
  if (view.tokens_per_second) parts.push_back(PerSecondText(view.tokens_per_second) + " tokens/s");
  if (view.data_wait) parts.push_back("data wait " + PercentText(view.data_wait));
  if (view.collective_wait) parts.push_back("collectives " + PercentText(view.collective_wait));
  if (!view.log && view.duration > 0) parts.push_back("for " + TimeText(view.duration));
  // Name and state stay.
  while (width > 0 && parts.size() > 2 && TextWidth(Join(parts, " | ")) > width) parts.pop_back();
  return Join(parts, " | ");
}

StyledLines Wrapped(const StyledLine& line, size_t width, size_t indent) {
  StyledLines lines;
  StyledLine now;
  for (const Span& span : line.spans()) {
    std::string_view rest = span.text;
    while (!rest.empty()) {
      const size_t word = std::min(rest.find_first_not_of(' '), rest.size());
      const std::string_view piece = rest.substr(0, std::min(rest.find(' ', word), rest.size()));
      if (now.Width() > indent && now.Width() + TextWidth(piece) > width) {
        lines.push_back(std::exchange(now, {{std::string(indent, ' ')}}));
        now.Add(std::string(piece.substr(word)), span.style);
      } else {
        now.Add(std::string(piece), span.style);
      }
      rest.remove_prefix(piece.size());
    }
  }
  lines.push_back(std::move(now));
  return lines;
}

StyledLines FindingLines(const RunView& view, double now, size_t width) {
  StyledLines lines;
  for (const FindingView& finding : view.findings) {
    std::string text = fmt::format(" ! {}", OneLine(finding.text, 300));
    if (!finding.evidence.empty()) text += fmt::format(" ({})", OneLine(finding.evidence, 300));
    if (finding.since > 0 && now - finding.since >= 10) text += fmt::format(", for {}", AgeText(now - finding.since));
    const bool bad = finding.kind == "nan-loss" || finding.kind == "stalled" || finding.kind == "thermal-throttling";
    lines.push_back({{width > 0 ? CutToWidth(text, width) : text, bad ? Style::kBad : Style::kWarn}});
  }
  return lines;
}

StyledLines EventLines(const RunView& view, size_t most, size_t width) {
  StyledLines lines;
  const size_t shown = std::min(most, view.events.size());
  for (size_t i = view.events.size() - shown; i < view.events.size(); ++i) {
    const EventView& event = view.events[i];
    StyledLine line = {{" " + ClockTime(event.t) + "  ", Style::kDim}, {OneLine(event.text, 400)}};
    if (width > 0) line.CutTo(width);
    lines.push_back(std::move(line));
  }
  return lines;
}

StyledLines LossPlot(const RunView& view, size_t width, int rows, bool utf8, std::optional<bool> log_scale) {
  std::vector<std::pair<double, double>> points;
  double low = INFINITY, high = 0;
  for (const SeriesPoint& point : view.curve.points()) {
    points.emplace_back(point.step, point.mean());
    low = std::min(low, point.mean());
    high = std::max(high, point.mean());
  }
  const bool logarithmic = low > 0 && log_scale.value_or(high > kWideRange * low);
  const std::vector<std::string> plot =
      PlotText(points, {.columns = static_cast<int>(width), .rows = rows, .log_scale = logarithmic}, utf8);
  if (plot.empty()) return {};
  StyledLines lines = {SectionLine(logarithmic ? "LOSS, logarithmic" : "LOSS")};
  for (const std::string& line : plot) lines.push_back({{line, Style::kAccent}});
  return lines;
}

StyledLines Overview(const ScreenInput& input, const RunView& view, const ScreenState& state, size_t width,
                     size_t rows) {
  const bool wide = width >= 150;
  const bool roomy = rows >= 34;
  StyledLines lines = SummaryLines(view, width, input.utf8);
  StyledLines findings = FindingLines(view, input.now, width);
  if (const size_t most = roomy ? 6 : 3; findings.size() > most) findings.resize(most);
  Append(std::move(findings), &lines);
  if (const std::string missing = MissingRanks(view); !missing.empty())
    lines.push_back({{" " + missing, Style::kWarn}});
  if (view.bad_lines > 0) {
    lines.push_back({{fmt::format(" {} could not be read", Count(static_cast<int64_t>(view.bad_lines), "metric line")),
                      Style::kWarn}});
  }
  const auto left = [&] { return rows > lines.size() ? rows - lines.size() : 0; };
  if (roomy) lines.emplace_back();

  // The plot, with the machines at its side where there is room for both.
  const int plot_rows = rows >= 50 ? 14 : rows >= 34 ? 9 : 5;
  const size_t plot_width = wide ? width / 2 : width;
  StyledLines plot;
  if (left() >= static_cast<size_t>(plot_rows) + 6)
    plot = LossPlot(view, plot_width - (wide ? 3 : 1), plot_rows, input.utf8, state.log_scale);
  bool machines_shown = false;
  if (wide) {
    const size_t most = std::max(plot.size(), static_cast<size_t>(plot_rows) + 2);
    StyledLines machines = MachineLines(view, input.now, width - plot_width, most);
    machines_shown = !machines.empty();
    if (plot.empty()) {
      Append(std::move(machines), &lines);
    } else {
      Append(Beside(std::move(plot), machines, plot_width), &lines);
    }
  } else {
    Append(std::move(plot), &lines);
  }
  if (roomy) lines.emplace_back();

  // Ranks get what they need, or three quarters of the rest and at least a heading and three.
  const size_t wanted = view.ranks.size() + 1;
  const size_t share = wanted + 4 <= left() ? wanted : std::max<size_t>(std::min<size_t>(left(), 4), left() * 3 / 4);
  const bool all = wanted <= share;
  const std::vector<size_t> order =
      OrderRanks(view, state.ordered || all ? state.order : RankOrder::kTrouble, state.reverse, input.now);
  Append(RankLines(view, order, std::min(left(), share), input.now, width), &lines);

  // All nodes or none: the page of nodes has them.
  if (!machines_shown && view.nodes.size() + 3 <= left()) {
    StyledLines machines = MachineLines(view, input.now, width,
                                        roomy ? std::max(left() / 2, view.nodes.size() + 1) : view.nodes.size() + 1);
    if (machines.size() >= 2) {
      if (roomy) lines.emplace_back();
      Append(std::move(machines), &lines);
    }
  }
  if (roomy && left() > 4) lines.emplace_back();
  if (const size_t rest = left(); rest >= 2) {
    const size_t half = wide ? width / 2 : width;
    StyledLines events = EventLines(view, wide ? rest - 1 : roomy ? rest / 2 - 1 : rest - 1, half - 1);
    StyledLines log = LogTailLines(input, state, wide ? rest : rest - std::min(rest, events.size() + 1), half - 1);
    if (!events.empty()) events.insert(events.begin(), SectionLine("EVENTS"));
    if (wide && !log.empty() && !events.empty()) {
      Append(Beside(std::move(events), log, half), &lines);
    } else {
      Append(std::move(events), &lines);
      Append(std::move(log), &lines);
    }
  }
  return lines;
}

}  // namespace lockstep::watch
