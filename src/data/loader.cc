#include "data/loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
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
#include "base/large_pages.h"

namespace lockstep::data {
namespace {

constexpr size_t kAlignment = 64;

std::align_val_t AlignmentOf(size_t bytes) { return std::align_val_t{PageAlignment(bytes, kAlignment)}; }
void* AllocateOrdinary(size_t bytes) {
  void* memory = ::operator new(bytes, AlignmentOf(bytes));
  AskForLargePages(memory, bytes);
  return memory;
}
void ReleaseOrdinary(void* memory, size_t bytes) { ::operator delete(memory, AlignmentOf(bytes)); }

// One buffer per field.
struct BufferSet {
  std::vector<std::byte*> data;
  std::vector<size_t> bytes;  // room of each
};

// Owns all memory; lives as long as the loader or any batch.
class BufferPool {
 public:
  explicit BufferPool(const LoaderOptions& options) {
    allocate_ = options.allocate ? options.allocate : AllocateOrdinary;
    release_ = options.allocate ? options.release : ReleaseOrdinary;
  }
  ~BufferPool() {
    for (BufferSet& set : free_) Free(&set);
  }
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // With room for `rows` samples. Sets grow where batches do: after some batches of every shape none is made any more.
  Result<BufferSet> Get(const std::vector<Field>& fields, size_t rows) {
    std::lock_guard lock(mutex_);
    BufferSet set;
    if (!free_.empty()) {
      set = std::move(free_.back());
      free_.pop_back();
      if (Holds(set, fields, rows)) return set;
      Free(&set);
    }
    ++sets_;
    for (const Field& field : fields) {
      const size_t size = RoomOf(field, rows);
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
      set.bytes.push_back(size);
      bytes_ += size;
    }
    return set;
  }

  // Whether one more set of so many bytes keeps all of them within `memory`.
  bool Fits(size_t bytes, uint64_t memory) const {
    std::lock_guard lock(mutex_);
    size_t reused = 0;
    if (!free_.empty()) reused = std::accumulate(free_.back().bytes.begin(), free_.back().bytes.end(), size_t{0});
    return reused >= bytes || bytes_ - reused + bytes <= memory;
  }

