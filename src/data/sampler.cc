#include "data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/text.h"
#include "data/random.h"

namespace lockstep::data {

// A balanced Feistel network over 2 * half_bits bits; values that fall outside [0, size) are sent through again (cycle
// walking), which keeps it a bijection. The domain is less than four times the size, so four passes on average at most;
// for tiny sizes it is 16, because two-bit halves are the smallest in which eight rounds mix well.
Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch) : size_(size) {
  const int bits = size <= 1 ? 1 : 64 - std::countl_zero(size - 1);
  half_bits_ = std::max(2, (bits + 1) / 2);
  half_mask_ = (1ull << half_bits_) - 1;
  Random keys(seed, epoch, 0, Purpose::kOrder);
  for (uint64_t& key : keys_) key = keys.Next();
}

uint64_t Permutation::Once(uint64_t x) const {
  uint64_t left = x >> half_bits_;
  uint64_t right = x & half_mask_;
  for (uint64_t key : keys_) {
    // The upper half of the mix: its low bits have seen every bit of the input.
    const uint64_t next = left ^ ((Mix(right * kGolden + key) >> 32) & half_mask_);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t position) const {
  uint64_t x = position;
  do {
    x = Once(x);
  } while (x >= size_);
  return x;
}

Result<Sampler> Sampler::Create(uint64_t size, SamplerState state, uint64_t global_batch, LastBatch last_batch,
                                bool shuffle) {
  if (size == 0) return Status(Code::kUsage, "the sampler has no samples to choose from");
  if (size > 1ull << 62) return Status(Code::kUsage, fmt::format("{} samples are more than 2^62", size));
  if (global_batch == 0) return Status(Code::kUsage, "the global batch is 0; expected at least 1");
  if (last_batch == LastBatch::kDrop && size < global_batch) {
    return Status(Code::kUsage,
                  fmt::format("{} not fill one global batch of {}, and incomplete batches are dropped: no "
                              "epoch would have a batch",
                              Count(static_cast<int64_t>(size), "sample does", "samples do"), global_batch),
                  "give it more samples, lower train.batch, or set data.last_batch to pad or keep");
  }
  if (state.position > size) {
    return Status(Code::kUsage,
                  fmt::format("the sampler's position is {} in an epoch of {}: the state belongs to other data",
                              state.position, Count(static_cast<int64_t>(size), "sample")),
                  "resume with the data the checkpoint was made with, or start anew");
  }
  Sampler sampler(size, state, global_batch, last_batch, shuffle);
  sampler.state_ = sampler.After(0);
  return sampler;
}

Result<Sampler> Sampler::CreateMixed(std::shared_ptr<const Mixture> mixture, SamplerState state, uint64_t global_batch,
                                     bool shuffle) {
  if (global_batch == 0) return Status(Code::kUsage, "the global batch is 0; expected at least 1");
  uint64_t size = 0;
  std::vector<uint64_t> firsts;
  for (size_t part = 0; part < mixture->parts(); ++part) {
    firsts.push_back(size);
    size += mixture->size(part);
  }
  Sampler sampler(size, state, global_batch, LastBatch::kKeep, shuffle);
  sampler.mixture_ = std::move(mixture);
  sampler.firsts_ = std::move(firsts);
  return sampler;
}

Result<Sampler> Sampler::CreateBucketed(const std::vector<uint64_t>& sizes, SamplerState state, uint64_t global_batch,
                                        LastBatch last_batch, bool shuffle) {
  if (global_batch == 0) return Status(Code::kUsage, "the global batch is 0; expected at least 1");
  uint64_t size = 0;
  std::vector<uint64_t> firsts;
  for (const uint64_t bucket : sizes) {
    if (bucket == 0 || (last_batch == LastBatch::kDrop && bucket < global_batch)) {
      return Status(
          Code::kUsage,
          fmt::format("bucket {} of {} has {}, which fill no global batch of {}, and incomplete batches are "
                      "dropped: they would never be used",
                      firsts.size(), sizes.size(), Count(static_cast<int64_t>(bucket), "sample"), global_batch),
          "set data.last_batch to pad or keep, name fewer data.buckets, or lower train.batch");
    }
    firsts.push_back(size);
    size += bucket;
  }
  if (size == 0) return Status(Code::kUsage, "the sampler has no samples to choose from");
  Sampler sampler(size, state, global_batch, last_batch, shuffle);
  sampler.firsts_ = std::move(firsts);
  sampler.buckets_ = sizes;
  const uint64_t most = sampler.batches_per_epoch();
  if (state.position % global_batch != 0 || state.position / global_batch > most) {
    return Status(
        Code::kUsage,
        fmt::format("the sampler's position is {} in an epoch of {} batches of {}: the state belongs to other "
                    "data or another batch",
                    state.position, most, global_batch),
        "resume with the data and train.batch the checkpoint was made with, or start anew");
  }
  sampler.state_ = sampler.After(0);
  return sampler;
}

uint64_t Sampler::BatchesIn(uint64_t samples) const {
  return samples / global_batch_ + (last_batch_ != LastBatch::kDrop && samples % global_batch_ != 0 ? 1 : 0);
}

uint64_t Sampler::batches_per_epoch() const {
  if (buckets_.empty()) return BatchesIn(mixture_ ? mixture_->DrawsOfAll() : size_);
  uint64_t batches = 0;
  for (const uint64_t bucket : buckets_) batches += BatchesIn(bucket);
  return batches;
}

SamplerState Sampler::After(uint64_t batches) const {
  SamplerState state = state_;
  if (mixture_) {
    state.position += batches * global_batch_;
    return state;
  }
  const uint64_t here =
      buckets_.empty() ? BatchesIn(size_ - state.position) : batches_per_epoch() - state.position / global_batch_;
  if (batches < here) {
    state.position += batches * global_batch_;
    return state;
  }
  batches -= here;
  state.epoch += 1 + batches / batches_per_epoch();
  state.position = (batches % batches_per_epoch()) * global_batch_;
  return state;
}

// Within a batch the draws are in random order: else a share of 1/2 and two ranks would give each rank one of the sets.
std::vector<SampleId> Sampler::MixedBatchAt(const SamplerState& state) const {
  constexpr uint64_t kBatchOrder = ~0ull;  // beside the numbers of the sets
  const Permutation shuffled(global_batch_, Fold(Fold(state.seed, kBatchOrder), state.epoch), state.position);
  std::vector<SampleId> batch;
  batch.reserve(global_batch_);
  for (uint64_t i = 0; i < global_batch_; ++i) {
    const uint64_t draw = state.position + (shuffle_ ? shuffled(i) : i);
    const auto [part, number] = mixture_->At(draw);
    const uint64_t size = mixture_->size(part);
    const uint64_t epoch = (state.epoch << 32) + number / size;
    const uint64_t at = number % size;
    const uint64_t inner = shuffle_ ? Permutation(size, Fold(state.seed, part), epoch)(at) : at;
    batch.push_back({epoch, draw, firsts_[part] + inner});
  }
  return batch;
}

// The batches of all buckets are numbered one after the other; which of them comes when is one permutation, and which
// samples a bucket's batches have is one permutation of the bucket.
std::vector<SampleId> Sampler::BucketBatchAt(const SamplerState& state) const {
  constexpr uint64_t kBatchOrder = ~0ull;  // beside the numbers of the buckets
  const uint64_t turn = state.position / global_batch_;
  uint64_t number = turn;
  if (shuffle_) number = Permutation(batches_per_epoch(), Fold(state.seed, kBatchOrder), state.epoch)(turn);
  size_t bucket = 0;
  for (; number >= BatchesIn(buckets_[bucket]); ++bucket) number -= BatchesIn(buckets_[bucket]);
  const uint64_t size = buckets_[bucket], first = number * global_batch_;
  const uint64_t count = last_batch_ == LastBatch::kPad ? global_batch_ : std::min(size - first, global_batch_);
  const Permutation order(size, Fold(state.seed, bucket), state.epoch);
  std::vector<SampleId> batch;
  batch.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = (first + i) % size;
    batch.push_back({state.epoch, state.position + i, firsts_[bucket] + (shuffle_ ? order(at) : at)});
  }
  return batch;
}

