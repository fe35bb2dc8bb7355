// How the values and gradients of each parameter are distributed, over all ranks: every rank counts the part it owns
// (all of it, or a share with ZeRO), and the counts are added up. On the training thread, collective; it reads every
// element, so it is for some steps only (track.histograms).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/flat.h"
#include "engine/ranks.h"
#include "track/metrics.h"

namespace lockstep::engine {

// "weights/<name>" and "gradients/<name>".
using ParameterHistograms = std::vector<std::pair<std::string, track::HistogramData>>;

// Before the update. Gradients are multiplied by `gradient_factor`. What is not finite, or beyond 1e36, is left out.
Result<ParameterHistograms> HistogramsOf(const FlatParameters& flat, double gradient_factor, Ranks* ranks);

}  // namespace lockstep::engine
