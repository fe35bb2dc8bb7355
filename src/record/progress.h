// Progress lines: which line of a training log says "I am at step N of M", in the words of the common frameworks (tqdm,
// Hugging Face Trainer, Megatron, DeepSpeed, torchtitan, Lightning, KAIR, llm.c, nanoGPT) or in any words that count
// steps upward. Pure functions over text, any thread. What several lines together mean is in progress_tracker.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::record {

enum class ProgressGrammar {
  kNone,
  kBar,         // tqdm, Lightning, rich enough to have "120/1000 [01:02<07:30, 1.95it/s]"
  kTrainer,     // Hugging Face: {'loss': 1.2, ..., 'epoch': 0.1}
  kMegatron,    // iteration 100/ 5000 | consumed samples: ...
  kDeepSpeed,   // steps: 10 loss: 2.1 iter time (s): 1.2   or   [Rank 0] step=10, skipped=0, lr=[...]
  kTorchtitan,  // step: 10 loss: 7.1 grad_norm: 1.2 ... tps: 5,432
  kKair,        // KAIR and BasicSR: <epoch: 1, iter:  20,000, lr:2.000e-04> G_loss: 1.2e-02
  kStepLoss,    // ours, llm.c and nanoGPT: step 10/1000 | loss 4.5   or   iter 10: loss 4.5
  kEpochs,      // Epoch 3/50 - train loss: 0.3: an epoch is all that is counted
  kCounter,     // any "step 10", "iter=10", "iteration #10 / 50": counts only once it has been seen to rise
};

const char* ProgressGrammarName(ProgressGrammar grammar);

// As a program numbers its epochs, from 0 or from 1.
struct EpochNumber {
  uint64_t number = 0;
  std::optional<uint64_t> of;  // how many it says there are
};

struct ProgressMark {
  ProgressGrammar grammar = ProgressGrammar::kNone;
  std::optional<uint64_t> step;  // a Trainer line has none
  std::optional<uint64_t> total;
  std::optional<double> seconds_per_step;  // as the line says it
  bool side = false;                       // its words name other work: a validation, a checkpoint
  // "Batch 4/100" may be the 4th of 100 or the 100th of epoch 4: a second line tells.
  bool unsure = false;
  std::optional<double> epochs_done;  // of a Trainer line: 1.5
  bool names_loss = false;            // "loss=0.5" stands in it
  // Of a bar:
  std::string label;                 // the words before it, in lower case and without digits: "epoch", "evaluating"
  bool nested = false;               // it is drawn below another bar: tqdm moves the cursor up again behind it
  std::optional<double> elapsed;     // seconds since it was begun
  bool loss_behind = false;          // not the bar names the loss, but what another stream wrote behind it
  std::optional<EpochNumber> epoch;  // "Epoch 3:", "Epoch [3/10]" stands before it
  bool of_epoch = false;             // a line whose count is that of this epoch, in the first one surely
  bool begins_anew = false;          // ... and in any epoch: "Epoch [3][50/2500]"
};

// Reads one line, or one state of a carriage-return bar, without its terminator. At most the first 2 KiB are looked at.
std::optional<ProgressMark> ParseProgress(std::string_view line);

// What Trainer says at its start: "Num Epochs = 3".
std::optional<uint64_t> ParseEpochCount(std::string_view line);

// ... and "Total optimization steps = 500".
std::optional<uint64_t> ParseStepCount(std::string_view line);

// Seconds of a step, from a line that says the speed and no step: "global_step/sec: 8.1" (TensorFlow),
// "throughput/batches_per_sec: 0.25" (Composer).
std::optional<double> ParseSpeed(std::string_view line);

// A line that is the heading of an epoch: "Epoch 3/10", "--- epoch: 3 ---".
std::optional<EpochNumber> ParseEpochHeading(std::string_view line);

// The training loss a progress line names ("loss 4.5", "lm loss: 1.2E+00", "'loss': 0.7", "train_loss=nan"); losses of
// a validation and the loss scale are not it.
std::optional<double> ParseLoss(std::string_view line);

// What else a progress line may say.
struct ProgressValues {
  std::optional<double> samples_per_second, tokens_per_second;
  std::optional<double> learning_rate, gradient_norm;
  std::optional<double> eta;  // seconds until the end, as the line says it

  bool operator==(const ProgressValues&) const = default;
};
ProgressValues ParseValues(std::string_view line);

}  // namespace lockstep::record
