// Inside record/: the one way a checkpoint reaches the disk, shared by the direct writer (checkpoint.h) and the one of
// all ranks (background_saver.h). A temporary folder is made, files are written into it by their ranks, and one rank
// writes the manifest and publishes it. Each object is one thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/status.h"
#include "record/checkpoint_plan.h"
#include "record/storage.h"

namespace lockstep::record {

// JSON has no infinities: what it would silently lose is refused, with its place.
Status CheckState(const nlohmann::json& state);

// Sleeps as long as the bytes written so far are ahead of the rate; 0: never.
class Pace {
 public:
  explicit Pace(uint64_t bytes_per_second) : rate_(bytes_per_second) {}
  void Wrote(size_t bytes);

 private:
  uint64_t rate_;
  uint64_t bytes_ = 0;
  TimePoint start_ = Now();
};

// A planned file, in chunks of kChunkBytes or less, in order; each is hashed part by part just before it is written.
class FileWriter {
 public:
  static Result<FileWriter> Create(const std::string& folder, const PlannedFile& file, Storage& storage);
  Status Append(const char* data, size_t bytes);
  // Synced and closed; the checksum of each part.
  Result<std::vector<std::string>> Finish();

 private:
  FileWriter(const PlannedFile& file, std::unique_ptr<WritableFile> out) : file_(&file), out_(std::move(out)) {}
  const PlannedFile* file_;
  std::unique_ptr<WritableFile> out_;
  uint64_t offset_ = 0;
  Checksum sum_;  // of the part that is under way
  std::vector<std::string> checksums_;
};

struct CheckpointHead {
  uint64_t step = 0;
  std::string recipe;
  nlohmann::json state;
};

// A fresh folder "step-<n>.tmp-<...>" in `folder`; its name.
Result<std::string> MakeTemporary(const std::string& folder, uint64_t step, Storage& storage);
// Every file is there and synced: the manifest follows, then the temporary folder gets its name. checksums: by file,
// then by part. On failure nothing of it remains.
Status PublishCheckpoint(const std::string& folder, const std::string& temporary, const CheckpointHead& head,
                         const std::vector<CheckpointTensor>& tensors, const CheckpointPlan& plan,
                         const std::vector<std::vector<std::string>>& checksums, Storage& storage);

}  // namespace lockstep::record
