#include "comm/host_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/clock.h"

namespace lockstep::comm {
namespace {

bool IsCanonical(const std::vector<std::vector<int>>& ranks_of) {
  const size_t each = ranks_of[0].size();
  int next = 0;
  for (const auto& ranks : ranks_of) {
    if (ranks.size() != each) return false;
    for (int rank : ranks) {
      if (rank != next++) return false;
    }
  }
  return ranks_of.size() == 1 || std::has_single_bit(each);
}

}  // namespace

Work::Work(Status status) : state_(std::make_shared<WorkState>()) {
  state_->status = std::move(status);
  state_->done = true;
}

Status Work::Wait() {
  if (state_ == nullptr) return {};
  if (!state_->done.load(std::memory_order_acquire)) return state_->owner->Await(state_.get());
  return state_->status;
}

bool Work::Done() const { return state_ == nullptr || state_->done.load(std::memory_order_acquire); }

Result<std::shared_ptr<Communicator>> Communicator::Connect(const Bootstrap& bootstrap, const Options& options) {
  return HostCommunicator::Connect(bootstrap, options);
}

Result<std::shared_ptr<Communicator>> HostCommunicator::Connect(const Bootstrap& bootstrap, const Options& options) {
  if (bootstrap.size < 1 || bootstrap.rank < 0 || bootstrap.rank >= bootstrap.size) {
    return Status(Code::kUsage, fmt::format("communicator '{}': rank {} of {}: expected a rank from 0 to size - 1",
                                            options.group, bootstrap.rank, bootstrap.size));
  }
  RendezvousResult rendezvous;
  if (bootstrap.size == 1) {
    rendezvous.node_of = {0};
    rendezvous.ranks_of = {{0}};
  } else {
    Options connecting = options;
    connecting.timeout = options.connect_timeout.value_or(options.timeout);
    auto found = Rendezvous(bootstrap, connecting);
    if (!found.ok()) return found.status();
    rendezvous = std::move(*found);
  }
  auto communicator = std::make_shared<HostCommunicator>(options, std::move(rendezvous));
  LOCKSTEP_RETURN_IF_ERROR(communicator->Open(options));
  return std::shared_ptr<Communicator>(std::move(communicator));
}

HostCommunicator::HostCommunicator(const Options& options, RendezvousResult rendezvous)
    : timeout_(options.timeout), group_(options.group), result_(std::move(rendezvous)), identity_(result_.identity) {
  canonical_ = IsCanonical(result_.ranks_of);
}

Status HostCommunicator::Open(const Options& options) {
  const TimePoint deadline = lockstep::Now() + timeout_;
  // More ranks than processors: who spins keeps the one it waits for from running.
  const bool crowded = static_cast<unsigned>(identity_.local_size) > std::max(1u, std::thread::hardware_concurrency());
  const size_t least =
      static_cast<size_t>(identity_.size) * 512;  // one cache line per rank and step, at the very least
  auto node = NodeGroup::Create(identity_.local_rank, identity_.local_size, std::move(result_.local),
                                std::max(options.staging_bytes, least),
                                crowded ? std::chrono::microseconds(0) : options.spin, &health_, deadline);
  if (!node.ok()) return node.status().Context(fmt::format("communicator '{}', rank {}", group_, identity_.rank));
  std::unique_ptr<Links> links;
  if (identity_.nodes > 1 && identity_.local_rank == 0) {
    std::vector<int> first;
    for (const auto& ranks : result_.ranks_of) first.push_back(ranks[0]);
    links = std::make_unique<Links>(identity_.node, std::move(result_.links), std::move(first), &health_);
  }
  collectives_ = std::make_unique<Collectives>(result_, std::move(*node), std::move(links));
  if (identity_.size > 1) control_ = std::make_unique<Control>(identity_.rank, std::move(result_.control), &health_);
  // From here on a rank that fails is noticed; and nobody goes on before everybody got here.
  return identity_.size > 1 ? Barrier() : Status();
}

HostCommunicator::~HostCommunicator() {
  bool pending = false;
  {
    std::lock_guard lock(queue_mutex_);
    stop_ = true;
    pending = !queue_.empty();
  }
  // Started work that nobody waited for is given up, not waited for; a thread at work sees it at once.
  if (pending || !work_mutex_.try_lock()) {
    health_.Break(
        Status(Code::kRankFailed,
               fmt::format("rank {} closed its communicator '{}' with operations under way", identity_.rank, group_)));
  } else {
    work_mutex_.unlock();
  }
  queued_.notify_all();
  if (progress_.joinable()) progress_.join();
  std::lock_guard lock(work_mutex_);
  while (WorkOnNext()) {
  }
}

Operation HostCommunicator::Make(Kind kind, const void* in, size_t in_bytes, void* out, size_t out_bytes, size_t count,
                                 DType dtype, Op op, int root) const {
  Operation operation;
  operation.what.kind = kind;
  operation.what.count = count;
  operation.what.dtype = dtype;
  operation.what.op = op;
  operation.what.root = root;
  operation.in = in;
  operation.out = out;
  collectives_->Find(in, in_bytes, &operation.what.in_buffer, &operation.what.in_offset);
  collectives_->Find(out, out_bytes, &operation.what.out_buffer, &operation.what.out_offset);
  return operation;
}

Work HostCommunicator::Start(Operation operation) {
  auto state = std::make_shared<WorkState>();
  state->owner = this;
  state->operation = operation;
  {
    std::lock_guard lock(queue_mutex_);
    state->operation.what.sequence = ++sequence_;
    queue_.push_back(state);
    if (!progress_.joinable()) progress_ = std::thread([this] { ProgressLoop(); });
  }
  queued_.notify_one();
  return Work(std::move(state));
}

Status HostCommunicator::Now(Operation operation) {
  {
    std::unique_lock lock(queue_mutex_);
    if (queue_.empty() && work_mutex_.try_lock()) {
      operation.what.sequence = ++sequence_;
      lock.unlock();
      std::lock_guard work(work_mutex_, std::adopt_lock);
      const TimePoint start = lockstep::Now();
      Status status = Perform(operation);
      waited_ns_.fetch_add((lockstep::Now() - start).count(), std::memory_order_relaxed);
      return status;
    }
  }
  return Start(operation).Wait();
}

Status HostCommunicator::Await(WorkState* state) {
  const TimePoint start = lockstep::Now();
  while (!state->done.load(std::memory_order_acquire)) {
    if (work_mutex_.try_lock()) {
      std::lock_guard work(work_mutex_, std::adopt_lock);
      while (!state->done.load(std::memory_order_acquire) && WorkOnNext()) {
      }
    } else {
      std::unique_lock lock(queue_mutex_);
      finished_.wait(lock, [&] { return state->done.load(std::memory_order_acquire); });
    }
  }
  waited_ns_.fetch_add((lockstep::Now() - start).count(), std::memory_order_relaxed);
  return state->status;
}

bool HostCommunicator::WorkOnNext() {
  std::shared_ptr<WorkState> state;
  {
    std::lock_guard lock(queue_mutex_);
    if (queue_.empty()) return false;
    state = queue_.front();
  }
  state->status = Perform(state->operation);
  {
    // Removed only now: while it is at work, the queue is not empty and nobody overtakes it.
    std::lock_guard lock(queue_mutex_);
    queue_.pop_front();
    state->done.store(true, std::memory_order_release);
  }
  finished_.notify_all();
  return true;
}

void HostCommunicator::ProgressLoop() {
  while (true) {
    {
      std::unique_lock lock(queue_mutex_);
      queued_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
    }
    std::lock_guard work(work_mutex_);
    while (WorkOnNext()) {
    }
  }
}

Status HostCommunicator::Perform(const Operation& operation) {
  if (health_.broken()) return health_.status();
  const TimePoint start = lockstep::Now();
  if (control_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(control_->Begin(operation.what));
  Status status = collectives_->Run(operation, start + timeout_);
  if (!status.ok()) {
    if (health_.broken()) {
      status = health_.status();
    } else if (control_ == nullptr) {
      health_.Break(status);
    } else if (status.code() == Code::kTimeout) {
      status = control_->Late(operation.what, timeout_);
    } else if (status.code() == Code::kNodeLost) {
      status = control_->Lost(status);
    } else {
      control_->Report(status);
      status = health_.status();
    }
  } else if (control_ != nullptr) {
    control_->End();
  }
  calls_.fetch_add(1, std::memory_order_relaxed);
  busy_ns_.fetch_add((lockstep::Now() - start).count(), std::memory_order_relaxed);
  return status;
}

Work HostCommunicator::AllReduce(void* data, size_t count, DType dtype, Op op) {
  const size_t bytes = count * SizeOf(dtype);
  return Start(Make(Kind::kAllReduce, data, bytes, data, bytes, count, dtype, op, 0));
}
Status HostCommunicator::AllReduceNow(void* data, size_t count, DType dtype, Op op) {
  const size_t bytes = count * SizeOf(dtype);
  return Now(Make(Kind::kAllReduce, data, bytes, data, bytes, count, dtype, op, 0));
}
Work HostCommunicator::ReduceScatter(const void* in, void* out, size_t count, DType dtype, Op op) {
  const size_t bytes = count * SizeOf(dtype);
  const size_t all = bytes * static_cast<size_t>(identity_.size);
  return Start(Make(Kind::kReduceScatter, in, all, out, bytes, count, dtype, op, 0));
}
Status HostCommunicator::ReduceScatterNow(const void* in, void* out, size_t count, DType dtype, Op op) {
  const size_t bytes = count * SizeOf(dtype);
  const size_t all = bytes * static_cast<size_t>(identity_.size);
  return Now(Make(Kind::kReduceScatter, in, all, out, bytes, count, dtype, op, 0));
}
Work HostCommunicator::AllGather(const void* in, void* out, size_t count, DType dtype) {
  const size_t bytes = count * SizeOf(dtype);
  const size_t all = bytes * static_cast<size_t>(identity_.size);
  return Start(Make(Kind::kAllGather, in, bytes, out, all, count, dtype, Op::kSum, 0));
}
Status HostCommunicator::AllGatherNow(const void* in, void* out, size_t count, DType dtype) {
  const size_t bytes = count * SizeOf(dtype);
  const size_t all = bytes * static_cast<size_t>(identity_.size);
  return Now(Make(Kind::kAllGather, in, bytes, out, all, count, dtype, Op::kSum, 0));
}

// A root that no rank has would make everybody wait for data; say so instead. It is collective: all ranks refuse alike.
static Status CheckRoot(int root, const RankIdentity& identity, const char* what = "broadcast from") {
  if (root >= 0 && root < identity.size) return {};
  return Status(Code::kUsage, fmt::format("{} rank {}: expected a rank from 0 to {}", what, root, identity.size - 1));
}
Work HostCommunicator::Broadcast(void* data, size_t bytes, int root) {
  if (Status status = CheckRoot(root, identity_); !status.ok()) return Work(std::move(status));
  return Start(Make(Kind::kBroadcast, data, bytes, data, bytes, bytes, DType::kF32, Op::kSum, root));
}
Status HostCommunicator::BroadcastNow(void* data, size_t bytes, int root) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRoot(root, identity_));
  return Now(Make(Kind::kBroadcast, data, bytes, data, bytes, bytes, DType::kF32, Op::kSum, root));
}
Status HostCommunicator::Send(void* data, size_t bytes, int from, int to) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRoot(from, identity_, "send from"));
  LOCKSTEP_RETURN_IF_ERROR(CheckRoot(to, identity_, "send to"));
  Operation operation = Make(Kind::kSend, nullptr, 0, nullptr, 0, bytes, DType::kF32, Op::kSum, from);
  operation.what.to = to;
  operation.in = operation.out = data;
  return Now(operation);
}
Status HostCommunicator::Barrier() {
  return Now(Make(Kind::kBarrier, nullptr, 0, nullptr, 0, 0, DType::kF32, Op::kSum, 0));
}

