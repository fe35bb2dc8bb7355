#include "watch/log_progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"

namespace lockstep::watch {
namespace {

TEST(CutRankPrefix, KnowsTheLaunchers) {
  const struct {
    const char* line;
    int rank;  // -1: none
    const char* rest;
  } cases[] = {
      {"1:13| step 5", 13, "step 5"},
      {"3: step 5", 3, "step 5"},
      {" 3: step 5", 3, "step 5"},
      {"[rank12]:step 5", 12, "step 5"},
      {"[default0]:step 5", 0, "step 5"},
      {"[1,7]<stdout>:step 5", 7, "step 5"},
      {"[1,7]<stderr>: 12%|#| 5/9", 7, " 12%|#| 5/9"},
      {"[prterun-gpu7-4711@1,7]<stdout>:step 5", 7, "step 5"},
      {"[3]<stdout>:step 5", 3, "step 5"},
      {"[trainer3|1]:step 5", 3, "step 5"},
      {"[my_role3]:step 5", 3, "step 5"},
      {"[epoch]:step 5", -1, "[epoch]:step 5"},
      {"[epoch 3]:step 5", -1, "[epoch 3]:step 5"},
      {"[a]<stdout>:step 5", -1, "[a]<stdout>:step 5"},
      {"step 5", -1, "step 5"},
      {"12:30:01 step 5", -1, "12:30:01 step 5"},
      {"[2026-01-01 10:00:00] step 5", -1, "[2026-01-01 10:00:00] step 5"},
      {"", -1, ""},
  };
  for (const auto& c : cases) {
    std::string_view line = c.line;
    const std::optional<int> rank = CutRankPrefix(&line);
    EXPECT_EQ(rank.value_or(-1), c.rank) << c.line;
    EXPECT_EQ(line, c.rest);
  }
}

class LogProgressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
    path_ = *dir_ / "job.log";
  }
  void Append(std::string_view text) {
    UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  static std::vector<std::string> Read(LogProgress& log) {
    std::vector<std::string> signs;
    log.Read([&](const LogSign& sign) {
      signs.push_back(std::to_string(sign.rank) + ":" + std::to_string(sign.state.step.value_or(0)) +
                      (sign.loss ? "@" + std::to_string(*sign.loss).substr(0, 4) : ""));
    });
    return signs;
  }

  std::optional<TempDir> dir_;
  std::string path_;
};

TEST_F(LogProgressTest, RanksInOneFileAreToldApart) {
  Append("[rank0]:step 1/9 | loss 0.5\n[rank1]:step 2/9 | loss 0.75\nhello\n[rank1]:step 3/9 | lo");
  LogProgress log(path_, std::nullopt);
  EXPECT_EQ(Read(log), (std::vector<std::string>{"0:1@0.50", "1:2@0.75"}));
  Append("ss 0.25\n");
  EXPECT_EQ(Read(log), (std::vector<std::string>{"1:3@0.25"}));
  EXPECT_TRUE(Read(log).empty());
}

TEST_F(LogProgressTest, ABarThatReturnsTheCarriageIsFollowed) {
  Append("  0%| | 0/9 [00:00<?, ?it/s]\r 11%|#| 1/9 [00:01<00:08,  1.00it/s, loss=0.5]\r");
  LogProgress log(path_, 4);
  EXPECT_EQ(Read(log), (std::vector<std::string>{"4:0", "4:1@0.50"}));
}

// tqdm writes the carriage return before a state: the newest has no end.
TEST_F(LogProgressTest, TheNewestStateOfABarCountsAndAHalfWrittenLineDoesNot) {
  Append("\r 10%|#| 1/9 [00:01<00:08,  1.00it/s]\r 20%|#| 2/9 [00:02<00:07,  1.00it/s]");
  LogProgress log(path_, 0);
  EXPECT_EQ(Read(log), (std::vector<std::string>{"0:1", "0:2"}));
  Append("\r 30%|#| 3/");
  EXPECT_TRUE(Read(log).empty());
}

TEST_F(LogProgressTest, ALossOnTheIndentedLinesBelowAStepIsThatOfTheStep) {
  Append(
      "INFO [step=1/99,epoch=0]\n    optim/norm=2.5\n    train/CrossEntropyLoss=12.18\nINFO saved\n"
      "  loss=7\nINFO [step=2/99,epoch=0]\n    train/CrossEntropyLoss=11.5\n");
  LogProgress log(path_, std::nullopt);
  std::vector<std::string> losses;
  for (const std::string& sign : Read(log)) {
    if (sign.find('@') != std::string::npos) losses.push_back(sign);
  }
  EXPECT_EQ(losses, (std::vector<std::string>{"0:1@12.1", "0:2@11.5"}));
}

TEST_F(LogProgressTest, TimesOfStepsAreReadWhereProgramsWriteThem) {
  const struct {
    const char* text;
    double seconds, stamp;  // -1: none
  } cases[] = {
      {"[batch=3/4800]:\n\t Train throughput/device/batches_per_sec: 0.1\n\t Train throughput/batches_per_sec: 0.25\n",
       4, -1},
      {"{\"t\": 1700000000.5, \"attempt\": 0, \"rank\": 0, \"step\": 1, \"scalars\": {\"loss\": 2.9}}\n", -1,
       1700000000.5},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.text);
    ::unlink(path_.c_str());
    Append(test.text);
    LogProgress log(path_, std::nullopt);
    LogSign last;
    log.Read([&](const LogSign& sign) { last = sign; });
    EXPECT_DOUBLE_EQ(last.state.seconds_per_step.value_or(-1), test.seconds);
    EXPECT_DOUBLE_EQ(last.stamp.value_or(-1), test.stamp);
  }
}

