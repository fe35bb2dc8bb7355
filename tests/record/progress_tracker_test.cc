// Which of several bars and counters is the training: on single lines, and on what frameworks really printed
// (tests/record/transcripts: transformers 5.22, accelerate 1.15, lightning 2.6, tqdm 4.70, into a pipe).
#include "record/progress_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/files.h"
#include "paths.h"

namespace lockstep::record {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

TEST(ProgressTracker, ARedrawnBarIsProgressOnlyWhenItAdvances) {
  ProgressTracker tracker;
  const auto t0 = Clock::time_point(seconds(100));
  EXPECT_TRUE(tracker.Feed(" 12%|#2 | 120/1000 [01:02<07:30,  1.95it/s]", t0));
  EXPECT_FALSE(tracker.Feed(" 12%|#2 | 120/1000 [01:03<07:31,  1.94it/s]", t0 + seconds(1)));
  EXPECT_EQ(tracker.state().last, t0);
  EXPECT_EQ(tracker.state().marks, 1u);
  EXPECT_TRUE(tracker.Feed(" 12%|#2 | 121/1000 [01:03<07:31,  1.94it/s]", t0 + seconds(2)));
  EXPECT_EQ(tracker.state().last, t0 + seconds(2));
  EXPECT_EQ(tracker.state().step, 121u);
  EXPECT_EQ(tracker.state().total, 1000u);
}

TEST(ProgressTracker, ACounterIsBelievedFromItsThirdRisingLineOn) {
  ProgressTracker tracker;
  const auto t = Clock::time_point(seconds(1));
  EXPECT_FALSE(tracker.Feed("step 1", t));
  EXPECT_FALSE(tracker.Feed("step 2", t));
  EXPECT_FALSE(tracker.state().any());
  EXPECT_TRUE(tracker.Feed("step 3", t));
  EXPECT_TRUE(tracker.state().any());
  EXPECT_EQ(tracker.state().step, 3u);
}

TEST(ProgressTracker, ACounterThatJumpsBackMustConvinceAgain) {
  ProgressTracker tracker;
  const auto t = Clock::time_point(seconds(1));
  tracker.Feed("step 1", t);
  tracker.Feed("step 2", t);
  EXPECT_FALSE(tracker.Feed("step 1", t));
  EXPECT_FALSE(tracker.Feed("step 1", t));
  EXPECT_FALSE(tracker.Feed("step 2", t));
  EXPECT_TRUE(tracker.Feed("step 3", t));
}

TEST(ProgressTracker, ATrainerLineKeepsTheStepOfTheBar) {
  ProgressTracker tracker;
  const auto t = Clock::time_point(seconds(1));
  tracker.Feed(" 12%|#2 | 120/1000 [01:02<07:30,  1.95it/s]", t);
  EXPECT_TRUE(tracker.Feed("{'loss': 1.23, 'learning_rate': 5e-05, 'epoch': 0.12}", t));
  EXPECT_EQ(tracker.state().step, 120u);
  EXPECT_EQ(tracker.state().marks, 2u);
}

TEST(ProgressTracker, TheTimesOfStepsAreThePaceOfTheTraining) {
  ProgressTracker tracker;
  auto now = Clock::time_point(seconds(100));
  for (int step = 20; step <= 100; step += 20, now += milliseconds(500)) {
    tracker.Feed("step " + std::to_string(step) + " loss 0.5", now);
  }
  EXPECT_NEAR(*tracker.state().measured, 0.025, 1e-9);
  tracker.Feed("step 1 loss 0.5", now);
  EXPECT_FALSE(tracker.state().measured) << "it began again";
}

TEST(ProgressTracker, ABarThatWasLeftGivesWayToOneThatLivesLonger) {
  ProgressTracker tracker;
  tracker.Feed("warm up:  92%|#########2| 23/25 [00:10<00:01,  2.00it/s]", {});
  EXPECT_TRUE(tracker.Feed("main:   1%|  | 8/900 [00:04<07:00,  2.00it/s]", {}));
  EXPECT_EQ(tracker.state().total, 25u);
  EXPECT_FALSE(tracker.state().of_training);
  EXPECT_TRUE(tracker.Feed("main:   3%|  | 24/900 [00:12<07:00,  2.00it/s]", {}));
  EXPECT_EQ(tracker.state().total, 900u);
}

TEST(ProgressTracker, LinesWithALossAreTheTrainingAndBarsBesideThemAreNot) {
  ProgressTracker tracker;
  tracker.Feed("step 100/5000 | loss 2.5", {});
  EXPECT_TRUE(tracker.Feed("val:  50%|#####     | 5/10 [00:20<00:20,  4.00s/it, loss=9.5]", {}));
  EXPECT_FALSE(tracker.state().of_training);
  EXPECT_EQ(tracker.state().step, 100u);
  EXPECT_FALSE(tracker.state().full);
  EXPECT_TRUE(tracker.Feed("val: 100%|##########| 10/10 [00:40<00:00,  4.00s/it, loss=9.5]", {}));
  EXPECT_TRUE(tracker.state().full) << "something else comes now";
  tracker.Feed("step 101/5000 | loss 2.5", {});
  EXPECT_EQ(tracker.state().step, 101u);
}

TEST(ProgressTracker, ABarWhoseWordsChangeWithEveryLineIsFollowedInBoundedMemory) {
  ProgressTracker tracker;
  for (int step = 0; step < 2000; ++step) {
    const char word[] = {static_cast<char>('a' + step % 26), static_cast<char>('a' + step / 26 % 26), 0};
    tracker.Feed(std::string("file ") + word + ": " + std::to_string(step / 20) + "%|# | " + std::to_string(step) +
                     "/2000 [" + std::to_string(step / 60 + 10) + ":" + std::to_string(10 + step % 50) +
                     "<01:00, 1it/s]",
                 {});
  }
  EXPECT_GT(*tracker.state().step, 1900u);
}

TEST(ProgressTracker, TheNumberOfAnEpochIsTheProgramsOwn) {
  struct {
    const char* line;
    uint64_t number, of;  // of: 0 for none
  } const cases[] = {
      {"Epoch 7:  50%|#####     | 5/10 [00:01<00:01,  5.00it/s]", 7, 0},
      {"Epoch [2/9]:  50%|#####     | 5/10 [00:01<00:01,  5.00it/s]", 2, 9},
      {"train epoch 3 of 4  50%|#####     | 5/10 [00:01<00:01,  5.00it/s, loss=1]", 3, 4},
      {"Epoch #1: 5/10 [00:01<00:01,  5.00it/s]", 1, 0},
      {"Epoch 0/9 ---------- 120/1000 0:00:10 . 0:01:00 11.92it/s", 0, 9},
  };
  for (const auto& test : cases) {
    ProgressTracker tracker;
    ASSERT_TRUE(tracker.Feed(test.line, {})) << test.line;
    ASSERT_TRUE(tracker.state().epoch) << test.line;
    EXPECT_EQ(tracker.state().epoch->number, test.number) << test.line;
    EXPECT_EQ(tracker.state().epoch->of.value_or(0), test.of) << test.line;
  }
  for (const char* line :
       {"epoch:  50%|##  | 5/10 [00:01<00:01,  5.00it/s]", "epoch 0.5:  50%|##  | 5/10 [00:01<00:01,  5.00it/s]",
        "  50%|##  | 5/10 [00:01<00:01,  5.00it/s, epoch=3]"}) {
    ProgressTracker tracker;
    ASSERT_TRUE(tracker.Feed(line, {})) << line;
    EXPECT_FALSE(tracker.state().epoch) << line;
  }
}

TEST(ProgressTracker, OneBarOverAllEpochsCountsAllItsSteps) {
  ProgressTracker tracker;
  for (const char* line :
       {"Epoch 1/3:   1%|  | 1/30 [00:01<00:01,  5.00it/s]", "Epoch 1/3:   9%|  | 9/30 [00:01<00:01,  5.00it/s]",
        "Epoch 2/3:  43%|# | 13/30 [00:01<00:01,  5.00it/s]"}) {
    EXPECT_FALSE(tracker.state().TotalOfRun()) << "it may be one of three bars";
    tracker.Feed(line, {});
    EXPECT_EQ(tracker.state().StepOfRun(), tracker.state().step);
  }
  EXPECT_EQ(tracker.state().TotalOfRun(), 30u);
  EXPECT_FALSE(tracker.state().epoch);
}

struct Epochs {
  std::vector<const char*> lines;
  long step, total;  // of the run; -1: unknown
  uint64_t epoch;
};

TEST(ProgressTracker, LinesThatGoOnInTheNextEpochCountAllSteps) {
  ProgressTracker tracker;
  for (const char* line : {"[TRAIN] epoch: 1, iter: 100/500, loss: 2.0, batch_cost: 0.5",
                           "[TRAIN] epoch: 1, iter: 120/500, loss: 1.9, batch_cost: 0.5",
                           "[TRAIN] epoch: 2, iter: 140/500, loss: 1.8, batch_cost: 0.5",
                           "[TRAIN] epoch: 2, iter: 160/500, loss: 1.7, batch_cost: 0.5"}) {
    tracker.Feed(line, {});
  }
  EXPECT_EQ(tracker.state().StepOfRun(), 160u);
  EXPECT_EQ(tracker.state().TotalOfRun(), 500u);
  EXPECT_FALSE(tracker.state().epoch);
}

TEST(ProgressTracker, StepsOfTheRunAreKnownAsFarAsTheLinesSayHowEpochsAreCounted) {
  const Epochs cases[] = {
      // A line of one epoch: the first one says it.
      {{"Epoch [1/75], Step [110/464], Loss: 0.3"}, 110, 75 * 464, 1},
      {{"Epoch: [0][  10/5005] Time 0.2 Loss 6.9"}, 10, -1, 0},
      {{"Train: [1/300][20/1251] eta 1:00:00 time 0.5 (0.6) loss 6.8 (6.9)"}, 20, 300 * 1251, 1},
      {{"INFO  Train:    1/3 ( 33%) [  49/323 ( 15%)]  Loss: 36.77 (81.7)  LR: 1.351e-04"}, 49, 3 * 323, 1},
      // A bar may be of one or of all epochs.
      {{"Epoch 0:  12%|#2| 120/1000 [00:10<01:13, 12.00it/s]"}, 120, -1, 0},
      {{"Epoch 1/1:  12%|#2| 120/1000 [00:10<01:13, 12.00it/s]"}, 120, 1000, 1},
      // The next epoch, although the last line of the one before is far from its end.
      {{"Train Epoch: 1 [50/100 (50%)] Loss: 2", "Train Epoch: 2 [0/100 (0%)] Loss: 1"}, 100, -1, 2},
      // The end of the same bar of two ranks.
      {{"Epoch 0: 100%|##| 20/20 [00:10<00:00, 2.0it/s]", "Epoch 0:  95%|##| 19/20 [00:10<00:00, 2.0it/s]"}, 19, -1, 0},
      {{"  1%|  | 1/20 [00:01<00:01, 5.00it/s]", "  1%|  | 20/20 [00:01<00:01, 5.00it/s]",
        "  1%|  | 10/20 [00:01<00:01, 5.00it/s]", "  1%|  | 9/20 [00:01<00:01, 5.00it/s]",
        "  1%|  | 11/20 [00:01<00:01, 5.00it/s]"},
       31,
       -1,
       2},
      // A table whose first column is the epoch.
      {{"  1/30  2.9G  0.3  12  640: 100%|##| 46/46 [00:17<00:00, 2.79it/s]",
        "     Class  Images  Box(P  mAP50): 100%|##| 90/90 [00:55<00:00, 5.60it/s]",
        "  2/30  3G  0.2  12  640:  50%|##| 23/46 [00:08<00:08, 2.79it/s]"},
       69,
       30 * 46,
       2},
      // A log of last states: of each epoch only its end.
      {{"Epoch 1/10: 100%|##| 500/500 [01:02<00:00, 8.06it/s, loss=0.9]",
        "Epoch 2/10: 100%|##| 500/500 [01:02<00:00, 8.06it/s, loss=0.8]"},
       1000,
       5000,
       2},
      {{"Epoch 1/5", "1875/1875 - 3s - 2ms/step - loss: 0.4", "Epoch 2/5", "1875/1875 - 3s - 2ms/step - loss: 0.3"},
       3750,
       9375,
       2},
      // A description that is set before the bar begins again; a bar over all epochs that says the next one.
      {{"Epoch 1: 100%|##| 20/20 [00:10<00:00, 2.0it/s]", "Epoch 2: 100%|##| 20/20 [00:10<00:00, 2.0it/s]",
        "Epoch 2:   0%|  | 0/20 [00:00<00:00, 2.0it/s]", "Epoch 2:  25%|# | 5/20 [00:02<00:00, 2.0it/s]"},
       25,
       -1,
       2},
      {{"Epoch 1/3:  33%|# | 10/30 [00:01<00:01,  5.00it/s]", "Epoch 2/3:  33%|# | 10/30 [00:01<00:01,  5.00it/s]",
        "Epoch 2/3:  43%|# | 13/30 [00:01<00:01,  5.00it/s]"},
       13,
       30,
       0},
      // A run that was resumed in its third epoch.
      {{"Epoch [3][50/2500] lr: 0.02, time: 1.09, loss: 0.04"}, 5050, -1, 3},
      {{"Epoch [3][2500/2500] lr: 0.02, time: 1.09, loss: 0.04", "Epoch [4][50/2500] lr: 0.02, time: 1.09, loss: 0.04"},
       7550,
       -1,
       4},
      {{"[epoch 3] [5000/9000] loss 2.0", "[epoch 4] [5100/9000] loss 1.9"}, 5100, 9000, 0},
      // A bar that is drawn again for each step of another one.
      {{"Train epoch [1/1]:  50%|##| 8/16 [00:10<00:10, 1.2s/it]",
        "Train epoch [1/1]: 100%|##| 16/16 [00:20<00:00, 1.2s/it]",
        "Train epoch [1/1]:  25%|##| 4/16 [00:10<00:10, 1.2s/it]"},
       4,
       16,
       1},
  };
  for (const Epochs& test : cases) {
    SCOPED_TRACE(test.lines.front());
    ProgressTracker tracker;
    for (const char* line : test.lines) tracker.Feed(line, {});
    const std::optional<uint64_t> step = tracker.state().StepOfRun(), total = tracker.state().TotalOfRun();
    EXPECT_EQ(step ? static_cast<long>(*step) : -1, test.step);
    EXPECT_EQ(total ? static_cast<long>(*total) : -1, test.total);
    // 0 may as well be none: one count over all epochs.
    EXPECT_EQ(tracker.state().epoch.value_or(EpochNumber{}).number, test.epoch);
  }
}

TEST(ProgressTracker, ABarThatBeginsAgainFarFromItsEndIsAProgramStartedAgain) {
  ProgressTracker tracker;
  for (const char* at : {"1/10", "10/10", "1/10", "6/10"}) {
    tracker.Feed(std::string("  1%|  | ") + at + " [00:01<00:01,  5.00it/s]", {});
  }
  EXPECT_EQ(tracker.state().epoch->number, 2u);
  EXPECT_EQ(tracker.state().StepOfRun(), 16u);
  EXPECT_FALSE(tracker.state().TotalOfRun());
  tracker.Feed("  1%|  | 1/10 [00:01<00:01,  5.00it/s]", {});
  EXPECT_FALSE(tracker.state().epoch);
  EXPECT_EQ(tracker.state().StepOfRun(), 1u);
  EXPECT_EQ(tracker.state().TotalOfRun(), 10u);
}

TEST(ProgressTracker, ASummaryAfterAnEpochIsNoHeadingOfTheNext) {
  ProgressTracker tracker;
  for (const char* line : {"  1%|  | 1/10 [00:01<00:01,  5.00it/s]", "  1%|  | 10/10 [00:01<00:01,  5.00it/s]",
                           "epoch 0 val 0.3", "  1%|  | 4/10 [00:01<00:01,  5.00it/s]"}) {
    tracker.Feed(line, {});
  }
  EXPECT_EQ(tracker.state().epoch->number, 2u) << "counted";
  EXPECT_EQ(tracker.state().StepOfRun(), 14u);
}

struct Transcript {
  const char* name;
  std::vector<uint64_t> totals;  // followed, one after the other
  uint64_t last;                 // step at the end
  int beginnings;                // how often the followed count began anew: bars of one epoch each
  uint64_t of_run;               // step over all epochs at the end
  uint64_t total_of_run;         // 0: the program does not say how many epochs there are
};

const Transcript kTranscripts[] = {
    {"hf-trainer", {60}, 60, 0, 60, 60},      // evaluation and "Writing model shards: 1/1" at every checkpoint
    {"accelerate", {40}, 40, 0, 40, 40},      // one bar over all epochs, "Evaluating" inside
    {"nested-epochs", {3}, 3, 0, 3, 3},       // "epochs" outside, "train" and "valid" inside
    {"epoch-bars", {25}, 25, 2, 75, 0},       // "Tokenizing", then "Epoch 0", "Validation", "Epoch 1", ...
    {"unnamed-bars", {25}, 25, 2, 75, 0},     // training and evaluation in turns, no words
    {"lightning-tqdm", {20}, 20, 2, 60, 0},   // "Sanity Checking", then "Epoch 0" with "Validation" inside
    {"lightning-rich", {20}, 20, 0, 20, 0},   // its last state alone
    {"epoch-headings", {20}, 20, 2, 60, 60},  // "Epoch 1/3" on a line of its own, then a bar without words
    {"removed-bars", {19}, 18, 2, 56, 0},     // leave=False: the bar is erased, its last steps are not shown
};

TEST(ProgressTracker, EpochsCountWhereNothingElseDoesAndForWhoAsksForThem) {
  const char* lines[] = {"Epoch 1/50 - train loss: 0.9", "Epoch 2/50 - train loss: 0.8"};
  ProgressTracker waiting, watching(true);
  for (const char* line : lines) {
    EXPECT_FALSE(waiting.Feed(line, Clock::time_point(seconds(1))));
    EXPECT_TRUE(watching.Feed(line, Clock::time_point(seconds(1))));
  }
  EXPECT_EQ(watching.state().StepOfRun(), 2u);
  EXPECT_EQ(watching.state().TotalOfRun(), 50u);
  EXPECT_TRUE(watching.Feed("step 7 | loss 0.7", Clock::time_point(seconds(1))));
  EXPECT_TRUE(watching.Feed("Epoch 3/50 - train loss: 0.7", Clock::time_point(seconds(1))));
  EXPECT_EQ(watching.state().StepOfRun(), 7u);
}

struct Mixture {
  std::vector<const char*> lines;
  long step, total;  // -1: none
};

TEST(ProgressTracker, LinesAboutOtherWorkDoNotMoveTheStep) {
  const Mixture cases[] = {
      {{"step 10/100 loss 2.0", "val step 5/20 loss 9.0", "val step 6/20 loss 9.0"}, 10, 100},
      {{"step 50/100 loss 2.0", "best loss 1.5 at step 30"}, 50, 100},
      {{"val step 5/20 loss 9.0", "step 10 loss 2.0"}, 10, -1},
      // The end of such a bar is not the end of a program.
      {{"Loading checkpoint shards: 100%|##| 2/2 [00:10<00:00, 5.00s/it]"}, -1, -1},
      {{"Generating train split: 100%|##| 900/900 [00:01<00:00, 900 examples/s]"}, -1, -1},
      {{"Evaluating:  50%|##| 1/2 [00:10<00:00, 5.00s/it]"}, 1, 2},
      {{"[100] collection=train loss=5.2 accuracy=0.1", "[200] collection=train loss=5.1 accuracy=0.1",
        "[300] collection=train loss=5.0 accuracy=0.1", "[400] collection=infer_eval loss=9.1 accuracy=0.1"},
       300,
       -1},
      // "batch 4/..." of wenet names the epoch: what rises is the other number.
      {{"TRAIN Batch 4/203700 loss 12.6", "TRAIN Batch 4/203800 loss 12.5", "TRAIN Batch 4/203900 loss 12.4"}, -1, -1},
      {{"Batch 4/200 loss 12.6", "Batch 5/200 loss 12.5"}, 5, 200},
      // A bar inside another one, in a process of its own.
      {{"Episode [1/20]:   1%|  | 1/100 [00:30<50:00, 30.1s/it]",
        "Train epoch [1/1]:  50%|##| 8/16 [00:10<00:10, 1.2s/it]",
        "Train epoch [1/1]: 100%|##| 16/16 [00:20<00:00, 1.2s/it]",
        "Episode [1/20]:   2%|  | 2/100 [01:30<50:00, 45.1s/it]",
        "Train epoch [1/1]:  50%|##| 8/16 [00:10<00:10, 1.2s/it]"},
       2,
       100},
      // The loss is not in every line of the same count.
      {{"step:0/1390 val_loss:10.8", "step:1/1390 time:1s", "step:2/1390 time:2s", "step:3/1390 time:3s"}, 3, 1390},
      {{"[Rank 0] step=10, skipped=0, lr=[1e-5]", "Epoch: 0, Step: 10, Rank: 0, loss = 2.1",
        "Epoch: 0, Step: 11, Rank: 0, loss = 2.0"},
       11,
       -1},
  };
  for (const Mixture& test : cases) {
    SCOPED_TRACE(test.lines.back());
    ProgressTracker tracker(true);
    for (const char* line : test.lines) tracker.Feed(line, {});
    EXPECT_EQ(tracker.state().step ? static_cast<long>(*tracker.state().step) : -1, test.step);
    EXPECT_EQ(tracker.state().total ? static_cast<long>(*tracker.state().total) : -1, test.total);
  }
}

TEST(ProgressTracker, ATrainerWithoutABarIsShownByEpochs) {
  ProgressTracker tracker(true);
  tracker.Feed("[INFO|trainer.py:2141] >>   Num Epochs = 3", {});
  tracker.Feed("{'loss': 2.1, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.5}", {});
  EXPECT_TRUE(tracker.Feed("{'loss': 1.7, 'grad_norm': 1.3, 'learning_rate': 3e-05, 'epoch': 1.5}", {}));
  EXPECT_DOUBLE_EQ(tracker.state().epochs_done.value_or(0), 1.5);
  EXPECT_EQ(tracker.state().step, 1u);
  EXPECT_EQ(tracker.state().TotalOfRun(), 3u);
  tracker.Feed(" 12%|#2 | 120/1000 [01:02<07:30,  1.95it/s]", {});
  EXPECT_FALSE(tracker.state().epochs_done) << "the bar counts steps";
  EXPECT_EQ(tracker.state().step, 120u);
}

TEST(ProgressTracker, ATrainerWithoutABarThatSaysHowManyStepsThereAreIsShownBySteps) {
  ProgressTracker tracker(true);
  for (const char* line : {"  Num Epochs = 3", "  Total optimization steps = 1,500",
                           "{'loss': 2.1, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.5}"}) {
    tracker.Feed(line, {});
  }
  EXPECT_EQ(tracker.state().StepOfRun(), 250u);
  EXPECT_EQ(tracker.state().TotalOfRun(), 1500u);
  EXPECT_FALSE(tracker.state().epochs_done);
}

TEST(ProgressTracker, ASpeedOnALineOfItsOwnIsTheOneOfTheNextStep) {
  ProgressTracker tracker;
  EXPECT_FALSE(tracker.Feed("INFO:tensorflow:global_step/sec: 8", {}));
  EXPECT_TRUE(tracker.Feed("INFO:tensorflow:loss = 1.0000, step = 100 (12.345 sec)", {}));
  EXPECT_EQ(tracker.state().seconds_per_step, 0.125);
}

TEST(ProgressTracker, OfTwoFormsOfLinesTheOneThatKnowsTheEndIsFollowed) {
  ProgressTracker tracker;
  for (int step = 34; step < 36; ++step) {
    tracker.Feed(fmt::format("[timer.py:215:stop] epoch=0/micro_step={0}/global_step={0}, CurrSamplesPerSec=8.0", step),
                 Clock::time_point(seconds(1)));
    tracker.Feed(fmt::format(" samples/sec: 7.7 | iteration {}/ 10000 | elapsed time per iteration (ms): 4103.1 | "
                             "lm_loss: 1.1E+01 |",
                             step),
                 Clock::time_point(seconds(1)));
  }
  EXPECT_EQ(tracker.state().step, 35u);
  EXPECT_EQ(tracker.state().total, 10000u);
  EXPECT_DOUBLE_EQ(tracker.state().seconds_per_step.value_or(0), 4.1031);
}

TEST(ProgressTracker, FollowsTheTrainingBarOfRealTranscripts) {
  for (const Transcript& want : kTranscripts) {
    SCOPED_TRACE(want.name);
    const Result<std::string> text = ReadFile(SourceDir() + "/tests/record/transcripts/" + want.name + ".log", 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    ProgressTracker tracker;
    std::vector<uint64_t> totals;
    uint64_t last = 0, of_run = 0;
    int beginnings = 0;
    size_t begin = 0;
    for (size_t end; (end = text->find_first_of("\n\r", begin)) != std::string::npos; begin = end + 1) {
      if (!tracker.Feed(std::string_view(*text).substr(begin, end - begin), {}) || !tracker.state().step) continue;
      const bool same = !totals.empty() && totals.back() == *tracker.state().total;
      if (!same) totals.push_back(*tracker.state().total);
      EXPECT_TRUE(!same || *tracker.state().StepOfRun() >= of_run) << "backwards after " << of_run;
      of_run = *tracker.state().StepOfRun();
      beginnings += same && *tracker.state().step < last;
      last = *tracker.state().step;
    }
    EXPECT_EQ(totals, want.totals);
    EXPECT_EQ(last, want.last);
    EXPECT_EQ(beginnings, want.beginnings);
    EXPECT_EQ(of_run, want.of_run);
    EXPECT_EQ(tracker.state().TotalOfRun().value_or(0), want.total_of_run);
    EXPECT_TRUE(tracker.state().seconds_per_step);
  }
}

}  // namespace
}  // namespace lockstep::record