std::vector<SampleId> Sampler::BatchAt(const SamplerState& state) const {
  if (mixture_) return MixedBatchAt(state);
  if (!buckets_.empty()) return BucketBatchAt(state);
  const uint64_t left = size_ - state.position;
  const uint64_t count = last_batch_ == LastBatch::kPad ? global_batch_ : std::min(left, global_batch_);
  const Permutation order(size_, state.seed, state.epoch);
  std::vector<SampleId> batch;
  batch.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t position = i < left ? state.position + i : (i - left) % size_;
    batch.push_back({state.epoch, position, shuffle_ ? order(position) : position});
  }
  return batch;
}

std::vector<SampleId> Sampler::Take() {
  std::vector<SampleId> batch = BatchAt(state_);
  state_ = After(1);
  return batch;
}

std::vector<SampleId> Sampler::Peek(uint64_t batches_ahead) const { return BatchAt(After(batches_ahead)); }

std::span<const SampleId> ShareOf(std::span<const SampleId> batch, uint64_t rank, uint64_t world) {
  if (world == 0 || rank >= world) return {};
  const uint64_t each = batch.size() / world;
  const uint64_t more = batch.size() % world;
  return batch.subspan(rank * each + std::min(rank, more), each + (rank < more ? 1 : 0));
}

}  // namespace lockstep::data
