// What ranks get to read when one of them is dead, stuck, late, gone, or calls something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "ranks.h"

namespace lockstep::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Of tests that wait for a deadline: what must happen before it happens, however busy the machine.
constexpr std::chrono::seconds kDeadline(4);
// Of tests whose answer comes long before any deadline: waiting for this one would be the failure.
constexpr std::chrono::minutes kNever(10);

struct World {
  const char* name;
  std::vector<std::string> nodes;
};
void PrintTo(const World& w, std::ostream* out) { *out << w.name; }
const World kWorlds[] = {
    {"one_node", {"a", "a", "a", "a"}}, {"two_nodes", {"a", "a", "b", "b"}}, {"four_nodes", {"a", "b", "c", "d"}}};

class Failure : public testing::TestWithParam<World> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Failure, testing::ValuesIn(kWorlds), [](const auto& test) { return test.param.name; });

// Runs four ranks as threads and returns what each of them read last.
std::vector<std::string> Read(const World& world, std::chrono::milliseconds timeout,
                              const std::function<Status(Communicator&)>& body) {
  std::vector<std::string> texts(4);
  RunRanks(4, world.nodes, Patient(timeout), [&](Communicator& comm) {
    texts[static_cast<size_t>(comm.identity().rank)] = body(comm).message();
    // Broken for good, with the same words.
    EXPECT_EQ(comm.Barrier().message(), texts[static_cast<size_t>(comm.identity().rank)]);
    EXPECT_FALSE(comm.Allocate(10).ok());
    float value = 0;
    EXPECT_FALSE(comm.AllReduce(&value, 1, DType::kF32).Wait().ok());
  });
  return texts;
}

TEST_P(Failure, DifferentSizesAreNamedOnEveryRank) {
  for (size_t large : {size_t{1}, size_t{100000}}) {
    const auto texts = Read(GetParam(), kNever, [&](Communicator& comm) {
      std::vector<float> data(large + 1);
      LOCKSTEP_RETURN_IF_ERROR(comm.Barrier());
      return comm.AllReduceNow(data.data(), large + (comm.identity().rank == 2 ? 1 : 0), DType::kF32);
    });
    for (const auto& text : texts) {
      EXPECT_THAT(text, AllOf(HasSubstr("rank 2 called all_reduce(f32, " + std::to_string(large + 1) + ", sum)"),
                              HasSubstr("operation 3"),
                              HasSubstr("called all_reduce(f32, " + std::to_string(large) + ", sum)")));
    }
  }
}

TEST_P(Failure, DifferentTypesAndReductionsAreNamed) {
  const auto types = Read(GetParam(), kNever, [](Communicator& comm) {
    int64_t data[2] = {};
    return comm.AllReduceNow(data, 2, comm.identity().rank == 3 ? DType::kI64 : DType::kF64);
  });
  for (const auto& text : types) EXPECT_THAT(text, AllOf(HasSubstr("rank 3 called all_reduce(i64"), HasSubstr("f64")));
  const auto ops = Read(GetParam(), kNever, [](Communicator& comm) {
    int64_t data[2] = {};
    return comm.AllReduceNow(data, 2, DType::kI64, comm.identity().rank == 3 ? Op::kMax : Op::kSum);
  });
  for (const auto& text : ops) EXPECT_THAT(text, AllOf(HasSubstr("rank 3"), HasSubstr("max"), HasSubstr("sum")));
}

TEST_P(Failure, DifferentOperationsAreNamed) {
  const auto texts = Read(GetParam(), kNever, [](Communicator& comm) {
    std::vector<std::byte> data(4096);
    if (comm.identity().rank == 1) return comm.AllReduceNow(data.data(), 1000, DType::kF32);
    return comm.BroadcastNow(data.data(), 4096, 0);
  });
  for (const auto& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("rank 1 called all_reduce(f32, 1000, sum)"), HasSubstr("as operation 2"),
                            HasSubstr("broadcast(4096 bytes from rank 0)")));
  }
}

