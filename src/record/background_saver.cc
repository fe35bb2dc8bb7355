#include "record/background_saver.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "record/checkpoint_plan.h"
#include "record/checkpoint_write.h"
#include "record/staging.h"

namespace lockstep::record {
namespace {

double ThreadCpuSeconds() {
  timespec now{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

struct BackgroundSaver::Impl {
  enum class Phase { kIdle, kCopying, kWriting };

  explicit Impl(Options given) : options(std::move(given)) {}

  int rank() const { return options.peers.rank; }
  bool alone() const { return options.peers.size == 1; }
  Result<CheckpointPlan> Plan(const std::vector<CheckpointTensor>& state,
                              std::map<std::string, std::string> metadata) const {
    return PlanCheckpoint(state, {.world = options.peers.size,
                                  .writers = options.peers.writers,
                                  .split_bytes = options.split_bytes,
                                  .metadata = std::move(metadata)});
  }
  PartStream Stream(const CheckpointPlan& of, const std::vector<CheckpointTensor>& state) const {
    return PartStream::Make(of, state, rank(), options.chunk_bytes, options.staging_bytes);
  }
  char* Place(const Block& block) const { return staging.data() + block.start % stream.staging; }

  // Under the lock.
  bool HasRoom(size_t block) const {
    return freed >= stream.blocks.size() ||
           stream.blocks[block].start + stream.blocks[block].bytes <= stream.blocks[freed].start + stream.staging;
  }
  bool IsFull() const { return next_slice < stream.slices.size() && !HasRoom(stream.slices[next_slice].block); }

  void RunCopier();
  void RunWriter();
  void CopySlices();
  void Save(SaveReport* done);
  Status SaveTogether();
  Result<std::vector<std::string>> Agree(const Status& mine, const std::string& text);
  Status WriteParts(const std::string& folder, std::vector<std::vector<std::string>>* checksums);
  Status WriteChunk(const Chunk& chunk, FileWriter* out, Status* local);
  void Clean(SaveReport* done);

  Options options;
  Staging staging;

  // Of the save in flight. Set by Begin before the phase changes, then read by the threads.
  CheckpointHead head;
  std::vector<CheckpointTensor> tensors;
  CheckpointPlan plan;
  PartStream stream;  // its counts of slices: under the lock
  Status refused;     // this rank cannot take part; the others must hear of it
  std::optional<uint64_t> best_step;
  SaveReport report;
  TimePoint begun;

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  Phase phase = Phase::kIdle;
  bool stop = false;
  bool waiting = false;  // the training thread is in WaitCopied
  bool discard = false;  // the save has failed: nothing more is copied
  size_t next_slice = 0;
  size_t slices_done = 0;
  size_t freed = 0;  // blocks
  Status copy_status;
  std::vector<SaveReport> finished;

  std::thread copier, writer;
};

// Any thread; slices are taken one by one until none is left.
void BackgroundSaver::Impl::CopySlices() {
  std::unique_lock lock(mutex);
  while (phase == Phase::kCopying && next_slice < stream.slices.size()) {
    if (IsFull() && !discard) {
      changed.notify_all();  // the writer makes room
      changed.wait(lock, [&] { return phase != Phase::kCopying || discard || !IsFull(); });
      continue;
    }
    const Slice slice = stream.slices[next_slice++];
    char* to = Place(stream.blocks[slice.block]) + slice.at;
    const bool skip = discard;
    lock.unlock();
    Status status = Status::Ok();
    if (skip) {
    } else if (slice.header) {
      std::memcpy(to, slice.src, slice.bytes);
    } else if (options.copy) {
      status = options.copy(to, slice.src, slice.bytes);
    } else {
      StreamCopy(to, slice.src, slice.bytes);
    }
    lock.lock();
    if (!status.ok() && copy_status.ok()) copy_status = status;
    if (--stream.blocks[slice.block].slices == 0) changed.notify_all();
    if (++slices_done == stream.slices.size()) {
      report.copy_seconds = SecondsSince(begun);
      phase = Phase::kWriting;
      changed.notify_all();
    }
  }
}

void BackgroundSaver::Impl::RunCopier() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stop || (phase == Phase::kCopying && next_slice < stream.slices.size()); });
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
    // Where everything fits into staging, the disk is left alone until the copy is over.
    changed.wait(lock, [&] { return stop || phase == Phase::kWriting || (phase == Phase::kCopying && IsFull()); });
    if (phase == Phase::kIdle) return;
    SaveReport done = report;
    lock.unlock();
    Save(&done);
    lock.lock();
    discard = true;
    changed.notify_all();
    changed.wait(lock, [&] { return phase == Phase::kWriting && !waiting; });  // the wait belongs into the report
    done.copy_seconds = report.copy_seconds;
    done.blocked_seconds = report.blocked_seconds;
    finished.push_back(std::move(done));
    phase = Phase::kIdle;
    changed.notify_all();
  }
}

