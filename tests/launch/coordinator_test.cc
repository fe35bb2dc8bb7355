// A whole job in one thread: a real coordinator on a real loopback port, real links, and agents that are a few lines
// each. Nothing is started; the protocol and the decisions are what is tested.
#include "launch/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <deque>

#include "base/sockets.h"
#include "diagnose/movement.h"
#include "launch/link.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

Member Node(int index, int count, int nproc = 2) {
  Member member;
  member.index = index;
  member.count = count;
  member.nproc = nproc;
  member.host = "host-" + std::to_string(index);
  member.boot_id = "boot";
  member.version = "1.0";
  member.job = "job";
  member.pid = 1000 + index;
  member.command = {"train.py"};
  return member;
}

Member Process(int rank, int world, const std::string& host) {
  Member member = Node(rank, world, 1);
  member.level = place::Level::kProcess;
  member.host = host;
  member.world = world;
  return member;
}

// A remote launcher: link plus scripted agent.
struct Remote {
  std::unique_ptr<Link> link;
  std::deque<Json> got;
  Status failed;
  std::string lost;
  std::function<void(Remote&, const Json&)> on_message;

  const Json* Last(const std::string& type) const {
    for (auto it = got.rbegin(); it != got.rend(); ++it) {
      if (Text(*it, "type") == type) return &*it;
    }
    return nullptr;
  }
};

class CoordinatorTest : public ::testing::Test {
 protected:
  void Host(const Member& self, CoordinatorOptions options = {}) {
    auto listener = Listen(0, /*loopback_only=*/true);
    ASSERT_TRUE(listener.ok());
    port_ = LocalPort(listener->get());
    options.master_addr = "127.0.0.1";
    options.run_name = "run";
    options.pick_port = [this]() -> Result<int> { return next_port_++; };
    options.backoff = Millis(1);
    token_ = options.token;
    coordinator_ = std::make_unique<Coordinator>(
        loop_, options, self,
        Coordinator::Events{[this](const std::string& text) { said_ += text + "\n"; },
                            [this](const std::string& text) { status_ = text; },
                            [this](const char* type, const Json&) { events_.emplace_back(type); },
                            [this](const Outcome& outcome) { outcome_ = outcome; }});
    coordinator_->Serve(std::move(*listener));
    coordinator_->Start([this](const Json& message) {
      local_.push_back(message);
      if (on_local_) on_local_(message);
    });
  }

  Remote& Join(Member member, std::function<void(Remote&, const Json&)> on_message = {}) {
    return JoinWith(std::move(member), token_, std::move(on_message));
  }

  Remote& JoinWith(Member member, std::string token, std::function<void(Remote&, const Json&)> on_message = {}) {
    remotes_.push_back(std::make_unique<Remote>());
    Remote& remote = *remotes_.back();
    remote.on_message = std::move(on_message);
    LinkOptions options;
    options.host = "127.0.0.1";
    options.port = port_;
    options.token = std::move(token);
    options.join_timeout = Millis(20000);
    remote.link = std::make_unique<Link>(loop_, options, std::move(member),
                                         Link::Events{[&remote](const Json& message) {
                                                        remote.got.push_back(message);
                                                        if (Text(message, "type") == "finish") remote.link->Done();
                                                        if (remote.on_message) remote.on_message(remote, message);
                                                      },
                                                      [&remote](const Status& status) { remote.failed = status; },
                                                      [&remote](const std::string& why) { remote.lost = why; },
                                                      [](const std::string&) {}, [](const std::string&) {}});
    remote.link->Start();
    return remote;
  }

  // Turns the loop until the condition holds; fails the test after a generous deadline.
  void Until(const std::function<bool()>& condition, const char* what) {
    const TimePoint deadline = Now() + Millis(30000);
    while (!condition()) {
      ASSERT_LT(Now(), deadline) << "waited in vain for " << what << "\nsaid:\n" << said_;
      loop_.RunOnce(Millis(50));
    }
  }
  void UntilFinished() {
    Until([&] { return outcome_.has_value(); }, "the end of the job");
  }

