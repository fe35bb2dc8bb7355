#include "record/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/digits.h"
#include "record/checkpoint_plan.h"
#include "record/checkpoint_write.h"
#include "record/staging.h"

namespace lockstep::record {
namespace {

using Buffer = std::unique_ptr<char, decltype(&std::free)>;

// The bytes [offset, offset + bytes) of a file, put together in `chunk`.
void FillChunk(const PlannedFile& file, const std::vector<CheckpointTensor>& tensors, uint64_t offset, size_t bytes,
               char* chunk) {
  const std::string& header = file.layout.header;
  if (offset < header.size()) {
    std::memcpy(chunk, header.data() + offset, std::min<size_t>(bytes, header.size() - offset));
  }
  for (const FileSource& source : SourcesOf(file, offset, bytes)) {
    std::memcpy(chunk + (source.offset - offset), LocalBytes(tensors[source.tensor], 0, source.from), source.bytes);
  }
}

Status WriteFiles(const std::string& folder, const CheckpointContent& content, const CheckpointPlan& plan,
                  Storage& storage, std::vector<std::vector<std::string>>* checksums) {
  // Chunks are put together in one aligned buffer, so that they can bypass the page cache.
  const Buffer chunk(static_cast<char*>(std::aligned_alloc(4096, kChunkBytes)), &std::free);
  if (!chunk) return Status(Code::kEnvironment, "no memory for a checkpoint chunk");
  for (const PlannedFile& file : plan.files) {
    Result<FileWriter> out = FileWriter::Create(folder, file, storage);
    if (!out.ok()) return out.status();
    for (uint64_t offset = 0; offset < file.layout.file_bytes; offset += kChunkBytes) {
      const size_t bytes = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, file.layout.file_bytes - offset));
      FillChunk(file, content.tensors, offset, bytes, chunk.get());
      LOCKSTEP_RETURN_IF_ERROR(out->Append(chunk.get(), bytes));
    }
    Result<std::vector<std::string>> sums = out->Finish();
    if (!sums.ok()) return sums.status();
    checksums->push_back(std::move(*sums));
  }
  return Status::Ok();
}

}  // namespace

std::string CheckpointName(uint64_t step) { return fmt::format("step-{}", step); }

std::optional<uint64_t> CheckpointStep(std::string_view name) {
  if (!name.starts_with("step-")) return std::nullopt;
  name.remove_prefix(5);
  if (name.size() > 1 && name[0] == '0') return std::nullopt;
  return ParseDigits<uint64_t>(name);
}

Status WriteCheckpoint(const std::string& folder, const CheckpointContent& content, Storage& storage) {
  Result<CheckpointPlan> plan = PlanCheckpoint(content.tensors, {.metadata = WeightsMetadata(content)});
  if (!plan.ok()) return plan.status();
  for (const CheckpointTensor& tensor : content.tensors) {
    if (tensor.data == nullptr && tensor.bytes > 0) {
      return Status(Code::kInternal, fmt::format("checkpoint tensor '{}' has no data", tensor.name));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckState(content.state));
  const Result<std::string> temporary = MakeTemporary(folder, content.step, storage);
  if (!temporary.ok()) return temporary.status();
  std::vector<std::vector<std::string>> checksums;
  Status written = WriteFiles(folder + "/" + *temporary, content, *plan, storage, &checksums);
  if (!written.ok()) {
    (void)RemoveTree(storage, folder + "/" + *temporary);
    return written;
  }
  return PublishCheckpoint(folder, *temporary, {content.step, content.recipe, content.state}, content.tensors, *plan,
                           checksums, storage);
}

}  // namespace lockstep::record