void BackgroundSaver::Impl::Save(SaveReport* done) {
  const TimePoint start = Now();
  const double cpu = ThreadCpuSeconds();
  done->status = SaveTogether();
  if (done->status.ok()) {
    done->path = options.folder + "/" + CheckpointName(head.step);
    if (rank() == 0) Clean(done);
  }
  done->write_seconds = SecondsSince(start);
  done->write_cpu_seconds = ThreadCpuSeconds() - cpu;
}

// Every rank brings an outcome and a text; all leave with every rank's text, or with the first error.
Result<std::vector<std::string>> BackgroundSaver::Impl::Agree(const Status& mine, const std::string& text) {
  if (alone()) return mine.ok() ? Result<std::vector<std::string>>({text}) : Result<std::vector<std::string>>(mine);
  nlohmann::json told = {{"text", text}};
  if (!mine.ok()) {
    told = {{"code", static_cast<int>(mine.code())}, {"message", mine.message()}, {"hint", mine.hint()}};
  }
  const Result<std::vector<std::string>> all = options.peers.gather(ToJsonLine(told));
  if (!all.ok()) return all.status();
  std::vector<std::string> texts;
  for (size_t r = 0; r < all->size(); ++r) {
    const Result<nlohmann::json> json = ParseJson((*all)[r], fmt::format("what rank {} said", r));
    if (!json.ok()) return json.status();
    if (json->contains("code")) {
      return Status(static_cast<Code>(GetInt(*json, "code")), GetString(*json, "message"), GetString(*json, "hint"))
          .Context(fmt::format("rank {}", r));
    }
    texts.push_back(GetString(*json, "text"));
  }
  return texts;
}

Status BackgroundSaver::Impl::SaveTogether() {
  Storage& storage = *options.storage;
  Status mine = refused;
  std::string temporary;
  if (mine.ok() && rank() == 0) {
    Result<std::string> made = MakeTemporary(options.folder, head.step, storage);
    mine = made.status();
    if (made.ok()) temporary = *made;
  }
  const auto give_up = [&](const Status& why) {
    if (!temporary.empty()) (void)RemoveTree(storage, options.folder + "/" + temporary);
    return why;
  };
  const Result<std::vector<std::string>> ready = Agree(mine, temporary);
  if (!ready.ok()) return give_up(ready.status());

  std::vector<std::vector<std::string>> checksums(plan.files.size());
  mine = WriteParts(options.folder + "/" + ready->front(), &checksums);
  const Result<std::vector<std::string>> written = Agree(mine, ToJsonLine(checksums));
  if (!written.ok()) return give_up(written.status());

  if (rank() == 0) {
    for (size_t r = 1; r < written->size(); ++r) {  // each rank has those of its own files
      const Result<nlohmann::json> theirs = ParseJson((*written)[r], fmt::format("checksums of rank {}", r));
      if (!theirs.ok() || theirs->size() != plan.files.size()) {
        mine = Status(Code::kInternal, fmt::format("rank {} did not send the checksums of its files", r));
        break;
      }
      for (size_t f = 0; f < plan.files.size(); ++f) {
        if (plan.files[f].writer == static_cast<int>(r)) theirs->at(f).get_to(checksums[f]);
      }
    }
    if (mine.ok()) mine = PublishCheckpoint(options.folder, temporary, head, tensors, plan, checksums, storage);
    if (!mine.ok()) (void)give_up(mine);
  }
  const Status agreed = Agree(mine, "").status();
  return rank() == 0 ? mine : agreed;  // what is published is, also where the others can no longer be told
}

// This rank's part. What travels is sent and received to the end whatever fails here, so that no rank waits in vain;
// only a failure to reach the others ends it early.
Status BackgroundSaver::Impl::WriteParts(const std::string& folder, std::vector<std::vector<std::string>>* checksums) {
  Pace pace(options.max_bytes_per_second);
  Status local;
  std::optional<FileWriter> out;
  const auto note = [&](const Status& status) {
    if (local.ok()) local = status;
  };
  for (size_t c = 0; c < stream.chunks.size(); ++c) {
    const Chunk& chunk = stream.chunks[c];
    const PlannedFile& file = plan.files[chunk.file];
    const bool mine = file.writer == rank();
    if (mine && chunk.offset == 0) {
      out.reset();
      Result<FileWriter> created = FileWriter::Create(folder, file, *options.storage);
      note(created.status());
      if (created.ok()) out.emplace(std::move(*created));
    }
    LOCKSTEP_RETURN_IF_ERROR(WriteChunk(chunk, mine && out ? &*out : nullptr, &local));
    if (mine) pace.Wrote(chunk.bytes);
    if (!mine || chunk.offset + chunk.bytes < file.layout.file_bytes || !local.ok()) continue;
    Result<std::vector<std::string>> sums = out->Finish();
    note(sums.status());
    if (sums.ok()) (*checksums)[chunk.file] = std::move(*sums);
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return phase == Phase::kWriting; });
  note(copy_status);
  return local;
}

