// What a recipe author needs to know of the other ranks: who am I, wait for all, average over all, let the main rank go
// first, and agree on an error. Everything but the questions is collective: all ranks call it, in the same order, from
// the training thread. Owned by the trainer.
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
  // Every rank brings its own outcome; all leave with the same one: ok, or that of the lowest rank that failed, which
  // alone is told to say it (`mine` set to true there).
  Status Agree(const Status& outcome, bool* mine = nullptr);
  // The last Agree() was an error, which every rank has: one of them may say it for all.
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
