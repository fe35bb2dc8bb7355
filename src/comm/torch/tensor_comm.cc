#include "comm/torch/tensor_comm.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "base/log.h"
#include "comm/torch/cuda_comm.h"
#include "comm/torch/tensor_bytes.h"

namespace lockstep::comm {
namespace {

Status Check(const at::Tensor& tensor) {
  if (!tensor.defined()) return Status(Code::kUsage, "a collective got a tensor that is not defined");
  if (tensor.is_contiguous()) return {};
  return Status(Code::kUsage,
                fmt::format("a collective got a tensor of {} elements that is not contiguous", tensor.numel()),
                "pass tensor.contiguous(), or a view of a flat buffer");
}

// Tensors in host memory, straight over the host communicator.
class HostTensors : public TensorCommunicator {
 public:
  HostTensors(std::shared_ptr<Communicator> data, std::shared_ptr<Communicator> control)
      : data_(std::move(data)), control_(std::move(control)) {}

  TensorWork AllReduce(at::Tensor tensor, Op op) override {
    auto checked = Known(tensor);
    if (!checked.ok()) return TensorWork(checked.status());
    return Hold(data_->AllReduce(tensor.data_ptr(), Count(tensor), *checked, op), tensor, tensor);
  }

  TensorWork ReduceScatter(const at::Tensor& in, at::Tensor out, Op op) override {
    auto checked = Known(in);
    if (checked.ok() && !Fits(in, out)) checked = Misfit("reduce_scatter", in, out);
    if (!checked.ok()) return TensorWork(checked.status());
    return Hold(data_->ReduceScatter(in.data_ptr(), out.data_ptr(), Count(out), *checked, op), in, out);
  }

  TensorWork AllGather(const at::Tensor& in, at::Tensor out) override {
    Status status = Usable(in);
    if (status.ok() && !Fits(out, in)) status = Misfit("all_gather", in, out).status();
    if (!status.ok()) return TensorWork(status);
    if (in.nbytes() % 2 == 0) {  // bytes are bytes: any type travels as 16-bit words
      return Hold(data_->AllGather(in.data_ptr(), out.data_ptr(), in.nbytes() / 2, DType::kF16), in, out);
    }
    const auto bytes = static_cast<int64_t>(in.nbytes());
    const at::Tensor padded_in = at::zeros({bytes + 1}, at::kByte);
    const at::Tensor padded_out = at::empty({identity().size, bytes + 1}, at::kByte);
    padded_in.slice(0, 0, bytes).copy_(AsBytes(in));
    Work work = data_->AllGather(padded_in.data_ptr(), padded_out.data_ptr(), padded_in.nbytes() / 2, DType::kF16);
    return TensorWork([work, padded_in, padded_out, out, bytes]() mutable {
      Status done = work.Wait();
      if (done.ok()) AsBytes(out).view({-1, bytes}).copy_(padded_out.slice(1, 0, bytes));
      return done;
    });
  }

  TensorWork Broadcast(at::Tensor tensor, int root) override {
    if (Status status = Usable(tensor); !status.ok()) return TensorWork(status);
    return Hold(data_->Broadcast(tensor.data_ptr(), tensor.nbytes(), root), tensor, tensor);
  }

  Status Barrier() override { return data_->Barrier(); }

  at::Tensor AllocateFlat(int64_t numel, at::ScalarType type, at::Device device) override {
    if (!device.is_cpu()) return at::zeros({numel}, at::TensorOptions().dtype(type).device(device));
    auto buffer = data_->Allocate(static_cast<size_t>(numel) * c10::elementSize(type));
    TORCH_CHECK(buffer.ok(), buffer.status().ToString());
    return at::from_blob(
        buffer->data(), {numel}, [memory = buffer->memory()](void*) {}, at::TensorOptions().dtype(type));
  }

  Communicator& host() override { return *control_; }
  std::string transport() override { return data_->transport(); }

  Traffic traffic() override {
    const Traffic a = data_->traffic();
    const Traffic b = control_->traffic();
    return {a.shm_bytes + b.shm_bytes, a.tcp_bytes + b.tcp_bytes, a.calls + b.calls, a.seconds_busy + b.seconds_busy,
            a.seconds_waited + b.seconds_waited};
  }

  std::vector<double> waits() override {
    std::vector<double> sum = data_->waits();
    const std::vector<double> more = control_->waits();
    for (size_t r = 0; r < sum.size(); ++r) sum[r] += more[r];
    return sum;
  }

  void Abort(std::string why) override {
    control_->Abort(why);
    data_->Abort(std::move(why));
  }

