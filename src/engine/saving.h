// When checkpoints are written, and this rank's part in it. The copy of the state runs during the next forward and
// backward pass; the training thread waits only for what is left of it, before the next optimizer step. All ranks make
// the same calls; only Open is collective on this thread. The savers of the ranks use a communicator of their own. Rank
// 0 decides when a save begins.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/config.h"
#include "engine/report.h"
#include "engine/state.h"
#include "record/background_saver.h"

namespace lockstep::engine {

class Saving {
 public:
  // Collective. `folder` empty: never saves.
  Status Open(const CheckpointConfig& config, const std::string& folder, at::Device device, Ranks* ranks);
  // For people: which ranks write.
  std::string Describe() const;
  // Staging memory for such a state, before the first step.
  Status Reserve(const TrainingState& state);

  // Whether a save is due after optimizer step `step` and can begin: rank 0 says so, the others never. While the one
  // before is still being written it stays owed.
  bool Due(uint64_t step);
  // Says what came of saves that have ended meanwhile.
  void Poll(Report* report);
  // Starts a save of the state; `now` waits for the one before.
  Status Save(const TrainingState& state, bool now, Report* report);
  // Before the state changes. The seconds waited.
  Result<double> BeforeUpdate();
  // Everything on disk; the last error, if the newest save failed. `failed`: the run has, and other ranks may no longer
  // be there; they are given a few seconds.
  Status Finish(Report* report, bool failed);
  uint64_t saved_step() const { return saved_step_; }

 private:
  void Take(const std::vector<record::SaveReport>& reports, Report* report);

  CheckpointConfig config_;
  Ranks* ranks_ = nullptr;
  std::shared_ptr<comm::Communicator> comm_;  // of the savers; null in a world of one
  std::vector<int> writers_ = {0};            // ranks
  std::unique_ptr<record::BackgroundSaver> saver_;
  std::vector<at::Tensor> hold_;  // of the save in flight
  TimePoint last_ = Now();
  uint64_t begun_step_ = 0;  // of the last save that was started
  uint64_t saved_step_ = 0;  // of the last one that is on disk
  bool owed_ = false;        // on rank 0: one was due while the one before was still being written
  Status newest_;
};

}  // namespace lockstep::engine
