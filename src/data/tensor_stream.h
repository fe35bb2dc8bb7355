// One tensor of a safetensors file, [N, T, ...], read and written a few time steps at once, so that a video of any
// length passes through little memory. The writer need not know T where N is 1: the data go behind room kept for the
// header, which is written at the end. The file appears at Finish and not before. One thread each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "data/publish.h"

namespace lockstep::data {

class TensorStreamReader {
 public:
  // `name` must be in the file, with 5 dimensions none of which is 0; the error says what is there instead.
  static Result<TensorStreamReader> Open(const std::string& path, const std::string& name);
  const TensorInfo& tensor() const { return *file_.Find(name_); }
  const std::map<std::string, std::string>& metadata() const { return file_.metadata(); }
  int64_t position() const { return next_; }
  size_t StepBytes() const { return step_bytes_; }  // of one time step of one clip
  // Up to `steps` further ones of every clip, dense [N, n, ...], into dst (N * steps * StepBytes() bytes); n, 0 at the
  // end.
  Result<int64_t> Next(int64_t steps, void* dst);

 private:
  explicit TensorStreamReader(SafetensorsFile file) : file_(std::move(file)) {}
  SafetensorsFile file_;
  std::string name_;
  size_t step_bytes_ = 0;
  int64_t next_ = 0;
};

class TensorStreamWriter {
 public:
  // `shape` is [N, T, ...]; T = -1: not known yet, only with N = 1.
  static Result<TensorStreamWriter> Create(const std::string& path, const std::string& name, Dtype dtype,
                                           const std::vector<int64_t>& shape, bool overwrite);
  // `steps` further ones of every clip, dense [N, steps, ...].
  Status Write(const void* data, int64_t steps);
  // An error unless T steps (at least one) were written.
  Status Finish(const std::map<std::string, std::string>& metadata);

 private:
  explicit TensorStreamWriter(Publication place) : place_(std::move(place)) {}
  Publication place_;
  UniqueFd fd_;
  TensorSpec spec_;
  size_t step_bytes_ = 0;
  int64_t written_ = 0;
};

}  // namespace lockstep::data
