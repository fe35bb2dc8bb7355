// The rendezvous of ranks, and the errors when it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "ranks.h"

namespace lockstep::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Sets variables for the length of a test; null unsets.
class Environment {
 public:
  explicit Environment(const std::map<std::string, const char*>& values) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                             "LOCKSTEP_NODE", "TORCHELASTIC_USE_AGENT_STORE"}) {
      const auto found = values.find(name);
      if (found == values.end()) {
        unsetenv(name);
      } else {
        setenv(name, found->second, 1);
      }
    }
  }
};

TEST(BootstrapFromEnvironment, ReadsTheVariablesOfAnyLauncher) {
  Environment set({{"RANK", "3"},
                   {"WORLD_SIZE", "8"},
                   {"LOCAL_RANK", "1"},
                   {"LOCAL_WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "head"},
                   {"MASTER_PORT", "1234"},
                   {"LOCKSTEP_NODE", "n1"},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const auto me = BootstrapFromEnvironment();
  ASSERT_TRUE(me.ok()) << me.status().ToString();
  EXPECT_EQ(me->rank, 3);
  EXPECT_EQ(me->size, 8);
  EXPECT_EQ(me->local_rank, 1);
  EXPECT_EQ(me->local_size, 2);
  EXPECT_EQ(me->master_addr, "head");
  EXPECT_EQ(me->master_port, 1234);
  EXPECT_EQ(me->node, "n1");
  EXPECT_TRUE(me->agent_store);
}

TEST(BootstrapFromEnvironment, IsAWorldOfOneWithoutALauncher) {
  Environment set({});
  const auto me = BootstrapFromEnvironment();
  ASSERT_TRUE(me.ok());
  EXPECT_EQ(me->size, 1);
  EXPECT_FALSE(me->agent_store);
}

TEST(BootstrapFromEnvironment, NamesWhatIsMissingOrWrong) {
  const std::pair<std::map<std::string, const char*>, const char*> kWrong[] = {
      {{{"RANK", "0"}}, "WORLD_SIZE is not set"},
      {{{"WORLD_SIZE", "2"}}, "RANK is not set"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK=2: expected a number from 0 to 1"},
      {{{"RANK", "x"}, {"WORLD_SIZE", "2"}}, "RANK=x"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "MASTER_PORT is not set"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "0"}}, "MASTER_PORT=0"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "99"}}, "MASTER_ADDR is not set"},
  };
  for (const auto& row : kWrong) {
    Environment set(row.first);
    EXPECT_THAT(BootstrapFromEnvironment().status().message(), HasSubstr(row.second));
  }
}

TEST(Rendezvous, FindsWhoSharesANodeWhateverTheEnvironmentClaims) {
  RunRanks(4, {"x", "y", "x", "y"}, Patient(), [](Communicator& comm) {
    const RankIdentity& identity = comm.identity();
    EXPECT_EQ(identity.nodes, 2);
    EXPECT_EQ(identity.node, identity.rank % 2);
    EXPECT_EQ(identity.local_rank, identity.rank / 2);
    EXPECT_EQ(identity.local_size, 2);
    EXPECT_EQ(comm.transport(), "shm+tcp");
  });
}

TEST(Rendezvous, OwnNodeIsTheSameForRanksOfOneMachine) {
  RunRanks(2, {"", ""}, Patient(), [](Communicator& comm) { EXPECT_EQ(comm.transport(), "shm"); });
}

TEST(Rendezvous, GroupsMeetAtOnePortAtTheSameTime) {
  const int port = FreePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    for (const char* group : {"main", "control", "third"}) {
      threads.emplace_back([=] {
        Options options = Patient();
        options.group = group;
        auto comm = Communicator::Connect(MakeBootstrap(rank, 3, port), options);
        ASSERT_TRUE(comm.ok()) << comm.status().ToString();
        auto objects = (*comm)->Gather(group);
        ASSERT_TRUE(objects.ok()) << objects.status().ToString();
        for (const auto& object : *objects) EXPECT_EQ(object, group);
      });
    }
  }
  for (auto& thread : threads) thread.join();
}

TEST(Rendezvous, RanksThatDoNotComeAreNamed) {
  auto comm = Communicator::Connect(MakeBootstrap(0, 3, FreePort()), Patient(std::chrono::milliseconds(200)));
  ASSERT_FALSE(comm.ok());
  EXPECT_THAT(comm.status().message(), HasSubstr("ranks 1, 2 of 3 did not connect"));
}

TEST(Rendezvous, RankThatFindsNobodySaysWhere) {
  const int port = FreePort();
  auto comm = Communicator::Connect(MakeBootstrap(1, 2, port), Patient(std::chrono::milliseconds(200)));
  ASSERT_FALSE(comm.ok());
  EXPECT_THAT(comm.status().message(), HasSubstr("no rank 0 at 127.0.0.1:" + std::to_string(port)));
}

TEST(Rendezvous, PortOfAnotherProgramIsNamed) {
  auto taken = Listen(0, true);
  ASSERT_TRUE(taken.ok());
  const int port = LocalPort(taken->get());
  auto comm = Communicator::Connect(MakeBootstrap(0, 2, port), Patient(std::chrono::milliseconds(1500)));
  ASSERT_FALSE(comm.ok());
  EXPECT_THAT(comm.status().message(), AllOf(HasSubstr("cannot listen on"), HasSubstr(std::to_string(port))));
}

void ExpectBothRead(const std::vector<Bootstrap>& ranks, const char* text) {
  std::vector<std::thread> threads;
  for (const Bootstrap& me : ranks) {
    threads.emplace_back([&] {
      auto comm = Communicator::Connect(me, Patient());
      ASSERT_FALSE(comm.ok());
      EXPECT_THAT(comm.status().message(), HasSubstr(text)) << me.rank;
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Rendezvous, DifferentWorldSizesAreAnErrorForAll) {
  const int port = FreePort();
  ExpectBothRead({MakeBootstrap(0, 2, port), MakeBootstrap(1, 3, port)}, "rank 1 has WORLD_SIZE=3, rank 0 has 2");
}

TEST(Rendezvous, TwoProcessesOfOneRankAreAnErrorForAll) {
  const int port = FreePort();
  ExpectBothRead({MakeBootstrap(0, 3, port), MakeBootstrap(1, 3, port), MakeBootstrap(1, 3, port)},
                 "two processes claim rank 1");
}

TEST(Rendezvous, ImpossibleRankIsRefused) {
  EXPECT_FALSE(Communicator::Connect(MakeBootstrap(2, 2, 1), Patient()).ok());
}

}  // namespace
}  // namespace lockstep::comm
