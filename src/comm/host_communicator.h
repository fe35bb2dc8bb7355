// The Communicator over host memory: the queue of started operations, the thread that works on them, and what happens
// when one fails. The moving of bytes is in collectives.h, the watching of peers in control.h.
//
// Whoever holds `work_mutex_` works, in the order of the queue: the progress thread, a thread in Wait(), or a thread in
// a blocking call that found nothing queued.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/collectives.h"
#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/health.h"
#include "comm/operation.h"

namespace lockstep::comm {

class HostCommunicator;

struct WorkState {
  HostCommunicator* owner = nullptr;  // alive while not done
  Operation operation;
  std::atomic<bool> done{false};
  Status status;  // once done
};

class HostCommunicator final : public Communicator {
 public:
  static Result<std::shared_ptr<Communicator>> Connect(const Bootstrap& bootstrap, const Options& options);
  HostCommunicator(const Options& options, RendezvousResult rendezvous);
  ~HostCommunicator() override;

  const RankIdentity& identity() const override { return identity_; }
  Result<SharedBuffer> Allocate(size_t bytes) override;
  Work AllReduce(void* data, size_t count, DType dtype, Op op) override;
  Work ReduceScatter(const void* in, void* out, size_t count_per_rank, DType dtype, Op op) override;
  Work AllGather(const void* in, void* out, size_t count_per_rank, DType dtype) override;
  Work Broadcast(void* data, size_t bytes, int root) override;
  Status AllReduceNow(void* data, size_t count, DType dtype, Op op) override;
  Status ReduceScatterNow(const void* in, void* out, size_t count_per_rank, DType dtype, Op op) override;
  Status AllGatherNow(const void* in, void* out, size_t count_per_rank, DType dtype) override;
  Status BroadcastNow(void* data, size_t bytes, int root) override;
  Status Send(void* data, size_t bytes, int from, int to) override;
  Status Barrier() override;
  Result<std::vector<std::string>> Gather(std::string_view small_object) override;
  Traffic traffic() const override;
  std::vector<double> waits() const override;
  bool canonical_tree() const override { return canonical_; }
  std::string transport() const override;
  void Abort(std::string why) override;

  Status Await(WorkState* state);

 private:
  Status Open(const Options& options);
  Operation Make(Kind kind, const void* in, size_t in_bytes, void* out, size_t out_bytes, size_t count, DType dtype,
                 Op op, int root) const;
  Work Start(Operation operation);
  Status Now(Operation operation);
  Status Perform(const Operation& operation);  // holding work_mutex_
  bool WorkOnNext();                           // holding work_mutex_; false when nothing is queued
  void ProgressLoop();

  const std::chrono::milliseconds timeout_;
  const std::string group_;
  RendezvousResult result_;
  const RankIdentity identity_;
  bool canonical_ = false;
  Health health_;
  std::unique_ptr<Collectives> collectives_;
  std::unique_ptr<Control> control_;  // none in a world of one

  std::mutex work_mutex_;   // who works; taken before queue_mutex_
  std::mutex queue_mutex_;  // what follows
  std::condition_variable queued_;
  std::condition_variable finished_;
  std::deque<std::shared_ptr<WorkState>> queue_;
  uint64_t sequence_ = 0;
  bool stop_ = false;
  std::thread progress_;  // started with the first asynchronous operation

  std::atomic<uint64_t> calls_{0};
  std::atomic<int64_t> busy_ns_{0}, waited_ns_{0};
};

}  // namespace lockstep::comm
