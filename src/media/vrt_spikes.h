// How spikes were read in a training of VRT, as its checkpoints and exported files say it: what is restored with the
// weights must read them in the same way. Plain values, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "data/spike.h"

namespace lockstep::media {

struct VrtSpikes {
  data::SpikeForm form;
  data::SpikeSensor sensor;
};

// Key (JSON) in the metadata of a safetensors file.
constexpr const char* kSpikesKey = "lockstep.vrt.spikes";

nlohmann::json SpikesToJson(const VrtSpikes& spikes);
// None where nothing is said.
std::optional<VrtSpikes> SpikesFromJson(const nlohmann::json& json);

}  // namespace lockstep::media
