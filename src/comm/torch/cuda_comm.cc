#include "comm/torch/cuda_comm.h"

#ifndef LOCKSTEP_CUDA

namespace lockstep::comm {
namespace {

Status NoCuda() {
  return Status(Code::kUsage, "a CUDA device was asked for, but this program was built without CUDA",
                "use the CPU, or build for GPUs: make build GPU=1");
}

}  // namespace

Result<std::string> GpuName(at::Device) { return NoCuda(); }
Result<std::shared_ptr<TensorCommunicator>> MakeNccl(const Bootstrap&, const Options&,
                                                     std::shared_ptr<TensorCommunicator>, at::Device) {
  return NoCuda();
}
Result<std::shared_ptr<TensorCommunicator>> MakeStaged(std::shared_ptr<Communicator>,
                                                       std::shared_ptr<TensorCommunicator>, at::Device) {
  return NoCuda();
}

}  // namespace lockstep::comm

#else

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <deque>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/digits.h"
#include "base/log.h"
#include "comm/torch/tensor_bytes.h"

namespace lockstep::comm {
namespace {

Status FromCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return Status(Code::kEnvironment, fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

Status FromException(const char* what, const std::exception& error) {
  return Status(Code::kRankFailed, fmt::format("{}: {}", what, error.what()));
}

// What both kinds leave to the host communicator: host tensors, agreement, counters.
class CudaTensors : public TensorCommunicator {
 public:
  CudaTensors(std::shared_ptr<TensorCommunicator> host, at::Device device) : host_(std::move(host)), device_(device) {}

  at::Tensor AllocateFlat(int64_t numel, at::ScalarType type, at::Device device) override {
    return host_->AllocateFlat(numel, type, device);
  }
  Communicator& host() override { return host_->host(); }
  Traffic traffic() override { return host_->traffic(); }
  std::vector<double> waits() override { return host_->waits(); }

 protected:
  std::shared_ptr<TensorCommunicator> host_;
  const at::Device device_;
};

// --- NCCL ---
class NcclTensors final : public CudaTensors {
 public:
  NcclTensors(std::shared_ptr<TensorCommunicator> host, at::Device device,
              c10::intrusive_ptr<c10d::ProcessGroupNCCL> group)
      : CudaTensors(std::move(host), device), group_(std::move(group)) {}
  // Without it the group complains at the end of the process.
  ~NcclTensors() override {
    try {
      group_->shutdown();
    } catch (const std::exception& error) {
      LogWarn("NCCL: {}", error.what());
    }
  }

  TensorWork AllReduce(at::Tensor tensor, Op op) override {
    if (tensor.device().is_cpu()) return host_->AllReduce(tensor, op);
    return Run("NCCL all_reduce", [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::AllreduceOptions options;
      options.reduceOp = ReduceOpOf(op);
      return group_->allreduce(tensors, options);
    });
  }
  TensorWork ReduceScatter(const at::Tensor& in, at::Tensor out, Op op) override {
    if (in.device().is_cpu()) return host_->ReduceScatter(in, out, op);
    return Run("NCCL reduce_scatter", [&] {
      at::Tensor input = in;
      c10d::ReduceScatterOptions options;
      options.reduceOp = ReduceOpOf(op);
      return group_->_reduce_scatter_base(out, input, options);
    });
  }
  TensorWork AllGather(const at::Tensor& in, at::Tensor out) override {
    if (in.device().is_cpu()) return host_->AllGather(in, out);
    return Run("NCCL all_gather", [&] {
      at::Tensor input = in;
      return group_->_allgather_base(out, input, {});
    });
  }
  TensorWork Broadcast(at::Tensor tensor, int root) override {
    if (tensor.device().is_cpu()) return host_->Broadcast(tensor, root);
    return Run("NCCL broadcast", [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return group_->broadcast(tensors, options);
    });
  }
  // The device's queue first: who passes the barrier may rely on the others' kernels.
  Status Barrier() override {
    const c10::cuda::CUDAGuard guard(device_);
    LOCKSTEP_RETURN_IF_ERROR(FromCuda(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream()), "NCCL barrier"));
    return host_->Barrier();
  }
  std::string transport() override { return "nccl"; }
  bool recordable() const override { return true; }
  // Two numbers have one sum; the order of more is NCCL's choice.
  bool canonical_tree() override { return identity().size <= 2; }
  void Abort(std::string why) override {
    host_->Abort(std::move(why));
    group_->abort();
  }

 private:
  static c10d::ReduceOp ReduceOpOf(Op op) {
    return op == Op::kSum ? c10d::ReduceOp::SUM : op == Op::kMax ? c10d::ReduceOp::MAX : c10d::ReduceOp::MIN;
  }
  template <typename Start>
  TensorWork Run(const char* what, Start start) {
    try {
      const c10::cuda::CUDAGuard guard(device_);
      return TensorWork([this, what, work = start()]() -> Status {
        try {
          const WaitScope scope(this);
          work->wait();
          return {};
        } catch (const std::exception& error) {
          return FromException(what, error);
        }
      });
    } catch (const std::exception& error) {
      return TensorWork(FromException(what, error));
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

// --- staged ---
// Copies to the host start with the call, on a stream of their own, into pinned shared memory; the host operation and
// the copy back happen in Wait(), in the order of the calls whatever is waited for first.
class StagedTensors final : public CudaTensors {
 public:
  StagedTensors(std::shared_ptr<Communicator> data, std::shared_ptr<TensorCommunicator> host, at::Device device)
      : CudaTensors(std::move(host), device),
        data_(std::move(data)),
        stream_(c10::cuda::getStreamFromPool(false, device.index())) {}

  ~StagedTensors() override {
    (void)cudaStreamSynchronize(stream_);
    for (const Pinned& pinned : pinned_) {
      if (pinned.registered) (void)cudaHostUnregister(pinned.memory.data());
    }
  }

  TensorWork AllReduce(at::Tensor tensor, Op op) override {
    if (tensor.device().is_cpu()) return host_->AllReduce(tensor, op);
    auto type = TypeOf(tensor.scalar_type());
    if (!type.ok()) return TensorWork(type.status());
    return Stage(tensor, tensor, 0, [this, count = Count(tensor), type = *type, op](std::byte* in, std::byte*) {
      return data_->AllReduceNow(in, count, type, op);
    });
  }
  TensorWork ReduceScatter(const at::Tensor& in, at::Tensor out, Op op) override {
    if (in.device().is_cpu()) return host_->ReduceScatter(in, out, op);
    auto type = TypeOf(in.scalar_type());
    if (!type.ok()) return TensorWork(type.status());
    return Stage(in, out, in.nbytes(), [this, count = Count(out), type = *type, op](std::byte* from, std::byte* to) {
      return data_->ReduceScatterNow(from, to, count, type, op);
    });
  }
  TensorWork AllGather(const at::Tensor& in, at::Tensor out) override {
    if (in.device().is_cpu()) return host_->AllGather(in, out);
    if (in.nbytes() % 2 != 0) return TensorWork(Status(Code::kUsage, "staged all_gather of an odd number of bytes"));
    return Stage(in, out, in.nbytes(), [this, words = in.nbytes() / 2](std::byte* from, std::byte* to) {
      return data_->AllGatherNow(from, to, words, DType::kF16);
    });
  }
  TensorWork Broadcast(at::Tensor tensor, int root) override {
    if (tensor.device().is_cpu()) return host_->Broadcast(tensor, root);
    return Stage(tensor, tensor, 0, [this, bytes = tensor.nbytes(), root](std::byte* data, std::byte*) {
      return data_->BroadcastNow(data, bytes, root);
    });
  }
  Status Barrier() override {
    LOCKSTEP_RETURN_IF_ERROR(Finish(started_));
    LOCKSTEP_RETURN_IF_ERROR(FromCuda(cudaDeviceSynchronize(), "staged barrier"));
    return host_->Barrier();
  }
  std::string transport() override { return "staged over " + data_->transport(); }
  void Abort(std::string why) override { host_->Abort(std::move(why)); }

 private:
  struct Pinned {
    SharedBuffer memory;
    bool registered = false;
  };
  struct Pending {
    at::Tensor in;  // kept alive while it is copied
    at::Tensor out;
    std::byte* staged_in = nullptr;
    std::byte* staged_out = nullptr;
    std::function<Status(std::byte*, std::byte*)> work;
    at::cuda::CUDAEvent copied;
  };

  static size_t Count(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }
  static size_t Align(size_t bytes) { return (bytes + 255) / 256 * 256; }

  // out_at: where the output lies behind the input; 0: in place.
  TensorWork Stage(const at::Tensor& in, const at::Tensor& out, size_t out_at,
                   std::function<Status(std::byte*, std::byte*)> work) {
    try {
      if (!in.is_contiguous() || !out.is_contiguous()) {
        return TensorWork(Status(Code::kUsage, "a collective got a CUDA tensor that is not contiguous"));
      }
      const c10::cuda::CUDAGuard guard(device_);
      const size_t bytes = out_at == 0 ? Align(in.nbytes()) : Align(out_at) + Align(out.nbytes());
      if (Status status = Reserve(bytes); !status.ok()) return TensorWork(status);
      auto pending = std::make_unique<Pending>();
      pending->in = in;
      pending->out = out;
      pending->staged_in = static_cast<std::byte*>(pinned_.back().memory.data()) + used_;
      pending->staged_out = pending->staged_in + (out_at == 0 ? 0 : Align(out_at));
      pending->work = std::move(work);
      used_ += bytes;
      at::cuda::CUDAEvent computed;  // what the current stream still writes into the tensor comes first
      computed.record(c10::cuda::getCurrentCUDAStream());
      computed.block(stream_);
      if (Status status = Copy(pending->staged_in, in.data_ptr(), in.nbytes(), cudaMemcpyDeviceToHost); !status.ok()) {
        return TensorWork(status);
      }
      pending->copied.record(stream_);
      queue_.push_back(std::move(pending));
      return TensorWork([this, number = ++started_] { return Finish(number); });
    } catch (const std::exception& error) {
      return TensorWork(FromException("staged collective", error));
    }
  }

  // Room for `bytes` in pinned memory. When there is none, what was started is finished first: on every rank alike,
  // since sizes are equal. Grows by allocation, which is collective for the same reason.
  Status Reserve(size_t bytes) {
    if (!pinned_.empty() && used_ + bytes <= pinned_.back().memory.bytes()) return {};
    LOCKSTEP_RETURN_IF_ERROR(Finish(started_));
    LOCKSTEP_RETURN_IF_ERROR(FromCuda(cudaStreamSynchronize(stream_), "staged collective"));
    used_ = 0;
    if (!pinned_.empty() && bytes <= pinned_.back().memory.bytes()) return {};
    auto memory = data_->Allocate(std::max<size_t>(2 * bytes, size_t{64} << 20));
    if (!memory.ok()) return memory.status();
    const Status pinned =
        FromCuda(cudaHostRegister(memory->data(), memory->bytes(), cudaHostRegisterDefault), "cudaHostRegister");
    if (!pinned.ok()) LogWarn("communicator: staging memory is not pinned, copies are slower: {}", pinned.message());
    pinned_.push_back({*memory, pinned.ok()});
    return {};
  }

  Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return FromCuda(cudaMemcpyAsync(to, from, bytes, kind, stream_), "staged copy");
  }

  // Everything up to operation `number`.
  Status Finish(uint64_t number) {
    try {
      const c10::cuda::CUDAGuard guard(device_);
      const WaitScope scope(this);
      bool any = false;
      while (finished_ < number && !queue_.empty()) {
        const std::unique_ptr<Pending> next = std::move(queue_.front());
        queue_.pop_front();
        ++finished_;
        any = true;
        next->copied.synchronize();
        LOCKSTEP_RETURN_IF_ERROR(next->work(next->staged_in, next->staged_out));
        LOCKSTEP_RETURN_IF_ERROR(
            Copy(next->out.data_ptr(), next->staged_out, next->out.nbytes(), cudaMemcpyHostToDevice));
      }
      if (any) back_.record(stream_);
      // Whoever waits, on whichever stream: it sees what has come back so far.
      if (finished_ > 0) back_.block(c10::cuda::getCurrentCUDAStream());
      return {};
    } catch (const std::exception& error) {
      return FromException("staged collective", error);
    }
  }

  std::shared_ptr<Communicator> data_;
  c10::cuda::CUDAStream stream_;
  std::vector<Pinned> pinned_;  // the last one is used; earlier, smaller ones stay with the communicator
  size_t used_ = 0;
  std::deque<std::unique_ptr<Pending>> queue_;
  uint64_t started_ = 0;
  uint64_t finished_ = 0;
  at::cuda::CUDAEvent back_;
};

}  // namespace

Result<std::string> GpuName(at::Device device) {
  cudaDeviceProp properties{};
  const int index = device.has_index() ? device.index() : 0;
  LOCKSTEP_RETURN_IF_ERROR(FromCuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  std::string name = "GPU-";
  for (char byte : properties.uuid.bytes) name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name;
}

Result<std::shared_ptr<TensorCommunicator>> MakeNccl(const Bootstrap& bootstrap, const Options& options,
                                                     std::shared_ptr<TensorCommunicator> host, at::Device device) {
  const RankIdentity identity = host->identity();
  try {
    const c10::cuda::CUDAGuard guard(device);
    // NCCL's ranks find each other through a store of c10d's, on a port that rank 0 finds free and tells the others.
    c10d::TCPStoreOptions store_options;
    store_options.port = 0;
    store_options.isServer = true;
    store_options.waitWorkers = false;
    store_options.timeout = options.timeout;
    c10::intrusive_ptr<c10d::TCPStore> store;
    if (identity.rank == 0) store = c10::make_intrusive<c10d::TCPStore>(bootstrap.master_addr, store_options);
    auto ports = host->host().Gather(store ? std::to_string(store->getPort()) : "");
    if (!ports.ok()) return ports.status();
    if (identity.rank != 0) {
      store_options.isServer = false;
      store_options.port = ParseDigits<uint16_t>((*ports)[0]).value_or(0);
      store = c10::make_intrusive<c10d::TCPStore>(bootstrap.master_addr, store_options);
    }
    auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
    nccl_options->timeout = options.timeout;
    nccl_options->group_name = options.group;
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, identity.rank, identity.size, nccl_options);
    return std::shared_ptr<TensorCommunicator>(
        std::make_shared<NcclTensors>(std::move(host), device, std::move(group)));
  } catch (const std::exception& error) {
    return FromException("NCCL", error);
  }
}

Result<std::shared_ptr<TensorCommunicator>> MakeStaged(std::shared_ptr<Communicator> data,
                                                       std::shared_ptr<TensorCommunicator> host, at::Device device) {
  try {
    const c10::cuda::CUDAGuard guard(device);
    return std::shared_ptr<TensorCommunicator>(
        std::make_shared<StagedTensors>(std::move(data), std::move(host), device));
  } catch (const std::exception& error) {
    return FromException("CUDA", error);
  }
}

}  // namespace lockstep::comm

#endif  // LOCKSTEP_CUDA
