// The control plane of a communicator: one connection between rank 0 and every other rank, watched by a thread of its
// own that sleeps until a frame arrives. It detects a dead rank by its closed connection, forwards the first error of
// any rank to all ranks, and, when a deadline passes, finds the ranks that have not arrived. Owned by the communicator.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "comm/frame.h"
#include "comm/health.h"
#include "comm/operation.h"

namespace lockstep::comm {

class Control {
 public:
  // fds[r]: on rank 0 the connection to rank r (own: none); elsewhere fds[0] alone is used.
  Control(int rank, std::vector<UniqueFd> fds, Health* health);
  // Announces the end of this rank, so that the others can distinguish it from a failure.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // The operation this rank is in. Begin fails when a rank has left for good.
  Status Begin(const Descriptor& what);
  void End();

  // Breaks the communicator here and on every other rank. Any thread.
  void Report(const Status& status);
  // The deadline of `what` passed here. Requests the current operation of all ranks and returns the error of all ranks.
  Status Late(const Descriptor& what, Millis timeout);
  // The data connection to `peer` is lost: the reason from rank 0, or `fallback` if rank 0 has none within a second.
  Status Lost(const Status& fallback);

 private:
  struct Standing {
    uint64_t sequence = 0;
    bool finished = true;
    std::string text;  // "operation 3 barrier()"; empty before the first
  };
  struct Inquiry {
    bool active = false;
    uint64_t sequence = 0;
    std::string what;
    double seconds = 0;
    TimePoint until;
    std::map<int, Standing> answers;
  };

  void Spread(const Status& status, int from);
  void Watch();
  void Receive(int from);
  void Handle(int from, const Frame& frame);
  void Died(int rank);
  void Left(int rank, uint64_t after);
  void Inquire(uint64_t sequence, const std::string& what, double seconds);
  void Conclude();
  void Send(int to, FrameType type, const nlohmann::json& body);
  void SendAllBut(int except, FrameType type, const nlohmann::json& body);
  Standing Mine() const;
  std::string DuringWhat() const;

  const int rank_;
  const std::vector<UniqueFd> fds_;
  Health* const health_;
  UniqueFd wake_;
  std::vector<FrameReader> readers_;
  std::vector<bool> open_;  // of fds_, as the watching thread sees them
  std::vector<bool> left_;

  mutable std::mutex mutex_;  // what follows
  Descriptor current_;
  bool finished_ = true;
  int left_rank_ = -1;  // the first that left
  uint64_t left_after_ = 0;
  bool stop_ = false;
  bool late_ = false;  // own deadline passed, on rank 0
  Descriptor late_what_;
  double late_seconds_ = 0;

  std::mutex report_mutex_;  // one error at a time; taken before the others
  std::mutex send_mutex_;
  Inquiry inquiry_;  // the watching thread's
  std::thread thread_;
};

}  // namespace lockstep::comm
