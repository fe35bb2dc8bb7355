#include "launch/transports.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep::launch {
namespace {

class Files : public testing::Test {
 protected:
  Files()
      : folder_(testing::TempDir() + "/transports_" + std::to_string(getpid()) + "_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~Files() override { std::filesystem::remove_all(folder_); }
  void Append(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::app) << text;
  }
  void Network(int rank, const std::string& network) {
    Append("nccl-rank-" + std::to_string(rank) + ".77.log", "h:77:78 [0] NCCL INFO Using network " + network + "\n");
  }
  void Ready(int rank, int world) {
    Append("nccl-rank-" + std::to_string(rank) + ".77.log", "h:77:78 [0] NCCL INFO comm 0x1 rank " +
                                                                std::to_string(rank) + " nranks " +
                                                                std::to_string(world) + " cudaDev 0 - Init COMPLETE\n");
  }
  std::string folder_;
};

TEST_F(Files, AreReportedOnceWhenAllRanksAreReady) {
  TransportWatch watch(folder_, {2, 3}, 1);
  EXPECT_TRUE(watch.Poll().empty());
  Network(2, "IB");
  Ready(2, 4);
  Append("rank-2.log", "NCCL INFO Using network Socket\n");  // the rank's own output is none of them
  EXPECT_TRUE(watch.Poll().empty());
  Network(3, "IB");
  Append("nccl-rank-3.77.log", "h:77:78 [0] NCCL INFO comm 0x1 rank 3 nra");
  EXPECT_TRUE(watch.Poll().empty());
  Append("nccl-rank-3.77.log", "nks 4 cudaDev 1 - Init COMPLETE\n");
  EXPECT_TRUE(watch.Poll().empty()) << "connections are made just after";
  Append("nccl-rank-3.77.log", "h:77:78 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [send] via NET/IB/0/GDRDMA\n");
  const auto found = watch.Poll();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[1].rank, 3);
  EXPECT_EQ(found[1].node, 1);
  EXPECT_TRUE(found[1].paths.contains("NET/IB/GDRDMA"));
  EXPECT_TRUE(watch.Poll().empty());
  EXPECT_TRUE(watch.Rest().empty());
}

TEST_F(Files, OfOtherRanksInTheSameFolderAreLeftToTheirLaunchers) {
  TransportWatch watch(folder_, {0}, 0);
  Ready(1, 2);
  EXPECT_TRUE(watch.Rest().empty());
}

TEST_F(Files, WhatIsKnownAtTheEndIsSaid) {
  TransportWatch watch(folder_, {0, 1}, 0);
  Network(0, "Socket");
  Ready(0, 2);
  EXPECT_TRUE(watch.Poll().empty());
  ASSERT_EQ(watch.Rest().size(), 1u);
}

TEST_F(Files, AbsenceMeansNothing) {
  TransportWatch watch(folder_ + "/absent", {0}, 0);
  EXPECT_TRUE(watch.Poll().empty());
  EXPECT_TRUE(watch.Rest().empty());
}

diagnose::Transport On(int rank, const std::string& network) {
  diagnose::Transport t;
  t.rank = rank;
  t.network = network;
  return t;
}

TEST(Census, SpeaksWhenTheLastNodeHasReported) {
  TransportCensus census;
  census.Begin(4, 2);
  EXPECT_FALSE(census.Add(CommMessage({On(0, "Socket"), On(1, "Socket")}, 0, true)).has_value());
  const auto verdict = census.Add(CommMessage({On(2, "Socket"), On(3, "Socket")}, 1, false));
  ASSERT_TRUE(verdict.has_value());
  EXPECT_NE(verdict->warning.find("ranks 0-1"), std::string::npos) << verdict->warning;
  EXPECT_EQ(verdict->event["ranks_seen"], 4);
  EXPECT_EQ(verdict->event["transports"][0]["ranks"], "0-3");
  EXPECT_FALSE(census.Rest().has_value()) << "once";
}

TEST(Census, SaysNothingWhenNobodyUsesNccl) {
  TransportCensus census;
  census.Begin(2, 1);
  EXPECT_FALSE(census.Rest().has_value());
  census.Begin(2, 1);
  EXPECT_FALSE(census.Add({0, false, {Json{{"rank", "junk"}}}}).has_value());
}

}  // namespace
}  // namespace lockstep::launch