  static Json Exit(int rank, int code, int signal = 0, bool after_stop = false) {
    RankExit exit;
    exit.rank = rank;
    exit.code = code;
    exit.signal = signal;
    exit.after_stop = after_stop;
    Json message = exit.ToJson();
    message["type"] = "exit";
    return message;
  }

  // An agent whose ranks all end as `code_of` says as soon as they start; a negative code waits for the stop.
  void LocalRanks(int first, int count, std::function<int(int rank, int attempt)> code_of) {
    on_local_ = [=, this](const Json& message) {
      Act(message, first, count, code_of, [this](const Json& m) { coordinator_->FromLocalAgent(m); });
    };
  }
  static std::function<void(Remote&, const Json&)> RemoteRanks(int first, int count,
                                                               std::function<int(int, int)> code_of) {
    return [=](Remote& remote, const Json& message) {
      Act(message, first, count, code_of, [&](const Json& m) { remote.link->Send(m); });
    };
  }
  static void Act(const Json& message, int first, int count, const std::function<int(int, int)>& code_of,
                  const std::function<void(const Json&)>& send) {
    static thread_local std::map<int, int> attempt_of;
    if (Text(message, "type") == "go") {
      const int attempt = static_cast<int>(Number(message, "attempt"));
      attempt_of[first] = attempt;
      int waiting = 0;
      for (int rank = first; rank < first + count; ++rank) {
        const int code = code_of(rank, attempt);
        if (code >= 0) {
          send(Exit(rank, code));
        } else {
          ++waiting;
        }
      }
      if (waiting == 0) send({{"type", "stopped"}, {"details", Json::array()}});
    } else if (Text(message, "type") == "stop") {
      for (int rank = first; rank < first + count; ++rank) {
        if (code_of(rank, attempt_of[first]) < 0) send(Exit(rank, 0, SIGTERM, true));
      }
      send({{"type", "stopped"}, {"details", Json::array()}});
    }
  }

  Loop loop_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<Remote>> remotes_;
  std::function<void(const Json&)> on_local_;
  std::deque<Json> local_;
  std::string said_, status_, token_;
  std::vector<std::string> events_;
  std::optional<Outcome> outcome_;
  int port_ = 0;
  int next_port_ = 40000;
};

TEST_F(CoordinatorTest, TheGangStartsOnceAllAreHereWithRanksInNodeOrder) {
  Host(Node(0, 3, 2));
  Remote& two = Join(Node(2, 3, 1));
  Until([&] { return two.link->joined(); }, "node 2 to join");
  EXPECT_EQ(two.Last("go"), nullptr) << "two of three are no gang";
  Remote& one = Join(Node(1, 3, 4));
  Until([&] { return one.Last("go") && two.Last("go") && !local_.empty(); }, "go");
  EXPECT_EQ(Number(local_.back(), "rank_base"), 0);
  EXPECT_EQ(Number(*one.Last("go"), "rank_base"), 2);
  EXPECT_EQ(Number(*two.Last("go"), "rank_base"), 6);
  EXPECT_EQ(Number(*two.Last("go"), "world"), 7);
  EXPECT_EQ(Number(*two.Last("go"), "local_world"), 1);
  EXPECT_EQ(Number(*two.Last("go"), "nnodes"), 3);
}

