// What a node sees of its running ranks: how far each is, whether it prints or writes, and on demand where it stands
// (stacks). Looks from a thread of its own, because /proc and a metrics file on a dead file system can block; answers
// arrive on the loop's thread. One per agent.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "launch/messages.h"
#include "logs/log_pump.h"

namespace lockstep::launch {

class RankWatch {
 public:
  struct Rank {
    int rank = 0;
    pid_t pid = 0;
    std::string metrics;  // path
    std::string flight;   // path of its NCCL flight recorder's dump, if it makes one
  };

  // `send` gets "pulse" and "stacks" messages, on the loop's thread.
  RankWatch(Loop& loop, logs::LogPump& pump, std::function<void(Json)> send);
  ~RankWatch();

  // Tells of these ranks every `every` (zero: never) until Stop.
  void Start(int attempt, int node, std::vector<Rank> ranks, Millis every);
  void Stop();
  void Ended(int rank);

  // Collects the stacks of the ranks that still run and sends them.
  void Collect(const message::StacksQuestion& question);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::launch