Result<std::vector<std::string>> HostCommunicator::Gather(std::string_view small_object) {
  const auto size = static_cast<size_t>(identity_.size);
  const uint64_t own = small_object.size();
  std::vector<uint64_t> sizes(size);
  LOCKSTEP_RETURN_IF_ERROR(Now(
      Make(Kind::kGather, &own, sizeof own, sizes.data(), size * sizeof own, sizeof own, DType::kF32, Op::kSum, 0)));
  const size_t most = *std::max_element(sizes.begin(), sizes.end());
  std::string in(small_object);
  in.resize(most);
  std::string out(most * size, '\0');
  LOCKSTEP_RETURN_IF_ERROR(
      Now(Make(Kind::kGather, in.data(), most, out.data(), out.size(), most, DType::kF32, Op::kSum, 0)));
  std::vector<std::string> objects;
  for (size_t r = 0; r < size; ++r) objects.push_back(out.substr(r * most, sizes[r]));
  return objects;
}

Result<SharedBuffer> HostCommunicator::Allocate(size_t bytes) {
  LOCKSTEP_RETURN_IF_ERROR(Now(Make(Kind::kAllocate, nullptr, 0, nullptr, 0, bytes, DType::kF32, Op::kSum, 0)));
  return collectives_->NewestBuffer();
}

Traffic HostCommunicator::traffic() const {
  return {collectives_->shm_bytes(), collectives_->tcp_bytes(), calls_.load(std::memory_order_relaxed),
          static_cast<double>(busy_ns_.load(std::memory_order_relaxed)) * 1e-9,
          static_cast<double>(waited_ns_.load(std::memory_order_relaxed)) * 1e-9};
}

std::vector<double> HostCommunicator::waits() const { return collectives_->Waits(); }

std::string HostCommunicator::transport() const {
  if (identity_.size == 1) return "one rank";
  if (identity_.nodes == 1) return "shm";
  return identity_.nodes == identity_.size ? "tcp" : "shm+tcp";
}

void HostCommunicator::Abort(std::string why) {
  const Status status(Code::kRankFailed, fmt::format("rank {} aborted: {}", identity_.rank, why));
  if (control_ != nullptr) {
    control_->Report(status);
  } else {
    health_.Break(status);
  }
}

}  // namespace lockstep::comm
