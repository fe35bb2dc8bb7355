#include "data/loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>
#include <unordered_set>

#include "base/clock.h"

namespace lockstep::data {
namespace {

constexpr std::align_val_t kAlignment{64};

void* AllocateOrdinary(size_t bytes) { return ::operator new(bytes, kAlignment); }
void ReleaseOrdinary(void* memory, size_t) { ::operator delete(memory, kAlignment); }

// One buffer per field, with room for `rows` samples.
struct BufferSet {
  std::vector<std::byte*> data;
  size_t rows = 0;
};

// Owns all memory; lives as long as the loader or any batch.
class BufferPool {
 public:
  BufferPool(std::vector<Field> fields, const LoaderOptions& options) : fields_(std::move(fields)) {
    allocate_ = options.allocate ? options.allocate : AllocateOrdinary;
    release_ = options.allocate ? options.release : ReleaseOrdinary;
  }
  ~BufferPool() {
    for (BufferSet& set : free_) Free(&set);
  }
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  const std::vector<Field>& fields() const { return fields_; }

  Result<BufferSet> Get(size_t rows) {
    rows = std::max<size_t>(rows, 1);
    std::lock_guard lock(mutex_);
    BufferSet set;
    if (!free_.empty()) {
      set = std::move(free_.back());
      free_.pop_back();
      if (set.rows >= rows) return set;
      Free(&set);
    }
    ++sets_;
    set.rows = rows;
    for (const Field& field : fields_) {
      const size_t size = std::max<size_t>(rows * field.bytes(), 1);
      void* memory = nullptr;
      try {
        memory = allocate_(size);
      } catch (const std::exception&) {  // answered below like null
        memory = nullptr;
      }
      if (memory == nullptr) {
        Status status(Code::kEnvironment,
                      fmt::format("no memory for {} samples of field '{}' ({} bytes)", rows, field.name, size),
                      "use a smaller batch or less prefetch");
        Free(&set);
        return status;
      }
      set.data.push_back(static_cast<std::byte*>(memory));
      bytes_ += size;
    }
    return set;
  }

  // Whether one more set of `rows` keeps all of them within `memory`.
  bool Fits(size_t rows, uint64_t memory) const {
    std::lock_guard lock(mutex_);
    if (!free_.empty() && free_.back().rows >= rows) return true;
    size_t sample = 0;
    for (const Field& field : fields_) sample += field.bytes();
    const size_t reused = free_.empty() ? 0 : free_.back().rows * sample;
    return bytes_ - reused + rows * sample <= memory;
  }

  void Return(BufferSet set) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(set));
  }

  void Count(LoaderStats* stats) const {
    std::lock_guard lock(mutex_);
    stats->buffers = sets_;
    stats->buffer_bytes = bytes_;
  }

 private:
  void Free(BufferSet* set) {
    for (size_t i = 0; i < set->data.size(); ++i) {
      const size_t size = std::max<size_t>(set->rows * fields_[i].bytes(), 1);
      if (release_) release_(set->data[i], size);
      bytes_ -= size;
    }
    set->data.clear();
    --sets_;
  }

  const std::vector<Field> fields_;
  std::function<void*(size_t)> allocate_;
  std::function<void(void*, size_t)> release_;
  mutable std::mutex mutex_;
  std::vector<BufferSet> free_;
  size_t sets_ = 0;
  size_t bytes_ = 0;
};