  static size_t RoomOf(const Field& field, size_t rows) {
    return std::max<size_t>(std::max<size_t>(rows, 1) * field.bytes(), 1);
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
  static bool Holds(const BufferSet& set, const std::vector<Field>& fields, size_t rows) {
    for (size_t i = 0; i < fields.size(); ++i) {
      if (i >= set.bytes.size() || set.bytes[i] < RoomOf(fields[i], rows)) return false;
    }
    return true;
  }
  void Free(BufferSet* set) {
    for (size_t i = 0; i < set->data.size(); ++i) {
      if (release_) release_(set->data[i], set->bytes[i]);
      bytes_ -= set->bytes[i];
    }
    set->data.clear();
    set->bytes.clear();
    --sets_;
  }

  std::function<void*(size_t)> allocate_;
  std::function<void(void*, size_t)> release_;
  mutable std::mutex mutex_;
  std::vector<BufferSet> free_;
  size_t sets_ = 0;
  size_t bytes_ = 0;
};

// Buffers on loan to one batch, and the fields that lie in them.
struct Lease {
  Lease(std::shared_ptr<BufferPool> from, BufferSet lent, const std::vector<Field>& in_them)
      : pool(std::move(from)), set(std::move(lent)), fields(in_them) {}
  ~Lease() { pool->Return(std::move(set)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::shared_ptr<BufferPool> pool;
  BufferSet set;
  const std::vector<Field> fields;
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
  bool given_up = false;  // a thread may still write into a row of the buffers
  Status error;           // of the batch as a whole
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

// Threads that hang in a read. Where there are more, nothing is left that answers.
constexpr size_t kMostHanging = 32;
constexpr std::chrono::milliseconds kGrace{500};

}  // namespace

// A thread, and what it reads. All but `cancelled` is guarded by the mutex of Shared.
struct Loader::Worker {
  std::thread thread;
  Slot* slot = nullptr;  // null while nothing is read
  size_t row = 0;
  TimePoint start;
  bool given_up = false;
  bool surplus = false;  // ends after its sample
  bool ended = false;
  std::atomic<bool> cancelled = false;
};

struct Loader::Shared : std::enable_shared_from_this<Loader::Shared> {
  std::shared_ptr<const Source> source;
  Plan plan;
  std::optional<uint64_t> end_batch;
  LoaderOptions options;
  std::shared_ptr<BufferPool> pool;

  mutable std::mutex mutex;
  bool stopping = false;
  std::vector<std::shared_ptr<Worker>> workers;
  size_t started_workers = 0;
  size_t hanging = 0;             // threads that were given up and are still there
  std::condition_variable work;   // a sample to read, or the end
  std::condition_variable ready;  // a batch is complete
  std::deque<std::unique_ptr<Slot>> slots;
  uint64_t next_start = 0;                // number of the next batch to start
  uint64_t next_take = 0;                 // number of the next batch to hand out
  size_t most_bytes = 1;                  // of the batches so far
  bool failed = false;                    // a batch could not be started: none after it is
  std::unordered_set<uint64_t> left_out;  // indices
  LoaderStats stats;

  bool CanStart() const {
    if (failed || slots.size() >= static_cast<size_t>(options.prefetch)) return false;
    if (end_batch && next_start >= *end_batch) return false;
    return options.memory == 0 || slots.empty() || pool->Fits(most_bytes, options.memory);
  }

  // The shape of a batch: of its samples, which are of one bucket.
  Result<const std::vector<Field>*> FieldsOf(const std::vector<SampleId>& ids) const {
    const std::vector<Field>* fields = nullptr;
    for (const SampleId& id : ids) {
      if (id.index >= source->size()) continue;  // said when it is read
      const std::vector<Field>* its = &source->FieldsOf(id.index);
      if (fields != nullptr && its != fields) {
        return Status(Code::kInternal,
                      fmt::format("a batch of two shapes was planned: samples {} and {}", ids.front().index, id.index));
      }
      fields = its;
    }
    return fields != nullptr ? fields : &source->fields();
  }

  // With the mutex held, so that plans are asked for in order.
  void Start() {
    auto slot = std::make_unique<Slot>();
    slot->number = next_start++;
    try {
      slot->ids = plan(slot->number);
      slot->results.resize(slot->ids.size());
      const Result<const std::vector<Field>*> fields = FieldsOf(slot->ids);
      slot->error = fields.status();
      if (fields.ok()) slot->error = Lend(**fields, slot.get());
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

  Status Lend(const std::vector<Field>& fields, Slot* slot) {
    size_t bytes = 0;
    for (const Field& field : fields) bytes += BufferPool::RoomOf(field, slot->ids.size());
    most_bytes = std::max(most_bytes, bytes);
    Result<BufferSet> set = pool->Get(fields, slot->ids.size());
    if (set.ok()) slot->lease = std::make_shared<Lease>(pool, std::move(*set), fields);
    return set.status();
  }

  Slot* SlotWithWork() {
    for (auto& slot : slots) {
      if (slot->handed_out < slot->ids.size()) return slot.get();
    }
    return nullptr;
  }

  Status ReadSample(const SampleId& id, const Lease& lease, size_t row, const std::atomic<bool>* cancelled) const {
    if (id.index >= source->size()) {
      return Status(Code::kInternal, fmt::format("sample {} was planned, but there are {}", id.index, source->size()));
    }
    std::vector<std::byte*> out(lease.set.data);
    for (size_t i = 0; i < out.size(); ++i) out[i] += row * lease.fields[i].bytes();
    try {
      return source->Read({options.seed, id.epoch, id.index, options.augment, cancelled}, out);
    } catch (const std::exception& error) {
      return Status(Code::kInternal, fmt::format("reading failed: {}", error.what()));
    }
  }

  // Reads one sample of the slot without the lock; returns with it. What it needs of the slot is copied: after a
  // time-out the slot is gone before the read ends.
  void Advance(std::unique_lock<std::mutex>& lock, Slot* slot, Worker* worker) {
    const size_t row = slot->handed_out++;
    if (left_out.contains(slot->ids[row].index)) {
      if (--slot->unfinished == 0) ready.notify_all();
      return;
    }
    const SampleId id = slot->ids[row];
    const std::shared_ptr<const Lease> lease = slot->lease;
    const TimePoint start = Now();
    worker->slot = slot;
    worker->row = row;
    worker->start = start;
    lock.unlock();
    StageTimes stages;
    Status status;
    {
      const StageScope scope(&stages);
      status = ReadSample(id, *lease, row, &worker->cancelled);
    }
    const double seconds = SecondsSince(start);
    const double known = std::accumulate(stages.seconds.begin(), stages.seconds.end(), 0.0);
    stages.seconds[static_cast<size_t>(LoadStage::kOther)] = std::max(seconds - known, 0.0);
    lock.lock();
    if (worker->given_up) return;
    worker->slot = nullptr;
    if (stopping) ready.notify_all();
    stats.read_seconds += seconds;
    stats.stages.Add(stages);
    ++(status.ok() ? stats.samples_read : stats.samples_bad);
    slot->results[row] = std::move(status);
    if (--slot->unfinished == 0) ready.notify_all();
  }

  void Work(Worker* worker) {
    std::unique_lock lock(mutex);
    while (!stopping && !worker->given_up && !worker->surplus) {
      if (Slot* slot = SlotWithWork()) {
        Advance(lock, slot, worker);
      } else if (CanStart()) {
        Start();
        work.notify_all();
        if (slots.back()->unfinished == 0) ready.notify_all();
      } else {
        work.wait(lock);
      }
    }
    if (worker->given_up) --hanging;
    worker->ended = true;
  }

  // With the mutex held.
  size_t Threads() const {
    return static_cast<size_t>(std::ranges::count_if(workers, [](const auto& worker) { return !worker->surplus; }));
  }

  // With the mutex held.
  void StartWorker() {
    const SignalsBlocked quiet;
    auto worker = std::make_shared<Worker>();
    // It holds what it uses: nobody may be there any more when a read that hung ends.
    worker->thread = std::thread([shared = shared_from_this(), worker] { shared->Work(worker.get()); });
    pthread_setname_np(worker->thread.native_handle(), fmt::format("data-{}", started_workers++).c_str());
    workers.push_back(std::move(worker));
  }

  void GiveUp(Worker* worker) {
    worker->given_up = true;
    worker->cancelled = true;  // a read that asks ends soon
    worker->thread.detach();
    ++hanging;
  }

  // The next moment at which a read has taken too long; nothing without a time-out, or while nothing is read.
  std::optional<TimePoint> NextDeadline() const {
    std::optional<TimePoint> next;
    for (const auto& worker : workers) {
      if (options.timeout.count() == 0 || worker->slot == nullptr) continue;
      const TimePoint deadline = worker->start + options.timeout;
      if (!next || deadline < *next) next = deadline;
    }
    return next;
  }

  // Samples whose reads take too long become bad ones, and other threads do the work of those that hang.
  void GiveUpLateReads() {
    const TimePoint now = Now();
    size_t late = 0;
    for (const auto& worker : workers) {
      if (worker->slot == nullptr || now < worker->start + options.timeout) continue;
      Slot* slot = worker->slot;
      slot->results[worker->row] = Status(Code::kTimeout,
                                          fmt::format("reading takes longer than data.timeout ({:g} s)",
                                                      std::chrono::duration<double>(options.timeout).count()),
                                          "check that the file system answers, or raise data.timeout");
      slot->given_up = true;
      --slot->unfinished;
      ++stats.samples_bad;
      GiveUp(worker.get());
      if (!worker->surplus) ++late;
    }
    std::erase_if(workers, [](const auto& worker) { return worker->given_up; });
    for (; late > 0; --late) StartWorker();
  }

  // Until the first batch is there, or too many reads hang.
  Status WaitForFirst(std::unique_lock<std::mutex>& lock) {
    const auto there = [&] { return !slots.empty() && slots.front()->unfinished == 0; };
    if (options.timeout.count() == 0) ready.wait(lock, there);
    while (!there()) {
      // A read that begins from now on is not late before that.
      const TimePoint deadline = NextDeadline().value_or(Now() + options.timeout);
      if (ready.wait_until(lock, deadline, there)) break;
      // A process that was stopped for a while finds all its reads late: they get a moment to end.
      if (ready.wait_for(lock, kGrace, there)) break;
      GiveUpLateReads();
      if (hanging <= kMostHanging) continue;
      return Status(Code::kEnvironment,
                    fmt::format("{} reads of data hang for longer than data.timeout ({:g} s)", hanging,
                                std::chrono::duration<double>(options.timeout).count()),
                    "the file system of the data does not answer: check its mount");
    }
    return Status::Ok();
  }

  // Good samples move up, the others become reports.
  Result<Batch> Finish(Slot* slot) const {
    Batch batch;
    batch.number = slot->number;
    const std::shared_ptr<Lease> from = slot->lease;
    const std::vector<Field>& fields = from->fields;
    // The buffers stay with the thread that hangs: it may write into them whenever its read ends.
    if (slot->given_up) {
      Result<BufferSet> fresh = pool->Get(fields, slot->ids.size());
      if (!fresh.ok()) return fresh.status();
      slot->lease = std::make_shared<Lease>(pool, std::move(*fresh), fields);
    }
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
      for (size_t i = 0; (to != row || slot->given_up) && i < fields.size(); ++i) {
        const size_t bytes = fields[i].bytes();
        std::memcpy(data[i] + to * bytes, from->set.data[i] + row * bytes, bytes);
      }
      batch.ids.push_back(id);
    }
    for (size_t i = 0; i < fields.size(); ++i)
      batch.fields.push_back({&slot->lease->fields[i], data[i], batch.ids.size()});
    batch.hold = std::move(slot->lease);
    return batch;
  }
};

Loader::Loader(std::shared_ptr<const Source> source, Plan plan, uint64_t first_batch, std::optional<uint64_t> end_batch,
               LoaderOptions options)
    : shared_(std::make_shared<Shared>()) {
  shared_->options = std::move(options);
  shared_->options.prefetch = std::max(1, shared_->options.prefetch);
  shared_->pool = std::make_shared<BufferPool>(shared_->options);
  shared_->source = std::move(source);
  shared_->plan = std::move(plan);
  shared_->end_batch = end_batch;
  shared_->next_start = shared_->next_take = first_batch;
  const std::lock_guard lock(shared_->mutex);
  for (int i = 0; i < shared_->options.threads; ++i) shared_->StartWorker();
}

Loader::~Loader() {
  Shared& shared = *shared_;
  std::vector<std::shared_ptr<Worker>> ending;
  {
    std::unique_lock lock(shared.mutex);
    shared.stopping = true;
    for (const auto& worker : shared.workers) worker->cancelled = true;
    shared.work.notify_all();
    while (const std::optional<TimePoint> deadline = shared.NextDeadline()) {
      if (shared.ready.wait_until(lock, *deadline) == std::cv_status::no_timeout) continue;
      for (const auto& worker : shared.workers) {
        if (worker->slot != nullptr && Now() >= worker->start + shared.options.timeout) shared.GiveUp(worker.get());
      }
      std::erase_if(shared.workers, [](const auto& worker) { return worker->given_up; });
    }
    ending.swap(shared.workers);
  }
  for (const auto& worker : ending) worker->thread.join();
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
  if (shared.workers.empty()) {
    Worker here;
    if (shared.slots.empty()) shared.Start();
    while (Slot* slot = shared.SlotWithWork()) shared.Advance(lock, slot, &here);
  } else {
    LOCKSTEP_RETURN_IF_ERROR(shared.WaitForFirst(lock));
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
  Result<Batch> batch = shared.Finish(slot.get());
  if (batch.ok()) batch->wait_seconds = waited;
  return batch;
}

void Loader::LeaveOut(uint64_t index) {
  std::lock_guard lock(shared_->mutex);
  shared_->left_out.insert(index);
}

void Loader::SetThreads(int threads) {
  Shared& shared = *shared_;
  std::vector<std::shared_ptr<Worker>> ended;
  {
    const std::lock_guard lock(shared.mutex);
    if (shared.workers.empty()) return;
    const auto wanted = static_cast<size_t>(std::max(threads, 1));
    for (size_t here = shared.Threads(); here < wanted; ++here) shared.StartWorker();
    size_t more = shared.Threads() - wanted;
    for (auto it = shared.workers.rbegin(); it != shared.workers.rend() && more > 0; ++it) {
      if (!(*it)->surplus) --more, (*it)->surplus = true;
    }
    std::erase_if(shared.workers, [&](const auto& worker) {
      if (worker->ended) ended.push_back(worker);
      return worker->ended;
    });
  }
  shared.work.notify_all();
  for (const auto& worker : ended) worker->thread.join();
}

LoaderStats Loader::stats() const {
  std::lock_guard lock(shared_->mutex);
  LoaderStats stats = shared_->stats;
  stats.hanging_reads = shared_->hanging;
  stats.threads = shared_->Threads();
  for (const auto& slot : shared_->slots) ++(slot->unfinished == 0 ? stats.ready_batches : stats.started_batches);
  shared_->pool->Count(&stats);
  return stats;
}

}  // namespace lockstep::data