TEST_F(CoordinatorTest, ProcessLevelCountsLocalRanksByHostWhereThePlatformDoesNotTell) {
  Host(Process(0, 4, "a"));
  Remote& r1 = Join(Process(1, 4, "a"));
  Remote& r2 = Join(Process(2, 4, "b"));
  Member told = Process(3, 4, "b");
  told.local_rank = 1;
  told.local_world = 2;
  told.node_rank = 1;
  Remote& r3 = Join(told);
  Until([&] { return r1.Last("go") && r2.Last("go") && r3.Last("go"); }, "go");
  EXPECT_EQ(Number(*r1.Last("go"), "local_rank"), 1);
  EXPECT_EQ(Number(*r1.Last("go"), "node"), 0);
  EXPECT_EQ(Number(*r2.Last("go"), "local_rank"), 0);
  EXPECT_EQ(Number(*r2.Last("go"), "local_world"), 2);
  EXPECT_EQ(Number(*r2.Last("go"), "node"), 1);
  EXPECT_EQ(Number(*r3.Last("go"), "rank_base"), 3);
}

TEST_F(CoordinatorTest, LaunchersWithoutANodeRankGetOneInOrderOfArrival) {
  Host(Node(-1, 3, 1));
  Remote& first = Join(Node(-1, 3, 1));
  Until([&] { return first.link->joined(); }, "the first");
  Remote& second = Join(Node(-1, 3, 1));
  Until([&] { return first.Last("go") && second.Last("go"); }, "go");
  EXPECT_EQ(Number(*first.Last("go"), "node"), 1);
  EXPECT_EQ(Number(*second.Last("go"), "node"), 2);
}

TEST_F(CoordinatorTest, TheMissingAreNamedAtTheDeadline) {
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
  std::function<void(Member&)> change;
  std::vector<const char*> words;
};

TEST_F(CoordinatorTest, WhatDoesNotBelongTogetherIsRefusedNamingBothSides) {
  const RefusalCase cases[] = {
      {"version", [](Member& m) { m.version = "2.0"; }, {"versions", "1.0", "2.0", "host-0", "host-1"}},
      {"job", [](Member& m) { m.job = "other"; }, {"'job'", "'other'", "pid 1000", "pid 1001"}},
      {"level", [](Member& m) { m.level = place::Level::kProcess; }, {"per process", "per node"}},
      {"size", [](Member& m) { m.count = 4; }, {"expects 4", "expects 2"}},
      {"world", [](Member& m) { m.world = 99; }, {"do not add up", "nproc 2", "99"}},
      {"range", [](Member& m) { m.index = 2; }, {"node 2 does not exist"}},
      {"twice", [](Member& m) { m.index = 0; }, {"claimed twice", "pid 1000 on host-0", "pid 1001 on host-1"}},
  };
  Member self = Node(0, 2);
  self.world = 4;
  Host(self);
  for (const RefusalCase& test : cases) {
    SCOPED_TRACE(test.name);
    Member member = Node(1, 2);
    test.change(member);
    Remote& remote = Join(member);
    Until([&] { return !remote.failed.ok(); }, "the refusal");
    EXPECT_EQ(remote.failed.code(), Code::kRendezvous);
    for (const char* word : test.words) EXPECT_THAT(remote.failed.message(), HasSubstr(word));
    EXPECT_FALSE(remote.failed.hint().empty());
  }
  EXPECT_FALSE(outcome_.has_value()) << "a stranger ended the job";
  Remote& good = Join(Node(1, 2));
  Until([&] { return good.Last("go") != nullptr; }, "the right one to start");
}

