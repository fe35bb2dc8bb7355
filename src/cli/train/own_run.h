// The run directory of a training that no launcher of ours started (torchrun, srun, mpirun, by hand): its identity, its
// one attempt and how it ended, so that `lockstep runs` and `watch` know it and a further start is a further attempt.
// Owned by rank 0's main thread; holds the run's lock as long as it lives.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "record/run_dir.h"

namespace lockstep::cli {

class OwnRun {
 public:
  static Result<std::unique_ptr<OwnRun>> Start(const std::string& name, const std::vector<std::string>& command,
                                               int world);

  const std::string& path() const { return dir_.path(); }
  int attempt() const { return dir_.first_attempt(); }
  // For a training that was refused before it began; see record::RunDir::Discard.
  bool Discard();
  void End(int exit_code, const std::string& reason, const std::string& hint);

 private:
  OwnRun(record::RunDir dir, int world);

  record::RunDir dir_;
  int world_;
  double started_;
  std::jthread heart_;  // other machines take a lock that is not touched for stale
};

}  // namespace lockstep::cli
