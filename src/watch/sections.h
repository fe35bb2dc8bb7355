// Sections that pages of the screen and plain text share, and the overview that is made of them. Pure functions, any
// thread.
#pragma once

#include <optional>
#include <string>

#include "watch/pages.h"
#include "watch/styled.h"
#include "watch/view.h"

namespace lockstep::watch {

// Headline of a run as one line of text: "run x | running | step 5/10 (50%) | ...".
// With a width, as many of its parts as fit.
std::string Headline(const RunView& view, size_t width);

// A line broken between words, from the second on indented.
StyledLines Wrapped(const StyledLine& line, size_t width, size_t indent);

// Empty where there is nothing to say.
StyledLines FindingLines(const RunView& view, double now, size_t width);
StyledLines EventLines(const RunView& view, size_t most, size_t width);  // newest last
// log_scale: nothing: as the losses suggest.
StyledLines LossPlot(const RunView& view, size_t width, int rows, bool utf8,
                     std::optional<bool> log_scale = std::nullopt);

StyledLine SectionLine(std::string text);
void Append(StyledLines more, StyledLines* lines);

// The first page of the screen, in at most so many lines.
StyledLines Overview(const ScreenInput& input, const RunView& view, const ScreenState& state, size_t width,
                     size_t rows);

}  // namespace lockstep::watch
