// The other ranks, for authors of recipes: rank and world size, barrier, sum and mean over ranks, main rank first, and
// agreement on an error. All calls but the accessors are collective: all ranks make them in the same order, from the
// training thread. Owned by the trainer.
//
//   if (ranks.is_main()) WritePicture();
//   Result<double> mean = ranks.AllReduceMean(value);
//   LOCKSTEP_RETURN_IF_ERROR(ranks.MainFirst([&] { return OpenIndex(); }));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/torch/tensor_comm.h"

namespace lockstep::engine {

class Ranks {
 public:
  explicit Ranks(std::shared_ptr<comm::TensorCommunicator> comm) : comm_(std::move(comm)) {}

  int rank() const { return comm_->identity().rank; }
  int size() const { return comm_->identity().size; }
  bool is_main() const { return rank() == 0; }

  Status Barrier() { return comm_->host().Barrier(); }
  // Sums of a few numbers, in place, in an order that does not depend on timing.
  Status AllReduceSum(std::vector<double>* values);
  Result<double> AllReduceMean(double value);
  // Rank 0 runs `work`, then the others do (an index that one writes and all read). All get the first error.
  Status MainFirst(const std::function<Status()>& work);
  // Every rank passes its own outcome; all get the same result: ok, or the error of the lowest rank that failed. `mine`
  // is set to true on that rank only, which prints the error.
  Status Agree(const Status& outcome, bool* mine = nullptr);
  // The last Agree() returned an error on every rank, so one rank may print it for all.
  bool agreed_to_fail() const { return agreed_to_fail_; }

  comm::TensorCommunicator& tensors() { return *comm_; }
  comm::Communicator& host() { return comm_->host(); }

 private:
  std::shared_ptr<comm::TensorCommunicator> comm_;
  bool agreed_to_fail_ = false;
};

// Ranks::Agree over any communicator. `agreed` (may be null): whether the outcome is what a rank brought, rather than a
// failure to ask.
Status AgreeOver(comm::Communicator& comm, const Status& outcome, bool* mine = nullptr, bool* agreed = nullptr);

}  // namespace lockstep::engine
