#include "engine/strategy.h"

#include "engine/ddp.h"
#include "engine/zero.h"

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

namespace {

// One rank has nothing to share, but for what its device does not hold.
Stage StageFor(const StrategyConfig& config, const Ranks& ranks) {
  const bool shares = ranks.size() > 1 || config.alone || config.host_parameters;
  return shares ? static_cast<Stage>(config.zero.stage) : Stage::kReplicated;
}

}  // namespace

FlatParameters::Options StorageFor(const StrategyConfig& config, const Ranks& ranks) {
  FlatParameters::Options options;
  options.layout.bucket_bytes = config.bucket_bytes;
  options.layout.first_bucket_bytes = config.first_bucket_bytes;
  options.stage = StageFor(config, ranks);
  options.parameters = config.parameters;
  if (options.stage == Stage::kReplicated) return options;
  options.layout.shares = ranks.size();
  options.share = ranks.rank();
  // Canonical shards are added up one by one, which needs a place for them.
  options.whole_gradients =
      !IsSharded(options.stage, Buffer::kGradients) || config.zero.exchange_once || config.reproducible;
  options.units = config.units;
  options.persistent = config.zero.persistent;
  options.host_parameters = config.host_parameters;
  return options;
}

std::unique_ptr<ParallelStrategy> MakeStrategy(const StrategyConfig& config, FlatParameters* flat, Ranks* ranks) {
  if (flat->stage() == Stage::kReplicated) return std::make_unique<Ddp>(config, flat, ranks);
  return std::make_unique<Zero>(config, flat, ranks);
}

}  // namespace lockstep::engine