 private:
  static size_t Count(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

  static Status Usable(const at::Tensor& tensor) {
    LOCKSTEP_RETURN_IF_ERROR(Check(tensor));
    if (tensor.device().is_cpu()) return {};
    return Status(Code::kUsage, fmt::format("a collective of host tensors got one on {}", tensor.device().str()));
  }
  static Result<DType> Known(const at::Tensor& tensor) {
    LOCKSTEP_RETURN_IF_ERROR(Usable(tensor));
    return TypeOf(tensor.scalar_type());
  }
  // `whole` holds one `part` per rank.
  bool Fits(const at::Tensor& whole, const at::Tensor& part) {
    return Usable(whole).ok() && Usable(part).ok() && whole.scalar_type() == part.scalar_type() &&
           whole.numel() == part.numel() * identity().size;
  }
  Result<DType> Misfit(const char* what, const at::Tensor& in, const at::Tensor& out) {
    return Status(Code::kUsage,
                  fmt::format("{} over {} ranks: input of {} {}, output of {} {}", what, identity().size, in.numel(),
                              c10::toString(in.scalar_type()), out.numel(), c10::toString(out.scalar_type())),
                  "both must be contiguous host tensors of one type, one of them the ranks' number times the other");
  }
  // The tensors live until the operation is waited for.
  static TensorWork Hold(Work work, const at::Tensor& in, const at::Tensor& out) {
    return TensorWork([work, in, out]() mutable { return work.Wait(); });
  }

  std::shared_ptr<Communicator> data_;
  std::shared_ptr<Communicator> control_;
};

// What every rank knows of its device: "host", or the GPU and what NCCL takes for its host.
Result<std::vector<std::string>> GatherDevices(Communicator& control, at::Device device) {
  std::string own = "host";
  if (device.is_cuda()) {
    auto name = GpuName(device);
    if (!name.ok()) return name.status();
    own = *name;
    if (const char* host_id = std::getenv("NCCL_HOSTID")) own += fmt::format(" as NCCL_HOSTID {}", host_id);
  }
  return control.Gather(own);
}

}  // namespace

Result<bool> UsesNccl(const std::vector<std::string>& devices, Backend backend, std::string* note) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (size_t rank = 0; rank < devices.size(); ++rank) ranks_of[devices[rank]].push_back(static_cast<int>(rank));
  if (const auto host = ranks_of.find("host"); host != ranks_of.end()) {
    if (ranks_of.size() > 1) {
      return Status(Code::kUsage, fmt::format("ranks {} use the CPU, the others a GPU", fmt::join(host->second, ", ")),
                    "give every rank the same kind of device");
    }
    if (backend != Backend::kNccl) return false;
    return Status(Code::kUsage, "comm.backend is nccl, but the ranks use the CPU", "set comm.backend to auto or host");
  }
  if (backend == Backend::kHost) return false;
  for (const auto& [gpu, ranks] : ranks_of) {
    if (ranks.size() == 1) continue;
    const std::string text =
        fmt::format("ranks {} share one GPU ({}), which NCCL refuses", fmt::join(ranks, ", "), gpu);
    if (backend == Backend::kNccl) {
      return Status(Code::kUsage, text,
                    "give every rank a GPU of its own, or set comm.backend to auto or host; for tests of NCCL itself "
                    "give each rank another NCCL_HOSTID");
    }
    if (note != nullptr) *note = text;
    return false;
  }
  return true;
}

Result<Backend> ParseBackend(const std::string& text) {
  for (Backend backend : {Backend::kAuto, Backend::kNccl, Backend::kHost}) {
    if (text == Name(backend)) return backend;
  }
  return Status(Code::kUsage, fmt::format("comm.backend: expected auto, nccl or host, found '{}'", text));
}

const char* Name(Backend backend) {
  switch (backend) {
    case Backend::kAuto:
      return "auto";
    case Backend::kNccl:
      return "nccl";
    case Backend::kHost:
      return "host";
  }
  return "unknown backend";
}

Result<std::shared_ptr<TensorCommunicator>> TensorCommunicator::Create(const Bootstrap& bootstrap,
                                                                       const Options& options, Backend backend,
                                                                       at::Device device) {
  // Two communicators: what the engine agrees on must not wait behind gradients, nor be ordered with them.
  Options control_options = options;
  control_options.group += ".control";
  auto control = Communicator::Connect(bootstrap, control_options);
  if (!control.ok()) return control.status();
  auto data = Communicator::Connect(bootstrap, options);
  if (!data.ok()) return data.status();
  auto devices = GatherDevices(**control, device);
  if (!devices.ok()) return devices.status();
  std::string note;
  auto nccl = UsesNccl(*devices, backend, &note);
  if (!nccl.ok()) return nccl.status();
  if (!note.empty() && bootstrap.rank == 0) {
    LogWarn("communicator: {}: tensors are staged through host memory ({})", note, (*data)->transport());
  }
  auto host = std::make_shared<HostTensors>(*data, *control);
  Result<std::shared_ptr<TensorCommunicator>> made = std::shared_ptr<TensorCommunicator>(host);
  if (!device.is_cpu()) made = *nccl ? MakeNccl(bootstrap, options, host, device) : MakeStaged(*data, host, device);
  if (made.ok()) {
    (*made)->bootstrap_ = bootstrap;
    (*made)->options_ = options;
  }
  return made;
}

TensorCommunicator::WaitScope::~WaitScope() {
  if (--comm_->waiting_ > 0 || !comm_->observer_) return;
  try {
    comm_->observer_(false);
  } catch (const std::exception& error) {  // of the device: what is queued next fails as well
    LogWarn("communicator: a wait is not timed: {}", error.what());
  }
}

Result<std::shared_ptr<Communicator>> TensorCommunicator::ConnectHost(const std::string& group,
                                                                      std::chrono::milliseconds timeout) const {
  Options options = options_;
  options.group += "." + group;
  options.timeout = timeout;
  options.connect_timeout = options_.timeout;
  return Communicator::Connect(bootstrap_, options);
}

}  // namespace lockstep::comm
