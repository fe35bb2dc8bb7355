// How a state becomes files: which files there are, which rank writes each, and which rank provides each byte of it. A
// pure function of names, types, shapes and of what the ranks have, so that all ranks compute the same plan.
//
// A state below `split_bytes` is one file per group ("model.safetensors"), the groups spread over the ranks that write.
// A larger one is one file per group and writing rank, each rank its part. Elements that a writer does not have are
// sent to it. Only ranks that see the checkpoints folder write.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "base/status.h"
#include "record/checkpoint.h"

namespace lockstep::record {

inline constexpr size_t kChunkBytes = 4u << 20;  // hashed and written while still in the core's cache
inline constexpr uint64_t kSplitBytes = 1ull << 30;

// Bytes of a file that one rank provides.
struct FileSource {
  int rank = 0;
  size_t tensor = 0;    // of the state
  uint64_t from = 0;    // byte of the flattened tensor
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};

struct PlannedPart {
  size_t tensor = 0;  // of the state
  ElementRange elements;
};

struct PlannedFile {
  std::string name;   // "model.safetensors", "model-00001-of-00004.safetensors"
  std::string group;  // "model"
  int writer = 0;
  SafetensorsLayout layout;
  std::vector<PlannedPart> parts;   // of layout.tensors, one each
  std::vector<FileSource> sources;  // by offset; with the header they cover the file
};

struct CheckpointPlan {
  std::vector<PlannedFile> files;
  uint64_t bytes = 0;  // of all files
};

struct PlanOptions {
  int world = 1;
  std::vector<int> writers = {0};  // ascending
  uint64_t split_bytes = kSplitBytes;
  std::map<std::string, std::string> metadata;  // for the headers of the files that hold weights
};

// Checks names, shapes, sizes, and that every element is on some rank; looks at no data.
Result<CheckpointPlan> PlanCheckpoint(const std::vector<CheckpointTensor>& tensors, const PlanOptions& options);

// What a file of weights says about itself when it is taken out of its folder: "lockstep.<recipe>", the state's
// "identity" as JSON.
std::map<std::string, std::string> WeightsMetadata(const CheckpointContent& content);

// Where rank `rank` has byte `from` of the flattened tensor; it must be in its ranges.
const char* LocalBytes(const CheckpointTensor& tensor, int rank, uint64_t from);

}  // namespace lockstep::record
