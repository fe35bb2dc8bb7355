#include "logs/log_writer.h"

#include <cerrno>
#include <utility>

#include "base/quiet_thread.h"

namespace lockstep::logs {
namespace {

// Pieces are small, but a disk that hangs must not let them pile up either.
constexpr size_t kMaxQueue = 32768;

}  // namespace

LogWriter::LogWriter(LogRotation rotation, std::chrono::milliseconds stall)
    : rotation_(rotation), stall_(stall), shared_(std::make_shared<Shared>()) {
  StartQuietThread([shared = shared_] { Run(shared); }).detach();
}

LogWriter::~LogWriter() {
  Submit();
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->work.notify_all();
  shared_->done.wait_for(lock, stall_, [&] { return shared_->exited; });
}

std::shared_ptr<LogFile> LogWriter::Open(std::string path) {
  return std::make_shared<LogFile>(std::move(path), rotation_);
}

LogWriter::Block* LogWriter::NextBlock() {
  Submit();
  std::unique_lock lock(shared_->mutex);
  auto available = [&] {
    return shared_->queue.size() < kMaxQueue && (!shared_->free.empty() || shared_->all.size() < kBlocks);
  };
  if (dropping_ && !available()) return nullptr;
  while (!available()) {
    const uint64_t before = shared_->finished;
    bool alive = shared_->done.wait_for(lock, stall_, [&] { return available() || shared_->finished != before; });
    if (!alive) return nullptr;
  }
  if (shared_->free.empty()) {
    shared_->all.push_back(std::make_unique<Block>());
    return shared_->all.back().get();
  }
  Block* block = shared_->free.back();
  shared_->free.pop_back();
  block->used = 0;
  return block;
}

LogWriter::Space LogWriter::Take(size_t least) {
  if (current_ == nullptr || kBlock - current_->used < least || batch_.size() >= 1024) {
    if (current_ != nullptr) {
      Submit();
      // The thread returns it to the free list with its last piece; one without pieces is ours to return.
      std::lock_guard lock(shared_->mutex);
      if (current_->pending == 0) {
        shared_->free.push_back(current_);
      } else {
        current_->retired = true;
      }
      current_ = nullptr;
    }
    current_ = NextBlock();
    dropping_ = current_ == nullptr;
    if (!dropping_) {
      for (Dropped& dropped : dropped_) batch_.push_back({.file = std::move(dropped.file), .lost = dropped.bytes});
      dropped_.clear();
    }
  }
  if (dropping_) return {scratch_.bytes.get(), kBlock};
  return {current_->bytes.get() + current_->used, kBlock - current_->used};
}

void LogWriter::Commit(const std::shared_ptr<LogFile>& file, size_t bytes) {
  if (file == nullptr || bytes == 0) return;
  if (dropping_) {
    for (Dropped& dropped : dropped_) {
      if (dropped.file == file) {
        dropped.bytes += bytes;
        return;
      }
    }
    dropped_.push_back({file, bytes});
    return;
  }
  if (!batch_.empty() && batch_.back().file == file && batch_.back().block == current_ && !batch_.back().close &&
      batch_.back().begin + batch_.back().size == current_->used) {
    batch_.back().size += bytes;
  } else {
    batch_.push_back({.file = file, .block = current_, .begin = current_->used, .size = bytes});
  }
  current_->used += bytes;
}

void LogWriter::CloseFile(const std::shared_ptr<LogFile>& file) {
  if (file == nullptr) return;
  for (Dropped& dropped : dropped_) {
    if (dropped.file == file) {
      batch_.push_back({.file = file, .lost = std::exchange(dropped.bytes, 0)});
    }
  }
  batch_.push_back({.file = file, .close = true});
}

void LogWriter::Submit() {
  if (batch_.empty()) return;
  {
    std::lock_guard lock(shared_->mutex);
    for (Piece& piece : batch_) {
      if (piece.block != nullptr) ++piece.block->pending;
      shared_->queue.push_back(std::move(piece));
    }
  }
  shared_->work.notify_one();
  batch_.clear();
}

void LogWriter::Run(const std::shared_ptr<Shared>& shared) {
  std::vector<Piece> work;
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->work.wait(lock, [&] { return !shared->queue.empty() || shared->stop; });
    if (shared->queue.empty()) break;
    work.swap(shared->queue);
    for (Piece& piece : work) {
      lock.unlock();
      const LogFile::Counts before = piece.file->counts();
      const TimePoint now = std::chrono::steady_clock::now();
      if (piece.lost > 0) piece.file->Lose(piece.lost, ETIMEDOUT);
      if (piece.size > 0) piece.file->Write({piece.block->bytes.get() + piece.begin, piece.size}, now);
      if (piece.close) piece.file->Close(now);
      const LogFile::Counts& after = piece.file->counts();
      lock.lock();
      Totals& totals = shared->totals;
      totals.stored += after.stored - before.stored;
      totals.lost += after.lost - before.lost;
      totals.rotations += after.rotations - before.rotations;
      if (totals.first_errno == 0 && after.lost > 0) {
        totals.first_errno = after.first_errno;
        totals.first_path = piece.file->path();
      }
      ++shared->finished;
      if (piece.close) {
        ++totals.closed;
        shared->closed.notify_all();
      }
      if (piece.block != nullptr && --piece.block->pending == 0 && piece.block->retired) {
        piece.block->retired = false;
        shared->free.push_back(piece.block);
        shared->done.notify_one();
      }
    }
    work.clear();
    shared->done.notify_one();
  }
  shared->exited = true;
  shared->done.notify_all();
}

bool LogWriter::WaitClosed(uint64_t count, TimePoint deadline) const {
  std::unique_lock lock(shared_->mutex);
  return shared_->closed.wait_until(lock, deadline, [&] { return shared_->totals.closed >= count; });
}

LogWriter::Totals LogWriter::totals() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->totals;
}

}  // namespace lockstep::logs
