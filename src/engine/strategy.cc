#include "engine/strategy.h"

#include "engine/canonical_ddp.h"
#include "engine/ddp.h"

namespace lockstep::engine {

Status Replicated::PublishParameters() {
  flat_->WriteOwnedValues();
  return Status::Ok();
}

// Equal seeds give equal weights; a weights file that differs between nodes would not.
Status Replicated::AdoptParameters() {
  LOCKSTEP_RETURN_IF_ERROR(ranks_->tensors().Broadcast(flat_->owned().values, 0).Wait());
  return PublishParameters();
}

FlatParameters::Options StorageFor(const StrategyConfig& config, const Ranks& /*ranks*/) {
  FlatParameters::Options options;
  options.layout.bucket_bytes = config.bucket_bytes;
  options.layout.first_bucket_bytes = config.first_bucket_bytes;
  return options;
}

std::unique_ptr<ParallelStrategy> MakeStrategy(const StrategyConfig& config, FlatParameters* flat, Ranks* ranks) {
  if (config.reproducible) return std::make_unique<CanonicalDdp>(config.shards, flat, ranks);
  return std::make_unique<Ddp>(config, flat, ranks);
}

}  // namespace lockstep::engine
