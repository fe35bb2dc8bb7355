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
    // clu's log writer; a number in brackets alone may be that of a process.
    Sample{"I1215 10:00:00.1 140 logging_writer.py:48] [300] accuracy=0.12, loss=6.1, steps_per_sec=4", G::kStepLoss,
           300, -1, 0.25},
    Sample{"[12] loss=0.5", G::kCounter, 12, -1, -1},
    // OLMo and Composer: the loss stands below.
    Sample{"2024-08-06 10:00:05.520 host:0  olmo.train:908  INFO    [step=2/739328,epoch=0]", G::kStepLoss, 2, 739328,
           -1},
    Sample{"[batch=3/4800]:", G::kStepLoss, 3, 4800, -1},
    // NeMo's bar has no rate.
    Sample{
        "Epoch 0: :   0%|          | 12/10000 [01:02<5:00:00, v_num=0, reduced_train_loss=9.51, train_step_timing in "
        "s=3.52]",
        G::kBar, 12, 10000, 3.52},
    // fairseq's first versions, its JSON, OpenNMT's.
    Sample{"| epoch 010  3000 / 8223 loss=1.28 (1.49), wps=962, lr=0.001", G::kBar, 3000, 8223, -1},
    Sample{R"(| {"epoch": 1, "update": 0.1, "loss": "12.2", "ups": "0.5", "num_updates": "200", "lr": "2.4e-05"})",
           G::kTrainer, 200, -1, 2},
    Sample{"Epoch  1, 12850/37527; acc:   3.99; ppl: 12792.57; xent:   9.46;   9823 s elapsed", G::kBar, 12850, 37527,
           -1},
    // ms-swift.
    Sample{"{'loss': 1.5, 'train_speed(iter/s)': 0.5, 'epoch': 0.1, 'global_step/max_steps': '10/1000'}", G::kTrainer,
           10, 1000, 2},
    // Names of the time of a step; a time since the start is none.
    Sample{"eta: 8:04:51  iter: 1279  total_loss: 0.971  time: 0.3323  data_time: 0.0418  lr: 0.01", G::kStepLoss, 1279,
           -1, 0.3323},
    Sample{R"({"lr": 0.01, "data_time": 0.01, "loss": 1.2, "time": 0.25, "epoch": 1, "step": 50})", G::kTrainer, 50, -1,
           0.25},
    Sample{"epoch: [0/100], iter: 20, loss: 0.69, reader_cost: 2.3 s, batch_cost: 2.5 s, ips: 198.8", G::kKair, 20, -1,
           2.5},
    Sample{"Epoch: [0] [2087/7312] loss: 4.5 batch_cost: 0.1664 data_cost: 0.0034 ips: 96.1 images/s", G::kBar, 2087,
           7312, 0.1664},
    Sample{"iteration: 10 / 1000 | elapsed_time_per_iteration_ms: 512 | lm_loss: 9.5", G::kStepLoss, 10, 1000, 0.512},
    Sample{"step:101/1390 train_time:15150ms step_avg:150.00ms", G::kCounter, 101, 1390, 0.15},
    Sample{"Epoch: 0, Batch: 18, Global Step: 18, Step Time: 1.0047, Loss: 228.2", G::kStepLoss, 18, -1, 1.0047},
    Sample{"step 10 loss 0.5 time 95.2", G::kStepLoss, 10, -1, -1},
    Sample{"step 2_000/10_000 loss 2.4", G::kStepLoss, 2000, 10000, -1},
    Sample{"step 5/0 loss 1", G::kStepLoss, 5, -1, -1},
    // Counts inside brackets.
    Sample{"Epoch: [0][  10/5005]\tTime  0.253 ( 0.506)\tData  0.003 ( 0.250)\tLoss 6.9e+00 (6.95e+00)", G::kBar, 10,
           5005, 0.253},
    Sample{
        "01/01 10:00:00 - mmengine - INFO - Epoch(train)  [1][  50/1000]  lr: 1.0000e-02  eta: 0:10:00  time: 0.2500  "
        "data_time: 0.0100  memory: 5000  loss: 1.2000",
        G::kBar, 50, 1000, 0.25},
    Sample{"Train: 0 [  50/1251 (  4%)]  Loss: 6.94 (6.95)  Time: 0.250s, 1024.00/s  LR: 1.000e-06", G::kBar, 50, 1251,
           0.25},
    // tqdm with unit_scale.
    Sample{" 99%|#########9| 9.90k/10.0k [10:18<00:06, 16.0it/s, loss=1.0]", G::kBar, 9900, 10000, 1 / 16.0},
    Sample{"1.25Mit [10:18, 1.60kit/s, loss=1.0]", G::kBar, 1250000, -1, 1 / 1600.0},
    Sample{" 46%|####5     | 47.1k/102k [00:46<00:55, 1.02kimg/s, loss=2.0]", G::kBar, 47100, 102000, 1 / 1020.0},
    Sample{" 46%|####5     | 47/102 [00:46<00:55, 1.02kimg/s, loss=2.0]", G::kBar, 47, 102, 1 / 1.02},
    // Lightning does not know the length of an iterable dataset.
    Sample{"Epoch 0: |          | 150/? [00:12<00:00, 12.00it/s, v_num=3]", G::kBar, 150, -1, 1.0 / 12},
    // A dictionary and a bar that share a line.
    Sample{"{'loss': 1.4, 'learning_rate': 2e-05, 'epoch': 0.01}  2%|# | 20/500 [01:00<25:30,  3.07s/it]", G::kBar, 20,
           500, 3.07},
    Sample{"Train: [0/300][20/1251]\teta 0:10:00 lr 0.000002\ttime 0.5023 (0.6023)\tloss 6.8 (6.9)", G::kBar, 20, 1251,
           0.5023},
    Sample{"[500/1000] loss: 0.3012", G::kBar, 500, 1000, -1},
    // Beside the place in the epoch, the count of the run.
    Sample{"   --> STEP: 24/377 -- GLOBAL_STEP: 370025", G::kCounter, 370025, -1, -1},
    Sample{"global step 110, epoch: 1, batch: 109, loss: 0.46789, speed: 2.50 step/s", G::kStepLoss, 110, -1, 0.4},
    Sample{"Epoch 0 | iter  70 step  70 | loss train: 5.281 | iter time: 35.430 s (step)", G::kStepLoss, 70, -1, 35.43},
    Sample{" iteration 9/ 99 | consumed samples: 18432 | elapsed time per iteration (s): 215.82 | lm loss: 2.9E+00 |",
           G::kMegatron, 9, 99, 215.82},
    Sample{"[ 50.0%] Step 500 of 1000 - loss: 0.2727", G::kStepLoss, 500, 1000, -1},
    Sample{"Iter 10: Train loss 2.500, Learning Rate 1.000e-05, It/sec 2.500, Tokens/sec 512.3", G::kStepLoss, 10, -1,
           0.4},
    // Keras with verbose=2: a line per epoch.
    Sample{"1875/1875 - 3s - 2ms/step - accuracy: 0.8603 - loss: 0.4772", G::kBar, 1875, 1875, 0.002},
    Sample{"1875/1875 - 3s - loss: 0.4772 - accuracy: 0.8603", G::kBar, 1875, 1875, -1},
    // Counts with a unit (LeRobot) and as powers of ten.
    Sample{"step:31K smpl:245K ep:2K epch:9.54 loss:0.037 grdn:0.722 lr:7.9e-05 updt_s:0.098", G::kStepLoss, 31000, -1,
           -1},
    Sample{"iter 500/300k loss 0.5", G::kStepLoss, 500, 300000, -1},
    Sample{"step 500/1e5 loss 0.5", G::kStepLoss, 500, 100000, -1}, Sample{"Iteration: \t 3", G::kCounter, 3, -1, -1},
    Sample{"Step 1/150 | loss=10.2 | avg_loss=10.2 | lr=1.00e-05 | steps/s=0.8", G::kStepLoss, 1, 150, 1.25},
    // The time of a step beside those of its parts (OpenPCDet).
    Sample{"Train:    1/3 ( 33%) [  99/323 ( 31%)]  Loss: 23.51 (54.8)  LR: 2.377e-04  Data time: 0.51(0.01)  Forward "
           "time: 0.19(0.26)  Batch time: 0.70(0.27)",
           G::kBar, 99, 323, 0.70},
    // A time that is too large for a number is none.
    Sample{"step:3/9 - loss:0.5 - timing_s/step:1e999", G::kStepLoss, 3, 9, -1}};

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
                           "INFO:tensorflow:global_step/sec: 8.1",
                           "model.bin:  45%|####5     | 450M/1.00G [00:10<00:12, 45.0MB/s]",
                           "step=0.5",
                           "loss': 3",
                           "GET /step HTTP/1.1 200",
                           "[1/2] Building CXX object",
                           "NCCL INFO Channel 00/02 : 0 1",
                           "epoch 3 [2/9] done",
                           "[1/2] loss of connection",
                           "Training: |          | 0/? [00:00<?, ?it/s]",
                           "max_steps: 1000",
                           "  Total optimization steps = 500",
                           "warmup steps 500",
                           "num_steps=20",
                           "batch size 32, loss cross entropy",
                           "batch 3/7 of the validation",
                           "10/938 files - eta: 12s",
                           "Epoch 3/50"}) {
    EXPECT_FALSE(ParseProgress(line)) << line;
  }
}

