// Runs the units of a model (units.h): between the strategy's calls before and after each, in forward and backward, and
// recomputed in backward where asked. The training thread, and autograd's during backward.
#pragma once

#include <functional>
#include <vector>

#include "engine/strategy.h"
#include "engine/units.h"

namespace lockstep::engine {

// `strategy` must outlive the runner. Null where no strategy wants to be called. Gradients are added up in the same
// order with and without a strategy, recomputed or not. `before` (may be empty) is called before each forward of a
// unit. `keep`: units that are not recomputed (missing: none).
UnitRunner MakeUnitRunner(ParallelStrategy* strategy, bool recompute, std::function<void(size_t unit)> before = {},
                          std::vector<bool> keep = {});

}  // namespace lockstep::engine
