// Device work that is recorded once and replayed as often as wanted: a CUDA graph. One replay costs the host a few
// microseconds, whatever the number of kernels. What is recorded reads and writes the same memory at every replay, so
// inputs are copied into tensors that stay; it must not wait for the device or allocate outside torch's allocator.
// Used by the training thread, on a stream that is not the default one; without CUDA nothing can be recorded.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "base/status.h"

namespace lockstep::engine {

class Recorder;

class Recording {
 public:
  ~Recording();
  void Replay();

 private:
  friend class Recorder;
  struct Graph;
  explicit Recording(std::unique_ptr<Graph> graph);
  std::unique_ptr<Graph> graph_;
};

// Recordings of one Recorder share their memory: tensors that one leaves alive may be used by the next, and all must be
// replayed in the order in which they were made.
class Recorder {
 public:
  explicit Recorder(at::Device device);
  ~Recorder();
  // Runs `work` without executing it. An error says why it cannot be recorded; the device is as before.
  Result<std::unique_ptr<Recording>> Record(const std::function<void()>& work);

 private:
  at::Device device_;
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace lockstep::engine
