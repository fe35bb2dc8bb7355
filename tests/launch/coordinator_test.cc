// How a job runs, restarts, stops and ends.
#include "launch/coordinator.h"

#include "coordinator_fixture.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

TEST_F(CoordinatorTest, SuccessOfAllRanksIsExitCodeZero) {
  LocalRanks(0, 2, [](int, int) { return 0; });
  Host(Node(0, 2));
  Remote& remote = Join(Node(1, 2), RemoteRanks(2, 2, [](int, int) { return 0; }));
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 0);
  Until([&] { return remote.Last("finish") != nullptr; }, "finish at the other node");
  EXPECT_EQ(GetInt(*remote.Last("finish"), "exit_code", -1), 0);
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
    if (TypeOf(message) == "go") ports.insert(GetInt(message, "master_port"));
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
  remote.client.reset();  // the socket closes, as it does when a process dies
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
  first.client.reset();
  Until([&] { return said_.find("waiting for a replacement of node 1") != std::string::npos; }, "the free node");
  Participant replacement = Node(1, 2, 1);
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
  remote.client->Send(ToJson(message::StopRequest{SIGINT, false}));
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 128 + SIGINT);
  EXPECT_EQ(GetInt(*remote.Last("stop"), "signal"), SIGINT);
}

TEST_F(CoordinatorTest, ALauncherWhoseMessageCannotBeReadIsLostAndTheFieldIsNamed) {
  LocalRanks(0, 1, [](int, int) { return -1; });
  Host(Node(0, 2, 1));
  Remote& remote = Join(Node(1, 2, 1));
  Until([&] { return remote.Last("go") != nullptr; }, "go");
  remote.client->Send({{"type", "exit"}, {"rank", "one"}});
  UntilFinished();
  EXPECT_EQ(outcome_->end, End::kNodeLost);
  EXPECT_THAT(outcome_->reason, HasSubstr("message 'exit' from node 1 (pid 1001 on host-1) at 127.0.0.1:"));
  EXPECT_THAT(outcome_->reason, HasSubstr("field 'rank': expected integer, found text \"one\""));
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
      if (TypeOf(message) == "go") {
        coordinator_->FromLocalAgent(ToJson(message::StopRequest{SIGTERM, false}));
      } else if (TypeOf(message) == "stop") {
        for (int rank = 0; rank < 2; ++rank) {
          const auto& [code, told] = test.exits[static_cast<size_t>(rank)];
          coordinator_->FromLocalAgent(Exit(rank, code, 0, told));
        }
        coordinator_->FromLocalAgent(ToJson(message::Stopped{}));
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
  remote.client.reset();
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
    if (TypeOf(message) == "go") {
      coordinator_->FromLocalAgent(ToJson(message::StopRequest{SIGINT, false}));
    } else if (TypeOf(message) == "stop") {
      for (int rank : {2, 1, 0}) {
        Json exit = Exit(rank, 0, rank == 0 ? SIGINT : SIGKILL, true);
        exit["killed"] = rank != 0;
        coordinator_->FromLocalAgent(exit);
      }
      coordinator_->FromLocalAgent(ToJson(message::Stopped{}));
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
    if (TypeOf(message) == "go") coordinator_->FromLocalAgent(Exit(0, 75));
    if (TypeOf(message) == "stop") {
      coordinator_->FromLocalAgent(Exit(1, 1, 0, true));
      coordinator_->FromLocalAgent(ToJson(message::Stopped{}));
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
    if (TypeOf(message) != "go") return;
    remote.client->Send(ToJson(message::StartFailed{"no such interpreter", "install it"}));
    remote.client->Send(ToJson(message::Stopped{}));
  });
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 3);
  EXPECT_THAT(outcome_->reason, HasSubstr("no such interpreter"));
  EXPECT_EQ(outcome_->hint, "install it");
}

}  // namespace
}  // namespace lockstep::launch
