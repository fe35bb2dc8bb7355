// What a plot does with a long series before it is drawn: which range is worth showing, a smoothed line, and no more
// points than pixels. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "track/axis.h"
#include "track/canvas.h"

namespace lockstep::track {

// The value below which this part (0..1) of the values lies, by nearest rank; values that are not finite do not count.
// Not a number where none is left.
double Percentile(std::vector<float> values, double part);

// The range of the values without the few wildest, which would flatten everything else; with room for the first values
// of a loss, which are few and belong to the picture.
ValueRange TypicalRange(const Points& points);

// The mean over up to 2 * `reach` values on each side, with triangular weights: noise goes, and a fall stays where it
// was. Wild values count as the edge of `typical`. Gaps stay gaps.
Points Smooth(const Points& points, const ValueRange& typical, size_t reach);

// Of points in ascending x, for each of `columns` equal parts of the x range the first, the lowest, the highest and the
// last: drawn as a line it covers the same pixels. Short series and gaps stay as they are.
Points Thin(const Points& points, size_t columns);

}  // namespace lockstep::track
