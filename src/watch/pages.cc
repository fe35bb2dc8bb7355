#include "watch/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/columns.h"
#include "base/text.h"
#include "watch/numbers.h"
#include "watch/sections.h"

namespace lockstep::watch {
namespace {

struct PageRow {
  char key;
  Page page;
  std::string_view name;
};

constexpr PageRow kPages[] = {{'1', Page::kOverview, "overview"}, {'2', Page::kRanks, "ranks"},
                              {'3', Page::kNodes, "nodes"},       {'4', Page::kEvents, "events"},
                              {'5', Page::kLog, "log"},           {'6', Page::kRuns, "runs"}};

constexpr std::string_view kHelp[] = {
    "1 ... 6       overview, ranks, nodes, events, log, runs; Tab: the next",
    "up down       choose a rank or run, scroll; k j, Page Up, Page Down, Home, End",
    "Enter         the log of the chosen rank; of a run: its overview",
    "left right    the log of the previous, of the next rank",
    "s  S          sort the ranks by the next column; turn the order round",
    "n  N          the next, the previous run or log",
    "l             the loss on a logarithmic scale, or not",
    "p or space    pause: the screen stands still, the run does not",
    "r             read again now",
    "? or h        this help; any key closes it",
    "q             leave; the run goes on",
    "",
    "DATA COLL     part of a step spent waiting for data, in collectives. The slow",
    "              rank waits least in collectives: the others wait for it.",
    "UTIL GMEM     utilisation and memory of the rank's GPU; TEMP, POWER, CLOCK in",
    "              MHz and THROTTLE (heat, power) as well",
    "CPU RSS       of the rank's processes; 100% is one core",
    "SEEN          age of the rank's last line; red: silent",
};

size_t PageLines(ScreenSize size) { return size.rows > 2 ? size.rows - 2 : 1; }

std::string ShortState(const RunView& view) {
  return view.attempt > 0 ? fmt::format("{}, attempt {}", view.state, view.attempt) : view.state;
}

StyledLine TitleLine(const ScreenInput& input, const RunView& view, const ScreenState& state, size_t columns) {
  std::string left = fmt::format(" {}", OneLine(view.name, 60));
  if (input.views.size() > 1) left += fmt::format(" ({}/{})", state.run + 1, input.views.size());
  left += fmt::format(" | {}", ShortState(view));
  const size_t ranks = std::max<size_t>(static_cast<size_t>(view.world), view.ranks.size());
  if (ranks > 0) left += fmt::format(" | {}", Count(static_cast<int64_t>(ranks), "rank"));
  if (view.nnodes > 1) left += fmt::format(", {} nodes", view.nnodes);
  if (view.duration > 0) left += fmt::format(" | {}", TimeText(view.duration));
  std::string right = ClockTime(input.now) + " ";
  if (state.paused) right = "PAUSED " + right;
  if (view.read < 0.999) right = fmt::format("reading {:.0f}% ", 100 * view.read) + right;
  StyledLine line;
  line.Add(CutToWidth(left, columns > right.size() ? columns - right.size() : columns), Style::kTitle);
  line.PadTo(columns > right.size() ? columns - right.size() : columns, Style::kTitle);
  line.Add(right, Style::kTitle);
  line.CutTo(columns);
  return line;
}

StyledLine KeyLine(const ScreenInput& input, const ScreenState& state, size_t columns) {
  StyledLine line;
  for (const PageRow& row : kPages) {
    if (row.page == Page::kRuns && input.views.size() < 2) continue;
    line.Add(fmt::format(" {} {} ", row.key, row.name), row.page == state.page ? Style::kBold : Style::kTitle);
  }
  // As many of the other keys as fit.
  for (const std::string_view key : {" q quit", " ? help", " p pause", " s sort"}) {
    if (line.Width() + key.size() <= columns) line.Add(std::string(key), Style::kTitle);
  }
  line.PadTo(columns, Style::kTitle);
  line.CutTo(columns);
  return line;
}

// Lines of a page that may be longer than the screen, from `top` on.
StyledLines Scrolled(StyledLines lines, size_t rows, ScreenState* state) {
  state->top = std::min(state->top, lines.size() > rows ? lines.size() - rows : 0);
  lines.erase(lines.begin(), lines.begin() + static_cast<long>(state->top));
  if (lines.size() > rows) lines.resize(rows);
  return lines;
}

StyledLines RanksPage(const ScreenInput& input, const RunView& view, size_t width, size_t rows, ScreenState* state) {
  StyledLines lines;
  lines.push_back(
      {{fmt::format(" sorted by {}{}", RankOrderName(state->order), state->reverse ? ", reversed" : ""), Style::kDim}});
  if (const std::string missing = MissingRanks(view); !missing.empty())
    lines.push_back({{" " + missing, Style::kWarn}});
  if (view.ranks.empty()) return lines;
  const size_t shown = rows > lines.size() + 1 ? rows - lines.size() - 1 : 1;
  const std::vector<size_t> order = OrderRanks(view, state->order, state->reverse, input.now);
  state->cursor = std::min(state->cursor, order.size() - 1);
  state->rank = view.ranks[order[state->cursor]].rank;
  // The chosen line stays in sight.
  if (state->cursor < state->top) state->top = state->cursor;
  if (state->cursor >= state->top + shown) state->top = state->cursor - shown + 1;
  state->top = std::min(state->top, order.size() > shown ? order.size() - shown : 0);
  const auto begin = order.begin() + static_cast<long>(state->top);
  const auto end = begin + static_cast<long>(std::min(shown, order.size() - state->top));
  StyledLines grid = RankGrid(view, {begin, end}, input.now, width);
  if (const size_t at = 1 + state->cursor - state->top; at < grid.size()) {
    grid[at].PadTo(width);
    grid[at].SetStyle(Style::kChosen);
  }
  Append(std::move(grid), &lines);
  return lines;
}

StyledLines NodesPage(const ScreenInput& input, const RunView& view, size_t width) {
  StyledLines lines;
  for (StyledLines part : {NodeGrid(view, input.now, width), GpuGrid(view, width), LinkGrid(view, width)}) {
    if (part.empty()) continue;
    if (!lines.empty()) lines.emplace_back();
    Append(std::move(part), &lines);
  }
  if (lines.empty()) {
    lines.push_back({{view.log ? " this machine has no NVIDIA GPU that can be read"
                               : " no samples of nodes: the run was started without them, or is about to begin",
                      Style::kDim}});
  }
  return lines;
}

StyledLines EventsPage(const ScreenInput& input, const RunView& view, size_t width) {
  StyledLines lines;
  for (const StyledLine& finding : FindingLines(view, input.now, 0)) Append(Wrapped(finding, width, 3), &lines);
  if (lines.empty()) lines.push_back({{" no findings", Style::kDim}});
  lines.insert(lines.begin(), SectionLine("FINDINGS"));
  lines.emplace_back();
  lines.push_back(SectionLine("EVENTS, the newest first"));
  StyledLines events = EventLines(view, SIZE_MAX, width);
  std::reverse(events.begin(), events.end());
  if (events.empty()) events.push_back({{" none", Style::kDim}});
  Append(std::move(events), &lines);
  return lines;
}

StyledLines LogPage(const ScreenInput& input, size_t width, size_t rows, ScreenState* state) {
  StyledLines lines = {{{fmt::format(" log of rank {}: {}", state->rank, OneLine(input.log_path, 300)), Style::kDim}}};
  if (input.log_lines == nullptr || input.log_lines->empty()) {
    lines.push_back({{" nothing yet", Style::kDim}});
    return lines;
  }
  const size_t shown = std::min(rows - 1, input.log_lines->size());
  state->top = std::min(state->top, input.log_lines->size() - shown);
  const size_t end = input.log_lines->size() - state->top;
  if (state->top > 0) {
    lines[0].Add(fmt::format("  ({} below)", Count(static_cast<int64_t>(state->top), "line")), Style::kWarn);
  }
  for (size_t i = end - shown; i < end; ++i) lines.push_back({{CutToWidth((*input.log_lines)[i], width)}});
  return lines;
}

StyledLines RunsPage(const ScreenInput& input, size_t width, ScreenState* state) {
  state->cursor = std::min(state->cursor, input.views.size() - 1);
  StyledLines lines = RunGrid(input.views, width);
  lines[1 + state->cursor].PadTo(width);
  lines[1 + state->cursor].SetStyle(Style::kChosen);
  return lines;
}

StyledLines HelpPage() {
  StyledLines lines = {SectionLine("KEYS AND COLUMNS"), {}};
  for (const std::string_view line : kHelp) lines.push_back({{" " + std::string(line)}});
  return lines;
}

void ChooseRun(size_t run, ScreenState* state) {
  state->run = run;
  state->rank = 0;
  state->cursor = state->top = 0;
}

// The log of the rank before or after.
bool NextLog(const RunView& view, bool after, ScreenState* state) {
  if (state->page != Page::kLog) return false;
  int most = view.world - 1;
  if (!view.ranks.empty()) most = std::max(most, view.ranks.back().rank);
  state->rank = std::clamp(state->rank + (after ? 1 : -1), 0, std::max(0, most));
  state->top = 0;
  return true;
}

void MoveCursor(int64_t lines, size_t most, ScreenState* state) {
  const auto limit = static_cast<int64_t>(most > 0 ? most - 1 : 0);
  state->cursor = static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(state->cursor) + lines, 0, limit));
}

}  // namespace

