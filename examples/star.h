// The smallest all-reduce that is really distributed: every rank holds one TCP connection to rank 0, which adds the
// contributions in rank order (so the sum does not depend on who is fast) and sends the result back. Bytes on the wire
// per call: 2 x size x (ranks - 1), all through rank 0. Bootstraps from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
// All ranks call Connect and Sum together, from one thread.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace lockstep::demo {

class Star {
 public:
  // Waits until all ranks are there; `patience` is also how long any later call waits for a silent rank.
  static Result<Star> Connect(std::chrono::seconds patience);

  int rank() const { return rank_; }
  int world() const { return world_; }

  // values becomes the element-wise sum over all ranks. A rank that is gone is an error naming it.
  Status Sum(std::vector<float>* values);

 private:
  Status Gather(int port);
  Status Join(const std::string& host, int port);

  int rank_ = 0;
  int world_ = 1;
  std::chrono::seconds patience_{0};
  std::vector<UniqueFd> peers_;  // rank 0: one per other rank, by rank; others: rank 0 alone
};

}  // namespace lockstep::demo
