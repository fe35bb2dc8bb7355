// When checkpoints are written, and the one rank that writes them. The copy of the state runs during the next forward
// and backward pass; the training thread waits only for what is left of it, before the next optimizer step. Rank-local:
// rank 0 saves, the others hold an empty Saving; no call talks to other ranks.
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
  // `folder` empty: never saves.
  Status Open(const CheckpointConfig& config, const std::string& folder, at::Device device);
  // Staging memory for such a state, before the first step.
  Status Reserve(const TrainingState& state);

  // Whether a save is due after optimizer step `step`.
  bool Due(uint64_t step) const;
  // Says what came of saves that have ended meanwhile.
  void Poll(Report* report);
  // Starts a save of the state; `now` waits for the one before, otherwise it stays owed until that is written.
  Status Save(const TrainingState& state, bool now, Report* report);
  // Before the state changes. The seconds waited.
  Result<double> BeforeUpdate();
  // Everything on disk; the last error, if the newest save failed.
  Status Finish(Report* report);
  uint64_t saved_step() const { return saved_step_; }

 private:
  void Take(const std::vector<record::SaveReport>& reports, Report* report);
  Status Begin(const TrainingState& state);

  CheckpointConfig config_;
  std::unique_ptr<record::BackgroundSaver> saver_;
  std::vector<at::Tensor> hold_;  // of the save in flight
  TimePoint last_ = Now();
  uint64_t begun_step_ = 0;  // of the last save that was started
  uint64_t saved_step_ = 0;  // of the last one that is on disk
  bool owed_ = false;        // one was due while the one before was still being written
  Status newest_;
};

}  // namespace lockstep::engine