// Buffers on loan to one batch.
struct Lease {
  Lease(std::shared_ptr<BufferPool> from, BufferSet lent) : pool(std::move(from)), set(std::move(lent)) {}
  ~Lease() { pool->Return(std::move(set)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::shared_ptr<BufferPool> pool;
  BufferSet set;
};

// A batch on its way.
struct Slot {
  uint64_t number = 0;
  std::vector<SampleId> ids;
  std::vector<Status> results;
  std::vector<bool> left_out;  // settled when the batch is handed out
  std::shared_ptr<Lease> lease;
  size_t handed_out = 0;
  size_t unfinished = 0;
  Status error;  // of the batch as a whole
};

// Threads made here take no signals: those belong to the program.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct Loader::Shared {
  std::shared_ptr<const Source> source;
  Plan plan;
  std::optional<uint64_t> end_batch;
  LoaderOptions options;
  std::shared_ptr<BufferPool> pool;
  std::vector<std::thread> threads;
  std::atomic<bool> stopping = false;

  mutable std::mutex mutex;
  std::condition_variable work;   // a sample to read, or the end
  std::condition_variable ready;  // a batch is complete
  std::deque<std::unique_ptr<Slot>> slots;
  uint64_t next_start = 0;                // number of the next batch to start
  uint64_t next_take = 0;                 // number of the next batch to hand out
  size_t most_rows = 1;                   // of the batches so far
  bool failed = false;                    // a batch could not be started: none after it is
  std::unordered_set<uint64_t> left_out;  // indices
  LoaderStats stats;

  bool CanStart() const {
    if (failed || slots.size() >= static_cast<size_t>(options.prefetch)) return false;
    if (end_batch && next_start >= *end_batch) return false;
    return options.memory == 0 || slots.empty() || pool->Fits(most_rows, options.memory);
  }

  // With the mutex held, so that plans are asked for in order.
  void Start() {
    auto slot = std::make_unique<Slot>();
    slot->number = next_start++;
    try {
      slot->ids = plan(slot->number);
      slot->results.resize(slot->ids.size());
      most_rows = std::max(most_rows, slot->ids.size());
      Result<BufferSet> set = pool->Get(slot->ids.size());
      slot->error = set.status();
      if (set.ok()) slot->lease = std::make_shared<Lease>(pool, std::move(*set));
    } catch (const std::exception& error) {
      slot->error = Status(Code::kInternal, fmt::format("the plan of batch {} failed: {}", slot->number, error.what()));
    }
    if (slot->error.ok()) {
      slot->unfinished = slot->ids.size();
    } else {
      slot->handed_out = slot->ids.size();
      failed = true;
    }
    slots.push_back(std::move(slot));
  }

  Slot* SlotWithWork() {
    for (auto& slot : slots) {
      if (slot->handed_out < slot->ids.size()) return slot.get();
    }
    return nullptr;
  }

  Status ReadSample(const Slot& slot, size_t row) const {
    const SampleId& id = slot.ids[row];
    if (id.index >= source->size()) {
      return Status(Code::kInternal, fmt::format("sample {} was planned, but there are {}", id.index, source->size()));
    }
    std::vector<std::byte*> out(slot.lease->set.data);
    for (size_t i = 0; i < out.size(); ++i) out[i] += row * pool->fields()[i].bytes();
    try {
      return source->Read({options.seed, id.epoch, id.index, options.augment, &stopping}, out);
    } catch (const std::exception& error) {
      return Status(Code::kInternal, fmt::format("reading failed: {}", error.what()));
    }
  }

  // Reads one sample of the slot without the lock; returns with it.
  void Advance(std::unique_lock<std::mutex>& lock, Slot* slot) {
    const size_t row = slot->handed_out++;
    if (left_out.contains(slot->ids[row].index)) {
      if (--slot->unfinished == 0) ready.notify_all();
      return;
    }
    lock.unlock();
    const TimePoint start = Now();
    StageTimes stages;
    Status status;
    {
      const StageScope scope(&stages);
      status = ReadSample(*slot, row);
    }
    const double seconds = SecondsSince(start);
    const double known = std::accumulate(stages.seconds.begin(), stages.seconds.end(), 0.0);
    stages.seconds[static_cast<size_t>(LoadStage::kOther)] = std::max(seconds - known, 0.0);
    lock.lock();
    stats.read_seconds += seconds;
    stats.stages.Add(stages);
    ++(status.ok() ? stats.samples_read : stats.samples_bad);
    slot->results[row] = std::move(status);
    if (--slot->unfinished == 0) ready.notify_all();
  }

  void Work() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      if (Slot* slot = SlotWithWork()) {
        Advance(lock, slot);
      } else if (CanStart()) {
        Start();
        work.notify_all();
        if (slots.back()->unfinished == 0) ready.notify_all();
      } else {
        work.wait(lock);
      }
    }
  }

  // Good samples move up, the others become reports.
  Batch Finish(Slot* slot) const {
    Batch batch;
    batch.number = slot->number;
    const std::vector<Field>& fields = pool->fields();
    const std::vector<std::byte*>& data = slot->lease->set.data;
    for (size_t row = 0; row < slot->ids.size(); ++row) {
      const SampleId& id = slot->ids[row];
      if (slot->left_out[row]) continue;
      if (!slot->results[row].ok()) {
        const std::string name =
            id.index < source->size() ? source->Name(id.index) : fmt::format("sample {}", id.index);
        batch.bad.push_back({id, name, std::move(slot->results[row])});
        continue;
      }
      const size_t to = batch.ids.size();
      for (size_t i = 0; to != row && i < fields.size(); ++i) {
        const size_t bytes = fields[i].bytes();
        std::memcpy(data[i] + to * bytes, data[i] + row * bytes, bytes);
      }
      batch.ids.push_back(id);
    }
    for (size_t i = 0; i < fields.size(); ++i) batch.fields.push_back({&fields[i], data[i], batch.ids.size()});
    batch.hold = std::move(slot->lease);
    return batch;
  }
};