TEST_F(CoordinatorTest, WhenEverybodyWhoCouldComeWasRefusedNobodyWaits) {
  CoordinatorOptions options;
  options.refused_patience = Millis(0);
  Host(Node(0, 3), options);
  Remote& waits = Join(Node(1, 3));
  Until([&] { return waits.link->joined(); }, "node 1 to join");
  // Of another job, and a second launcher of a machine that is here already: neither is the one that is missing.
  Member stranger = Node(2, 3);
  stranger.job = "other";
  Remote& other = Join(stranger);
  Remote& again = Join(Node(1, 3));
  Until([&] { return !other.failed.ok() && !again.failed.ok(); }, "two refusals");
  EXPECT_FALSE(outcome_.has_value()) << outcome_->reason;
  Member wrong = Node(2, 3);
  wrong.count = 4;
  Remote& refused = Join(wrong);
  UntilFinished();
  EXPECT_FALSE(refused.failed.ok());
  EXPECT_EQ(outcome_->exit_code, 4);
  EXPECT_THAT(outcome_->reason, HasSubstr("2 of 3 nodes joined, missing: node 2"));
  EXPECT_THAT(outcome_->reason, HasSubstr("node 2 (pid 1002 on host-2) was refused: the sizes differ"));
  EXPECT_THAT(outcome_->hint, HasSubstr("--nnodes"));
  Until([&] { return waits.Last("finish") != nullptr; }, "the waiting node to learn of it");
  EXPECT_EQ(Number(*waits.Last("finish"), "exit_code"), 4);
  EXPECT_THAT(Text(*waits.Last("finish"), "reason"), HasSubstr("was refused"));
}

TEST_F(CoordinatorTest, AnotherCommandLineIsAWarningThatShowsTheDifference) {
  Host(Node(0, 2));
  Member member = Node(1, 2);
  member.command = {"train.py", "--lr", "2"};
  Remote& remote = Join(member);
  Until([&] { return remote.Last("go") != nullptr; }, "go");
  EXPECT_THAT(said_, HasSubstr("argument 1 is '--lr' there and nothing here"));
}

TEST_F(CoordinatorTest, TheTokenMustMatchInBothDirections) {
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

TEST_F(CoordinatorTest, AServerThatDoesNotKnowTheTokenIsNotFollowed) {
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
        Connection::Events{[&](const Json&) { impostor->Send({{"type", "welcome"}, {"proof", "00"}}); },
                           [](const std::string&) {}});
    impostor->Send({{"type", "challenge"}, {"nonce", "x"}});
  });
  Remote& remote = JoinWith(Node(1, 2), "secret");
  Until([&] { return !remote.failed.ok(); }, "the link to turn away");
  EXPECT_THAT(remote.failed.message(), HasSubstr("does not know the job token"));
  loop_.Unwatch(listener->get());
}

TEST_F(CoordinatorTest, SuccessOfAllRanksIsExitCodeZero) {
  LocalRanks(0, 2, [](int, int) { return 0; });
  Host(Node(0, 2));
  Remote& remote = Join(Node(1, 2), RemoteRanks(2, 2, [](int, int) { return 0; }));
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 0);
  Until([&] { return remote.Last("finish") != nullptr; }, "finish at the other node");
  EXPECT_EQ(Number(*remote.Last("finish"), "exit_code", -1), 0);
}

TEST_F(CoordinatorTest, TheFirstFailingRankStopsTheOthersAndIsTheOneReported) {
  LocalRanks(0, 2, [](int, int) { return -1; });
  Host(Node(0, 2));
  Remote& remote = Join(Node(1, 2), RemoteRanks(2, 2, [](int rank, int) { return rank == 3 ? 17 : -1; }));
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 5);
  ASSERT_FALSE(outcome_->failures.empty());
  EXPECT_EQ(outcome_->failures[0].rank, 3);
  EXPECT_EQ(outcome_->failures[0].code, 17);
  EXPECT_EQ(outcome_->failures[0].node, 1);
  EXPECT_EQ(outcome_->failures.size(), 1u) << "ranks that were told to stop have not failed";
  ASSERT_NE(remote.Last("stop"), nullptr);
}

TEST_F(CoordinatorTest, ARestartIsANewRoundOnANewPort) {
  CoordinatorOptions options;
  options.max_restarts = 3;
  LocalRanks(0, 1, [](int, int attempt) { return attempt < 2 ? 1 + attempt : 0; });
  Host(Node(0, 1, 1), options);
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 0);
  EXPECT_EQ(outcome_->attempts, 3);
  std::set<int64_t> ports;
  for (const Json& message : local_) {
    if (Text(message, "type") == "go") ports.insert(Number(message, "master_port"));
  }
  EXPECT_EQ(ports.size(), 3u);
}

