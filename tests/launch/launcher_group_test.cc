// Whole groups in one process: node 0 and the others are threads, connected over loopback.
#include "launch/launcher_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "base/sockets.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

Participant GroupMember(int index, int count) {
  Participant participant;
  participant.index = index;
  participant.count = count;
  participant.host = "host-" + std::to_string(index);
  participant.boot_id = "boot";
  participant.version = "1.0";
  participant.job = "preflight";
  participant.pid = 1000 + index;
  return participant;
}

class GatheringTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto listener = Listen(0, /*loopback_only=*/true);
    ASSERT_TRUE(listener.ok());
    options_.host = "127.0.0.1";
    options_.port = LocalPort(listener->get());
    options_.join_timeout = Millis(20000);
    listener_ = std::move(*listener);
  }

  Result<std::unique_ptr<LauncherGroup>> Come(const Participant& self, LauncherGroupOptions options) {
    LauncherGroupEvents events{[this](const std::string& text) {
                                 const std::lock_guard lock(mutex_);
                                 said_ += text + "\n";
                               },
                               [](const std::string&) {}};
    return LauncherGroup::Form(std::move(options), self, self.index == 0 ? std::move(listener_) : UniqueFd(), events);
  }
  Result<std::unique_ptr<LauncherGroup>> Come(const Participant& self) { return Come(self, options_); }

  LauncherGroupOptions options_;
  UniqueFd listener_;
  std::mutex mutex_;
  std::string said_;
};

