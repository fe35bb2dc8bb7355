// Collectives on tensors. CPU tensors go over the host communicator (comm/communicator.h), CUDA tensors over NCCL when
// every rank has a GPU of its own, else through pinned host memory over the host communicator ("staged"), so that
// several ranks can share one GPU. One thread at a time; all operations are collective and run in the order of their
// calls.
//
//   auto comm = TensorCommunicator::Create(bootstrap, options, Backend::kAuto, device);
//   at::Tensor gradients = (*comm)->AllocateFlat(numel, at::kFloat, device);   // host: shared memory, reduced in place
//   TensorWork work = (*comm)->AllReduce(gradients);
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::comm {

enum class Backend { kAuto, kNccl, kHost };
// "auto", "nccl", "host": the values of the config key comm.backend.
Result<Backend> ParseBackend(const std::string& text);
const char* Name(Backend backend);

// Whether NCCL carries CUDA tensors, from the device of every rank ("host", or the name of its GPU). NCCL refuses ranks
// of one host that share a GPU, and tells hosts apart by NCCL_HOSTID, which is part of the name where it is set. `note`
// says why NCCL is left out where that is not what was asked for. Pure: the same answer on every rank.
Result<bool> UsesNccl(const std::vector<std::string>& devices, Backend backend, std::string* note = nullptr);

// A started operation on a tensor; copies share it.
class TensorWork {
 public:
  TensorWork() = default;
  explicit TensorWork(Status status) : work_(std::move(status)) {}
  explicit TensorWork(Work work) : work_(std::move(work)) {}
  // `wait` runs at most once, in the first Wait() of any copy.
  explicit TensorWork(std::function<Status()> wait)
      : deferred_(std::make_shared<Deferred>(Deferred{std::move(wait), {}})) {}

  // CPU: the tensor holds the result. CUDA: work queued on the current stream from now on sees the result; the host
  // does not wait for the device (NCCL) or only as long as the bytes need (staged). Idempotent.
  Status Wait() {
    if (deferred_ == nullptr) return work_.Wait();
    if (deferred_->wait) {
      deferred_->outcome = deferred_->wait();
      deferred_->wait = nullptr;
    }
    return deferred_->outcome;
  }

 private:
  struct Deferred {
    std::function<Status()> wait;
    Status outcome;
  };
  Work work_;
  std::shared_ptr<Deferred> deferred_;
};

class TensorCommunicator {
 public:
  // Collective. kAuto takes NCCL for a CUDA device when every rank has its own GPU, else the host; kNccl refuses GPUs
  // that are shared, naming the ranks.
  static Result<std::shared_ptr<TensorCommunicator>> Create(const Bootstrap& bootstrap, const Options& options,
                                                            Backend backend, at::Device device);
  virtual ~TensorCommunicator() = default;

  const RankIdentity& identity() { return host().identity(); }

  // Collective. Tensors must be contiguous and of one of the types of DType (bool and the 8-bit types: Broadcast and
  // AllGather only). In place.
  virtual TensorWork AllReduce(at::Tensor tensor, Op op = Op::kSum) = 0;
  virtual TensorWork ReduceScatter(const at::Tensor& in, at::Tensor out, Op op = Op::kSum) = 0;
  virtual TensorWork AllGather(const at::Tensor& in, at::Tensor out) = 0;
  virtual TensorWork Broadcast(at::Tensor tensor, int root) = 0;
  virtual Status Barrier() = 0;

  // Collective: a flat zeroed tensor. Host: a view of shared memory, so that operations on it (or on ranges of it at
  // the same offset on every rank) copy nothing. CUDA: a plain tensor. The error text is in the exception (c10::Error).
  virtual at::Tensor AllocateFlat(int64_t numel, at::ScalarType type, at::Device device) = 0;

  // The control plane over host memory; always there. Its operations are ordered among themselves.
  virtual Communicator& host() = 0;
  // For people: "shm", "shm+tcp", "nccl", "staged over shm".
  virtual std::string transport() = 0;
  // Whether operations on device tensors can be recorded in a CUDA graph with the kernels around them.
  virtual bool recordable() const { return false; }
  // Whether AllReduce adds tensors of the ranks' device over Communicator::canonical_tree. NCCL promises no order.
  virtual bool canonical_tree() { return host().canonical_tree(); }
  virtual Traffic traffic() = 0;
  virtual std::vector<double> waits() = 0;  // see Communicator; over host memory only
  virtual void Abort(std::string why) = 0;

  // `observer` is called where operations on device tensors are waited for, by the thread that waits: before the wait
  // is queued on the current stream, and after. Null: nobody. Waits for host tensors count in traffic().
  void ObserveWaits(std::function<void(bool begins)> observer) { observer_ = std::move(observer); }
  // Makes one wait of all those in a scope.
  class WaitScope {
   public:
    explicit WaitScope(TensorCommunicator* comm) : comm_(comm) {
      if (comm_->waiting_ == 0 && comm_->observer_) comm_->observer_(true);
      ++comm_->waiting_;
    }
    ~WaitScope();
    WaitScope(const WaitScope&) = delete;
    WaitScope& operator=(const WaitScope&) = delete;

   private:
    TensorCommunicator* const comm_;
  };

  // Collective: one more communicator over host memory between the same ranks, for a thread of its own.
  Result<std::shared_ptr<Communicator>> ConnectHost(const std::string& group, std::chrono::milliseconds timeout) const;

 private:
  Bootstrap bootstrap_;
  Options options_;
  std::function<void(bool)> observer_;
  int waiting_ = 0;  // scopes
};

}  // namespace lockstep::comm