StyledLines ComposeScreen(const ScreenInput& input, ScreenSize size, ScreenState* state) {
  state->run = std::min(state->run, input.views.size() - 1);
  const RunView& view = *input.views[state->run];
  const size_t rows = PageLines(size), width = size.columns;
  StyledLines body;
  if (state->help) {
    body = HelpPage();
  } else {
    switch (state->page) {
      case Page::kOverview:
        body = Overview(input, view, *state, width, rows);
        break;
      case Page::kRanks:
        body = RanksPage(input, view, width, rows, state);
        break;
      case Page::kNodes:
        body = Scrolled(NodesPage(input, view, width), rows, state);
        break;
      case Page::kEvents:
        body = Scrolled(EventsPage(input, view, width), rows, state);
        break;
      case Page::kLog:
        body = LogPage(input, width, rows, state);
        break;
      case Page::kRuns:
        body = Scrolled(RunsPage(input, width, state), rows, state);
        break;
    }
  }
  body.resize(rows);
  StyledLines lines = {TitleLine(input, view, *state, width)};
  Append(std::move(body), &lines);
  lines.push_back(KeyLine(input, *state, width));
  for (StyledLine& line : lines) line.CutTo(width);
  lines.resize(size.rows);
  return lines;
}

bool PressKey(int key, const ScreenInput& input, ScreenSize size, ScreenState* state) {
  if (state->help) {
    state->help = false;
    state->quit = key == 'q';
    return true;
  }
  for (const PageRow& row : kPages) {
    if (key != row.key || (row.page == Page::kRuns && input.views.size() < 2)) continue;
    if (state->page != row.page) state->cursor = state->top = 0;
    state->page = row.page;
    if (row.page == Page::kRuns) state->cursor = state->run;
    return true;
  }
  const RunView& view = *input.views[std::min(state->run, input.views.size() - 1)];
  const auto page = static_cast<int64_t>(PageLines(size) > 4 ? PageLines(size) - 4 : 1);
  const bool table = state->page == Page::kRanks || state->page == Page::kRuns;
  const size_t entries = state->page == Page::kRuns ? input.views.size() : view.ranks.size();
  const auto move = [&](int64_t lines) {
    if (table) return MoveCursor(lines, entries, state);
    // A log is scrolled from its end.
    if (state->page == Page::kLog) lines = -lines;
    state->top = static_cast<size_t>(std::max<int64_t>(0, static_cast<int64_t>(state->top) + lines));
  };
  constexpr int64_t kFar = 1 << 30;
  switch (key) {
    case 'q':
    case 'Q':
      state->quit = true;
      return true;
    case '?':
    case 'h':
      state->help = true;
      return true;
    case 'p':
    case ' ':
      state->paused = !state->paused;
      return true;
    case 's':
      state->order = NextRankOrder(state->order);
      state->ordered = true;
      return true;
    case 'S':
      state->reverse = !state->reverse;
      state->ordered = true;
      return true;
    case 'l':
      state->log_scale = !state->log_scale.value_or(false);
      return true;
    case 'n':
      ChooseRun((state->run + 1) % input.views.size(), state);
      return true;
    case 'N':
      ChooseRun((state->run + input.views.size() - 1) % input.views.size(), state);
      return true;
    case 'k':
    case static_cast<int>(Key::kUp):
      move(-1);
      return true;
    case 'j':
    case static_cast<int>(Key::kDown):
      move(1);
      return true;
    case static_cast<int>(Key::kPageUp):
      move(-page);
      return true;
    case static_cast<int>(Key::kPageDown):
      move(page);
      return true;
    case 'g':
    case static_cast<int>(Key::kHome):
      move(-kFar);
      return true;
    case 'G':
    case static_cast<int>(Key::kEnd):
      move(kFar);
      return true;
    case static_cast<int>(Key::kLeft):
    case static_cast<int>(Key::kRight):
      return NextLog(view, key == static_cast<int>(Key::kRight), state);
    case static_cast<int>(Key::kTab): {
      const size_t pages = std::size(kPages) - (input.views.size() < 2 ? 1 : 0);
      return PressKey(kPages[(static_cast<size_t>(state->page) + 1) % pages].key, input, size, state);
    }
    case '\r':
    case static_cast<int>(Key::kEnter):
      if (state->page == Page::kRanks) return PressKey('5', input, size, state);
      if (state->page == Page::kRuns) {
        ChooseRun(state->cursor, state);
        return PressKey('1', input, size, state);
      }
      return false;
    default:
      return false;
  }
}

}  // namespace lockstep::watch
