// Collective operations between the ranks of a job over host memory: shared memory inside a node, TCP between nodes,
// both together (hierarchical) when the job has several ranks on several nodes. docs/formats/communicator.md has the
// rules.
//
// A Communicator is shared by whoever holds the pointer. Any one thread at a time may call it; the operations of a
// communicator must be called by all ranks in the same order ("collective"), which is checked: a rank that calls
// something else, with another type, size or root, gives every rank an error that names both. Started operations run in
// the order of their calls. Data must stay untouched between start and Wait().
//
// Every call has a deadline (Options::timeout). A dead peer is noticed within a second. After the first error the
// communicator is broken: every later call returns that error, nothing hangs, destructors included.
//
//   auto comm = Communicator::Connect(*BootstrapFromEnvironment(), {});
//   if (!comm.ok()) return comm.status();
//   Result<SharedBuffer> gradients = (*comm)->Allocate(bytes);
//   Work work = (*comm)->AllReduce(gradients->data(), count, DType::kF32);   // in place, no copies
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::comm {

enum class DType : uint8_t { kF32, kBF16, kF16, kI64, kF64 };
size_t SizeOf(DType dtype);
const char* Name(DType dtype);  // "f32"

enum class Op : uint8_t { kSum, kMax, kMin };
const char* Name(Op op);  // "sum"

// Which rank this is. `node` and `local_*` are what the communicator found (who shares memory with whom), not what the
// environment claims. Nodes are numbered by their lowest rank.
struct RankIdentity {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
};

// Cumulative. Payload bytes only: what this rank read from or wrote to shared memory for others, and what it sent by
// TCP.
struct Traffic {
  uint64_t shm_bytes = 0;
  uint64_t tcp_bytes = 0;
  uint64_t calls = 0;
  double seconds_busy = 0;    // wall time inside operations, waiting for peers included
  double seconds_waited = 0;  // of that, while the caller was blocked: what computing does not hide
};

struct WorkState;

// A handle on a started operation; copies share it. A default-made Work is done and has succeeded.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  explicit Work(Status status);  // done, with this outcome

  // Returns when the operation is finished; idempotent.
  Status Wait();
  bool Done() const;

 private:
  std::shared_ptr<WorkState> state_;
};

struct Options {
  // Deadline of every call, Connect included unless it has one of its own.
  std::chrono::milliseconds timeout{600000};
  std::optional<std::chrono::milliseconds> connect_timeout;
  // Communicators of different groups may live over one master port at the same time ("main", "control").
  std::string group = "main";
  // How long a waiting rank spins before it sleeps. Ignored (no spinning) where a node has more ranks than processors.
  std::chrono::microseconds spin{20};
  // Bytes per rank through which operations outside of a SharedBuffer are staged.
  size_t staging_bytes = size_t{1} << 20;
  // Ranks that claim one node but cannot share memory (other containers) talk TCP, announced; false makes it an error.
  bool allow_tcp_fallback = true;
  // The address at which other nodes reach this one; empty: the one that reaches rank 0.
  std::string advertise;
};

struct Bootstrap {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  // Ranks with the same text share memory. Empty: this machine's own (OwnNode()).
  std::string node;
  // torchrun's agent holds the master port with its key-value store; the ranks then find rank 0 through that store.
  bool agent_store = false;
};

// From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (none of RANK and WORLD_SIZE set: a
// world of one), LOCKSTEP_NODE as `node`, TORCHELASTIC_USE_AGENT_STORE as `agent_store`.
Result<Bootstrap> BootstrapFromEnvironment();

// Boot id, network namespace and /dev/shm device of this process: equal for processes that can share memory.
std::string OwnNode();

// Memory of this rank that its node peers map as well. Alive as long as any copy, or the communicator, is.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  SharedBuffer(std::shared_ptr<void> memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }
  const std::shared_ptr<void>& memory() const { return memory_; }

 private:
  std::shared_ptr<void> memory_;
  size_t bytes_ = 0;
};

class Communicator {
 public:
  // Collective. A world of one opens no socket.
  static Result<std::shared_ptr<Communicator>> Connect(const Bootstrap& bootstrap, const Options& options);
  virtual ~Communicator() = default;

  virtual const RankIdentity& identity() const = 0;

  // Collective; the same `bytes` on every rank. Operations whose data lies in such a buffer, at the same offset on
  // every rank of the node, copy nothing. Zeroed, aligned to a page; freed with the communicator and the last handle.
  virtual Result<SharedBuffer> Allocate(size_t bytes) = 0;

  // Collective, asynchronous. In-place use (in == out for AllGather's own part, or ReduceScatter's) is allowed where
  // the ranges are exactly the own part. Sums have a fixed order (docs/formats/communicator.md).
  virtual Work AllReduce(void* data, size_t count, DType dtype, Op op = Op::kSum) = 0;
  // in: size x count_per_rank elements, out: count_per_rank.
  virtual Work ReduceScatter(const void* in, void* out, size_t count_per_rank, DType dtype, Op op = Op::kSum) = 0;
  // in: count_per_rank elements, out: size x count_per_rank.
  virtual Work AllGather(const void* in, void* out, size_t count_per_rank, DType dtype) = 0;
  virtual Work Broadcast(void* data, size_t bytes, int root) = 0;

  // The same, blocking, on the calling thread where nothing else is under way: no thread hop, for small operations.
  virtual Status AllReduceNow(void* data, size_t count, DType dtype, Op op = Op::kSum) = 0;
  virtual Status ReduceScatterNow(const void* in, void* out, size_t count_per_rank, DType dtype, Op op = Op::kSum) = 0;
  virtual Status AllGatherNow(const void* in, void* out, size_t count_per_rank, DType dtype) = 0;
  virtual Status BroadcastNow(void* data, size_t bytes, int root) = 0;
  // Collective, blocking: the bytes at `data` of rank `from` arrive at `data` of rank `to`, and nowhere else; the
  // others only take part (their data is not looked at).
  virtual Status Send(void* data, size_t bytes, int from, int to) = 0;

  // Collective, blocking.
  virtual Status Barrier() = 0;
  // Every rank gets every rank's object, in rank order; sizes may differ.
  virtual Result<std::vector<std::string>> Gather(std::string_view small_object) = 0;

  virtual Traffic traffic() const = 0;
  // Seconds that operations of this rank waited while each rank was the last to arrive, cumulative. Of ranks on other
  // nodes the first of each node stands for all; only the first of this node knows of them, the others wait for it.
  virtual std::vector<double> waits() const = 0;
  // Is the order of sums the balanced pairwise tree over all global ranks? True when all nodes hold the same power of
  // two of contiguous ranks. Then the sum does not depend on how ranks are spread over nodes.
  virtual bool canonical_tree() const = 0;
  // "shm", "tcp", "shm+tcp", "one rank": for people.
  virtual std::string transport() const = 0;

  // Any thread, not collective: breaks the communicator on every rank, with an error that names this rank and `why`.
  virtual void Abort(std::string why) = 0;
};

}  // namespace lockstep::comm