TEST_F(CoordinatorTest, AFailureThatRepeatsBeforeProgressUsesNoMoreOfTheBudget) {
  CoordinatorOptions options;
  options.max_restarts = 10;
  LocalRanks(0, 1, [](int, int) { return 1; });
  Host(Node(0, 1, 1), options);
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 5);
  EXPECT_EQ(outcome_->attempts, 2);
  EXPECT_THAT(outcome_->reason, HasSubstr("same failure twice"));
}

TEST_F(CoordinatorTest, ALauncherThatDiesIsALostNode) {
  LocalRanks(0, 1, [](int, int) { return -1; });
  Host(Node(0, 2, 1));
  Remote& remote = Join(Node(1, 2, 1));
  Until([&] { return remote.Last("go") != nullptr; }, "go");
  remote.link.reset();  // the socket closes, as it does when a process dies
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 6);
  EXPECT_THAT(outcome_->reason, HasSubstr("node 1 (pid 1001 on host-1)"));
}

TEST_F(CoordinatorTest, WithRestartsLeftALostNodeMayBeReplaced) {
  CoordinatorOptions options;
  options.max_restarts = 1;
  LocalRanks(0, 1, [](int, int attempt) { return attempt == 0 ? -1 : 0; });
  Host(Node(0, 2, 1), options);
  Remote& first = Join(Node(1, 2, 1));
  Until([&] { return first.Last("go") != nullptr; }, "go");
  first.link.reset();
  Until([&] { return said_.find("waiting for a replacement of node 1") != std::string::npos; }, "the free seat");
  Member replacement = Node(1, 2, 1);
  replacement.pid = 2001;
  Join(replacement, RemoteRanks(1, 1, [](int, int) { return 0; }));
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 0);
}

TEST_F(CoordinatorTest, AStopRequestFromAnyNodeStopsAllWithThatSignal) {
  LocalRanks(0, 1, [](int, int) { return -1; });
  Host(Node(0, 2, 1));
  Remote& remote = Join(Node(1, 2, 1), RemoteRanks(1, 1, [](int, int) { return -1; }));
  Until([&] { return remote.Last("go") != nullptr; }, "go");
  remote.link->Send({{"type", "stop_request"}, {"signal", SIGINT}});
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 128 + SIGINT);
  EXPECT_EQ(Number(*remote.Last("stop"), "signal"), SIGINT);
}

struct StopCase {
  const char* name;
  std::vector<std::pair<int, bool>> exits;  // code of each rank, and whether it was told to stop before
  int exit_code;
  End end;
};

TEST_F(CoordinatorTest, AJobThatWasAskedToStopHasNotSucceeded) {
  const StopCase cases[] = {
      {"saved and left with 0", {{0, true}, {0, true}}, 128 + SIGTERM, End::kStopped},
      {"one was done, the other was told", {{0, false}, {0, true}}, 128 + SIGTERM, End::kStopped},
      {"one says that it saved", {{0, true}, {75, true}}, 75, End::kSaved},
      {"all were done before the signal came", {{0, false}, {0, false}}, 0, End::kSucceeded},
      {"one ended with an error when told", {{0, true}, {1, true}}, 128 + SIGTERM, End::kStopped},
  };
  for (const StopCase& test : cases) {
    SCOPED_TRACE(test.name);
    outcome_.reset();
    Host(Node(0, 1, 2));
    on_local_ = [&](const Json& message) {
      if (Text(message, "type") == "go") {
        coordinator_->FromLocalAgent({{"type", "stop_request"}, {"signal", SIGTERM}});
      } else if (Text(message, "type") == "stop") {
        for (int rank = 0; rank < 2; ++rank) {
          const auto& [code, told] = test.exits[static_cast<size_t>(rank)];
          coordinator_->FromLocalAgent(Exit(rank, code, 0, told));
        }
        coordinator_->FromLocalAgent({{"type", "stopped"}, {"details", Json::array()}});
      }
    };
    UntilFinished();
    EXPECT_EQ(outcome_->exit_code, test.exit_code) << outcome_->reason;
    EXPECT_EQ(outcome_->end, test.end);
  }
}