Loader::Loader(std::shared_ptr<const Source> source, Plan plan, uint64_t first_batch, std::optional<uint64_t> end_batch,
               LoaderOptions options)
    : shared_(std::make_unique<Shared>()) {
  shared_->options = std::move(options);
  shared_->options.prefetch = std::max(1, shared_->options.prefetch);
  shared_->pool = std::make_shared<BufferPool>(source->fields(), shared_->options);
  shared_->source = std::move(source);
  shared_->plan = std::move(plan);
  shared_->end_batch = end_batch;
  shared_->next_start = shared_->next_take = first_batch;
  SignalsBlocked quiet;
  for (int i = 0; i < shared_->options.threads; ++i) {
    shared_->threads.emplace_back([shared = shared_.get()] { shared->Work(); });
    pthread_setname_np(shared_->threads.back().native_handle(), fmt::format("data-{}", i).c_str());
  }
}

Loader::~Loader() {
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->work.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

bool Loader::AtEnd() const { return shared_->end_batch && shared_->next_take >= *shared_->end_batch; }

Result<Batch> Loader::Next() {
  Shared& shared = *shared_;
  if (AtEnd()) {
    return Status(Code::kInternal, fmt::format("batch {} was asked for; the last one is before {}", shared.next_take,
                                               *shared.end_batch));
  }
  const TimePoint start = Now();
  std::unique_lock lock(shared.mutex);
  if (shared.threads.empty()) {
    if (shared.slots.empty()) shared.Start();
    while (Slot* slot = shared.SlotWithWork()) shared.Advance(lock, slot);
  } else {
    shared.ready.wait(lock, [&] { return !shared.slots.empty() && shared.slots.front()->unfinished == 0; });
  }
  Slot* front = shared.slots.front().get();
  if (!front->error.ok()) return front->error;  // stays: every later call says the same
  std::unique_ptr<Slot> slot = std::move(shared.slots.front());
  shared.slots.pop_front();
  for (const SampleId& id : slot->ids) slot->left_out.push_back(shared.left_out.contains(id.index));
  ++shared.next_take;
  const double waited = SecondsSince(start);
  shared.stats.wait_seconds += waited;
  lock.unlock();
  shared.work.notify_all();
  Batch batch = shared.Finish(slot.get());
  batch.wait_seconds = waited;
  return batch;
}

void Loader::LeaveOut(uint64_t index) {
  std::lock_guard lock(shared_->mutex);
  shared_->left_out.insert(index);
}

LoaderStats Loader::stats() const {
  std::lock_guard lock(shared_->mutex);
  LoaderStats stats = shared_->stats;
  for (const auto& slot : shared_->slots) ++(slot->unfinished == 0 ? stats.ready_batches : stats.started_batches);
  shared_->pool->Count(&stats);
  return stats;
}

}  // namespace lockstep::data
