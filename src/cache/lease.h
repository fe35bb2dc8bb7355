// Who works on which unit, without a coordinator: files on the shared file system (docs/formats/feature-cache.md). A
// lease lapses when its process is gone (same host), or when it did not change while the watcher's own monotonic clock
// ran for `expiry`; clocks of two machines are never compared. Two holders of one unit cost double work, no more. One
// Leases per process, called by one thread; a thread of its own sends heartbeats.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace lockstep::cache {

struct LeaseTiming {
  std::chrono::milliseconds heartbeat{5000};
  std::chrono::milliseconds expiry{60000};
  std::function<TimePoint()> now = [] { return Now(); };  // tests turn it
};

class Leases {
 public:
  explicit Leases(LeaseTiming timing = {});
  ~Leases();  // gives back what is held

  enum class Taken { kNew, kTakenOver, kHeldByOther };
  // Tries once, without waiting.
  Result<Taken> Take(const std::string& path);
  // Whether the lease is still ours; a heartbeat that found another nonce says no.
  bool Holds(const std::string& path);
  void Release(const std::string& path);
  // Of all leases that are held, at once: what the thread does every `heartbeat`.
  void Touch();

 private:
  struct Shared;
  struct Seen {
    std::string content;
    int64_t stamp = 0;  // the file system's, in nanoseconds; only compared for equality
    TimePoint since;
  };
  LeaseTiming timing_;
  std::shared_ptr<Shared> shared_;
  std::map<std::string, Seen> seen_;
};

}  // namespace lockstep::cache
