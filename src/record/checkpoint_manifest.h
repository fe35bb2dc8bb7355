// What a checkpoint's manifest says (docs/formats/checkpoint.md), as values: written as version 2, read as 1 or 2. It
// is all that a rank needs to know of a checkpoint whose files it does not see. Plain values, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor_info.h"

namespace lockstep::record {

inline constexpr char kManifestName[] = "manifest.json";

// Elements [begin, end) of a flattened tensor.
struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

struct StoredPart {
  std::string file, key;
  ElementRange elements;
  std::string checksum;
};
struct StoredTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  std::vector<StoredPart> parts;  // ascending; together the tensor, each element once
};
struct StoredFile {
  std::string name;
  uint64_t bytes = 0;
  std::string header_checksum;
};

struct CheckpointManifest {
  uint64_t step = 0;
  std::string recipe;
  nlohmann::json state = nlohmann::json::object();
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;  // by name
  std::string checksum;               // of the text; set by ParseManifest
};

std::string WriteManifest(const CheckpointManifest& manifest);
// `source` names the file in errors. Everything but what the data files themselves hold is checked.
Result<CheckpointManifest> ParseManifest(const std::string& text, const std::string& source);

// The text of a manifest's JSON, its own checksum in the first line.
std::string SealManifest(const nlohmann::json& manifest);

}  // namespace lockstep::record
