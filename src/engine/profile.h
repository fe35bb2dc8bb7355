// A trace of some steps of this rank, by torch's profiler: every kernel and operator on a time line (Perfetto and
// chrome://tracing open the file), the engine's own parts of a step among them, and what it says in numbers
// (record/trace.h). Used by the training thread.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "record/trace.h"

namespace lockstep::engine {

struct ProfileConfig {
  uint64_t start = 10;  // steps of this process before the first that is traced
  uint64_t steps = 0;   // 0: none
};

// A part of a step in the trace, from here to the end of the scope; costs nothing while no trace is made.
class TraceScope {
 public:
  explicit TraceScope(const char* name);
  TraceScope(const char* prefix, uint64_t number);

 private:
  at::RecordFunction record_;
};

class Profile {
 public:
  // `file` is written when the last traced step has ended.
  Profile(const ProfileConfig& config, std::string file, int rank, bool cuda)
      : config_(config), file_(std::move(file)), rank_(rank), cuda_(cuda) {}
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  bool running() const { return running_; }
  // A process that ends after `done` steps ended before the first one that was to be traced.
  bool Missed(uint64_t done) const { return config_.steps > 0 && done <= config_.start; }
  uint64_t first() const { return config_.start + 1; }
  // Before a step, `done` of this process lie behind. True where the trace begins or ends here: the caller waits for
  // the device first, then calls Turn, which says what was seen (nothing at the beginning).
  bool Due(uint64_t done) const {
    return config_.steps > 0 && (done == config_.start || (running_ && done == config_.start + config_.steps));
  }
  Result<std::optional<record::TraceSummary>> Turn();

 private:
  ProfileConfig config_;
  std::string file_;
  int rank_;
  bool cuda_, running_ = false;
};

}  // namespace lockstep::engine