TEST_F(CoordinatorTest, ALostNodeIsTheCauseAndNotTheSignalThatStoppedTheOthers) {
  CoordinatorOptions options;
  options.diagnose = [](const auto&, const diagnose::DiagnoseOptions& known) -> Result<diagnose::Diagnosis> {
    diagnose::Diagnosis found;
    if (known.exits.empty()) return found;  // the first call, which only warms up
    found.verdict = diagnose::Verdict::kFailure;
    found.signature = "exit-sigterm";
    found.cause = "rank 0 was ended by SIGTERM";
    found.remedy = "look at its last lines";
    found.rank = 0;
    return found;
  };
  LocalRanks(0, 1, [](int, int) { return -1; });
  Host(Node(0, 2, 1), options);
  Remote& remote = Join(Node(1, 2, 1));
  Until([&] { return remote.Last("go") != nullptr; }, "go");
  remote.link.reset();
  UntilFinished();
  EXPECT_EQ(outcome_->end, End::kNodeLost);
  EXPECT_EQ(outcome_->diagnosis["signature"], "node-lost");
  EXPECT_EQ(outcome_->diagnosis["node"], "host-1");
  EXPECT_THAT(outcome_->diagnosis.dump(), ::testing::Not(HasSubstr("SIGTERM")));
  EXPECT_THAT(outcome_->hint, HasSubstr("look at that machine"));
  EXPECT_TRUE(outcome_->diagnosis_text.empty()) << "the reason says it already";
  EXPECT_EQ(coordinator_->nnodes(), 2) << "the lost one counts";
}

TEST_F(CoordinatorTest, RanksThatHadToBeKilledAreNamed) {
  Host(Node(0, 1, 3));
  on_local_ = [&](const Json& message) {
    if (Text(message, "type") == "go") {
      coordinator_->FromLocalAgent({{"type", "stop_request"}, {"signal", SIGINT}});
    } else if (Text(message, "type") == "stop") {
      for (int rank : {2, 1, 0}) {
        Json exit = Exit(rank, 0, rank == 0 ? SIGINT : SIGKILL, true);
        exit["killed"] = rank != 0;
        coordinator_->FromLocalAgent(exit);
      }
      coordinator_->FromLocalAgent({{"type", "stopped"}, {"details", Json::array()}});
    }
  };
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 128 + SIGINT);
  EXPECT_EQ(outcome_->killed, (std::vector<int>{1, 2}));
}

TEST_F(CoordinatorTest, SeventyFiveMeansResumeMeAndUsesNoRestart) {
  CoordinatorOptions options;
  options.max_restarts = 3;
  LocalRanks(0, 2, [](int, int) { return 75; });
  Host(Node(0, 1, 2), options);
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 75);
  EXPECT_EQ(outcome_->restarts, 0);
}

TEST_F(CoordinatorTest, OneRankThatCouldNotSaveTakesThePromiseBack) {
  on_local_ = [this](const Json& message) {
    if (Text(message, "type") == "go") coordinator_->FromLocalAgent(Exit(0, 75));
    if (Text(message, "type") == "stop") {
      coordinator_->FromLocalAgent(Exit(1, 1, 0, true));
      coordinator_->FromLocalAgent({{"type", "stopped"}, {"details", Json::array()}});
    }
  };
  Host(Node(0, 1, 2));
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 5);
  ASSERT_FALSE(outcome_->failures.empty());
  EXPECT_EQ(outcome_->failures[0].rank, 1);
}

