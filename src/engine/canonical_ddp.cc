#include "engine/canonical_ddp.h"

#include "base/clock.h"

namespace lockstep::engine {

CanonicalDdp::CanonicalDdp(uint64_t shards, FlatParameters* flat, Ranks* ranks)
    : Replicated(flat, ranks), sum_(shards, flat->gradients(), ranks) {
  TrainableChanged();
}

void CanonicalDdp::TrainableChanged() {
  trainable_.clear();
  for (const FlatParameter& parameter : flat_->parameters()) trainable_.push_back(parameter.tensor.requires_grad());
}

void CanonicalDdp::BeginStep() {
  flat_->ResetGradients();
  sum_.Begin();
}

// An empty or failed shard adds what is in the buffer, zeros or a part: the step is then skipped by agreement.
Status CanonicalDdp::EndBackward(Backward /*outcome*/) {
  sum_.AddLeaf();
  return Status::Ok();
}

Status CanonicalDdp::FinishGradients() {
  const TimePoint start = Now();
  const Status status = sum_.Finish();
  flat_->ReadOwnedGradients();
  exposed_seconds_ = SecondsSince(start);
  return status;
}

}  // namespace lockstep::engine
