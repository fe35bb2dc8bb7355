// The view of a run as plain text, for `--once`, for output that is no terminal and for terminals that cannot be drawn
// on: a headline, a row per rank, findings, machines, links, events, a small plot of the loss. Pure functions, any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "watch/view.h"

namespace lockstep::watch {

struct TableStyle {
  size_t columns = 0;  // lines are cut to this; 0: as long as they are
  size_t rows = 0;     // at most so many lines; 0: as many as needed
  bool utf8 = false;
  bool colour = false;
  int plot_rows = 6;  // 0: no plot
  bool all = true;    // machines, links and events as well
};

// Lines without newline.
std::vector<std::string> Render(const RunView& view, double now, const TableStyle& style);

// "run 'x' has ended: succeeded, ..." or what there is to say of a log.
std::string EndText(const RunView& view);

}  // namespace lockstep::watch
