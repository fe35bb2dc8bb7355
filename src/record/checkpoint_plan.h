// Inside record/: how a state becomes files, and the one way a checkpoint reaches the disk, shared by the direct writer
// (checkpoint.h) and the background one (background_saver.h). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "base/status.h"
#include "record/checkpoint.h"
#include "record/storage.h"

namespace lockstep::record {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kManifestFormat[] = "lockstep-checkpoint";
inline constexpr int kManifestVersion = 1;
inline constexpr size_t kChunkBytes = 4u << 20;  // hashed and written while still in the core's cache

struct PlannedFile {
  std::string name;   // "model.safetensors"
  std::string group;  // "model"
  SafetensorsLayout layout;
  std::vector<size_t> sources;  // per tensor of the layout: its index in the content
};

struct CheckpointPlan {
  std::vector<PlannedFile> files;
  uint64_t bytes = 0;  // of all files
};

// Checks names, shapes and sizes; looks at no data. `metadata` goes into the headers of the files that hold weights.
Result<CheckpointPlan> PlanCheckpoint(const std::vector<CheckpointTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata);
// What a file of weights says about itself when it is taken out of its folder: "lockstep.<recipe>", the state's
// "identity" as JSON.
std::map<std::string, std::string> WeightsMetadata(const CheckpointContent& content);

// JSON has no infinities: what it would silently lose is refused, with its place.
Status CheckState(const nlohmann::json& state);

struct CheckpointHead {
  uint64_t step = 0;
  std::string recipe;
  nlohmann::json state;
};

// The bytes [offset, offset + bytes) of a planned file; asked in order, at most kChunkBytes at once, at multiples of
// kChunkBytes.
using FileBytes = std::function<const char*(size_t file, uint64_t offset, size_t bytes)>;

Status PublishCheckpoint(const std::string& folder, const CheckpointHead& head, const CheckpointPlan& plan,
                         const FileBytes& source, Storage& storage, uint64_t max_bytes_per_second = 0);

// The manifest's text, its own checksum in the first line; and back, with that checksum verified.
std::string SealManifest(const nlohmann::json& manifest);
Result<nlohmann::json> OpenManifest(const std::string& text, const std::string& source);

}  // namespace lockstep::record
