// Who belongs to a job, which ranks it gets, and who is refused.
#include "coordinator_fixture.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using CoordinatorJoin = CoordinatorTest;

TEST_F(CoordinatorJoin, TheGangStartsOnceAllAreHereWithRanksInNodeOrder) {
  CoordinatorOptions options;
  options.agent_store = true;
  Host(Node(0, 3, 2), options);
  Remote& two = Join(Node(2, 3, 1));
  Until([&] { return two.client->joined(); }, "node 2 to join");
  EXPECT_EQ(two.Last("go"), nullptr) << "two of three are no gang";
  Remote& one = Join(Node(1, 3, 4));
  Until([&] { return one.Last("go") && two.Last("go") && !local_.empty(); }, "go");
  EXPECT_EQ(GetInt(local_.back(), "rank_base"), 0);
  EXPECT_EQ(GetInt(*one.Last("go"), "rank_base"), 2);
  EXPECT_EQ(GetInt(*two.Last("go"), "rank_base"), 6);
  EXPECT_EQ(GetInt(*two.Last("go"), "world"), 7);
  EXPECT_EQ(GetInt(*two.Last("go"), "local_world"), 1);
  EXPECT_EQ(GetInt(*two.Last("go"), "nnodes"), 3);
  EXPECT_TRUE(GetBool(*two.Last("go"), "agent_store")) << "node 0 decides who hosts the store";
}

TEST_F(CoordinatorJoin, ProcessLevelCountsLocalRanksByHostWhereThePlatformDoesNotTell) {
  Host(Process(0, 4, "a"));
  Remote& r1 = Join(Process(1, 4, "a"));
  Remote& r2 = Join(Process(2, 4, "b"));
  Participant told = Process(3, 4, "b");
  told.local_rank = 1;
  told.local_world = 2;
  told.node_rank = 1;
  Remote& r3 = Join(told);
  Until([&] { return r1.Last("go") && r2.Last("go") && r3.Last("go"); }, "go");
  EXPECT_EQ(GetInt(*r1.Last("go"), "local_rank"), 1);
  EXPECT_EQ(GetInt(*r1.Last("go"), "node"), 0);
  EXPECT_EQ(GetInt(*r2.Last("go"), "local_rank"), 0);
  EXPECT_EQ(GetInt(*r2.Last("go"), "local_world"), 2);
  EXPECT_EQ(GetInt(*r2.Last("go"), "node"), 1);
  EXPECT_EQ(GetInt(*r3.Last("go"), "rank_base"), 3);
}

TEST_F(CoordinatorJoin, LaunchersWithoutANodeRankGetOneInOrderOfArrival) {
  Host(Node(-1, 3, 1));
  Remote& first = Join(Node(-1, 3, 1));
  Until([&] { return first.client->joined(); }, "the first");
  Remote& second = Join(Node(-1, 3, 1));
  Until([&] { return first.Last("go") && second.Last("go"); }, "go");
  EXPECT_EQ(GetInt(*first.Last("go"), "node"), 1);
  EXPECT_EQ(GetInt(*second.Last("go"), "node"), 2);
}

TEST_F(CoordinatorJoin, TheMissingAreNamedAtTheDeadline) {
  CoordinatorOptions options;
  options.join_timeout = Millis(1200);
  options.hosts = {"gpu-0", "gpu-1", "gpu-2"};
  Host(Node(0, 3), options);
  Join(Node(1, 3));
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 4);
  EXPECT_THAT(outcome_->reason, HasSubstr("2 of 3 nodes joined"));
  EXPECT_THAT(outcome_->reason, HasSubstr("missing: node 2 (gpu-2)"));
}

struct RefusalCase {
  const char* name;
  std::function<void(Participant&)> change;
  std::vector<const char*> words;
};

TEST_F(CoordinatorJoin, WhatDoesNotBelongTogetherIsRefusedNamingBothSides) {
  const RefusalCase cases[] = {
      {"version", [](Participant& m) { m.version = "2.0"; }, {"versions", "1.0", "2.0", "host-0", "host-1"}},
      {"job", [](Participant& m) { m.job = "other"; }, {"'job'", "'other'", "pid 1000", "pid 1001"}},
      {"level", [](Participant& m) { m.level = place::Level::kProcess; }, {"per process", "per node"}},
      {"size", [](Participant& m) { m.count = 4; }, {"expects 4", "expects 2"}},
      {"world", [](Participant& m) { m.world = 99; }, {"do not add up", "nproc 2", "99"}},
      {"range", [](Participant& m) { m.index = 2; }, {"node 2 does not exist"}},
      {"twice", [](Participant& m) { m.index = 0; }, {"claimed twice", "pid 1000 on host-0", "pid 1001 on host-1"}},
  };
  Participant self = Node(0, 2);
  self.world = 4;
  Host(self);
  for (const RefusalCase& test : cases) {
    SCOPED_TRACE(test.name);
    Participant participant = Node(1, 2);
    test.change(participant);
    Remote& remote = Join(participant);
    Until([&] { return !remote.failed.ok(); }, "the refusal");
    EXPECT_EQ(remote.failed.code(), Code::kRendezvous);
    for (const char* word : test.words) EXPECT_THAT(remote.failed.message(), HasSubstr(word));
    EXPECT_FALSE(remote.failed.hint().empty());
  }
  EXPECT_FALSE(outcome_.has_value()) << "a launcher of another job ended this one";
  Remote& good = Join(Node(1, 2));
  Until([&] { return good.Last("go") != nullptr; }, "the right one to start");
}

