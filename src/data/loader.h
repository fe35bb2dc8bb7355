// Batches in memory, ahead of need. Decoder threads work per sample on the next few batches; Next() hands them out in
// order of their numbers with content that does not depend on the number of threads. Memory is flat: the buffers of a
// batch return to the loader when the last copy of the Batch is gone, and at most prefetch + (batches held by the
// caller) + 1 exist. Owned and called by one thread; its own threads are joined in the destructor. Batches may outlive
// the loader.
//
//   Loader loader(source, [&](uint64_t n) { return MyShare(sampler.Peek(n - first)); }, first, std::nullopt, options);
//   Result<Batch> batch = loader.Next();
//   torch::from_blob(batch->fields[0].data, {batch->count(), ...});
//
// Not collective: each rank has its own loader; what to do about bad samples is decided by all ranks in the engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/sampler.h"
#include "data/source.h"
#include "data/stages.h"

namespace lockstep::data {

struct FieldBatch {
  const Field* field = nullptr;  // lives as long as the Batch
  std::byte* data = nullptr;     // [count, shape...], contiguous; not null also when count is 0
  size_t count = 0;
};

struct BadSample {
  SampleId id;
  std::string name;
  Status status;
};

struct Batch {
  uint64_t number = 0;
  std::vector<SampleId> ids;  // those present, in the order of the plan
  std::vector<FieldBatch> fields;
  std::vector<BadSample> bad;  // those that could not be read
  double wait_seconds = 0;     // how long Next() blocked (with threads = 0: decoded)
  std::shared_ptr<void> hold;  // keeps buffers and fields alive
  size_t count() const { return ids.size(); }
};

struct LoaderOptions {
  int threads = 2;   // 0: decode in Next()
  int prefetch = 2;  // batches under way or ready, at least 1
  // Bytes of all batches, those the caller holds included: none is prepared ahead beyond it. The batch that Next()
  // waits for is made in any case. 0: no bound but prefetch.
  uint64_t memory = 0;
  // A read that takes longer while Next() waits is given up: the sample is bad, with Code::kTimeout. The thread that
  // hangs in it is replaced by another one, and ends when the read does. 0: none; nor with threads = 0.
  std::chrono::milliseconds timeout{0};
  bool augment = false;
  uint64_t seed = 0;
  // Pinned memory is injected here; the default is aligned ordinary memory. Called from any thread, but never two at
  // once; null or an exception from allocate is an error of Next(). release may be called after the loader is gone.
  std::function<void*(size_t)> allocate;
  std::function<void(void*, size_t)> release;
};

struct LoaderStats {
  uint64_t samples_read = 0;  // good ones
  uint64_t samples_bad = 0;
  double read_seconds = 0;     // in Source::Read, summed over threads
  StageTimes stages;           // the same by stage
  double wait_seconds = 0;     // in Next()
  size_t ready_batches = 0;    // decoded and not yet taken
  size_t started_batches = 0;  // being decoded
  size_t threads = 0;          // that decode
  size_t hanging_reads = 0;    // given up after the time-out, and still not ended
  size_t buffers = 0;          // sets of buffers that exist, in use or waiting for use
  size_t buffer_bytes = 0;     // memory of all of them
};

class Loader {
 public:
  // Gives the samples of a batch; called once per batch number, in order, never by two threads at once. An empty plan
  // is an empty batch.
  using Plan = std::function<std::vector<SampleId>(uint64_t batch_number)>;

  // Batches first_batch, first_batch + 1, ... up to and without end_batch.
  Loader(std::shared_ptr<const Source> source, Plan plan, uint64_t first_batch, std::optional<uint64_t> end_batch,
         LoaderOptions options = {});
  // Waits for the samples being read right now, no longer; and for none longer than the time-out.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // A sample to be left out of every batch from the next Next() on, whatever was read ahead. Batches depend on when
  // this is called alone, not on the threads. Such samples are in no list of a batch and are not read any more.
  void LeaveOut(uint64_t index);

  // From now on so many threads decode, at least 1; those that are too many end after their sample. Batches do not
  // depend on it. Not for a loader that was made with threads = 0.
  void SetThreads(int threads);

  // The next batch. Samples that cannot be read are in `bad`, not an error. Errors: past the end, out of memory, too
  // many reads that hang.
  Result<Batch> Next();
  bool AtEnd() const;
  LoaderStats stats() const;

 private:
  struct Worker;
  struct Shared;
  std::shared_ptr<Shared> shared_;  // a thread that hangs keeps it
};

}  // namespace lockstep::data
