// Each sample line is written the way its framework prints it.
#include "record/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace lockstep::record {
namespace {

struct Sample {
  const char* line;
  ProgressGrammar grammar;
  long step;       // -1: none
  long total;      // -1: none
  double seconds;  // -1: none
};

using G = ProgressGrammar;
const Sample kSamples[] = {
    Sample{"step 120/1000 | loss 0.0123 | lr 1.00e-04 | 0.520 s/it | 61.5 samples/s | data wait 3% | ETA 7m38s",
           G::kStepLoss, 120, 1000, 0.52},
    Sample{" 12%|#2        | 120/1000 [01:02<07:30,  1.95it/s, loss=2.1]", G::kBar, 120, 1000, 1 / 1.95},
    Sample{" 12%|█▏        | 120/1000 [01:02<07:30, 18.5s/it]", G::kBar, 120, 1000, 18.5},
    Sample{"  0%|          | 0/1000 [00:00<?, ?it/s]", G::kBar, 0, 1000, -1},
    Sample{"120it [01:02,  1.95it/s]", G::kBar, 120, -1, 1 / 1.95},
    Sample{"Train:  50%|#####     | 5/10 [00:05<00:05,  2.00batch/s]", G::kBar, 5, 10, 0.5},
    Sample{"Epoch 0:  12%|█▏| 120/1000 [00:10<01:13, 12.00it/s, v_num=3, train_loss=0.5]", G::kBar, 120, 1000,
           1.0 / 12},
    Sample{"Epoch 0/9  ━━━━━━ 120/1000 0:00:10 • 0:01:00 12.50it/s v_num: 3", G::kBar, 120, 1000, 0.08},
    Sample{"{'loss': 1.23, 'grad_norm': 0.9, 'learning_rate': 5e-05, 'epoch': 0.12}", G::kTrainer, -1, -1, -1},
    Sample{"{'eval_loss': 1.23, 'eval_runtime': 3.1, 'epoch': 1.0}", G::kTrainer, -1, -1, -1},
    Sample{" iteration      100/    5000 | consumed samples:        51200 | elapsed time per iteration (ms): 1234.5 | "
           "learning rate: 1.0E-04 | lm loss: 2.1E+00 |",
           G::kMegatron, 100, 5000, 1.2345},
    Sample{"steps: 10 loss: 2.13 iter time (s): 1.20 samples/sec: 426.6", G::kDeepSpeed, 10, -1, 1.2},
    Sample{"[2024-01-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.0001], "
           "mom=[0.9]",
           G::kDeepSpeed, 10, -1, -1},
    Sample{"[rank0]:2024 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.1 \x1b[33mgrad_norm: 1.2 \x1b[36mmemory: "
           "30.1GiB(38%)  \x1b[34mtps: 5,432  \x1b[35mmfu: 41.2%\x1b[39m",
           G::kTorchtitan, 10, -1, -1},
    Sample{"step   10/1000 | loss 4.521 (+1.2z)| norm 3.1 | lr 3e-4 | 98.50 ms | 41.2% mfu", G::kStepLoss, 10, 1000,
           0.0985},
    Sample{"iter 10: loss 4.5123, time 123.00ms, mfu 30.12%", G::kStepLoss, 10, -1, 0.123},
    Sample{"step 10 loss 0.5 data 2.00 ms time: 12.5 ms", G::kStepLoss, 10, -1, 0.0125},
    Sample{"step 10/50 loss 0.5 (0.25 s/step)", G::kStepLoss, 10, 50, 0.25},
    Sample{"step 10 | loss 0.5 | 8.0 steps/s | 4096 tokens/s", G::kStepLoss, 10, -1, 0.125},
    Sample{"step 10 | 250 ms/step", G::kCounter, 10, -1, 0.25},
    Sample{"step 10 loss 0.5 elapsed 95.2s", G::kStepLoss, 10, -1, -1},
    Sample{"[Step 7] training", G::kCounter, 7, -1, -1},
    Sample{"Iteration #42 / 100 done", G::kCounter, 42, 100, -1},
    Sample{"global_step=99", G::kCounter, 99, -1, -1}};

TEST(Progress, EveryFrameworksLineIsReadAsTheFrameworkMeansIt) {
  for (const Sample& want : kSamples) {
    SCOPED_TRACE(want.line);
    auto mark = ParseProgress(want.line);
    ASSERT_TRUE(mark);
    EXPECT_EQ(mark->grammar, want.grammar) << ProgressGrammarName(mark->grammar);
    EXPECT_EQ(mark->step ? static_cast<long>(*mark->step) : -1, want.step);
    EXPECT_EQ(mark->total ? static_cast<long>(*mark->total) : -1, want.total);
    EXPECT_NEAR(mark->seconds_per_step.value_or(-1), want.seconds, 1e-6);
  }
}

TEST(Progress, OrdinaryLinesAreNotProgress) {
  for (const char* line :
       {"", "step", "stepping stones 12", "iter time (s): 1.2", "INFO: listening on [::]:29500", "the footstep 3 of",
        "downloading: 45%|####5     | 450M/1.00G [00:10<00:12, 45.0MB/s]",
        "model.safetensors:  10%|#         | 105/1050 [00:10<01:30, 10.5MB/s]", "step size 0.5", "step=0.5", "loss': 3",
        "GET /step HTTP/1.1 200", "[1/2] Building CXX object", "NCCL INFO Channel 00/02 : 0 1"}) {
    EXPECT_FALSE(ParseProgress(line)) << line;
  }
}

TEST(Progress, AnEndlessLineCostsABoundedLook) {
  std::string line(1 << 20, 'x');
  line += " step 5 loss 3";
  EXPECT_FALSE(ParseProgress(line));
  EXPECT_TRUE(ParseProgress(line.substr(line.size() - 100)));
}

struct LossSample {
  const char* line;
  double loss;  // -1: none
};

TEST(ParseLoss, ReadsTheLossOfEachFramework) {
  const LossSample samples[] = {
      {" 12%|#2        | 120/1000 [01:02<07:30,  1.95it/s, loss=2.1]", 2.1},
      {"{'loss': 1.23, 'learning_rate': 5e-05, 'epoch': 0.12}", 1.23},
      {" iteration 100/ 5000 | lm loss: 1.084315E+01 | loss scale: 1.0 |", 10.84315},
      {"step: 10 loss:  7.1234 grad_norm: 1.2 memory: 3.1GiB tps: 5,432", 7.1234},
      {"step   10/1000 | loss 4.512345 (+1.2z)| norm 1.1", 4.512345},
      {"iter 10: loss 4.5, time 123.4ms", 4.5},
      {"step 250: train loss 2.1, val loss 2.3", 2.1},
      {"Epoch 0: 12%|#| 120/1000 [00:10<01:13, 12.00it/s, v_num=3, train_loss=0.5]", 0.5},
      {"step 3 | loss -1.5e-3 | lr 1e-4", -1.5e-3},
      {"{'eval_loss': 1.23, 'epoch': 0.12}", -1},
      {"step 10 val loss 2.3", -1},
      {"loss scale 1024", -1},
      {"loss_scale: 1024", -1},
      {"no such word", -1},
      {"step 10 time lost 3", -1},
  };
  for (const LossSample& sample : samples) {
    const std::optional<double> loss = ParseLoss(sample.line);
    if (sample.loss == -1) {
      EXPECT_FALSE(loss.has_value()) << sample.line;
    } else {
      ASSERT_TRUE(loss.has_value()) << sample.line;
      EXPECT_DOUBLE_EQ(*loss, sample.loss) << sample.line;
    }
  }
  EXPECT_TRUE(std::isnan(ParseLoss("step 5 | loss nan").value_or(0)));
  EXPECT_TRUE(std::isinf(ParseLoss("step 5 | loss inf").value_or(0)));
}

}  // namespace
}  // namespace lockstep::record