TEST_P(Failure, DifferentRootsAreNamed) {
  const auto texts = Read(GetParam(), kNever, [](Communicator& comm) {
    char byte = 0;
    return comm.BroadcastNow(&byte, 1, comm.identity().rank < 2 ? 0 : 3);
  });
  for (const auto& text : texts) EXPECT_THAT(text, AllOf(HasSubstr("from rank 0"), HasSubstr("from rank 3")));
}

TEST_P(Failure, RankThatDoesNotArriveIsNamedAtTheDeadline) {
  std::atomic<int> told{0};
  const auto texts = Read(GetParam(), kDeadline, [&](Communicator& comm) {
    LOCKSTEP_RETURN_IF_ERROR(comm.Barrier());
    if (comm.identity().rank == 3) {  // busy with something else until everybody has given up
      while (told < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return comm.Barrier();
    }
    std::vector<float> data(100000);
    const Status status = comm.AllReduceNow(data.data(), data.size(), DType::kF32);
    ++told;
    return status;
  });
  for (size_t rank = 0; rank < 3; ++rank) {  // rank 3 itself may also hear that the others called something else
    EXPECT_THAT(texts[rank], AllOf(HasSubstr("operation 3 all_reduce(f32, 100000, sum) did not finish within 4 s"),
                                   HasSubstr("rank 3 has not arrived, it stands after operation 2 barrier()"),
                                   Not(HasSubstr("rank 1 has"))));
  }
}

TEST_P(Failure, AbortReachesRanksThatWait) {
  const auto texts = Read(GetParam(), kNever, [](Communicator& comm) {
    if (comm.identity().rank == 2) comm.Abort("the loss is not a number");
    return comm.Barrier();
  });
  for (const auto& text : texts) EXPECT_EQ(text, "rank 2 aborted: the loss is not a number");
}

TEST_P(Failure, RankThatLeavesIsNamedByThoseThatGoOn) {
  std::vector<std::string> texts(4);
  RunRanks(4, GetParam().nodes, Patient(), [&](Communicator& comm) {
    EXPECT_EQ(comm.Barrier().ToString(), "");
    if (comm.identity().rank == 1) return;  // its communicator is closed
    texts[static_cast<size_t>(comm.identity().rank)] = comm.Barrier().message();
  });
  for (size_t r : {0U, 2U, 3U}) {
    EXPECT_THAT(texts[r], HasSubstr("rank 1 closed its communicator after operation 2")) << r;
  }
}

TEST_P(Failure, ClosingWithStartedOperationsDoesNotHang) {
  RunRanks(4, GetParam().nodes, Patient(), [&](Communicator& comm) {
    static std::vector<float> data(1000000);
    if (comm.identity().rank == 0) (void)comm.AllReduce(data.data(), data.size(), DType::kF32);
  });
}

// --- processes ---
TEST_P(Failure, KilledRankIsNamedWithTheOperation) {
  const int port = FreePort();
  const World& world = GetParam();
  Processes ranks(4, [&](int rank) {
    auto comm = Communicator::Connect(MakeBootstrap(rank, 4, port, world.nodes), Patient());
    if (!comm.ok()) return comm.status().message();
    std::vector<float> data(300000);
    for (int step = 0;; ++step) {
      if (rank == 2 && step == 5) raise(SIGKILL);
      const Status status = (*comm)->AllReduceNow(data.data(), data.size(), DType::kF32);
      if (!status.ok()) return status.message();
    }
  });
  EXPECT_EQ(ranks.Text(2), "");
  for (int rank : {0, 1, 3}) {
    EXPECT_THAT(ranks.Text(rank), AllOf(HasSubstr("rank 2 died"), HasSubstr("all_reduce(f32, 300000, sum)"))) << rank;
  }
}

TEST_P(Failure, KilledRankZeroIsNamed) {
  const int port = FreePort();
  const World& world = GetParam();
  Processes ranks(4, [&](int rank) {
    auto comm = Communicator::Connect(MakeBootstrap(rank, 4, port, world.nodes), Patient());
    if (!comm.ok()) return comm.status().message();
    if (rank == 0) raise(SIGKILL);
    return (*comm)->Barrier().message();
  });
  for (int rank : {1, 2, 3}) EXPECT_THAT(ranks.Text(rank), HasSubstr("rank 0 died")) << rank;
}

TEST_P(Failure, StoppedRankIsNamedAsSilent) {
  const int port = FreePort();
  const World& world = GetParam();
  Processes ranks(4, [&](int rank) {
    auto comm = Communicator::Connect(MakeBootstrap(rank, 4, port, world.nodes), Patient(kDeadline));
    if (!comm.ok()) return comm.status().message();
    if (rank == 3) raise(SIGSTOP);
    return (*comm)->Barrier().message();
  });
  for (int rank : {0, 1, 2}) EXPECT_THAT(ranks.Text(rank), HasSubstr("rank 3 does not answer")) << rank;
}

// The names of the unix sockets of a process, "@lockstep-...".
std::vector<std::string> OwnSockets() {
  std::ifstream table("/proc/net/unix");
  std::map<std::string, std::string> name_of;  // by inode
  for (std::string line; std::getline(table, line);) {
    const auto at = line.find('@');
    if (at == std::string::npos) continue;
    const std::string before = line.substr(0, at - 1);
    name_of[before.substr(before.rfind(' ') + 1)] = line.substr(at);
  }
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    if (target.rfind("socket:[", 0) != 0) continue;
    const auto found = name_of.find(target.substr(8, target.size() - 9));
    if (found != name_of.end()) names.push_back(found->second);
  }
  return names;
}

