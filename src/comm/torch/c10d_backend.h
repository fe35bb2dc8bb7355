// Our communicator as a backend of c10d, so that c10d's own machinery (ProcessGroup, the DDP Reducer) runs over it: the
// reference of tests and the peer of benchmarks. Host tensors only. Operations are collective and asynchronous; their
// futures are completed, in order, by a thread of the backend.
//
//   auto group = MakeProcessGroup(communicator);
//   c10d::Reducer reducer(parameters, buckets, group, ...);
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/torch/tensor_comm.h"

namespace lockstep::comm {

class C10dBackend final : public c10d::Backend {
 public:
  explicit C10dBackend(std::shared_ptr<TensorCommunicator> comm);
  ~C10dBackend() override;

  const std::string getBackendName() const override { return "lockstep"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  class Started;
  c10::intrusive_ptr<c10d::Work> Enqueue(c10d::OpType type, TensorWork work, std::vector<at::Tensor> results,
                                         std::function<void()> after = nullptr);
  void Complete();

  std::shared_ptr<TensorCommunicator> comm_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<c10::intrusive_ptr<Started>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

// A process group whose CPU backend is the communicator.
c10::intrusive_ptr<c10d::ProcessGroup> MakeProcessGroup(std::shared_ptr<TensorCommunicator> comm);

}  // namespace lockstep::comm
