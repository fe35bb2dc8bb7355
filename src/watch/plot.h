// A curve in text: dots of braille characters (eight to a cell) where the terminal knows UTF-8, else one dot to a cell.
// Numbers of the value axis stand at the left, first and last step below. Pure functions, any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::watch {

struct PlotSize {
  int columns = 72;        // of everything, at least 24
  int rows = 8;            // of the plot itself, at least 3
  bool log_scale = false;  // values that are not positive are left out
};

// Lines without newline, none longer than size.columns characters; empty when there are fewer than two points.
std::vector<std::string> PlotText(const std::vector<std::pair<double, double>>& given, PlotSize size, bool utf8);

// Whether the environment (LC_ALL, LC_CTYPE, LANG) asks for UTF-8.
bool TerminalIsUtf8();

}  // namespace lockstep::watch
