// The safetensors format: read with everything checked before the first tensor is handed out, and written with all
// offsets known beforehand, so that tensors may be written in any order. Files are read by pread, never mapped: on
// network file systems a mapping is slow and a lost file kills the process. Reading is const and safe from any thread.
//
//   Result<SafetensorsFile> file = SafetensorsFile::Open("model.safetensors");
//   if (!file.ok()) return file.status();
//   const TensorInfo* weight = file->Find("encoder.0.weight");
//   LOCKSTEP_RETURN_IF_ERROR(file->Read(*weight, buffer, weight->bytes));
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/tensor_info.h"

namespace lockstep {

// The header of a file, parsed and checked.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by place in the file; offsets count from the start of the file
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // first byte after the header
};

// Checks `text` (the JSON between the length and the data) against a file of file_bytes bytes: no overflow, every range
// right for its shape, no hole, no overlap, no key twice, nothing behind the last tensor. `source` names the file.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, uint64_t file_bytes, const std::string& source);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // By place in the file.
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  uint64_t data_begin() const { return header_.data_begin; }
  uint64_t file_bytes() const { return file_bytes_; }

  const TensorInfo* Find(std::string_view name) const;
  // bytes must be the tensor's.
  Status Read(std::string_view name, void* dst, size_t bytes) const;
  Status Read(const TensorInfo& tensor, void* dst, size_t bytes) const;
  // Any part of the file.
  Status ReadAt(uint64_t offset, void* dst, size_t bytes) const;

 private:
  SafetensorsFile() = default;
  std::string path_;
  UniqueFd fd_;
  uint64_t file_bytes_ = 0;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> index_;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
};

// A file as it will be: header bytes (length included) and the place of every tensor.
struct SafetensorsLayout {
  std::string header;
  std::vector<TensorInfo> tensors;  // by place: widest type first, then by name, as upstream orders them
  uint64_t file_bytes = 0;
};

Result<SafetensorsLayout> LayoutSafetensors(const std::vector<TensorSpec>& tensors,
                                            const std::map<std::string, std::string>& metadata);

// Writes a file under a temporary name; Finish publishes it by rename once every tensor was written. Destroyed before
// that, it leaves nothing. Write may be called from several threads, for different tensors.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> Create(const std::string& path, const std::vector<TensorSpec>& tensors,
                                          const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  const SafetensorsLayout& layout() const { return layout_; }
  Status Write(std::string_view name, const void* data, size_t bytes);
  // An error if a tensor was never written.
  Status Finish();

 private:
  SafetensorsWriter() = default;
  std::string path_, temp_;
  UniqueFd fd_;
  SafetensorsLayout layout_;
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<uint8_t> written_;
};

}  // namespace lockstep
