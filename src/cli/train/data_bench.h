// `lockstep data bench`: samples a second of a loader, the time of each stage and what limits it; over whole epochs
// also the resident memory after each.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "data/loader.h"
#include "data/source.h"

namespace lockstep::cli {

struct BenchOptions {
  int threads = 1;
  double seconds = 5;
  uint64_t epochs = 0;         // instead of `seconds`
  uint64_t epoch_batches = 1;  // batches of an epoch
  bool normalise = false;      // each batch also becomes floats, on the calling thread
  bool json = false;
};

// Prints what was measured.
Status BenchLoader(const data::Source& source, data::Loader* loader, const BenchOptions& options);

}  // namespace lockstep::cli
