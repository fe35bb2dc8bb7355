// Numbers of a step, copied from the device to the host in order and without blocking: the copy to pinned memory is
// queued when they are pushed, and read when they are taken. On the CPU they are available at once. Used by the
// training thread.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <deque>
#include <vector>

namespace lockstep::engine {

class Readback {
 public:
  explicit Readback(at::Device device) : device_(device) {}
  // One-dimensional float64 tensors, one after the other.
  void Push(const std::vector<at::Tensor>& numbers);
  size_t size() const { return waiting_.size(); }
  // The oldest; waits for it.
  std::vector<double> Take();

 private:
  struct Waiting {
    at::Tensor host;
    c10::Event done;
  };
  at::Device device_;
  std::deque<Waiting> waiting_;
  std::vector<at::Tensor> spare_;
};

}  // namespace lockstep::engine
