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

TEST_F(LogProgressTest, ALogWithoutProgressSaysNothing) {
  Append("installing step 3\nloss of connection\n1: no\n");
  LogProgress log(path_, std::nullopt);
  EXPECT_TRUE(Read(log).empty());
  EXPECT_FALSE(log.any());
}

}  // namespace
}  // namespace lockstep::watch