TEST_F(CoordinatorTest, ANodeThatCannotStartItsRanksEndsTheJobAsEnvironment) {
  LocalRanks(0, 1, [](int, int) { return -1; });
  Host(Node(0, 2, 1));
  Join(Node(1, 2, 1), [](Remote& remote, const Json& message) {
    if (Text(message, "type") != "go") return;
    remote.link->Send({{"type", "start_failed"}, {"why", "no such interpreter"}, {"hint", "install it"}});
    remote.link->Send({{"type", "stopped"}, {"details", Json::array()}});
  });
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 3);
  EXPECT_THAT(outcome_->reason, HasSubstr("no such interpreter"));
  EXPECT_EQ(outcome_->hint, "install it");
}

TEST_F(CoordinatorTest, ScannersAndHalfOpenClientsDisturbNobody) {
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

// A rank that waits in a barrier, or one that sleeps, as an agent would report it.
Json StacksOf(int rank, bool waits) {
  diagnose::ProcessStacks process;
  process.rank = rank;
  process.pid = 100 + rank;
  diagnose::ThreadStack thread;
  thread.main = true;
  thread.state = 'S';
  thread.python = {{"<module>", "/h/train.py", waits ? 8 : 7}};
  if (waits) thread.python.insert(thread.python.begin(), {"barrier", "/v/torch/distributed/distributed_c10d.py", 1});
  if (!waits) thread.syscall = "clock_nanosleep";
  process.threads = {thread};
  return diagnose::ToJson(process);
}

TEST_F(CoordinatorTest, AStallIsDecidedForAllNodesAfterTheirStacksAreIn) {
  CoordinatorOptions options;
  options.stall = {StallLimit::Mode::kStop, Millis(100)};  // three times that before the first progress
  Host(Node(0, 2, 1), options);
  LocalRanks(0, 1, [](int, int) { return -1; });
  const auto plain = on_local_;
  on_local_ = [=, this](const Json& message) {
    if (Text(message, "type") == "stacks") {
      coordinator_->FromLocalAgent({{"type", "stacks"}, {"id", message["id"]}, {"ranks", {StacksOf(0, true)}}});
    }
    plain(message);
  };
  const auto ranks = RemoteRanks(1, 1, [](int, int) { return -1; });
  Remote& other = Join(Node(1, 2, 1), [=](Remote& remote, const Json& message) {
    if (Text(message, "type") == "stacks") {
      remote.link->Send({{"type", "stacks"}, {"id", message["id"]}, {"ranks", {StacksOf(1, false)}}});
    }
    ranks(remote, message);
  });
  UntilFinished();
  EXPECT_EQ(outcome_->end, End::kStalled);
  EXPECT_EQ(outcome_->exit_code, 7);
  EXPECT_THAT(outcome_->reason, HasSubstr("rank 1 sleeps at train.py:7"));
  EXPECT_EQ(outcome_->stall["ranks"], Json({1}));
  EXPECT_EQ(outcome_->stall["places"][1]["host"], "host-1");
  Until([&] { return other.Last("finish") != nullptr; }, "the other node to hear of it");
  EXPECT_EQ(Number(*other.Last("finish"), "exit_code"), 7);
}

TEST_F(CoordinatorTest, AJobThatMovesIsNotStalled) {
  CoordinatorOptions options;
  options.stall = {StallLimit::Mode::kStop, Millis(400)};
  Host(Node(0, 1, 1), options);
  int ticks = 0;
  std::function<void()> pulse = [&] {
    RankPulse rank;
    rank.rank = 0;
    rank.progress = rank.output = Millis(0);
    coordinator_->FromLocalAgent({{"type", "pulse"}, {"attempt", 0}, {"ranks", {rank.ToJson()}}});
    if (++ticks < 40) {
      loop_.After(Millis(100), pulse);
    } else {
      coordinator_->FromLocalAgent(Exit(0, 0));
      coordinator_->FromLocalAgent({{"type", "stopped"}, {"details", Json::array()}});
    }
  };
  on_local_ = [&](const Json& message) {
    if (Text(message, "type") == "go") pulse();
    EXPECT_NE(Text(message, "type"), "stacks");
  };
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 0) << said_;
}

