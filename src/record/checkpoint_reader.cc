#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/checksum.h"
#include "base/json.h"
#include "record/checkpoint.h"
#include "record/checkpoint_plan.h"

namespace lockstep::record {
namespace {

constexpr size_t kMaxManifest = 256u << 20;

Status Damaged(const std::string& path, const std::string& what) {
  return Status(Code::kEnvironment, fmt::format("checkpoint '{}': {}", path, what),
                "this checkpoint is damaged: use an older one");
}

}  // namespace

Result<CheckpointReader> CheckpointReader::Open(const std::string& path) {
  CheckpointReader reader;
  reader.path_ = path;
  while (reader.path_.size() > 1 && reader.path_.back() == '/') reader.path_.pop_back();
  LOCKSTEP_RETURN_IF_ERROR(reader.LoadManifest());
  LOCKSTEP_RETURN_IF_ERROR(reader.OpenFiles());
  return reader;
}

Status CheckpointReader::LoadManifest() {
  const std::string source = path_ + "/" + kManifestName;
  Result<std::string> text = ReadFile(source, kMaxManifest);
  if (!text.ok()) return text.status();
  Result<nlohmann::json> manifest = OpenManifest(*text, source);
  if (!manifest.ok()) return manifest.status();
  manifest_ = std::move(*manifest);
  const auto step = manifest_.find("step"), state = manifest_.find("state");
  if (step == manifest_.end() || !step->is_number_unsigned() || state == manifest_.end() || !state->is_object()) {
    return Damaged(path_, "manifest lacks step or state");
  }
  step_ = step->get<uint64_t>();
  recipe_ = GetString(manifest_, "recipe");
  state_ = std::move(*state);
  const std::string name = path_.substr(path_.find_last_of('/') + 1);
  const std::optional<uint64_t> named = CheckpointStep(name);
  if (named && *named != step_) return Damaged(path_, fmt::format("the manifest is that of step {}", step_));
  return Status::Ok();
}

// The manifest is authentic by its checksum; still every field is looked at, as a later version may differ.
Status CheckpointReader::OpenFiles() {
  std::map<std::string, size_t> by_name;
  const auto files = manifest_.find("files"), tensors = manifest_.find("tensors");
  if (files == manifest_.end() || !files->is_array() || tensors == manifest_.end() || !tensors->is_array()) {
    return Damaged(path_, "manifest lists no files or tensors");
  }
  for (const nlohmann::json& entry : *files) {
    const std::string name = GetString(entry, "name");
    if (name.empty() || name.find('/') != std::string::npos || by_name.contains(name)) {
      return Damaged(path_, fmt::format("manifest lists a file '{}'", name));
    }
    Result<SafetensorsFile> file = SafetensorsFile::Open(path_ + "/" + name);
    if (!file.ok()) return file.status().Context(fmt::format("checkpoint '{}'", path_));
    const int64_t bytes = GetInt(entry, "bytes", -1);
    if (bytes < 0 || file->file_bytes() != static_cast<uint64_t>(bytes)) {
      return Damaged(path_, fmt::format("{} has {} bytes, the manifest says {}", name, file->file_bytes(), bytes));
    }
    std::string header(file->data_begin(), '\0');
    LOCKSTEP_RETURN_IF_ERROR(file->ReadAt(0, header.data(), header.size()));
    if (ChecksumText(header) != GetString(entry, "header_checksum")) {
      return Damaged(path_, fmt::format("the header of {} does not match its checksum", name));
    }
    by_name.emplace(name, files_.size());
    files_.push_back(std::move(*file));
  }
  std::vector<std::set<std::string>> claimed(files_.size());
  for (const nlohmann::json& entry : *tensors) {
    const std::string name = GetString(entry, "name"), key = GetString(entry, "key");
    const auto file = by_name.find(GetString(entry, "file"));
    const TensorInfo* stored = file == by_name.end() ? nullptr : files_[file->second].Find(key);
    if (stored == nullptr || !claimed[file->second].insert(key).second) {
      return Damaged(path_, fmt::format("tensor '{}' is not in its file", name));
    }
    const auto shape = entry.find("shape");
    if (GetString(entry, "dtype") != DtypeName(stored->dtype) || shape == entry.end() ||
        *shape != nlohmann::json(stored->shape)) {
      return Damaged(path_, fmt::format("tensor '{}' is {} in its file, not what the manifest says", name,
                                        DescribeTensor(stored->dtype, stored->shape)));
    }
    if (!index_.emplace(name, tensors_.size()).second)
      return Damaged(path_, fmt::format("tensor '{}' is there twice", name));
    tensors_.push_back({name, stored->dtype, stored->shape, stored->offset, stored->bytes});
    places_.push_back({file->second, GetString(entry, "checksum")});
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    if (claimed[i].size() != files_[i].tensors().size()) {
      return Damaged(path_, fmt::format("'{}' holds tensors that the manifest does not list", files_[i].path()));
    }
  }
  manifest_ = nlohmann::json();
  return Status::Ok();
}

const TensorInfo* CheckpointReader::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status CheckpointReader::ReadInto(size_t index, char* dst) const {
  const TensorInfo& tensor = tensors_[index];
  std::string scratch;
  if (dst == nullptr) scratch.resize(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, tensor.bytes)));
  Checksum sum;
  for (uint64_t at = 0; at < tensor.bytes; at += kChunkBytes) {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, tensor.bytes - at));
    char* to = dst == nullptr ? scratch.data() : dst + at;
    LOCKSTEP_RETURN_IF_ERROR(files_[places_[index].file].ReadAt(tensor.offset + at, to, bytes));
    sum.Update(to, bytes);
  }
  if (sum.Text() != places_[index].checksum) {
    return Damaged(path_, fmt::format("tensor '{}' in '{}' does not match its checksum", tensor.name,
                                      files_[places_[index].file].path()));
  }
  return Status::Ok();
}

Status CheckpointReader::Verify() const {
  for (size_t i = 0; i < tensors_.size(); ++i) LOCKSTEP_RETURN_IF_ERROR(ReadInto(i, nullptr));
  return Status::Ok();
}

Status CheckpointReader::Read(std::string_view name, void* dst, size_t bytes) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    return Status(Code::kUsage, fmt::format("checkpoint '{}' (recipe {}) has no tensor '{}'", path_, recipe_, name));
  }
  const TensorInfo& tensor = tensors_[found->second];
  if (bytes != tensor.bytes) {
    return Status(Code::kUsage, fmt::format("checkpoint '{}': tensor '{}' is {} with {} bytes, {} are wanted", path_,
                                            name, DescribeTensor(tensor.dtype, tensor.shape), tensor.bytes, bytes));
  }
  return bytes == 0 ? Status::Ok() : ReadInto(found->second, static_cast<char*>(dst));
}

}  // namespace lockstep::record
