// Arrays in files whose first dimension counts samples: data sets of HDF5, tensors of safetensors. A row is read by its
// number, as it lies there or a slice of it; nothing is loaded as a whole. Rows of a folder's files count on from file
// to file, in natural order of their names. Every member is const and may be called from any thread at once; HDF5's
// library works for one caller at a time, the others wait.
//
//   Result<std::unique_ptr<Rows>> rows = OpenRows("hdf5", "clips.h5", "frames");
//   std::vector<uint8_t> row((*rows)->field().bytes());
//   LOCKSTEP_RETURN_IF_ERROR((*rows)->Read(17, {}, row.data()));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/source.h"

namespace lockstep::data {

class Rows {
 public:
  virtual ~Rows() = default;
  // Name, type and shape of one row.
  virtual const Field& field() const = 0;
  virtual uint64_t size() const = 0;
  // The whole row, or entry `slice` of its first dimension.
  virtual Status Read(uint64_t row, std::optional<uint64_t> slice, void* out) const = 0;
  virtual const std::string& path() const = 0;
};

// "U8 [12, 3, 64, 64]".
std::string DescribeField(const Field& field);

// The files of a folder that a kind looks for, or the one file.
struct TextFile;
Result<std::vector<TextFile>> ListRowFiles(const std::string& kind, const std::string& path);

// One file.
Result<std::unique_ptr<Rows>> OpenSafetensorsRows(const std::string& path, const std::string& name);
Result<std::unique_ptr<Rows>> OpenHdf5Rows(const std::string& path, const std::string& name);

// A file or a folder of files; kind is hdf5 or safetensors. All files must have the array in one type and row shape.
Result<std::unique_ptr<Rows>> OpenRows(const std::string& kind, const std::string& path, const std::string& name);

// One sample per row, one field per array, as they are in the files: for recipes whose data are tensors. Equal numbers
// of rows are required. Augmentation changes nothing.
Result<std::unique_ptr<Source>> OpenRowSource(const std::string& kind, const std::string& path,
                                              const std::vector<std::string>& names);

// Clips out of rows of U8 pictures: [T, H, W, 3], [T, 3, H, W], [H, W, 3] or [3, H, W], RGB; cut, resized and augmented
// as every source of sources.h. `config.field` names the array.
struct SourceConfig;
Result<std::unique_ptr<Source>> OpenRowClips(const SourceConfig& config);

}  // namespace lockstep::data
