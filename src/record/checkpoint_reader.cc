#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/checksum.h"
#include "base/files.h"
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
  Result<CheckpointManifest> manifest = ParseManifest(*text, source);
  if (!manifest.ok()) return manifest.status();
  manifest_ = std::move(*manifest);
  const std::string name = path_.substr(path_.find_last_of('/') + 1);
  const std::optional<uint64_t> named = CheckpointStep(name);
  if (named && *named != step()) return Damaged(path_, fmt::format("the manifest is that of step {}", step()));
  return Status::Ok();
}

// The manifest is authentic by its checksum; still the files are compared with it, as one may have been exchanged.
Status CheckpointReader::OpenFiles() {
  std::map<std::string, size_t> by_name;
  for (const StoredFile& entry : manifest_.files) {
    Result<SafetensorsFile> file = SafetensorsFile::Open(path_ + "/" + entry.name);
    if (!file.ok()) return file.status().Context(fmt::format("checkpoint '{}'", path_));
    if (file->file_bytes() != entry.bytes) {
      return Damaged(path_,
                     fmt::format("{} has {} bytes, the manifest says {}", entry.name, file->file_bytes(), entry.bytes));
    }
    std::string header(file->data_begin(), '\0');
    LOCKSTEP_RETURN_IF_ERROR(file->ReadAt(0, header.data(), header.size()));
    if (ChecksumText(header) != entry.header_checksum) {
      return Damaged(path_, fmt::format("the header of {} does not match its checksum", entry.name));
    }
    by_name.emplace(entry.name, files_.size());
    files_.push_back(std::move(*file));
  }
  std::vector<std::set<std::string>> claimed(files_.size());
  for (const StoredTensor& tensor : manifest_.tensors) {
    std::vector<Place> places;
    for (const StoredPart& part : tensor.parts) {
      const size_t file = by_name.at(part.file);
      const TensorInfo* stored = files_[file].Find(part.key);
      if (stored == nullptr || !claimed[file].insert(part.key).second) {
        return Damaged(path_, fmt::format("tensor '{}' is not in its file", tensor.name));
      }
      const std::vector<int64_t> shape =
          tensor.parts.size() == 1 ? tensor.shape : std::vector<int64_t>{part.elements.size()};
      if (stored->dtype != tensor.dtype || stored->shape != shape) {
        return Damaged(path_, fmt::format("tensor '{}' is {} in its file, not what the manifest says", tensor.name,
                                          DescribeTensor(stored->dtype, stored->shape)));
      }
      places.push_back({file, stored->offset, stored->bytes});
    }
    index_.emplace(tensor.name, tensors_.size());
    tensors_.push_back({tensor.name, tensor.dtype, tensor.shape, places.front().offset, tensor.bytes});
    places_.push_back(std::move(places));
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    if (claimed[i].size() != files_[i].tensors().size()) {
      return Damaged(path_, fmt::format("'{}' holds tensors that the manifest does not list", files_[i].path()));
    }
  }
  return Status::Ok();
}

const TensorInfo* CheckpointReader::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status CheckpointReader::Read(const PartPiece& piece, void* dst, Checksum* sum) const {
  const Place& place = places_[piece.tensor][piece.part];
  if (piece.begin == 0) sum->Reset();
  for (uint64_t at = piece.begin; at < piece.end;) {  // hashed while in the core's cache
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, piece.end - at));
    char* to = static_cast<char*>(dst) + (at - piece.begin);
    LOCKSTEP_RETURN_IF_ERROR(files_[place.file].ReadAt(place.offset + at, to, bytes));
    sum->Update(to, bytes);
    at += bytes;
  }
  if (piece.end == place.bytes && sum->Text() != manifest_.tensors[piece.tensor].parts[piece.part].checksum) {
    return Damaged(path_, fmt::format("tensor '{}' in '{}' does not match its checksum", tensors_[piece.tensor].name,
                                      files_[place.file].path()));
  }
  return Status::Ok();
}

Status CheckpointReader::ReadInto(size_t index, char* dst) const {
  std::string scratch;
  Checksum sum;
  for (size_t part = 0; part < places_[index].size(); ++part) {
    const uint64_t bytes = places_[index][part].bytes;
    if (dst != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(Read(PartPiece{index, part, 0, bytes}, dst, &sum));
      dst += bytes;
      continue;
    }
    uint64_t at = 0;
    do {  // at least once: that of no bytes is compared too
      const uint64_t end = std::min<uint64_t>(at + kChunkBytes, bytes);
      scratch.resize(static_cast<size_t>(end - at));
      LOCKSTEP_RETURN_IF_ERROR(Read(PartPiece{index, part, at, end}, scratch.data(), &sum));
      at = end;
    } while (at < bytes);
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
    return Status(Code::kUsage, fmt::format("checkpoint '{}' (recipe {}) has no tensor '{}'", path_, recipe(), name));
  }
  const TensorInfo& tensor = tensors_[found->second];
  if (bytes != tensor.bytes) {
    return Status(Code::kUsage, fmt::format("checkpoint '{}': tensor '{}' is {} with {} bytes, {} are wanted", path_,
                                            name, DescribeTensor(tensor.dtype, tensor.shape), tensor.bytes, bytes));
  }
  return bytes == 0 ? Status::Ok() : ReadInto(found->second, static_cast<char*>(dst));
}

}  // namespace lockstep::record
