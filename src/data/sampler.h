// Which samples the next global batch holds. The order of an epoch is a keyed permutation of [0, size): a pure function
// of (seed, epoch), computed per sample in O(1), so the whole state is three integers, any rank finds any batch by
// arithmetic, and a run resumes at sample 10^9 as fast as at sample 0, on any world size and with any number of
// threads. Every rank holds an equal Sampler and takes its own share (ShareOf); nothing is communicated.
//
//   Result<Sampler> sampler = Sampler::Create(source.size(), {.seed = 1}, /*global_batch=*/8, LastBatch::kDrop);
//   std::vector<SampleId> batch = sampler->Take();
//   for (const SampleId& id : ShareOf(batch, rank, world)) ...
//
// Of a mixture of sets each set has its own epochs, and batches do not end with them: the state is the number of draws.
//
// Of a source with buckets (samples of several shapes) every batch is of one bucket. An epoch has all batches of all
// buckets, in an order that is a permutation as well; the state counts batches, each as `global_batch` samples.
//
// const members may be called from any thread at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "data/mixture.h"

namespace lockstep::data {

// What happens with the last global batch of an epoch when the samples do not fill it.
enum class LastBatch {
  kDrop,  // its samples are not used in this epoch
  kPad,   // filled up by repeating from the start of the same epoch (and bucket)
  kKeep,  // smaller than the others
};

struct SamplerState {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t position = 0;  // samples consumed of this epoch; of a mixture: all draws
  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

struct SampleId {
  uint64_t epoch = 0;     // of a mixture: of the set
  uint64_t position = 0;  // within the order of the epoch; of a mixture: the draw
  uint64_t index = 0;     // into the source
  friend bool operator==(const SampleId&, const SampleId&) = default;
};

// The order of one epoch: a bijection of [0, size).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t position) const;

 private:
  static constexpr int kRounds = 8;
  uint64_t Once(uint64_t x) const;

  uint64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  uint64_t keys_[kRounds];
};

class Sampler {
 public:
  // Errors: an empty source, a global batch of 0, kDrop with fewer samples than one batch (no epoch would have a
  // batch), a position beyond the source (the state belongs to another dataset).
  static Result<Sampler> Create(uint64_t size, SamplerState state, uint64_t global_batch, LastBatch last_batch,
                                bool shuffle = true);
  // Of sets that lie one after the other in the source (MixedSource), in the shares of the mixture: after every batch
  // each set has had its share of all draws with an error below 1. No sample of a set comes again before all others
  // of the set did. All batches are full. `state.epoch` counts beginnings with other data (data.on_change): each has
  // orders of its own.
  static Result<Sampler> CreateMixed(std::shared_ptr<const Mixture> mixture, SamplerState state, uint64_t global_batch,
                                     bool shuffle = true);

  // Of buckets that lie one after the other in the source (BucketSizes). `last_batch` is about the last batch of each
  // bucket. Errors as above, and kDrop with a bucket that fills no batch: its samples would never be used.
  static Result<Sampler> CreateBucketed(const std::vector<uint64_t>& sizes, SamplerState state, uint64_t global_batch,
                                        LastBatch last_batch, bool shuffle = true);

  // The next global batch; never empty, never across two epochs or buckets.
  std::vector<SampleId> Take();
  // What the Take() after `batches_ahead` others would return. O(batch), whatever the distance.
  std::vector<SampleId> Peek(uint64_t batches_ahead) const;

  // An epoch ends as soon as no batch can be made of the rest: the state then says (epoch + 1, 0).
  SamplerState state() const { return state_; }
  // The state after `batches` more batches, O(1).
  SamplerState After(uint64_t batches) const;
  // Of an epoch that is taken from its start with this global batch. Of a mixture: until every sample was drawn.
  uint64_t batches_per_epoch() const;
  uint64_t size() const { return size_; }
  uint64_t global_batch() const { return global_batch_; }

 private:
  Sampler(uint64_t size, SamplerState state, uint64_t global_batch, LastBatch last_batch, bool shuffle)
      : size_(size), global_batch_(global_batch), last_batch_(last_batch), shuffle_(shuffle), state_(state) {}
  uint64_t BatchesIn(uint64_t samples) const;
  std::vector<SampleId> MixedBatchAt(const SamplerState& state) const;
  std::vector<SampleId> BucketBatchAt(const SamplerState& state) const;
  std::vector<SampleId> BatchAt(const SamplerState& state) const;

  uint64_t size_;
  uint64_t global_batch_;
  LastBatch last_batch_;
  bool shuffle_;
  SamplerState state_;
  std::shared_ptr<const Mixture> mixture_;  // null: one set
  std::vector<uint64_t> firsts_;            // index of the first sample of each set of the mixture, or bucket
  std::vector<uint64_t> buckets_;           // sizes; empty: one shape
};

// The part of a global batch that belongs to one rank: contiguous, sizes differ by at most one, the first ranks have
// more. A view into `batch`.
std::span<const SampleId> ShareOf(std::span<const SampleId> batch, uint64_t rank, uint64_t world);

}  // namespace lockstep::data
