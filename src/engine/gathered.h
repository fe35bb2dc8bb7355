// The parameters of a unit of the model, whole while they are needed: gathered from all ranks into memory that is given
// back afterwards (ZeRO-3). Everything that autograd has saved of them shares the memory's storage object, so that it
// sees the values again once they are gathered for backward. The training thread or autograd's, one at a time; Start is
// collective.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "comm/torch/tensor_comm.h"

namespace lockstep::engine {

// Memory for whole units: on the host it is shared between ranks and used again; on a device it comes from its
// allocator.
class UnitMemory {
 public:
  UnitMemory(comm::TensorCommunicator* comm, at::Device device) : comm_(comm), device_(device) {}
  // Collective on the host: all ranks ask for the same sizes in the same order. `bytes` of the largest unit: every
  // piece of the host's memory fits any of them.
  void Expect(size_t bytes) { largest_ = std::max(largest_, bytes); }
  c10::DataPtr Take(size_t bytes);
  at::Device device() const { return device_; }
  void Returned(size_t bytes) { held_ -= bytes; }
  // Bytes of whole units now, and the most there were since the last StartPeak.
  size_t held() const { return held_; }
  size_t peak() const { return peak_; }
  void StartPeak() { peak_ = held_; }
  // On the host: of all pieces; on a device the peak.
  size_t reserved() const;

 private:
  comm::TensorCommunicator* comm_;
  at::Device device_;
  size_t largest_ = 0, held_ = 0, peak_ = 0;
  struct Slots;
  std::shared_ptr<Slots> slots_;
};

// Shards that lie in host memory are copied to the device before they are gathered, on a stream of their own: behind
// nothing that computes.
class ShardUpload {
 public:
  explicit ShardUpload(at::Device device) : device_(device) {}
  ~ShardUpload() { Finish(); }
  comm::TensorWork AllGather(const at::Tensor& shard, const at::Tensor& into, comm::TensorCommunicator* comm);
  // Before shards change: nothing reads them any more.
  void Finish();

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> copied_;  // behind the last one
};

class GatheredBuffer {
 public:
  // `shards`: this rank's parts of what lies in the buffer one after the other; every rank has as much. `upload`: how
  // they come to the device where they lie in host memory; else null.
  GatheredBuffer(std::vector<at::Tensor> shards, comm::TensorCommunicator* comm, UnitMemory* memory,
                 ShardUpload* upload = nullptr);

  int64_t numel() const { return numel_; }
  const at::Tensor& buffer() const { return buffer_; }  // its memory is there between Start and Release
  bool started() const { return started_; }
  void Start();
  Status Wait();
  void Release();

 private:
  std::vector<at::Tensor> shards_;
  comm::TensorCommunicator* comm_;
  UnitMemory* memory_;
  ShardUpload* upload_;
  int64_t numel_ = 0;
  at::Tensor buffer_;
  std::vector<comm::TensorWork> works_;
  bool started_ = false;
};

}  // namespace lockstep::engine
