#include "record/background_saver.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "record/checkpoint_plan.h"

namespace lockstep::record {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2u << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Memory that is there before it is needed: a page fault during the copy costs six times the copy.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { Free(); }

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  Status Grow(size_t bytes) {
    if (bytes <= bytes_) return Status::Ok();
    Free();
    bytes = RoundUp(bytes, kHugePage);
    void* memory = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return Status(Code::kEnvironment, fmt::format("no memory for {} bytes of checkpoint staging", bytes),
                    "give the job more memory, or save less state");
    }
    mapped_ = memory;
    mapped_bytes_ = bytes + kHugePage;
    data_ = reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(memory), kHugePage));
    bytes_ = bytes;
    (void)::madvise(data_, bytes_, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes_; at += kPage) static_cast<volatile char*>(data_)[at] = 0;
    return Status::Ok();
  }

 private:
  void Free() {
    if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
    mapped_ = nullptr;
    data_ = nullptr;
    bytes_ = mapped_bytes_ = 0;
  }
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Stores that bypass the cache: staging is not read before the copy is over, and training needs the cache.
void StreamCopy(void* dst, const void* src, size_t bytes) {
#if defined(__SSE2__)
  char* to = static_cast<char*>(dst);
  const char* from = static_cast<const char*>(src);
  const size_t head = std::min<size_t>((16 - reinterpret_cast<uintptr_t>(to) % 16) % 16, bytes);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    const __m128i* in = reinterpret_cast<const __m128i*>(from);
    __m128i* out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(to, from, bytes);
  _mm_sfence();
#else
  std::memcpy(dst, src, bytes);
#endif
}

double ThreadCpuSeconds() {
  timespec now{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Slice {
  char* dst;
  const char* src;
  size_t bytes;
};

}  // namespace

struct BackgroundSaver::Impl {
  enum class Phase { kIdle, kCopying, kWriting };

  explicit Impl(Options given) : options(std::move(given)) {}

  void RunCopier();
  void RunWriter();
  void CopySlices();
  Status Place(const CheckpointPlan& to_place);
  void Write(SaveReport* done);

  Options options;
  Staging staging;

  // Of the save in flight. Set by Begin before the phase changes, then read by the threads.
  CheckpointHead head;
  CheckpointPlan plan;
  std::vector<size_t> bases;  // of each file's image in staging
  std::vector<Slice> slices;
  std::optional<uint64_t> best_step;
  SaveReport report;
  TimePoint begun;

  mutable std::mutex mutex;
  std::condition_variable changed;
  Phase phase = Phase::kIdle;
  bool stop = false;
  bool waiting = false;  // the training thread is in WaitCopied
  size_t next_slice = 0;
  size_t slices_done = 0;
  Status copy_status;
  std::vector<SaveReport> finished;

  std::thread copier, writer;
};

// Each file's image starts at a page, so that it can be written past the page cache as it is.
Status BackgroundSaver::Impl::Place(const CheckpointPlan& to_place) {
  size_t total = 0;
  bases.clear();
  for (const PlannedFile& file : to_place.files) {
    bases.push_back(total);
    total += RoundUp(file.layout.file_bytes, kPage);
  }
  return staging.Grow(total);
}

// Any thread; slices are taken one by one until none is left.
void BackgroundSaver::Impl::CopySlices() {
  std::unique_lock lock(mutex);
  while (phase == Phase::kCopying && next_slice < slices.size()) {
    const Slice slice = slices[next_slice++];
    lock.unlock();
    Status status = Status::Ok();
    if (options.copy) {
      status = options.copy(slice.dst, slice.src, slice.bytes);
    } else {
      StreamCopy(slice.dst, slice.src, slice.bytes);
    }
    lock.lock();
    if (!status.ok() && copy_status.ok()) copy_status = status;
    if (++slices_done == slices.size()) {
      report.copy_seconds = SecondsSince(begun);
      phase = Phase::kWriting;
      changed.notify_all();
    }
  }
}

void BackgroundSaver::Impl::RunCopier() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stop || (phase == Phase::kCopying && next_slice < slices.size()); });
    if (stop) return;
    lock.unlock();
    CopySlices();
    lock.lock();
  }
}

void BackgroundSaver::Impl::RunWriter() {
  // Per thread on Linux: training keeps its share of the cores.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), options.writer_nice);
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stop || phase == Phase::kWriting; });
    if (phase != Phase::kWriting) return;
    SaveReport done = report;
    done.status = copy_status;
    lock.unlock();
    if (done.status.ok()) Write(&done);
    lock.lock();
    changed.wait(lock, [&] { return !waiting; });  // its wait belongs into the report
    done.blocked_seconds = report.blocked_seconds;
    finished.push_back(std::move(done));
    phase = Phase::kIdle;
    changed.notify_all();
  }
}