TEST_F(CoordinatorJoin, WhenEverybodyWhoCouldComeWasRefusedNobodyWaits) {
  CoordinatorOptions options;
  options.refused_patience = Millis(0);
  Host(Node(0, 3), options);
  Remote& waits = Join(Node(1, 3));
  Until([&] { return waits.client->joined(); }, "node 1 to join");
  // Of another job, and a second launcher of a machine that is here already: neither is the one that is missing.
  Participant stranger = Node(2, 3);
  stranger.job = "other";
  Remote& other = Join(stranger);
  Remote& again = Join(Node(1, 3));
  Until([&] { return !other.failed.ok() && !again.failed.ok(); }, "two refusals");
  EXPECT_FALSE(outcome_.has_value()) << outcome_->reason;
  Participant wrong = Node(2, 3);
  wrong.count = 4;
  Remote& refused = Join(wrong);
  UntilFinished();
  EXPECT_FALSE(refused.failed.ok());
  EXPECT_EQ(outcome_->exit_code, 4);
  EXPECT_THAT(outcome_->reason, HasSubstr("2 of 3 nodes joined, missing: node 2"));
  EXPECT_THAT(outcome_->reason, HasSubstr("node 2 (pid 1002 on host-2) was refused: the sizes differ"));
  EXPECT_THAT(outcome_->hint, HasSubstr("--nnodes"));
  Until([&] { return waits.Last("finish") != nullptr; }, "the waiting node to learn of it");
  EXPECT_EQ(GetInt(*waits.Last("finish"), "exit_code"), 4);
  EXPECT_THAT(GetString(*waits.Last("finish"), "reason"), HasSubstr("was refused"));
}

TEST_F(CoordinatorJoin, AnotherCommandLineIsAWarningThatShowsTheDifference) {
  Host(Node(0, 2));
  Participant participant = Node(1, 2);
  participant.command = {"train.py", "--lr", "2"};
  Remote& remote = Join(participant);
  Until([&] { return remote.Last("go") != nullptr; }, "go");
  EXPECT_THAT(said_, HasSubstr("argument 1 is '--lr' there and nothing here"));
}

TEST_F(CoordinatorJoin, TheTokenMustMatchInBothDirections) {
  CoordinatorOptions options;
  options.token = "right";
  Host(Node(0, 2), options);
  Remote& wrong = JoinWith(Node(1, 2), "wrong");
  Remote& none = JoinWith(Node(1, 2), "");
  Until([&] { return !wrong.failed.ok() && !none.failed.ok(); }, "both refusals");
  EXPECT_THAT(wrong.failed.message(), HasSubstr("the tokens differ"));
  EXPECT_THAT(none.failed.message(), HasSubstr("gave none"));
  EXPECT_EQ(said_.find("right"), std::string::npos) << "the token was shown";
  Remote& right = JoinWith(Node(1, 2), "right");
  Until([&] { return right.Last("go") != nullptr; }, "go");
}

TEST_F(CoordinatorJoin, AServerThatDoesNotKnowTheTokenIsNotFollowed) {
  auto listener = Listen(0, true);
  ASSERT_TRUE(listener.ok());
  port_ = LocalPort(listener->get());
  UniqueFd client;
  std::unique_ptr<Connection> impostor;
  loop_.Watch(listener->get(), EPOLLIN, [&](uint32_t) {
    client.reset(accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client) return;
    impostor = std::make_unique<Connection>(
        loop_, std::move(client),
        Connection::Events{[&](const Json&) { impostor->Send(ToJson(message::Welcome{"00"})); },
                           [](const std::string&) {}});
    impostor->Send(ToJson(message::Challenge{kProtocol, "1.0", "x"}));
  });
  Remote& remote = JoinWith(Node(1, 2), "secret");
  Until([&] { return !remote.failed.ok(); }, "the link to turn away");
  EXPECT_THAT(remote.failed.message(), HasSubstr("does not know the job token"));
  loop_.Unwatch(listener->get());
}

TEST_F(CoordinatorJoin, ScannersAndHalfOpenClientsDisturbNobody) {
  LocalRanks(0, 1, [](int, int) { return 0; });
  Host(Node(0, 2, 1));
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    auto fd = Connect("127.0.0.1", port_, Now() + Millis(5000));
    ASSERT_TRUE(fd.ok());
    const std::string bytes = i % 4 == 0   ? "GET / HTTP/1.0\r\n\r\n"
                              : i % 4 == 1 ? std::string("LKS\x01\xff\xff\xff\xff", 8)
                              : i % 4 == 2 ? EncodeFrame({{"type", "exit"}, {"rank", 0}, {"exit_code", 1}})
                                           : "L";
    ASSERT_TRUE(SendAll(fd->get(), bytes.data(), bytes.size(), Now() + Millis(5000)).ok());
    strangers.push_back(std::move(*fd));
    loop_.RunOnce(Millis(0));
  }
  Join(Node(1, 2, 1), RemoteRanks(1, 1, [](int, int) { return 0; }));
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 0);
}

}  // namespace
}  // namespace lockstep::launch
