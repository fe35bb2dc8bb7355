// A run of W&B as files (docs/formats/wandb.md) that `wandb sync` uploads as they are: one run for all ranks and
// attempts, one fragment for each attempt. Written by the main rank's metric stream; nothing here uses the network.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::track {

class Sink;

struct WandbOptions {
  std::string dir;  // <run>/wandb; empty: none
  std::string name;
  std::string project, entity, group;
  std::vector<std::string> tags;
  uint64_t first_step = 0;           // steps done before this attempt: later ones of earlier attempts are repeated
  std::string console;               // the log of this rank, which is followed; empty: none
  bool console_from_now = false;     // an earlier stream of this process has what is there
  std::vector<std::string> secrets;  // values that are masked in what is written
};

// Closes what a killed attempt left open; the new fragment appears with its first record.
Result<std::unique_ptr<Sink>> OpenWandbSink(WandbOptions options);

}  // namespace lockstep::track
