// What the screen shows: pages of lines composed from the views of runs for a terminal of some size, and what keys
// change. No terminal is needed: composing is a pure function of its arguments, any thread.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "watch/grids.h"
#include "watch/styled.h"
#include "watch/view.h"

namespace lockstep::watch {

enum class Page { kOverview, kRanks, kNodes, kEvents, kLog, kRuns };

// Keys as the terminal's reader names them: a character, or one of these.
enum class Key : int {
  kNone = 0,
  kEnter = 10,
  kEscape = 27,
  kUp = 0x1000,
  kDown,
  kLeft,
  kRight,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kTab
};

struct ScreenState {
  Page page = Page::kOverview;
  bool help = false;
  bool paused = false;
  bool quit = false;
  std::optional<bool> log_scale;  // of the plot; nothing: as the losses suggest
  size_t run = 0;                 // which of the runs
  RankOrder order = RankOrder::kRank;
  bool ordered = false;  // the order was chosen; else the overview decides
  bool reverse = false;
  size_t cursor = 0;  // the chosen line of a table
  size_t top = 0;     // the first line shown of a page that is longer than the screen; of a log: lines from its end
  int rank = 0;       // whose log is shown
};

struct ScreenSize {
  size_t columns = 80, rows = 24;
};

struct ScreenInput {
  std::vector<const RunView*> views;                   // at least one
  const std::deque<std::string>* log_lines = nullptr;  // of the chosen rank
  std::string log_path;
  double now = 0;
  bool utf8 = false;
};

// Exactly size.rows lines of at most size.columns columns. State is corrected where it points beyond what there is.
StyledLines ComposeScreen(const ScreenInput& input, ScreenSize size, ScreenState* state);

// What a key does; false: nothing.
bool PressKey(int key, const ScreenInput& input, ScreenSize size, ScreenState* state);

}  // namespace lockstep::watch
