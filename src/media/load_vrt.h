// A VRT from what a user calls its weights: a run or a checkpoint of the recipe vrt (its EMA where it has one), a file
// that Lockstep wrote, or one of upstream's, whose shape must be said. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "models/vrt.h"

namespace lockstep::media {

struct LoadedVrt {
  std::shared_ptr<models::Vrt> model;
  std::string path;              // the file or the step folder
  std::string note;              // which of several models in a file; "": nothing
  std::optional<uint64_t> step;  // of a checkpoint
  bool averaged = false;         // EMA weights
};

// `variant` ("": found out): one of models::VrtVariants(); its input channels follow the file.
Result<LoadedVrt> LoadVrtWeights(const std::string& path, const std::string& variant = "");

}  // namespace lockstep::media
