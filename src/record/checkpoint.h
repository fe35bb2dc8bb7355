// Checkpoints on disk (format: docs/formats/checkpoint.md): a folder checkpoints/step-<n>/ of safetensors files and a
// manifest with a checksum of everything, published by rename. Nothing here knows of ranks: the state is
// world-size-independent, and one process writes it. Writing and pruning one folder is one thread's business; any
// number of readers may look on.
//
//   CheckpointContent content{.step = 1200, .recipe = "taehv", .state = {{"samples", 76800}}};
//   content.tensors.push_back({"model/encoder.0.weight", Dtype::kF32, {64, 3, 3, 3}, data, bytes});
//   LOCKSTEP_RETURN_IF_ERROR(WriteCheckpoint(run + "/checkpoints", content, *PosixStorage()));
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"
#include "base/status.h"
#include "base/tensor_info.h"
#include "record/storage.h"

namespace lockstep::record {

// name = "<group>/<key>": the group becomes the file ("model/a.b" is tensor "a.b" of model.safetensors), so that
// model.safetensors has upstream's plain names. Groups: letters, digits, '-' and '_'.
struct CheckpointTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // dense; not owned
  size_t bytes = 0;
};

struct CheckpointContent {
  uint64_t step = 0;
  std::string recipe;
  nlohmann::json state = nlohmann::json::object();  // schedule, sampler, RNG, scaler, recipe; finite numbers only
  std::vector<CheckpointTensor> tensors;
};

// "step-1200".
std::string CheckpointName(uint64_t step);
// The step of such a name; nothing for any other name ("step-007", "step-12.tmp-3", "latest").
std::optional<uint64_t> CheckpointStep(std::string_view name);

// Writes folder/step-<n> (folder is made if missing). On failure nothing of it remains and older checkpoints are
// untouched. A checkpoint of the same step that was there before is replaced.
Status WriteCheckpoint(const std::string& folder, const CheckpointContent& content, Storage& storage);

class CheckpointReader {
 public:
  // Checks the manifest against its checksum, every file's size and header, and that they agree; reads no tensor.
  // `path` is the step folder, by any name; if the name is "step-<n>" the manifest must say the same step.
  static Result<CheckpointReader> Open(const std::string& path);

  // Every tensor against its checksum.
  Status Verify() const;

  const std::string& path() const { return path_; }
  uint64_t step() const { return step_; }
  const std::string& recipe() const { return recipe_; }
  const nlohmann::json& state() const { return state_; }
  // Full names ("model/encoder.0.weight"), sorted.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* Find(std::string_view name) const;
  // Verifies the checksum while reading: after an error dst holds nothing of use. bytes must be the tensor's.
  Status Read(std::string_view name, void* dst, size_t bytes) const;

 private:
  struct Place {
    size_t file = 0;
    std::string checksum;
  };
  CheckpointReader() = default;
  Status LoadManifest();
  Status OpenFiles();
  Status ReadInto(size_t index, char* dst) const;  // dst null: check only

  std::string path_;
  uint64_t step_ = 0;
  std::string recipe_;
  nlohmann::json state_;
  nlohmann::json manifest_;
  std::vector<TensorInfo> tensors_;
  std::vector<Place> places_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace lockstep::record