TEST_F(CoordinatorTest, AQuestionForStacksChangesNothing) {
  Host(Node(0, 1, 1));
  bool answered = false;
  on_local_ = [&](const Json& message) {
    if (Text(message, "type") == "go") {
      coordinator_->Inspect(false, false, [&](const Json& answer) {
        EXPECT_THAT(answer["hang"]["summary"].get<std::string>(), HasSubstr("rank 0 sleeps"));
        ASSERT_EQ(answer["prints"].size(), 1u) << "for comparing two looks";
        EXPECT_NE(diagnose::PrintFromJson(answer["prints"][0]).frames, 0u);
        EXPECT_EQ(answer["folder"], "");
        answered = true;
        coordinator_->FromLocalAgent(Exit(0, 0));
        coordinator_->FromLocalAgent({{"type", "stopped"}, {"details", Json::array()}});
      });
    } else if (Text(message, "type") == "stacks") {
      coordinator_->FromLocalAgent({{"type", "stacks"}, {"id", message["id"]}, {"ranks", {StacksOf(0, false)}}});
    }
  };
  UntilFinished();
  EXPECT_TRUE(answered);
  EXPECT_EQ(outcome_->exit_code, 0);
}

TEST_F(CoordinatorTest, ASureDiagnosisEndsAJobThatHasABudget) {
  CoordinatorOptions options;
  options.max_restarts = 3;
  options.diagnose = [](const std::vector<diagnose::LogText>& logs,
                        const diagnose::DiagnoseOptions& known) -> Result<diagnose::Diagnosis> {
    diagnose::Diagnosis found;
    if (known.exits.empty()) return found;  // the first call, which only warms up
    if (logs.size() == 1 && logs[0].text == "SyntaxError: x\n" && logs[0].first_line == 7) {
      found.verdict = diagnose::Verdict::kFailure;
      found.signature = "py-syntax";
      found.cause = "SyntaxError";
      found.restart = diagnose::Restart::kNo;
      found.confidence = 0.95;
    }
    return found;
  };
  Host(Node(0, 1, 1), options);
  int attempts = 0;
  on_local_ = [&](const Json& message) {
    if (Text(message, "type") != "go") return;
    ++attempts;
    coordinator_->FromLocalAgent(Exit(0, 1));
    coordinator_->FromLocalAgent(
        {{"type", "stopped"}, {"details", {{{"rank", 0}, {"text", "SyntaxError: x\n"}, {"first_line", 7}}}}});
  };
  UntilFinished();
  EXPECT_EQ(attempts, 1);
  EXPECT_EQ(outcome_->exit_code, 5);
  EXPECT_EQ(outcome_->diagnosis["signature"], "py-syntax");
  EXPECT_THAT(outcome_->reason, HasSubstr("a restart would only repeat it"));
}

TEST_F(CoordinatorTest, ADiagnosisThatThrowsOrFailsIsNoDiagnosis) {
  for (const bool throws : {true, false}) {
    outcome_.reset();
    CoordinatorOptions options;
    options.diagnose = [throws](const auto&, const auto&) -> Result<diagnose::Diagnosis> {
      if (throws) throw std::runtime_error("no");
      return Status(Code::kEnvironment, "no");
    };
    Host(Node(0, 1, 1), options);
    LocalRanks(0, 1, [](int, int) { return 1; });
    UntilFinished();
    EXPECT_EQ(outcome_->exit_code, 5);
    EXPECT_TRUE(outcome_->diagnosis.is_null());
  }
}

}  // namespace
}  // namespace lockstep::launch
