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
    Sample{"[Step 7] training", G::kCounter, 7, -1, -1}, Sample{"Iteration #42 / 100 done", G::kCounter, 42, 100, -1},
    Sample{"global_step=99", G::kCounter, 99, -1, -1},
    // Loops written by hand, fairseq, Keras, MaxText, NeMo.
    Sample{"Epoch [2/5], Step [100/600], Loss: 0.3012", G::kBar, 100, 600, -1},
    Sample{"Epoch 2/10, Batch 30/100, Loss: 0.3012, 0.5 s/batch", G::kBar, 30, 100, 0.5},
    Sample{"[Epoch 2][Batch 30/100] loss 0.3012 lr 0.1", G::kBar, 30, 100, -1},
    Sample{"epoch 2 batch 30 loss 0.3012", G::kStepLoss, 30, -1, -1},
    Sample{"\tBatch(100/1879) done. Loss: 5.9635  lr:0.100000", G::kBar, 100, 1879, -1},
    Sample{"[2,  4000] loss: 1.204", G::kStepLoss, 4000, -1, -1},
    Sample{"Epoch 3/50 - train loss: 0.3333 - val loss: 0.3512 - 12.3s", G::kEpochs, 3, 50, -1},
    Sample{"2022-05-18 03:53:31 | INFO | train_inner | epoch 001:    100 / 1923 loss=13.2, wps=21301.3, ups=5, "
           "num_updates=100, lr=1.25e-05",
           G::kBar, 100, 1923, 0.2},
    Sample{" 10/938 [..............................] - ETA: 12s - loss: 2.2012 - accuracy: 0.2012", G::kBar, 10, 938,
           -1},
    Sample{"\x1b[1m110/938\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━━\x1b[0m \x1b[1m12s\x1b[0m 13ms/step - accuracy: 0.1 - "
           "loss: 2.1",
           G::kBar, 110, 938, 0.013},
    Sample{"completed step: 10, seconds: 2.512, TFLOP/s/device: 312.1, Tokens/s/device: 13042.1, loss: 8.012",
           G::kStepLoss, 10, -1, 2.512},
    Sample{"Training epoch 0, iteration 12/99 | lr: 1.5e-05 | global_step: 12 | reduced_train_loss: 9.51 | "
           "train_step_timing in s: 3.52",
           G::kBar, 12, 99, 3.52},
    Sample{"Step 10: loss=0.5, step_time=0.532s, tokens/sec=12,345.6", G::kStepLoss, 10, -1, 0.532},
    // KAIR and BasicSR write the count in groups of three.
    Sample{"26-01-01 10:00:00.123 : <epoch:  1, iter:  20,000, lr:2.000e-04> G_loss: 1.234e-02 ", G::kKair, 20000, -1,
           -1},
    Sample{"<epoch:  3, iter:     200, lr:1.000e-04> G_loss: 3.1e-02 F_loss: 2.0e-01 D_loss: 6.9e-01", G::kKair, 200,
           -1, -1},
    Sample{"2026-01-01 10:00:00,1 INFO: [006_V..][epoch:  0, iter:   1,000, lr:(2.000e-04,)] [eta: 1 day, 2:03:04, "
           "time (data): 0.250 (0.003)] l_pix: 1.2e-02",
           G::kKair, 1000, -1, 0.25},
    // DeepSpeed: its pipeline engine, and the timer that counts micro steps as well.
    Sample{"steps: 10 loss: 2.1300 l_aux: 0.0100 iter time (s): 1.200 samples/sec: 426.667", G::kDeepSpeed, 10, -1,
           1.2},
    Sample{"step:    10 /   500 loss: 2.1300 iter time (s): 1.200 samples/sec: 426.667 eta: 0:10:00", G::kDeepSpeed, 10,
           500, 1.2},
    Sample{"[2026-01-01 10:00:00,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, "
           "RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.70, MemAllocated=4.32GB, MaxMemAllocated=38.49GB",
           G::kDeepSpeed, 10, -1, -1},
    Sample{"[default0]: [2026-05-27 15:23:07] iteration        1/    24000 | consumed samples:          1024 | elapsed "
           "time per iteration (ms): 271607.0 | throughput per GPU (TFLOP/s/GPU): 40.4 | learning rate: 1.500000E-06 | "
           "global batch size:  1024 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 |",
           G::kMegatron, 1, 24000, 271.607},
    // Trainer: Python's quotes, JSON's, strings as values (version 5), a callback that adds the step.
    Sample{"{'loss': '1.23', 'grad_norm': '0.9', 'learning_rate': '5e-05', 'epoch': '0.12'}", G::kTrainer, -1, -1, -1},
    Sample{R"({"loss": 1.23, "grad_norm": 0.9, "learning_rate": 5e-05, "epoch": 0.12})", G::kTrainer, -1, -1, -1},
    Sample{R"({"loss": 1.23, "learning_rate": 5e-05, "epoch": 0.12, "step": 40})", G::kTrainer, 40, -1, -1},
    Sample{R"({"current_steps": 10, "total_steps": 300, "loss": 1.2, "lr": 5e-05, "epoch": 0.1})", G::kTrainer, 10, 300,
           -1},
    // accelerate's examples and diffusers: tqdm with values behind it.
    Sample{"Steps:   1%|          | 10/1000 [00:10<16:30,  1.00s/it, lr=0.0001, step_loss=0.123]", G::kBar, 10, 1000,
           1},
    Sample{"Epoch 1: : 120it [00:10, 12.00it/s, v_num=3]", G::kBar, 120, -1, 1.0 / 12},
    Sample{"Epoch 0:  12%|█▏        | 120/1000 [00:10<01:13, 12.00it/s, v_num=3, train_loss=0.500]", G::kBar, 120, 1000,
           1.0 / 12},
    Sample{"[titan] 2026-01-01 10:00:00,000 - root - INFO - step: 1,210  loss:  7.1234  grad_norm:  1.2345  memory: "
           "30.12GiB(38.03%)  tps: 5,432  tflops: 123.45  mfu: 41.20%",
           G::kTorchtitan, 1210, -1, -1},
    // Counts inside brackets.
    Sample{"Epoch: [0][  10/5005]\tTime  0.253 ( 0.506)\tData  0.003 ( 0.250)\tLoss 6.9e+00 (6.95e+00)", G::kBar, 10,
           5005, 0.253},
    Sample{
        "01/01 10:00:00 - mmengine - INFO - Epoch(train)  [1][  50/1000]  lr: 1.0000e-02  eta: 0:10:00  time: 0.2500  "
        "data_time: 0.0100  memory: 5000  loss: 1.2000",
        G::kBar, 50, 1000, 0.25},
    Sample{"Train: 0 [  50/1251 (  4%)]  Loss: 6.94 (6.95)  Time: 0.250s, 1024.00/s  LR: 1.000e-06", G::kBar, 50, 1251,
           0.25}};

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
  for (const char* line : {"",
                           "step",
                           "stepping stones 12",
                           "iter time (s): 1.2",
                           "INFO: listening on [::]:29500",
                           "the footstep 3 of",
                           "downloading: 45%|####5     | 450M/1.00G [00:10<00:12, 45.0MB/s]",
                           "model.safetensors:  10%|#         | 105/1050 [00:10<01:30, 10.5MB/s]",
                           "step size 0.5",
                           "step=0.5",
                           "loss': 3",
                           "GET /step HTTP/1.1 200",
                           "[1/2] Building CXX object",
                           "NCCL INFO Channel 00/02 : 0 1",
                           "epoch 3 [2/9] done",
                           "max_steps: 1000",
                           "warmup steps 500",
                           "num_steps=20",
                           "batch size 32, loss cross entropy",
                           "batch 3/7 of the validation",
                           "10/938 files - eta: 12s",
                           "Epoch 3/50"}) {
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
      {"epoch: 1 step: 5, loss is 2.31", 2.31},
      {"Epoch 1: 2%|#| 3/150 [0:36<5:04, 0.32it/s, train_loss_epoch=0.41, train_loss_step=0.45]", 0.45},
      {"{'eval_loss': 1.23, 'epoch': 0.12}", -1},
      {"step 10 val loss 2.3", -1},
      {"<epoch:  1, iter:  20,000, lr:2.000e-04> G_loss: 1.234e-02 ", 1.234e-02},
      {"[epoch:  0, iter:   1,000, lr:(2.000e-04,)] [eta: 0:10:00] l_pix: 1.2e-02 ", 1.2e-02},
      {"{'loss': '1.23', 'epoch': '0.12'}", 1.23},
      {R"({"loss": 1.23, "epoch": 0.12})", 1.23},
      {"{'train_runtime': 9.1, 'train_samples_per_second': 8.1, 'train_loss': 1.2, 'epoch': 1.0}", -1},
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

struct ValueSample {
  const char* line;
  double samples, tokens, rate, norm;  // -1: none
  double eta = -1;
};

TEST(ParseValues, ReadsSpeedLearningRateAndNorm) {
  const ValueSample samples[] = {
      {"steps: 10 loss: 2.13 iter time (s): 1.20 samples/sec: 426.6", 426.6, -1, -1, -1},
      {"step 120/1000 | loss 0.0123 | lr 1.00e-04 | 0.520 s/it | 61.5 samples/s | data wait 3%", 61.5, -1, 1e-4, -1},
      {"step: 10  loss: 7.1  grad_norm:  1.2345  memory: 3GiB  tps: 5,432  mfu: 41.2%", -1, 5432, -1, 1.2345},
      {"{'loss': 1.23, 'grad_norm': 0.9, 'learning_rate': 5e-05, 'epoch': 0.12}", -1, -1, 5e-5, 0.9},
      {"<epoch:  1, iter:  20,000, lr:2.000e-04> G_loss: 1.234e-02 ", -1, -1, 2e-4, -1},
      {" iteration 1/ 9 | learning rate: 1.500000E-06 | lm loss: 1.1E+01 | grad norm: 5.960 |", -1, -1, 1.5e-6, 5.96},
      {"[Rank 0] step=10, skipped=0, lr=[0.0001], mom=[0.9]", -1, -1, 1e-4, -1},
      {"step 3 | loss 1.0 | 12,345 tokens/s", -1, 12345, -1, -1},
      {"seconds: 2.5, TFLOP/s/device: 312.1, Tokens/s/device: 13042.1", -1, 13042.1, -1, -1},
      {"[epoch: 0, iter: 25,390, lr:(2.000e-04,)] [eta: 6 days, 20:45:25, time (data): 0.676 (0.005)]", -1, -1, 2e-4,
       -1, 6 * 86400 + 20 * 3600 + 45 * 60 + 25},
      {"eta: 0:05:01  iter: 39  total_loss: 1.875", -1, -1, -1, -1, 301},
      {"step 3 | loss 1.0 | ETA 7m38s", -1, -1, -1, -1, 458},
      {"10/938 [...] - ETA: 12s - loss: 2.2", -1, -1, -1, -1, 12},
      {"beta: 12 meta: 3 eta: unknown", -1, -1, -1, -1},
      {"no such words", -1, -1, -1, -1},
  };
  for (const ValueSample& sample : samples) {
    SCOPED_TRACE(sample.line);
    const ProgressValues values = ParseValues(sample.line);
    EXPECT_DOUBLE_EQ(values.samples_per_second.value_or(-1), sample.samples);
    EXPECT_DOUBLE_EQ(values.tokens_per_second.value_or(-1), sample.tokens);
    EXPECT_DOUBLE_EQ(values.learning_rate.value_or(-1), sample.rate);
    EXPECT_DOUBLE_EQ(values.gradient_norm.value_or(-1), sample.norm);
    EXPECT_DOUBLE_EQ(values.eta.value_or(-1), sample.eta);
  }
}

}  // namespace
}  // namespace lockstep::record