TEST(Progress, CountsOfValidationsAndOfCheckpointsAreToldFromTheTraining) {
  for (const char* line :
       {"INFO: valid step:90   top1: 0.0625 loss: 5481.1924", "val step 5/20 loss 9.0", "[eval] iter 90/90 loss 9.0",
        "Test: iter 80/90 loss 9.0", "best loss 1.5 at step 30", "Saved checkpoint at step 40 (loss 2.2)",
        "resumed from step 20, loss 3.3", R"({"mode": "val", "epoch": 1, "iter": 500, "loss": 9.1})",
        "step=10 split=validation loss=0.3", "[200] collection=infer_eval accuracy=0.12, loss=9.2",
        "Validation Epoch [2/5], Step [3/10], Loss: 0.3"}) {
    ASSERT_TRUE(ParseProgress(line)) << line;
    EXPECT_TRUE(ParseProgress(line)->side) << line;
  }
  for (const char* line : {"[checkpoint.py:12] step 10 loss 3", "/home/me/test.py:7 step 10 loss 3",
                           "train step:10 loss 3", "Minibatch loss at step 100: 2.5", "step=10 split=train loss=0.3"}) {
    EXPECT_FALSE(ParseProgress(line)->side) << line;
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
      {"{'lr': 0.0005, 'steps': 100, 'loss/train': 1.25}", 1.25},
      {R"({"loss": 1.23, "epoch": 0.12})", 1.23},
      {"{'train_runtime': 9.1, 'train_samples_per_second': 8.1, 'train_loss': 1.2, 'epoch': 1.0}", -1},
      {"[10/308], bpp_loss: 0.045, xyz_loss: 0.085, loss: 0.130969, aux_loss: 1361.4", 0.130969},
      {"accuracy: 0.5, batch_loss: 0.4, loss: 0.45 ||: 50%", 0.45},
      {"step:2 - actor/kl_loss:0.000 - actor/pg_loss:0.002", 0.002},
      {"step:2 - actor/pg_loss:0.002 - actor/kl_loss:0.000 - actor/loss:0.003 - critic/vf_loss:9", 0.003},
      {"| iter 964 step 241 | loss train: 0.902, val: 1.057 |", 0.902},
      {"step 2: loss train (curr): 1.761, val (prev val iter): None", 1.761},
      {"Step 100: train CrossEntropyLoss |  2.3", 2.3},
      {"Step 100: eval  CrossEntropyLoss |  9.9", -1},
      {"[LightGBM] [Info] Iteration:18, training binary_logloss : 0.404", 0.404},
      {"[LightGBM] [Info] Iteration:18, valid_1 binary_logloss : 0.415", -1},
      {" Train loss/train/total: 8.7", 8.7},
      {"step 2/10 loss: tensor(1.5, device='cuda:0', grad_fn=<NllLossBackward0>)", 1.5},
      {"step 2/10 loss: Array(1.5, dtype=float32)", 1.5},
      {"Minibatch loss at step 100: 2.5", 2.5},
      {"step 2/10 loss: 1,95", 1.95},  // a decimal comma
      {"step 2/10 loss: 1,952", -1},   // either
      {"step 2/10 loss: 1,952.5", 1952.5},
      {"step 2/10 loss: 0.5,0.4", 0.5},
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
      {"iter 30 step 6 | loss train: 2.8 | iter time: 112.20 ms (step) remaining time: 0:01:54", -1, -1, -1, -1, 114},
      {"Step 5450/50000; acc: 48.07; lr: 0.00067; 2081/2351 tok/s; 20362 sec", -1, -1, 0.00067, -1},
      {"{'gradient_norm': 1.25, 'loss': 8.0, 'step': 150}", -1, -1, -1, 1.25},
      {"step   10/1000 | loss 4.5 (+1.2z)| norm 3.1 | lr 3e-4 | 98.50 ms | 41.2% mfu", -1, -1, 3e-4, 3.1},
      {"step 10 | weight norm: 9.5 | loss 1", -1, -1, -1, -1},
      {"beta: 12 meta: 3 eta: unknown", -1, -1, -1, -1},
      {"Step: 10 | Loss: 9.5 | Tokens/s: 12.3K | Tokens/s/GPU: 1.5K", -1, 12300, -1, -1},
      {"step 00010/21400 | dt: 1200.50ms | tok/sec: 436,000 | mfu: 40.1", -1, 436000, -1, -1},
      {"step 10/100 loss nan lr 0.5 tok/s: nan", -1, -1, 0.5, -1},
      {"step 3 | lr: 0,001", -1, -1, 0.001, -1},
      {"step 3 | lr: 1,000e-04", -1, -1, 1e-4, -1},
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
