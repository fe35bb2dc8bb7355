// The lock of a run directory: the process that runs it, its machine, and whether it is still alive. The format and the
// rules are in docs/formats/run-directory.md. A RunLock is owned by the launcher of node 0 and used by one thread;
// ReadLock and Judge are for anybody and never take the lock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace lockstep::record {

// Names one process for ever: pids are reused, pid + start time on one boot are not.
struct LockOwner {
  pid_t pid = 0;
  std::string host;
  std::string boot_id;
  std::string pid_ns;
  uint64_t start_time = 0;  // clock ticks after boot, /proc/<pid>/stat field 22
  double since = 0;         // seconds since 1970

  static LockOwner Self();
  nlohmann::json ToJson() const;
  static std::optional<LockOwner> FromJson(const nlohmann::json& json);
  // "pid 4711 on n0, since 2026-11-15 10:00:00"
  std::string ToString() const;
  // Whether its pid means the same process here: same host, boot and pid namespace.
  bool IsHere() const;
};

enum class LockState { kFree, kLive, kStale };

struct LockView {
  LockState state = LockState::kFree;
  std::optional<LockOwner> owner;  // absent when free, torn or unreadable
  double heartbeat = 0;            // modification time, seconds since 1970
  std::string why;                 // "its process is gone", "no heartbeat for 75s", ...
};

inline constexpr double kHeartbeatLimitSeconds = 60;

// The rules of the format page, without touching the lock. `now` is seconds since 1970 by the clock that stamped
// heartbeat.
LockView Judge(const std::optional<LockOwner>& owner, double heartbeat, double now);
LockView ReadLock(const std::string& path);

class RunLock {
 public:
  // Takes the lock at path, or says who has it. A stale one is taken over; taken_over() then tells.
  static Result<RunLock> Acquire(const std::string& path);

  RunLock() = default;
  RunLock(RunLock&&) noexcept = default;
  RunLock& operator=(RunLock&& other) noexcept;
  ~RunLock() { Release(); }

  bool held() const { return fd_.valid(); }
  const LockOwner& self() const { return self_; }
  // What was found in a stale lock, with the reason for calling it stale.
  const std::optional<LockView>& taken_over() const { return taken_over_; }
  // False where the file system knows no flock: then only the content protects.
  bool has_flock() const { return has_flock_; }

  // Refreshes the heartbeat. An error means somebody removed or took the lock, or the disk failed.
  Status Touch();
  void Release();

 private:
  UniqueFd fd_;
  std::string path_;
  LockOwner self_;
  std::optional<LockView> taken_over_;
  bool has_flock_ = true;
};

}  // namespace lockstep::record
