// A trace of some steps of this rank, by torch's profiler: every kernel and operator on a time line (Perfetto and
// chrome://tracing open the file), and a line that says what the device spent its time on. Used by the training thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace lockstep::engine {

struct ProfileConfig {
  uint64_t start = 10;  // steps of this process before the first that is traced
  uint64_t steps = 0;   // 0: none
};

class Profile {
 public:
  // `file` is written when the last traced step has ended.
  Profile(const ProfileConfig& config, std::string file, bool cuda)
      : config_(config), file_(std::move(file)), cuda_(cuda) {}
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  bool running() const { return running_; }
  // Before a step, `done` of this process lie behind. True where the trace begins or ends here: the caller waits for
  // the device first, then calls Turn, which says what was seen (empty at the beginning).
  bool Due(uint64_t done) const {
    return config_.steps > 0 && (done == config_.start || (running_ && done == config_.start + config_.steps));
  }
  Result<std::string> Turn();

 private:
  ProfileConfig config_;
  std::string file_;
  bool cuda_, running_ = false;
};

// What a kernel does, by its name: "matrix products", "attention", "collectives", "copies" or "other".
const char* KindOfKernel(const std::string& name);

}  // namespace lockstep::engine
