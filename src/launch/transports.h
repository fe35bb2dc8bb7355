// From NCCL's files to the event `comm_ready`: a watch on every node reads the files of its ranks as they grow, and the
// coordinator collects what the nodes found. Programs that do not use NCCL write no such file: no event, no warning.
// Both live on the loop's thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "diagnose/transport.h"
#include "launch/messages.h"

namespace lockstep::launch {

// Of one attempt on one node. Poll it every second or so.
class TransportWatch {
 public:
  TransportWatch(std::string folder, std::vector<int> ranks, int node)
      : folder_(std::move(folder)), ranks_(std::move(ranks)), node_(node) {}

  // What the ranks of this node use, once: when all have a communicator, or some have had one for a minute.
  std::vector<diagnose::Transport> Poll();
  // At the end of the attempt: whatever is known and was not said.
  std::vector<diagnose::Transport> Rest();

 private:
  struct File {
    int rank = -1;
    int64_t read = 0;
    std::string tail;  // of an unfinished line
    diagnose::TransportReader reader;
  };
  void Read();
  std::map<int, diagnose::Transport> Complete() const;

  std::string folder_;
  std::vector<int> ranks_;
  int node_;
  bool told_ = false;
  TimePoint first_{};
  int polls_since_all_ = 0;
  std::map<std::string, File> files_;
};

// Of one attempt, on node 0.
class TransportCensus {
 public:
  struct Verdict {
    Json event;           // fields of comm_ready; `network` is null where one node needs none
    std::string warning;  // one line, or empty
  };
  void Begin(int world, int nnodes);
  // A message "comm" of a node; the verdict when all ranks are known.
  std::optional<Verdict> Add(const message::Comm& comm);
  std::optional<Verdict> Rest();  // what came until now, if anything did and nothing was said

 private:
  Verdict Judge() const;
  int world_ = 0, nnodes_ = 1;
  bool told_ = false;
  std::map<int, diagnose::Transport> by_rank_;
  std::set<int> nodes_with_rdma_;
};

// The message of a node.
message::Comm CommMessage(const std::vector<diagnose::Transport>& transports, int node, bool rdma_active);

}  // namespace lockstep::launch
