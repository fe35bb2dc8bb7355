#include "record/checkpoint_write.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

namespace lockstep::record {
namespace {

// Unique among processes that share the folder: a temporary of a dead writer is never taken for our own.
std::string TemporarySuffix() {
  static std::atomic<uint32_t> counter{0};
  const uint64_t now = static_cast<uint64_t>(UnixSeconds() * 1e6);
  return fmt::format("{}-{:x}-{}", ::getpid(), now, counter.fetch_add(1));
}

bool EntryExists(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}

Status WriteText(const std::string& path, const std::string& text, Storage& storage) {
  Result<std::unique_ptr<WritableFile>> out = storage.Create(path);
  if (!out.ok()) return out.status();
  LOCKSTEP_RETURN_IF_ERROR((*out)->Write(0, text.data(), text.size()));
  LOCKSTEP_RETURN_IF_ERROR((*out)->Sync());
  return (*out)->Close();
}

CheckpointManifest Describe(const CheckpointHead& head, const std::vector<CheckpointTensor>& tensors,
                            const CheckpointPlan& plan, const std::vector<std::vector<std::string>>& checksums) {
  CheckpointManifest manifest;
  manifest.step = head.step;
  manifest.recipe = head.recipe;
  manifest.state = head.state;
  manifest.tensors.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    manifest.tensors[i] = {tensors[i].name, tensors[i].dtype, tensors[i].shape, tensors[i].bytes, {}};
  }
  for (size_t f = 0; f < plan.files.size(); ++f) {
    const PlannedFile& file = plan.files[f];
    manifest.files.push_back({file.name, file.layout.file_bytes, ChecksumText(file.layout.header)});
    for (size_t p = 0; p < file.parts.size(); ++p) {
      const PlannedPart& part = file.parts[p];
      manifest.tensors[part.tensor].parts.push_back(
          {file.name, file.layout.tensors[p].name, part.elements, checksums[f][p]});
    }
  }
  for (StoredTensor& tensor : manifest.tensors) {
    std::sort(tensor.parts.begin(), tensor.parts.end(),
              [](const StoredPart& a, const StoredPart& b) { return a.elements.begin < b.elements.begin; });
  }
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  return manifest;
}

Status CheckFinite(const nlohmann::json& value, const std::string& where) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    return Status(Code::kInternal, fmt::format("checkpoint state {} is not finite, which JSON cannot hold", where),
                  "store it as text");
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) LOCKSTEP_RETURN_IF_ERROR(CheckFinite(item, where + "/" + key));
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(CheckFinite(value[i], fmt::format("{}/{}", where, i)));
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckState(const nlohmann::json& state) {
  if (!state.is_object()) return Status(Code::kInternal, "checkpoint state must be a JSON object");
  LOCKSTEP_RETURN_IF_ERROR(CheckFinite(state, ""));
  try {
    (void)state.dump();
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kInternal, fmt::format("checkpoint state cannot be written as JSON: {}", error.what()),
                  "binary data belongs into a tensor");
  }
  return Status::Ok();
}

void Pace::Wrote(size_t bytes) {
  if (rate_ == 0) return;
  bytes_ += bytes;
  const double ahead = static_cast<double>(bytes_) / static_cast<double>(rate_) - SecondsSince(start_);
  if (ahead > 0) std::this_thread::sleep_for(std::chrono::duration<double>(ahead));
}

Result<FileWriter> FileWriter::Create(const std::string& folder, const PlannedFile& file, Storage& storage) {
  Result<std::unique_ptr<WritableFile>> out = storage.Create(folder + "/" + file.name);
  if (!out.ok()) return out.status();
  return FileWriter(file, std::move(*out));
}

Status FileWriter::Append(const char* data, size_t bytes) {
  const std::vector<TensorInfo>& tensors = file_->layout.tensors;
  while (checksums_.size() < tensors.size() && tensors[checksums_.size()].offset < offset_ + bytes) {
    const TensorInfo& tensor = tensors[checksums_.size()];
    const uint64_t begin = std::max(tensor.offset, offset_);
    const uint64_t end = std::min(tensor.offset + tensor.bytes, offset_ + bytes);
    if (end > begin) sum_.Update(data + (begin - offset_), end - begin);
    if (tensor.offset + tensor.bytes > offset_ + bytes) break;
    checksums_.push_back(sum_.Text());
    sum_.Reset();
  }
  LOCKSTEP_RETURN_IF_ERROR(out_->Write(offset_, data, bytes));
  offset_ += bytes;
  return Status::Ok();
}

Result<std::vector<std::string>> FileWriter::Finish() {
  checksums_.resize(file_->layout.tensors.size(), ChecksumText(""));  // empty ones at the very end
  LOCKSTEP_RETURN_IF_ERROR(out_->Sync());
  LOCKSTEP_RETURN_IF_ERROR(out_->Close());
  return std::move(checksums_);
}

Result<std::string> MakeTemporary(const std::string& folder, uint64_t step, Storage& storage) {
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  const std::string name = fmt::format("{}.tmp-{}", CheckpointName(step), TemporarySuffix());
  LOCKSTEP_RETURN_IF_ERROR(storage.MakeDir(folder + "/" + name));
  return name;
}

Status PublishCheckpoint(const std::string& folder, const std::string& temporary, const CheckpointHead& head,
                         const std::vector<CheckpointTensor>& tensors, const CheckpointPlan& plan,
                         const std::vector<std::vector<std::string>>& checksums, Storage& storage) {
  const std::string from = folder + "/" + temporary;
  const std::string target = folder + "/" + CheckpointName(head.step);
  const std::string replaced = fmt::format("{}.replaced-{}", target, TemporarySuffix());
  Status status =
      WriteText(from + "/" + kManifestName, WriteManifest(Describe(head, tensors, plan, checksums)), storage);
  if (status.ok()) status = storage.SyncDir(from);
  const bool again = status.ok() && EntryExists(target);
  if (again) status = storage.Rename(target, replaced);
  if (status.ok()) {
    status = storage.Rename(from, target);
    if (!status.ok() && again) (void)storage.Rename(replaced, target);
  }
  if (!status.ok()) {
    (void)RemoveTree(storage, from);
    return status;
  }
  LOCKSTEP_RETURN_IF_ERROR(storage.SyncDir(folder));
  return again ? RemoveTree(storage, replaced) : Status::Ok();
}

}  // namespace lockstep::record
