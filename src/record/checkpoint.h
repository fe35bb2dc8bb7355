// Checkpoints on disk (format: docs/formats/checkpoint.md): a folder checkpoints/step-<n>/ of safetensors files and a
// manifest with a checksum of everything, published by rename. The state is independent of the number of ranks; a
// tensor may lie in several parts, which readers never see. WriteCheckpoint is for one process that has the whole
// state; background_saver.h writes it from all ranks. Any number of readers may look on.
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

#include "base/checksum.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "base/tensor_info.h"
#include "record/checkpoint_manifest.h"
#include "record/storage.h"

namespace lockstep::record {

// name = "<group>/<key>": the group becomes the file ("model/a.b" is tensor "a.b" of model.safetensors), so that
// model.safetensors has upstream's plain names. Groups: letters, digits, '-' and '_'.
struct CheckpointTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // dense, not owned: what this rank has of it, one range after the other
  size_t bytes = 0;            // of the whole tensor
  // By rank: the ranges that each can provide, ascending. Empty: every rank has all of it.
  std::vector<std::vector<ElementRange>> ranges;
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

// Bytes [begin, end) of a part of a tensor.
struct PartPiece {
  size_t tensor = 0, part = 0;
  uint64_t begin = 0, end = 0;
};

class CheckpointReader {
 public:
  // Checks the manifest against its checksum, every file's size and header, and that they agree; reads no tensor.
  // `path` is the step folder, by any name; if the name is "step-<n>" the manifest must say the same step.
  static Result<CheckpointReader> Open(const std::string& path);

  // Every tensor against its checksum.
  Status Verify() const;

  const std::string& path() const { return path_; }
  uint64_t step() const { return manifest_.step; }
  const std::string& recipe() const { return manifest_.recipe; }
  const nlohmann::json& state() const { return manifest_.state; }
  const CheckpointManifest& manifest() const { return manifest_; }
  // Full names ("model/encoder.0.weight"), sorted.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* Find(std::string_view name) const;
  // Verifies the checksum while reading: after an error dst holds nothing of use. bytes must be the tensor's.
  Status Read(std::string_view name, void* dst, size_t bytes) const;
  // One piece of a part (indices as in the manifest). A part's pieces are read in order with one `sum`, from its first
  // byte on; with its last byte the checksum is compared.
  Status Read(const PartPiece& piece, void* dst, Checksum* sum) const;

 private:
  struct Place {  // of a part
    size_t file = 0;
    uint64_t offset = 0, bytes = 0;
  };
  CheckpointReader() = default;
  Status LoadManifest();
  Status OpenFiles();
  Status ReadInto(size_t index, char* dst) const;  // dst null: check only

  std::string path_;
  CheckpointManifest manifest_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::vector<Place>> places_;  // by tensor
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace lockstep::record