// Files below /dev/shm that this process has open or mapped.
std::vector<std::string> OwnSharedMemoryFiles() {
  std::vector<std::string> names;
  const auto add = [&](const std::string& path) {
    if (path.rfind("/dev/shm/", 0) == 0) names.push_back(path);
  };
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) add(line.substr(std::min(line.find('/'), line.size())));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    add(std::filesystem::read_symlink(entry.path(), error));
  }
  return names;
}

TEST(Leftovers, NothingIsLeftAfterAllRanksAreKilled) {
  const int port = FreePort();
  const std::string path = testing::TempDir() + "/leftover-" + std::to_string(getpid());
  // What other programs keep in /dev/shm is theirs, whatever its name.
  const std::string other = "/dev/shm/lockstep-of-another-" + std::to_string(getpid());
  std::ofstream(other) << "x";
  Processes ranks(2, [&](int rank) {
    auto comm = Communicator::Connect(MakeBootstrap(rank, 2, port), Patient());
    if (!comm.ok() || !(*comm)->Allocate(1 << 20).ok()) return std::string("no communicator");
    std::ofstream out(path + "-" + std::to_string(rank));
    for (const std::string& name : OwnSockets()) out << name << "\n";
    for (const std::string& name : OwnSharedMemoryFiles()) out << name << "\n";
    out.close();
    raise(SIGKILL);
    return std::string("alive");
  });
  EXPECT_EQ(ranks.Text(0), "");
  EXPECT_EQ(ranks.Text(1), "");
  std::vector<std::string> sockets_made, files_made;
  for (const char* rank : {"-0", "-1"}) {
    std::ifstream file(path + rank);
    for (std::string name; std::getline(file, name);) (name[0] == '@' ? sockets_made : files_made).push_back(name);
    std::filesystem::remove(path + rank);
  }
  ASSERT_FALSE(sockets_made.empty());  // there was something to leave
  std::ifstream table("/proc/net/unix");
  const std::string sockets{std::istreambuf_iterator<char>(table), {}};
  for (const std::string& name : sockets_made) EXPECT_THAT(sockets, Not(HasSubstr(name)));
  for (const std::string& name : files_made) EXPECT_FALSE(std::filesystem::exists(name)) << name;
  std::filesystem::remove(other);
  // The port is free again at once, and a new world meets there.
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        auto comm = Communicator::Connect(MakeBootstrap(rank, 2, port), Patient());
        EXPECT_TRUE(comm.ok()) << comm.status().ToString();
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace lockstep::comm
