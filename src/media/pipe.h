// Reads ahead on one thread and writes behind on another, while the main thread computes; at most a few pieces are in
// memory. And the signals that end such a command: remembered, answered between pieces, so that no partial output
// stays; a second one ends the process at once. Owned by the main thread.
//
//   MediaPipe pipe(input, /*piece=*/16, /*most=*/0);
//   pipe.WriteTo(output);
//   for (;;) {
//     Result<Piece> piece = pipe.Next();
//     if (!piece.ok()) return piece.status();
//     if (piece->count() == 0) break;
//     LOCKSTEP_RETURN_IF_ERROR(pipe.Put(Work(*piece)));
//   }
//   return pipe.Finish(metadata);
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/status.h"
#include "media/files.h"

namespace lockstep::media {

// SIGINT, SIGTERM and SIGHUP set the flag from now on.
void ListenForStop();
const std::atomic<bool>* StopFlag();
int StopSignal();  // 0: none came

// A queue of at most `room` values between two threads.
template <typename T>
class Handover {
 public:
  explicit Handover(size_t room) : room_(room) {}
  // Waits for room; false when closed.
  bool Push(T value) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || values_.size() < room_; });
    if (closed_) return false;
    values_.push_back(std::move(value));
    changed_.notify_all();
    return true;
  }
  // Waits for a value; nothing when closed and empty.
  std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !values_.empty(); });
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    changed_.notify_all();
    return value;
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  const size_t room_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
  bool closed_ = false;
};

class MediaPipe {
 public:
  // Pieces of `piece` time steps; `most` in all (0: as many as there are).
  MediaPipe(MediaInput* input, int64_t piece, uint64_t most);
  ~MediaPipe();
  MediaPipe(const MediaPipe&) = delete;
  MediaPipe& operator=(const MediaPipe&) = delete;

  void WriteTo(MediaOutput* output);
  Result<Piece> Next();
  Status Put(Piece piece);
  // Everything is written and published.
  Status Finish(const std::map<std::string, std::string>& metadata);

 private:
  void ReadAll(int64_t piece, uint64_t most);
  void WriteAll();

  MediaInput* input_;
  MediaOutput* output_ = nullptr;
  Handover<Result<Piece>> read_{2};
  Handover<Piece> written_{2};
  std::mutex mutex_;
  Status write_status_;
  std::jthread reader_, writer_;
};

}  // namespace lockstep::media
