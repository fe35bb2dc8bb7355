// Ranks as threads of one process for savers: what they send each other goes through memory. A rank can be made to
// vanish: its calls fail, and so do those of everybody who waits for it.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "record/background_saver.h"

namespace lockstep::record {

class Team {
 public:
  explicit Team(int size) : size_(size), texts_(static_cast<size_t>(size)) {}

  SavePeers Peers(int rank, std::vector<int> writers) {
    SavePeers peers;
    peers.rank = rank;
    peers.size = size_;
    peers.writers = std::move(writers);
    peers.send = [this, rank](void* data, size_t bytes, int from, int to) -> Status {
      if (rank == from) sent_.assign(static_cast<const char*>(data), bytes);
      LOCKSTEP_RETURN_IF_ERROR(Meet());
      if (rank == to) std::memcpy(data, sent_.data(), bytes);
      if (rank == to) bytes_sent += bytes;
      return Meet();
    };
    peers.gather = [this, rank](std::string_view text) { return Gather(rank, text); };
    return peers;
  }

  Result<std::vector<std::string>> Gather(int rank, std::string_view text) {
    texts_[static_cast<size_t>(rank)] = text;
    LOCKSTEP_RETURN_IF_ERROR(Meet());
    std::vector<std::string> all = texts_;
    LOCKSTEP_RETURN_IF_ERROR(Meet());
    return all;
  }

  void Break() {
    std::lock_guard lock(mutex_);
    broken_ = true;
    met_.notify_all();
  }

  // One rank's `work` per thread.
  void Run(const std::function<void(int rank)>& work) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) threads.emplace_back([&, rank] { work(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  uint64_t bytes_sent = 0;

 private:
  Status Meet() {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      met_.notify_all();
    }
    met_.wait(lock, [&] { return round_ != round || broken_; });
    return broken_ ? Status(Code::kRankFailed, "rank 2 died") : Status::Ok();
  }

  const int size_;
  std::vector<std::string> texts_;
  std::string sent_;
  std::mutex mutex_;
  std::condition_variable met_;
  int arrived_ = 0;
  uint64_t round_ = 0;
  bool broken_ = false;
};

}  // namespace lockstep::record
