#include "hardware/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>

#include "base/files.h"

namespace lockstep::hardware {
namespace {

// A made-up /proc and /sys.
class Cpus : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_ / path;
    ASSERT_TRUE(MakeDirs(std::filesystem::path(full).parent_path()).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  }

  Result<TempDir> made_ = TempDir::Create();
  TempDir& root_ = *made_;
};

TEST_F(Cpus, AreLimitedByTheQuotaOfAnyCgroupAbove) {
  Write("proc/self/cgroup", "0::/pod/box\n");
  Write("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
  EXPECT_GE(CountCpus(root_.path()), 1);
  Write("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  EXPECT_EQ(CountCpus(root_.path()), 1);  // half a CPU: at least one
  Write("proc/self/status", "Cpus_allowed_list:\t0-7\n");
  Write("sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  EXPECT_EQ(CountCpus(root_.path()), 3);  // a fourth thread would be stopped half of the time
}

TEST_F(Cpus, AreLimitedByTheOldHierarchyToo) {
  Write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CountCpus(root_.path()), 1);
}

TEST_F(Cpus, WithoutAQuotaAreThoseOfTheAffinity) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(CountCpus(root_.path()), CPU_COUNT(&set));
}

}  // namespace
}  // namespace lockstep::hardware
