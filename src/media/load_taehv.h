// A trained TAEHV from what a user has: upstream's file (safetensors or torch.save), our export, a checkpoint folder
// (checkpoints/step-N, checkpoints/latest), a whole run directory or the name of a run, of which the newest good
// checkpoint is taken (record::FindCheckpoint). In checkpoints the averaged weights are used when there are any. The
// model is on the CPU, in float32. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "models/taehv.h"

namespace lockstep::media {

struct LoadedTaehv {
  std::shared_ptr<models::Taehv> model;
  std::string path;              // the file or the step folder
  std::string note;              // what had to be assumed; "": nothing
  std::optional<uint64_t> step;  // of a checkpoint
  bool averaged = false;         // EMA weights
};

// `variant` ("": found out) forces one of TaehvVariants().
Result<LoadedTaehv> LoadTaehv(const std::string& path, const std::string& variant = "");

}  // namespace lockstep::media
