// What the progress lines of one stream mean together: which of several bars is the training, how far it is, when it
// last advanced. A small value without a thread of its own. The launcher keeps one per stream of a rank, `lockstep
// watch` one per rank of a log.
//
//   ProgressTracker tracker;
//   if (tracker.Feed(" 12%|#2  | 120/1000 [01:02<07:30,  1.95it/s]", now)) Show(tracker.state().step);
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/progress.h"

namespace lockstep::record {

// What is known of one rank's progress. Any line that advances counts for `marks` and `last`; step, total and speed are
// those of the training alone.
struct ProgressState {
  ProgressGrammar grammar = ProgressGrammar::kNone;  // of the last recognised line
  uint64_t marks = 0;                                // recognised lines so far; 0: none yet
  std::optional<uint64_t> step;                      // last seen
  std::optional<uint64_t> total;
  std::optional<double> seconds_per_step;        // as the program says it, if it does
  std::optional<double> measured;                // seconds per step by the times of its first and its last step
  std::chrono::steady_clock::time_point last{};  // when the last *advance* was seen
  bool of_training = false;                      // the last line told of the training, not of another bar
  bool full = false;                             // the last line was a bar at its end: something else comes now
  // Which epoch it is: by the program's own number, else counted from 1 and known from the second on.
  std::optional<EpochNumber> epoch;
  bool by_epochs = false;      // the bar begins anew with each epoch: step and total are those of one epoch
  uint64_t epochs_before = 0;  // then: complete ones before this
  // Of a Trainer whose lines say nothing but the epoch: 1.5 are done. The step is then the number of complete epochs.
  std::optional<double> epochs_done;
  int takeovers = 0;  // how often another bar or form of lines turned out to be the training

  bool any() const { return marks > 0; }
  // Over all epochs; the total is unknown where the number of epochs is, and where a bar that names its epoch has not
  // begun anew yet: it may count the steps of one epoch or of all.
  std::optional<uint64_t> StepOfRun() const;
  std::optional<uint64_t> TotalOfRun() const;
};

// A bar that is redrawn without advancing is not progress; a bare counter is believed from its third rising line on, so
// that "step 3 of the installation" is not training. Of several bars and counters the training is followed: bars of an
// evaluation and bars inside another bar never take its place, bars of saving or loading are never followed. A bar that
// was full and begins again is the next epoch (docs/watch.md).
class ProgressTracker {
 public:
  // epochs: lines that count nothing but epochs are progress too, as long as no others count steps. Not for who waits
  // for the next line: an epoch may take hours.
  explicit ProgressTracker(bool epochs = false) : epochs_(epochs) {}

  // True if the line was progress.
  bool Feed(std::string_view line, std::chrono::steady_clock::time_point now);
  const ProgressState& state() const { return state_; }
  // Of the last line, where Feed said false: the training's bar or form of line again, at the step it had. A loss in it
  // is the newest, ...
  bool redrawn() const { return redrawn_; }
  // ... and the one of that step: "update(1), set_postfix(loss)" draws a step first with the loss of the step before.
  // Of a bar with "for ... in bar: set_postfix(loss)" it is the one of the next step.
  bool loss_of_step() const { return loss_of_step_; }

 private:
  // From least to most likely the training.
  enum class Rank { kPreparation, kSideWork, kInside, kPlain, kTraining };

  // One bar, or one form of line, over all its repetitions.
  struct Source {
    ProgressGrammar grammar = ProgressGrammar::kNone;
    std::string label;
    std::optional<uint64_t> total;
    bool nested = false;
    bool side = false;
    bool names_loss = false;
    bool draws_loss = false;  // of a bar: it names the loss itself
    Rank rank = Rank::kPlain;
    std::optional<uint64_t> step;
    uint64_t marks = 0;
    bool headed = false;       // a heading stood before it: such lines are no summaries that follow it
    bool by_epochs = false;    // see ProgressState
    bool anew = false;         // it began again with another epoch
    bool whole = false;        // of the present epoch only the end was seen
    bool over_all = false;     // the number of the epoch rises and the bar goes on: one bar for all epochs
    uint64_t first_epoch = 0;  // 0 or 1
    uint64_t epochs_before = 0;
    std::optional<EpochNumber> epoch;
    double past = 0;                // seconds of its earlier repetitions
    std::optional<double> elapsed;  // of the present one
    uint64_t first_step = 0;
    uint64_t begun = 0, last = 0;  // the present one's first and last mark, counted over all sources
    bool inside = false;           // another bar goes on whenever this one has run through
    // Of a bar: where it was first drawn, if without a loss, and where the first loss stood.
    std::optional<uint64_t> bare_step, loss_step;
    std::chrono::steady_clock::time_point first{};

    bool Finished() const { return total && step && *step >= *total; }
  };

  size_t Find(const ProgressMark& mark);
  static void CountEpoch(const ProgressMark& mark, bool again, Source* source);
  static Rank RankOf(const ProgressMark& mark);
  static bool Replaces(const Source& other, const Source& followed);
  std::optional<size_t> Around(const Source& source) const;
  bool TellsLossOf(const Source& line, const ProgressMark& mark) const;
  void Follow(size_t at);
  void ShowFollowed();

  bool epochs_;
  ProgressState state_;
  std::vector<Source> sources_;
  std::optional<size_t> followed_;
  std::optional<EpochNumber> heading_;   // the last line that was one
  std::optional<uint64_t> epoch_count_;  // "Num Epochs = 3"
  std::optional<uint64_t> step_count_;   // "Total optimization steps = 500"
  std::optional<double> said_seconds_;   // of a step, on a line of its own, for the next step
  std::optional<uint64_t> counter_;
  int counter_rises_ = 0;
  bool redrawn_ = false, loss_of_step_ = false;
};

}  // namespace lockstep::record
