// Paired clips with spikes on the command line of `lockstep data`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "data/source.h"

namespace lockstep::cli {

int DataPrepareMain(int argc, char** argv);  // lockstep data prepare ...

struct PairsShown {
  std::string kind, path, out;  // kind: gopro-spike or generated-spike
  int size = 128, sensor_height = 360, sensor_width = 640, half_window = 20;
  uint64_t samples = 4, seed = 0;
  bool augment = false;
};
// Samples of that many frames, one channel of spikes.
Result<std::unique_ptr<data::Source>> OpenPairs(const PairsShown& asked, int frames);
// A sheet with a row for each sample: blurred frame, spikes as TFP, target.
Status ShowPairs(const PairsShown& asked);

}  // namespace lockstep::cli
