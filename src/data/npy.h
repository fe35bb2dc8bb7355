// NumPy's .npy files, versions 1 to 3: one array with its shape and type. Read whole or in parts of the last two axes;
// written in C order. What is read is checked: a file shorter than its header promises, big-endian numbers, Fortran
// order and types besides u1, i1 (bool: b1) and f4 are errors that name the file. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/parts.h"
#include "data/source.h"

namespace lockstep::data {

class NpyFile {
 public:
  static Result<NpyFile> Open(const std::string& path);

  const std::vector<int64_t>& shape() const { return shape_; }
  ElementType type() const { return type_; }  // kU8 or kF32
  int most() const { return most_; }          // of kU8: 255, of an array of bool 1
  const std::string& path() const { return path_; }

  // Rows [top, top + height) and columns [left, left + width) of the last two axes, for all indices of the ones before;
  // `out` has room for elements of type(). An array has at least two axes.
  Status ReadBox(int64_t top, int64_t left, int64_t height, int64_t width, std::byte* out) const;
  Status ReadAll(std::byte* out) const;

 private:
  std::string path_;
  std::vector<int64_t> shape_;
  ElementType type_ = ElementType::kU8;
  int most_ = 255;
  uint64_t data_ = 0;  // where the array begins
  ReadAt read_;
};

// The file's bytes, for WriteFileAtomic.
std::string EncodeNpy(ElementType type, std::span<const int64_t> shape, std::span<const std::byte> data);

}  // namespace lockstep::data
