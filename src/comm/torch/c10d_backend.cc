#include "comm/torch/c10d_backend.h"

#include <ATen/Functions.h>
#include <ATen/core/ivalue.h>

#include <stdexcept>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace lockstep::comm {
namespace {

Op OpOf(const c10d::ReduceOp& op) {
  if (op == c10d::ReduceOp::SUM) return Op::kSum;
  if (op == c10d::ReduceOp::MAX) return Op::kMax;
  TORCH_CHECK(op == c10d::ReduceOp::MIN, "lockstep's backend has the reductions SUM, MAX and MIN");
  return Op::kMin;
}

at::Tensor& Only(std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "lockstep's backend takes one tensor per call, found ", tensors.size());
  return tensors[0];
}

}  // namespace

class C10dBackend::Started final : public c10d::Work {
 public:
  Started(int rank, c10d::OpType type, TensorWork work, std::vector<at::Tensor> results, std::function<void()> after)
      : c10d::Work(rank, type),
        work_(std::move(work)),
        results_(std::move(results)),
        after_(std::move(after)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors())) {}

  // By the backend's thread.
  void Run() {
    const Status status = work_.Wait();
    if (!status.ok()) {
      future_->setError(std::make_exception_ptr(std::runtime_error(status.ToString())));
    } else {
      if (after_) after_();
      future_->markCompleted(c10::IValue(results_));
    }
    finish(status.ok() ? nullptr : future_->exception_ptr());
  }

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  bool wait(std::chrono::milliseconds) override {
    future_->waitAndThrow();
    return true;
  }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  TensorWork work_;
  std::vector<at::Tensor> results_;
  std::function<void()> after_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

C10dBackend::C10dBackend(std::shared_ptr<TensorCommunicator> comm)
    : c10d::Backend(comm->identity().rank, comm->identity().size),
      comm_(std::move(comm)),
      thread_([this] { Complete(); }) {}

C10dBackend::~C10dBackend() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_one();
  thread_.join();
}

void C10dBackend::Complete() {
  while (true) {
    c10::intrusive_ptr<Started> next;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next->Run();
  }
}

c10::intrusive_ptr<c10d::Work> C10dBackend::Enqueue(c10d::OpType type, TensorWork work, std::vector<at::Tensor> results,
                                                    std::function<void()> after) {
  auto started = c10::make_intrusive<Started>(getRank(), type, std::move(work), std::move(results), std::move(after));
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(started);
  }
  more_.notify_one();
  return started;
}

c10::intrusive_ptr<c10d::Work> C10dBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                      const c10d::AllreduceOptions& options) {
  return Enqueue(c10d::OpType::ALLREDUCE, comm_->AllReduce(Only(tensors), OpOf(options.reduceOp)), tensors);
}

c10::intrusive_ptr<c10d::Work> C10dBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                      const c10d::BroadcastOptions& options) {
  return Enqueue(c10d::OpType::BROADCAST, comm_->Broadcast(Only(tensors), static_cast<int>(options.rootRank)), tensors);
}

c10::intrusive_ptr<c10d::Work> C10dBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                      std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions&) {
  const at::Tensor input = Only(inputs).contiguous();
  TORCH_CHECK(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(), "allgather: expected ",
              getSize(), " outputs");
  const at::Tensor all = at::empty({getSize(), input.numel()}, input.options());
  return Enqueue(c10d::OpType::ALLGATHER, comm_->AllGather(input, all), outputs[0], [all, to = outputs[0]] {
    for (size_t r = 0; r < to.size(); ++r) to[r].copy_(all[static_cast<int64_t>(r)].view_as(to[r]));
  });
}

c10::intrusive_ptr<c10d::Work> C10dBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions&) {
  return Enqueue(c10d::OpType::_ALLGATHER_BASE, comm_->AllGather(input, output), {output});
}

c10::intrusive_ptr<c10d::Work> C10dBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& options) {
  return Enqueue(c10d::OpType::_REDUCE_SCATTER_BASE, comm_->ReduceScatter(input, output, OpOf(options.reduceOp)),
                 {output});
}

c10::intrusive_ptr<c10d::Work> C10dBackend::barrier(const c10d::BarrierOptions&) {
  // Asynchronous as the rest: a sum of nothing but ones.
  return Enqueue(c10d::OpType::BARRIER, comm_->AllReduce(at::ones({1}), Op::kSum), {});
}

c10::intrusive_ptr<c10d::ProcessGroup> MakeProcessGroup(std::shared_ptr<TensorCommunicator> comm) {
  const RankIdentity identity = comm->identity();
  auto backend = c10::make_intrusive<C10dBackend>(std::move(comm));
  auto group =
      c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), identity.rank, identity.size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

}  // namespace lockstep::comm