TEST_F(GatheringTest, EveryDocumentReachesNodeZeroAndItsAnswerEverybody) {
  std::vector<std::string> answers(4);
  std::vector<std::thread> nodes;
  for (int i = 0; i < 4; ++i) {
    nodes.emplace_back([&, i] {
      auto group = Come(GroupMember(i, 4));
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      EXPECT_EQ((*group)->index(), i);
      for (int round = 0; round < 3; ++round) {
        auto answer = (*group)->Round(
            Json{{"from", i}},
            [](const std::vector<Json>& all) {
              std::string text;
              for (const Json& one : all) text += std::to_string(one["from"].get<int>());
              return Json(text);
            },
            Millis(20000));
        ASSERT_TRUE(answer.ok()) << answer.status().ToString();
        answers[static_cast<size_t>(i)] += answer->get<std::string>() + " ";
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  for (const std::string& answer : answers) EXPECT_EQ(answer, "0123 0123 0123 ");
}

TEST_F(GatheringTest, AMemberWithoutARankIsGivenOne) {
  std::thread host([&] {
    auto group = Come(GroupMember(0, 2));
    ASSERT_TRUE(group.ok());
    EXPECT_EQ((*group)->participants()[1].host, "host--1");
  });
  auto client = Come(GroupMember(-1, 2));
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*client)->index(), 1);
  client->reset();
  host.join();
}

TEST_F(GatheringTest, WhoIsMissingIsNamedOnEveryNode) {
  options_.join_timeout = Millis(1500);
  options_.hosts = {"alpha", "beta", "gamma"};
  Status client;
  std::thread other([&] {
    LauncherGroupOptions patient = options_;
    patient.join_timeout = Millis(20000);
    client = Come(GroupMember(2, 3), patient).status();
  });
  const Status host = Come(GroupMember(0, 3)).status();
  other.join();
  for (const Status& status : {host, client}) {
    EXPECT_EQ(status.code(), Code::kRendezvous);
    EXPECT_THAT(status.message(), HasSubstr("2 of 3 nodes"));
    EXPECT_THAT(status.message(), HasSubstr("node 1 (beta)"));
  }
}

TEST_F(GatheringTest, AnotherTokenAnotherJobAndASeatThatIsNotThereAreRefusedAtOnce) {
  options_.token = "secret";
  std::thread host([&] {
    auto group = Come(GroupMember(0, 2));
    EXPECT_TRUE(group.ok());
  });
  LauncherGroupOptions wrong = options_;
  wrong.token = "guess";
  EXPECT_THAT(Come(GroupMember(1, 2), wrong).status().message(), HasSubstr("token"));
  Participant job = GroupMember(1, 2);
  job.job = "training";
  EXPECT_THAT(Come(job).status().message(), HasSubstr("another job"));
  Participant stranger = GroupMember(7, 2);
  EXPECT_THAT(Come(stranger).status().message(), HasSubstr("does not exist"));
  auto client = Come(GroupMember(1, 2));
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  if (client.ok()) client->reset();
  host.join();
  EXPECT_THAT(said_, HasSubstr("refused"));
}

TEST_F(GatheringTest, AMemberThatLeavesEndsItForAllAndIsNamed) {
  Status host_status, guest_status;
  std::thread host([&] {
    auto group = Come(GroupMember(0, 3));
    ASSERT_TRUE(group.ok());
    host_status = (*group)->Round(Json(), [](const std::vector<Json>&) { return Json(); }, Millis(20000)).status();
  });
  std::thread client([&] {
    auto group = Come(GroupMember(1, 3));
    // It may hear of the end with the same breath as of the beginning.
    guest_status = group.ok() ? (*group)->Round(Json(), nullptr, Millis(20000)).status() : group.status();
  });
  {
    auto leaver = Come(GroupMember(2, 3));
    ASSERT_TRUE(leaver.ok());
  }
  host.join();
  client.join();
  for (const Status& status : {host_status, guest_status}) {
    EXPECT_EQ(status.code(), Code::kRendezvous);
    EXPECT_THAT(status.message(), HasSubstr("node 2 (pid 1002 on host-2) left"));
  }
}

TEST_F(GatheringTest, AMemberThatNeverAnswersIsNamedWhenPatienceEnds) {
  Status host_status;
  std::thread host([&] {
    auto group = Come(GroupMember(0, 2));
    ASSERT_TRUE(group.ok());
    host_status = (*group)->Round(Json(), [](const std::vector<Json>&) { return Json(); }, Millis(50)).status();
  });
  auto silent = Come(GroupMember(1, 2));
  ASSERT_TRUE(silent.ok());
  auto over = [&] { return (*silent)->Round(Json(), nullptr, Millis(0)).status(); };
  host.join();
  EXPECT_THAT(host_status.message(), HasSubstr("node 1 (pid 1001 on host-1) joined, but did not answer"));
  EXPECT_FALSE(over().ok());
}

TEST_F(GatheringTest, ClocksOfOneMachineAgreeWithinTheirOwnError) {
  std::thread client([&] {
    auto group = Come(GroupMember(1, 2));
    ASSERT_TRUE(group.ok());
    (void)(*group)->Round(Json(), nullptr, Millis(20000));
  });
  auto group = Come(GroupMember(0, 2));
  ASSERT_TRUE(group.ok());
  std::vector<ClockReading> clocks;
  auto answer = (*group)->Round(
      Json(),
      [&](const std::vector<Json>&) {
        clocks = (*group)->ReadClocks(8, Millis(10000));
        return Json();
      },
      Millis(20000));
  ASSERT_TRUE(answer.ok());
  ASSERT_EQ(clocks.size(), 2u);
  EXPECT_GT(clocks[1].error, 0);
  EXPECT_LE(std::abs(clocks[1].offset), clocks[1].error + 1e-4);
  group->reset();
  client.join();
}

TEST(EstimateClock, TakesTheShortestRoundTripBecauseQueuesOnlyLengthen) {
  // The peer is 100 s ahead. The first sample waited 0.8 s on the way back, the second was quick.
  const ClockReading reading = EstimateClock({{10.0, 110.1, 10.9}, {20.0, 120.005, 20.01}});
  EXPECT_NEAR(reading.offset, 100.0, 1e-9);
  EXPECT_NEAR(reading.error, 0.005, 1e-9);
  EXPECT_NEAR(EstimateClock({{10.0, 110.1, 10.9}}).offset, 99.65, 1e-9);
  EXPECT_EQ(EstimateClock({}).error, 0);
}

}  // namespace
}  // namespace lockstep::launch
