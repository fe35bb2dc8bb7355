#include "comm/health.h"

#include <thread>

namespace lockstep::comm {

bool Health::Break(Status status) {
  {
    std::lock_guard lock(mutex_);
    if (broken_) return false;
    status_ = std::move(status);
    broken_.store(true, std::memory_order_release);
  }
  for (const auto& wake : wake_) wake();
  return true;
}

Status Health::AwaitBroken(TimePoint deadline) const {
  while (!broken() && Now() < deadline) std::this_thread::sleep_for(Millis(2));
  return status();
}

}  // namespace lockstep::comm
