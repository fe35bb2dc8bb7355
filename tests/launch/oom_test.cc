#include "launch/oom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

class OomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<TempDir>(std::move(*dir));
  }
  void Put(const std::string& path, const std::string& text) {
    const std::string full = dir_->path() + path;
    ASSERT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  }
  std::unique_ptr<TempDir> dir_;
};

TEST_F(OomTest, ACounterOfTheCgroupThatRoseIsEvidence) {
  Put("/proc/self/cgroup", "0::/job/step\n");
  Put("/sys/fs/cgroup/job/step/memory.events", "low 0\nhigh 3\nmax 9\noom 1\noom_kill 2\n");
  Put("/sys/fs/cgroup/job/step/memory.max", "2147483648\n");
  const OomWatch watch(dir_->path());
  EXPECT_EQ(watch.Evidence(1), "") << "a kill before the start is not ours";
  Put("/sys/fs/cgroup/job/step/memory.events", "low 0\nhigh 3\nmax 9\noom 2\noom_kill 3\n");
  EXPECT_THAT(watch.Evidence(1), HasSubstr("oom_kill 2 -> 3"));
  EXPECT_THAT(watch.Evidence(1), HasSubstr("2.0 GiB"));
}

TEST_F(OomTest, InAContainerTheMountItselfIsTheCgroup) {
  Put("/proc/self/cgroup", "0::/kubepods/pod1/c2\n");
  Put("/sys/fs/cgroup/memory.events", "oom_kill 0\n");
  const OomWatch watch(dir_->path());
  Put("/sys/fs/cgroup/memory.events", "oom_kill 1\n");
  EXPECT_THAT(watch.Evidence(1), HasSubstr("oom_kill 0 -> 1"));
}

TEST_F(OomTest, TheOldHierarchyIsRead) {
  Put("/proc/self/cgroup", "11:cpu,cpuacct:/x\n7:memory:/y\n");
  Put("/sys/fs/cgroup/memory/y/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  const OomWatch watch(dir_->path());
  Put("/sys/fs/cgroup/memory/y/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_THAT(watch.Evidence(1), HasSubstr("oom_kill 4 -> 5"));
}

TEST_F(OomTest, TheKernelsLineAboutThisPidIsQuoted) {
  Put("/dev/kmsg", "6,1,2,-;Memory cgroup out of memory: Killed process 4711 (python3) total-vm:9kB, anon-rss:8kB\n");
  const OomWatch watch(dir_->path());
  EXPECT_THAT(watch.Evidence(4711), HasSubstr("Killed process 4711 (python3)"));
  EXPECT_EQ(watch.Evidence(471), "") << "a pid is not a prefix";
}

TEST_F(OomTest, WithoutFilesThereIsNoEvidenceAndNoError) { EXPECT_EQ(OomWatch(dir_->path()).Evidence(1), ""); }

}  // namespace
}  // namespace lockstep::launch