// Of one process, whose lines go to another stream than its bar: some stand behind the bar, some alone.
TEST_F(LogProgressTest, LinesWithALossBesideABarWithoutOneTellTheLossOfItsStep) {
  Append(
      "\rTraining:  7%|# | 10/150 [00:00<00:07, 19.8step/s]step 10: loss=0.50 lr=1e-4\n"
      "\rTraining: 13%|# | 20/150 [00:01<00:06, 19.5step/s]\n"
      "step 20: loss=0.25 lr=1e-4\nval step 2: loss=7.50\nstep 30: loss=0.12 lr=1e-4\n"
      "\rTraining: 20%|# | 30/150 [00:01<00:06, 19.5step/s]\n");
  LogProgress log(path_, std::nullopt);
  EXPECT_EQ(Read(log), (std::vector<std::string>{"0:10@0.50", "0:20", "0:20@0.25", "0:20", "0:20@0.12", "0:30"}));
}

TEST_F(LogProgressTest, LinesWithALossBesideABarThatHasOneChangeNothing) {
  Append(
      "\rTraining:  7%|# | 10/150 [00:00<00:07, 19.8step/s, loss=0.50]\r"
      "Training: 13%|# | 20/150 [00:01<00:06, 19.5step/s, loss=0.25]\nstep 20: loss=0.75\n");
  LogProgress log(path_, std::nullopt);
  EXPECT_EQ(Read(log), (std::vector<std::string>{"0:10@0.50", "0:20@0.25", "0:20"}));
}

TEST_F(LogProgressTest, ADictionaryBehindABarIsNewsOfTheSameStep) {
  Append(
      "\r  0%|  | 1/500 [00:03<25:30,  3.07s/it]\r  0%|  | 1/500 [00:03<25:30,  3.07s/it]"
      "{'loss': 1.25, 'learning_rate': 4e-05, 'epoch': 0.02}\n");
  LogProgress log(path_, std::nullopt);
  LogSign last;
  log.Read([&](const LogSign& sign) { last = sign; });
  EXPECT_EQ(last.redrawn, LogSign::Redrawn::kNewest);
  EXPECT_DOUBLE_EQ(last.loss.value_or(0), 1.25);
  EXPECT_DOUBLE_EQ(last.values.learning_rate.value_or(0), 4e-5);
}

TEST_F(LogProgressTest, FilesOfMetricsAreReadByTheirHeading) {
  struct {
    const char* text;
    const char* last;
  } const cases[] = {
      {"epoch,step,train_loss,val_loss\n0,49,2.1,\n0,99,1.9,\n0,99,,1.8\n1,149,1.5,\n", "0:149@1.50"},  // Lightning
      {"lr,step,train_loss_epoch,train_loss_step\n0.1,49.0,,2.1\n0.1,99.0,,1.9\n", "0:99@1.90"},
      {"epoch;accuracy;loss;val_loss\n0;0.1;2.3;9\n1;0.2;2.25;9\n", "0:1@2.25"},             // Keras
      {"Step\tTraining Loss\n10\t1.5\n20\t1.25\n", "0:20@1.25"},                             // a notebook
      {"step,attempt,t,name,value\n1,0,1.7e9,loss,0.5\n2,0,1.7e9,loss,0.25\n", "0:2@0.25"},  // track.csv
      {"\xef\xbb\xbfstep,loss\n10,0.5\n20,0.25\n", "0:20@0.25"},
      {"name,step,price\nfoo,3,5\nbar,3,6\n", ""},
      {"step size, epoch and loss\n1,2,3\n4,5,6\n", ""},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.text);
    ::unlink(path_.c_str());
    Append(test.text);
    LogProgress log(path_, std::nullopt);
    const std::vector<std::string> signs = Read(log);
    EXPECT_EQ(signs.empty() ? "" : signs.back(), test.last);
  }
}

TEST_F(LogProgressTest, ALogWithoutProgressSaysNothing) {
  Append("installing step 3\nloss of connection\n1: no\n");
  LogProgress log(path_, std::nullopt);
  EXPECT_TRUE(Read(log).empty());
  EXPECT_FALSE(log.any());
}

}  // namespace
}  // namespace lockstep::watch
