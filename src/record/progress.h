// Progress lines: which line of a training log says "I am at step N of M", in the words of the common frameworks (tqdm,
// Hugging Face Trainer, Megatron, DeepSpeed, torchtitan, Lightning, llm.c, nanoGPT) or in any words that count steps
// upward. Pure functions over text and one small value that learns; no thread of its own. The launcher keeps one
// tracker per stream of a rank, `lockstep watch` one per log.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::record {

enum class ProgressGrammar {
  kNone,
  kBar,         // tqdm, Lightning, rich enough to have "120/1000 [01:02<07:30, 1.95it/s]"
  kTrainer,     // Hugging Face: {'loss': 1.2, ..., 'epoch': 0.1}
  kMegatron,    // iteration 100/ 5000 | consumed samples: ...
  kDeepSpeed,   // steps: 10 loss: 2.1 iter time (s): 1.2   or   [Rank 0] step=10, skipped=0, lr=[...]
  kTorchtitan,  // step: 10 loss: 7.1 grad_norm: 1.2 ... tps: 5,432
  kStepLoss,    // ours, llm.c and nanoGPT: step 10/1000 | loss 4.5   or   iter 10: loss 4.5
  kCounter,     // any "step 10", "iter=10", "iteration #10 / 50": counts only once it has been seen to rise
};

const char* ProgressGrammarName(ProgressGrammar grammar);

struct ProgressMark {
  ProgressGrammar grammar = ProgressGrammar::kNone;
  std::optional<uint64_t> step;  // a Trainer line has none
  std::optional<uint64_t> total;
  std::optional<double> seconds_per_step;
};

// Reads one line, or one state of a carriage-return bar, without its terminator. At most the first 2 KiB are looked at.
std::optional<ProgressMark> ParseProgress(std::string_view line);

// The training loss a progress line names ("loss 4.5", "lm loss: 1.2E+00", "'loss': 0.7", "train_loss=nan"); losses of
// a validation and the loss scale are not it.
std::optional<double> ParseLoss(std::string_view line);

// What is known of one rank's progress.
struct ProgressState {
  ProgressGrammar grammar = ProgressGrammar::kNone;  // of the last recognised line
  uint64_t marks = 0;                                // recognised lines so far; 0: none yet
  std::optional<uint64_t> step;                      // last seen
  std::optional<uint64_t> total;
  std::optional<double> seconds_per_step;        // as the program says it, if it does
  std::chrono::steady_clock::time_point last{};  // when the last *advance* was seen

  bool any() const { return marks > 0; }
};

// Turns marks into a state. A bar that is redrawn without advancing is not progress; a bare counter is believed from
// its third rising line on, so that "step 3 of the installation" is not training.
class ProgressTracker {
 public:
  // True if the line was progress.
  bool Feed(std::string_view line, std::chrono::steady_clock::time_point now);
  const ProgressState& state() const { return state_; }

 private:
  ProgressState state_;
  std::optional<uint64_t> counter_;
  int counter_rises_ = 0;
};

}  // namespace lockstep::record