Status BackgroundSaver::Impl::WriteChunk(const Chunk& chunk, FileWriter* out, Status* local) {
  const bool has = chunk.block != Chunk::kNoBlock;
  char* data = has ? Place(stream.blocks[chunk.block]) : nullptr;
  if (has) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stream.blocks[chunk.block].slices == 0; });
    if (!copy_status.ok() && local->ok()) *local = copy_status;
  }
  const PlannedFile& file = plan.files[chunk.file];
  const bool mine = file.writer == rank();
  std::vector<char> packed;
  for (const Chunk::Sent& sent : chunk.sent) {
    if (!mine) {
      LOCKSTEP_RETURN_IF_ERROR(
          options.peers.send(sent.rank == rank() ? data : nullptr, sent.bytes, sent.rank, file.writer));
      continue;
    }
    packed.resize(sent.bytes);
    LOCKSTEP_RETURN_IF_ERROR(options.peers.send(packed.data(), sent.bytes, sent.rank, file.writer));
    size_t at = 0;
    for (const FileSource& source : SourcesOf(file, chunk.offset, chunk.bytes)) {
      if (source.rank != sent.rank) continue;
      std::memcpy(data + (source.offset - chunk.offset), packed.data() + at, source.bytes);
      at += source.bytes;
    }
  }
  if (mine && local->ok()) *local = out->Append(data, chunk.bytes);
  if (has) {
    std::lock_guard lock(mutex);
    freed = chunk.block + 1;
    changed.notify_all();
  }
  return Status::Ok();
}

// Rank 0, after publishing: links, and old checkpoints.
void BackgroundSaver::Impl::Clean(SaveReport* done) {
  Storage& storage = *options.storage;
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

Result<std::unique_ptr<BackgroundSaver>> BackgroundSaver::Create(Options options) {
  if (!options.storage) options.storage = PosixStorage(options.durability);
  options.chunk_bytes = std::max<size_t>(options.chunk_bytes / kPage, 1) * kPage;
  if (options.peers.rank == 0) {
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(options.folder));
    LOCKSTEP_RETURN_IF_ERROR(RemoveLeftovers(options.folder, *options.storage));
  }
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
  Result<CheckpointPlan> plan = impl_->Plan(tensors, {{"lockstep", std::string(kPage, ' ')}});
  if (!plan.ok()) return plan.status();
  if (busy()) return Status(Code::kInternal, "staging memory is in use by a save: reserve before the first");
  return impl_->staging.Grow(impl_->Stream(*plan, tensors).staging);
}

Result<bool> BackgroundSaver::Begin(const CheckpointContent& content, std::optional<uint64_t> best_step) {
  const TimePoint start = Now();
  Impl& impl = *impl_;
  if (impl.rank() != 0) (void)WaitIdle(std::chrono::milliseconds::max());
  if (busy()) return false;
  Result<CheckpointPlan> plan = impl.Plan(content.tensors, WeightsMetadata(content));
  if (!plan.ok()) return plan.status();  // the same on every rank
  impl.plan = std::move(*plan);
  impl.tensors = content.tensors;
  impl.stream = impl.Stream(impl.plan, impl.tensors);
  impl.refused = CheckState(content.state);
  for (const Slice& slice : impl.stream.slices) {
    if (slice.src == nullptr && impl.refused.ok()) {
      impl.refused = Status(Code::kInternal, "a checkpoint tensor has no data on a rank that says it has some of it");
    }
  }
  if (impl.alone() && !impl.refused.ok()) return impl.refused;
  impl.report = SaveReport{.step = content.step, .bytes = impl.plan.bytes};
  const TimePoint reserving = Now();
  const size_t before = impl.staging.bytes();
  if (impl.refused.ok()) impl.refused = impl.staging.Grow(impl.stream.staging);
  if (!impl.refused.ok()) impl.stream = PartStream();
  if (impl.staging.bytes() != before) impl.report.reserve_seconds = SecondsSince(reserving);
  impl.head = {content.step, content.recipe, content.state};
  impl.best_step = best_step;
  std::lock_guard lock(impl.mutex);
  impl.copy_status = Status::Ok();
  impl.slices_done = impl.next_slice = impl.freed = 0;
  impl.discard = false;
  impl.begun = Now();
  impl.phase = impl.stream.slices.empty() ? Impl::Phase::kWriting : Impl::Phase::kCopying;
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

bool BackgroundSaver::WaitIdle(std::chrono::milliseconds patience) const {
  std::unique_lock lock(impl_->mutex);
  const auto idle = [&] { return impl_->phase == Impl::Phase::kIdle; };
  if (patience == std::chrono::milliseconds::max()) {
    impl_->changed.wait(lock, idle);
    return true;
  }
  return impl_->changed.wait_for(lock, patience, idle);
}

}  // namespace lockstep::record
