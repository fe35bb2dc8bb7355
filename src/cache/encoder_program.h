// An encoder that is a program of its own (Python with a model of its own framework): tensors go to its standard input
// and come back from its standard output, each message one safetensors document with its length before it
// (docs/formats/feature-cache.md). Started once; one call at a time. It ends with this object.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "base/status.h"
#include "base/tensor_info.h"

namespace lockstep::cache {

struct NamedTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

class EncoderProgram {
 public:
  // A file that ends in .py is run by python3 (of PATH), any other one by itself.
  static Result<EncoderProgram> Start(const std::string& path, const std::vector<std::string>& arguments);
  EncoderProgram(EncoderProgram&&) noexcept = default;
  EncoderProgram& operator=(EncoderProgram&&) = delete;
  ~EncoderProgram();

  Result<std::vector<NamedTensor>> Call(const std::vector<NamedTensor>& tensors);

 private:
  EncoderProgram() = default;
  Status Ended(const std::string& what) const;
  std::string path_;
  Process process_;
  UniqueFd to_, from_;
};

// "sha256:<64 hex>" over the program's file, its arguments, and the files that hold its weights.
Result<std::string> ProgramDigest(const std::string& path, const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& weights);

}  // namespace lockstep::cache
