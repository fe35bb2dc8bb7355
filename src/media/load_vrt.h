// A VRT from what a user calls its weights: a run or a checkpoint of the recipe vrt (its EMA where it has one), a file
// that Lockstep wrote, or one of upstream's, whose shape must be said. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/status.h"
#include "media/vrt_spikes.h"
#include "models/vrt.h"
#include "models/vrt_fusion.h"

namespace lockstep::media {

struct LoadedVrt {
  std::shared_ptr<models::Vrt> model;              // LoRA merged
  std::shared_ptr<models::FusionAdapter> adapter;  // null: spikes, if any, are further channels
  std::optional<VrtSpikes> spikes;                 // of its training, where the checkpoint or file says so
  std::string path;                                // the file or the step folder
  std::string note;                                // which of several models in a file; "": nothing
  std::optional<uint64_t> step;                    // of a checkpoint
  bool averaged = false;                           // EMA weights
};

// Key of the fusion adapter (JSON) in the metadata of a safetensors file.
constexpr const char* kFusionKey = "lockstep.vrt.fusion";

// A fusion adapter as checkpoints keep it, and back.
nlohmann::json FusionToJson(const models::FusionConfig& config);
Result<models::FusionConfig> FusionFromJson(const nlohmann::json& json);

// Whether a run or checkpoint is one of the recipe vrt, or a file has the names of a VRT.
bool IsVrt(const std::string& path);

// `variant` ("": found out): one of models::VrtVariants(); its input channels follow the file.
Result<LoadedVrt> LoadVrtWeights(const std::string& path, const std::string& variant = "");

}  // namespace lockstep::media
