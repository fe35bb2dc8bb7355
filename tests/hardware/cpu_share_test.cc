#include "hardware/cpu_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"

namespace lockstep::hardware {
namespace {

CpuRights On(std::vector<int> cpus, const std::string& machine = "m", double quota = 0,
             const std::string& cgroup = "/pod") {
  return {machine, std::move(cpus), quota > 0 ? cgroup : "", quota};
}

TEST(CpuShare, EveryCpuIsSharedByTheRanksThatMayUseIt) {
  const struct {
    const char* what;
    std::vector<CpuRights> ranks;
    std::vector<int> threads;
  } rows[] = {
      {"alone", {On({0, 1, 2, 3})}, {4}},
      {"anywhere", {On({0, 1, 2, 3}), On({0, 1, 2, 3})}, {2, 2}},
      {"bound, as by mpirun", {On({0, 1}), On({2, 3})}, {2, 2}},
      {"bound in part", {On({0, 1, 2, 3}), On({0, 1})}, {3, 1}},
      {"more ranks than CPUs", {On({0}), On({0}), On({0})}, {1, 1, 1}},
      {"two machines", {On({0, 1}, "a"), On({0, 1}, "b")}, {2, 2}},
      {"a quota for all", {On({0, 1, 2, 3, 4, 5, 6, 7}, "m", 4), On({0, 1, 2, 3, 4, 5, 6, 7}, "m", 4)}, {2, 2}},
      {"a quota each", {On({0, 1, 2, 3}, "m", 2, "/a"), On({0, 1, 2, 3}, "m", 2, "/b")}, {2, 2}},
      {"a quota of half a CPU", {On({0, 1}, "m", 0.5)}, {1}},
      {"a quota of one and a half", {On({0, 1}, "m", 1.5)}, {1}},
      {"nothing known", {On({})}, {1}},
  };
  for (const auto& row : rows) {
    for (size_t rank = 0; rank < row.ranks.size(); ++rank) {
      EXPECT_EQ(FairThreads(row.ranks, rank), row.threads[rank]) << row.what << ", rank " << rank;
    }
  }
}

TEST(CpuShare, IsReadAndTravelsAsText) {
  Result<TempDir> root = TempDir::Create();
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::string full = *root / path;
    ASSERT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  };
  write("proc/sys/kernel/random/boot_id", "b007\n");
  write("proc/self/cgroup", "0::/pod/box\n");
  write("sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
  const Result<CpuRights> read = CpuRightsFromText(ToText(ReadCpuRights(root->path())));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->machine, "b007");
  EXPECT_EQ(read->quota, 2.5);
  EXPECT_THAT(read->cgroup, testing::EndsWith("/sys/fs/cgroup/pod"));
  EXPECT_FALSE(read->cpus.empty());
  EXPECT_FALSE(CpuRightsFromText("{}").ok());
}

TEST(CpuShare, ThreadsSleepUnlessTheUserDecided) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    for (const char* other : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) unsetenv(other);
    setenv(name, "", 1);
    EXPECT_FALSE(LetWaitingThreadsSleep()) << name;
    unsetenv(name);
  }
  EXPECT_TRUE(LetWaitingThreadsSleep());
  EXPECT_STREQ(std::getenv("OMP_WAIT_POLICY"), "PASSIVE");
  EXPECT_FALSE(LetWaitingThreadsSleep());  // a program that executes itself again does so once
}

}  // namespace
}  // namespace lockstep::hardware
