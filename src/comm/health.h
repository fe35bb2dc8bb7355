// The error state of a communicator. The first thread that reports an error sets it for all; threads that sleep inside
// the communicator are woken. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace lockstep::comm {

class Health {
 public:
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // Ok while not broken.
  Status status() const {
    if (!broken()) return {};
    std::lock_guard lock(mutex_);
    return status_;
  }
  // False when it was broken before.
  bool Break(Status status);
  // Waits until broken, at most until `deadline`; its status then, else ok.
  Status AwaitBroken(TimePoint deadline) const;
  // Called, once, by the thread that breaks it. Set before any other thread knows of the communicator.
  void OnBreak(std::function<void()> wake) { wake_.push_back(std::move(wake)); }

 private:
  std::atomic<bool> broken_{false};
  mutable std::mutex mutex_;
  Status status_;
  std::vector<std::function<void()>> wake_;
};

}  // namespace lockstep::comm
