// Device work that is captured once and replayed as often as wanted: a CUDA graph. One replay costs the host a few
// microseconds, whatever the number of kernels. What is captured reads and writes the same memory at every replay, so
// inputs are copied into tensors that stay; it must not wait for the device or allocate outside torch's allocator.
// Used by the training thread, on a stream that is not the default one; without CUDA nothing can be captured.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "base/status.h"

namespace lockstep::engine {

class GraphPool;

class CudaGraph {
 public:
  ~CudaGraph();
  void Replay();

 private:
  friend class GraphPool;
  struct Graph;
  explicit CudaGraph(std::unique_ptr<Graph> graph);
  std::unique_ptr<Graph> graph_;
};

// Graphs of one pool share their memory: tensors that one leaves alive may be used by the next, and all must be
// replayed in the order in which they were made.
class GraphPool {
 public:
  explicit GraphPool(at::Device device);
  ~GraphPool();
  // Runs `work` without executing it. An error says why it cannot be captured; the device is as before.
  Result<std::unique_ptr<CudaGraph>> Capture(const std::function<void()>& work);
  // After all graphs are gone: others get memory of their own. torch does not take up a pool again that it has let go.
  void Renew();

 private:
  at::Device device_;
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace lockstep::engine