void BackgroundSaver::Impl::Write(SaveReport* done) {
  const TimePoint start = Now();
  const double cpu = ThreadCpuSeconds();
  Storage& storage = *options.storage;
  const FileBytes source = [&](size_t file, uint64_t offset, size_t) { return staging.data() + bases[file] + offset; };
  done->status = PublishCheckpoint(options.folder, head, plan, source, storage, options.max_bytes_per_second);
  if (done->status.ok()) {
    done->path = options.folder + "/" + CheckpointName(head.step);
    done->prune = Point(options.folder, "latest", head.step, storage);
    if (best_step && ::access((options.folder + "/" + CheckpointName(*best_step)).c_str(), F_OK) == 0) {
      const Status best = Point(options.folder, "best", *best_step, storage);
      if (done->prune.ok()) done->prune = best;
    }
    // Others of the last K are there if the disk lost what it acknowledged; a single one is read back first.
    const std::optional<uint64_t> vouched = options.keep.last >= 2 ? std::optional(head.step) : std::nullopt;
    Result<std::vector<uint64_t>> pruned = Prune(options.folder, options.keep, best_step, storage, vouched);
    if (pruned.ok()) {
      done->pruned = *pruned;
    } else {
      done->prune = pruned.status();
    }
  }
  done->write_seconds = SecondsSince(start);
  done->write_cpu_seconds = ThreadCpuSeconds() - cpu;
}

Result<std::unique_ptr<BackgroundSaver>> BackgroundSaver::Create(Options options) {
  if (!options.storage) options.storage = PosixStorage(options.durability);
  options.slice_bytes = std::max<size_t>(options.slice_bytes, kPage);
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(options.folder));
  LOCKSTEP_RETURN_IF_ERROR(RemoveLeftovers(options.folder, *options.storage));
  auto impl = std::make_unique<Impl>(std::move(options));
  Impl* raw = impl.get();
  impl->copier = std::thread([raw] { raw->RunCopier(); });
  impl->writer = std::thread([raw] { raw->RunWriter(); });
  return std::unique_ptr<BackgroundSaver>(new BackgroundSaver(std::move(impl)));
}

BackgroundSaver::BackgroundSaver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

BackgroundSaver::~BackgroundSaver() {
  (void)Drain();
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.notify_all();
  impl_->copier.join();
  impl_->writer.join();
}

Status BackgroundSaver::Reserve(const std::vector<CheckpointTensor>& tensors) {
  // Room for what the headers will say.
  Result<CheckpointPlan> plan = PlanCheckpoint(tensors, {{"lockstep", std::string(kPage, ' ')}});
  if (!plan.ok()) return plan.status();
  if (busy()) return Status(Code::kInternal, "staging memory is in use by a save: reserve before the first");
  return impl_->Place(*plan);
}

Result<bool> BackgroundSaver::Begin(const CheckpointContent& content, std::optional<uint64_t> best_step) {
  const TimePoint start = Now();
  if (busy()) return false;
  LOCKSTEP_RETURN_IF_ERROR(CheckState(content.state));
  for (const CheckpointTensor& tensor : content.tensors) {
    if (tensor.data == nullptr && tensor.bytes > 0) {
      return Status(Code::kInternal, fmt::format("checkpoint tensor '{}' has no data", tensor.name));
    }
  }
  Result<CheckpointPlan> plan = PlanCheckpoint(content.tensors, WeightsMetadata(content));
  if (!plan.ok()) return plan.status();
  Impl& impl = *impl_;
  const TimePoint reserving = Now();
  const size_t before = impl.staging.bytes();
  LOCKSTEP_RETURN_IF_ERROR(impl.Place(*plan));
  impl.report = SaveReport{.step = content.step, .bytes = plan->bytes};
  if (impl.staging.bytes() != before) impl.report.reserve_seconds = SecondsSince(reserving);
  impl.plan = std::move(*plan);
  impl.head = {content.step, content.recipe, content.state};
  impl.best_step = best_step;
  impl.slices.clear();
  for (size_t f = 0; f < impl.plan.files.size(); ++f) {
    const PlannedFile& file = impl.plan.files[f];
    char* image = impl.staging.data() + impl.bases[f];
    std::copy(file.layout.header.begin(), file.layout.header.end(), image);
    for (size_t t = 0; t < file.layout.tensors.size(); ++t) {
      const TensorInfo& tensor = file.layout.tensors[t];
      const char* src = static_cast<const char*>(content.tensors[file.sources[t]].data);
      for (uint64_t at = 0; at < tensor.bytes; at += impl.options.slice_bytes) {
        impl.slices.push_back({image + tensor.offset + at, src + at,
                               static_cast<size_t>(std::min<uint64_t>(impl.options.slice_bytes, tensor.bytes - at))});
      }
    }
  }
  std::lock_guard lock(impl.mutex);
  impl.copy_status = Status::Ok();
  impl.slices_done = 0;
  impl.next_slice = 0;
  impl.begun = Now();
  impl.phase = impl.slices.empty() ? Impl::Phase::kWriting : Impl::Phase::kCopying;
  impl.report.blocked_seconds = SecondsSince(start);
  impl.changed.notify_all();
  return true;
}

Status BackgroundSaver::WaitCopied() {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  if (impl.phase == Impl::Phase::kIdle) return Status::Ok();
  if (impl.phase == Impl::Phase::kWriting) return impl.copy_status;
  const TimePoint start = Now();
  impl.waiting = true;
  lock.unlock();
  impl.CopySlices();
  lock.lock();
  impl.changed.wait(lock, [&] { return impl.phase != Impl::Phase::kCopying; });
  impl.report.blocked_seconds += SecondsSince(start);
  impl.waiting = false;
  impl.changed.notify_all();
  return impl.copy_status;
}

bool BackgroundSaver::busy() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->phase != Impl::Phase::kIdle;
}

std::vector<SaveReport> BackgroundSaver::Poll() {
  std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->finished, {});
}

std::vector<SaveReport> BackgroundSaver::Drain() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->phase == Impl::Phase::kIdle; });
  return std::exchange(impl_->finished, {});
}

}  // namespace lockstep::record
