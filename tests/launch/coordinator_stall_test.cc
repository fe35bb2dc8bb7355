// Stalls and stacks of all nodes, and what a diagnosis decides.
#include "coordinator_fixture.h"
#include "hang/movement.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using CoordinatorStall = CoordinatorTest;

// A rank that waits in a barrier, or one that sleeps, as an agent would report it.
Json StacksOf(int rank, bool waits) {
  hang::ProcessStacks process;
  process.rank = rank;
  process.pid = 100 + rank;
  hang::ThreadStack thread;
  thread.main = true;
  thread.state = 'S';
  thread.python = {{"<module>", "/h/train.py", waits ? 8 : 7}};
  if (waits) thread.python.insert(thread.python.begin(), {"barrier", "/v/torch/distributed/distributed_c10d.py", 1});
  if (!waits) thread.syscall = "clock_nanosleep";
  process.threads = {thread};
  return hang::ToJson(process);
}

Json Stacks(const Json& question, Json process) {
  return ToJson(message::Stacks{question["id"].get<int64_t>(), {std::move(process)}, {}, "", ""});
}

TEST_F(CoordinatorStall, AStallIsDecidedForAllNodesAfterTheirStacksAreIn) {
  CoordinatorOptions options;
  options.stall = {StallLimit::Mode::kStop, Millis(100)};  // three times that before the first progress
  Host(Node(0, 2, 1), options);
  LocalRanks(0, 1, [](int, int) { return -1; });
  const auto plain = on_local_;
  on_local_ = [=, this](const Json& message) {
    if (TypeOf(message) == "stacks") {
      coordinator_->FromLocalAgent(Stacks(message, StacksOf(0, true)));
    }
    plain(message);
  };
  const auto ranks = RemoteRanks(1, 1, [](int, int) { return -1; });
  Remote& other = Join(Node(1, 2, 1), [=](Remote& remote, const Json& message) {
    if (TypeOf(message) == "stacks") {
      remote.client->Send(Stacks(message, StacksOf(1, false)));
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
  EXPECT_EQ(GetInt(*other.Last("finish"), "exit_code"), 7);
}

TEST_F(CoordinatorStall, AJobThatMovesIsNotStalled) {
  CoordinatorOptions options;
  options.stall = {StallLimit::Mode::kStop, Millis(400)};
  Host(Node(0, 1, 1), options);
  int ticks = 0;
  std::function<void()> pulse = [&] {
    RankPulse rank;
    rank.rank = 0;
    rank.progress = rank.output = Millis(0);
    coordinator_->FromLocalAgent(ToJson(message::Pulse{0, {rank}}));
    if (++ticks < 40) {
      loop_.After(Millis(100), pulse);
    } else {
      coordinator_->FromLocalAgent(Exit(0, 0));
      coordinator_->FromLocalAgent(ToJson(message::Stopped{}));
    }
  };
  on_local_ = [&](const Json& message) {
    if (TypeOf(message) == "go") pulse();
    EXPECT_NE(TypeOf(message), "stacks");
  };
  UntilFinished();
  EXPECT_EQ(outcome_->exit_code, 0) << said_;
}

TEST_F(CoordinatorStall, AQuestionForStacksChangesNothing) {
  Host(Node(0, 1, 1));
  bool answered = false;
  on_local_ = [&](const Json& message) {
    if (TypeOf(message) == "go") {
      coordinator_->Inspect(false, false, [&](const Json& answer) {
        EXPECT_THAT(answer["hang"]["summary"].get<std::string>(), HasSubstr("rank 0 sleeps"));
        ASSERT_EQ(answer["prints"].size(), 1u) << "for comparing two looks";
        EXPECT_NE(hang::PrintFromJson(answer["prints"][0]).frames, 0u);
        EXPECT_EQ(answer["folder"], "");
        answered = true;
        coordinator_->FromLocalAgent(Exit(0, 0));
        coordinator_->FromLocalAgent(ToJson(message::Stopped{}));
      });
    } else if (TypeOf(message) == "stacks") {
      coordinator_->FromLocalAgent(Stacks(message, StacksOf(0, false)));
    }
  };
  UntilFinished();
  EXPECT_TRUE(answered);
  EXPECT_EQ(outcome_->exit_code, 0);
}

TEST_F(CoordinatorStall, ASureDiagnosisEndsAJobThatHasABudget) {
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
    if (TypeOf(message) != "go") return;
    ++attempts;
    coordinator_->FromLocalAgent(Exit(0, 1));
    message::Stopped stopped;
    stopped.details.resize(1);
    stopped.details[0].excerpt = {"SyntaxError: x\n", 7, "", 0};
    coordinator_->FromLocalAgent(ToJson(stopped));
  };
  UntilFinished();
  EXPECT_EQ(attempts, 1);
  EXPECT_EQ(outcome_->exit_code, 5);
  EXPECT_EQ(outcome_->diagnosis["signature"], "py-syntax");
  EXPECT_THAT(outcome_->reason, HasSubstr("a restart would only repeat it"));
}

TEST_F(CoordinatorStall, ADiagnosisThatThrowsOrFailsIsNoDiagnosis) {
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
