#include "place/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "paths.h"
#include "place/gpus.h"

namespace lockstep::place {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// What the driver shows is set for one scope.
class Driver {
 public:
  explicit Driver(const char* devices) { setenv("LOCKSTEP_FAKE_NVML", devices, 1); }
  ~Driver() { unsetenv("LOCKSTEP_FAKE_NVML"); }
};

GpuList Find(const Environment& env, const std::string& root = "/nonexistent") {
  return FindGpus(env, TestProgramDir() + "/libfake_nvml.so", root);
}

int Visible(const char* devices, const Environment& env) {
  Driver driver(devices);
  return CountVisible(env, Find(env).gpus).count;
}

int Seen(const char* devices, const char* list) { return Visible(devices, {{"CUDA_VISIBLE_DEVICES", list}}); }

constexpr const char* kFour = "GPU-a1,GPU-a2,GPU-b1,GPU-c1";

TEST(Gpus, AreCountedByNvml) {
  Driver driver(kFour);
  const GpuList list = Find({});
  EXPECT_EQ(list.source, "nvml");
  ASSERT_EQ(list.gpus.size(), 4u);
  EXPECT_EQ(list.gpus[2].uuid, "GPU-b1");
}

TEST(Gpus, VisibleOnesKeepTheirBusIdsInTheOrderOfTheList) {
  Driver driver(kFour);
  EXPECT_EQ(CountVisible({{"CUDA_VISIBLE_DEVICES", "2,0"}}, Find({}).gpus).pci,
            (std::vector<std::string>{"0000:12:00.0", "0000:10:00.0"}));
}

TEST(Gpus, ADeviceThatFellOffTheBusDoesNotCount) { EXPECT_EQ(Visible("GPU-a,!,GPU-b", {}), 2); }

TEST(Gpus, IndicesChooseUntilTheFirstThatNamesNothing) {
  EXPECT_EQ(Seen(kFour, "0,1"), 2);
  EXPECT_EQ(Seen(kFour, "3"), 1);
  EXPECT_EQ(Seen(kFour, " 2 , 0 "), 2);
  EXPECT_EQ(Seen(kFour, "0,9,1"), 1);
  EXPECT_EQ(Seen(kFour, "0,-1,1"), 1);
  EXPECT_EQ(Seen(kFour, "1gpu2,2ampere"), 2);  // as strtol reads it, and PyTorch
  EXPECT_EQ(Seen(kFour, "0,,1"), 1);
}

TEST(Gpus, EmptyMinusOneAndWordsHideAll) {
  EXPECT_EQ(Seen(kFour, ""), 0);
  EXPECT_EQ(Seen(kFour, "-1"), 0);
  EXPECT_EQ(Seen(kFour, "NoDevFiles"), 0);
}

TEST(Gpus, ADeviceNamedTwiceHidesAll) {
  EXPECT_EQ(Seen(kFour, "0,1,0"), 0);
  EXPECT_EQ(Seen(kFour, "GPU-a1,GPU-a1"), 0);
  EXPECT_EQ(Seen(kFour, "GPU-b,GPU-b1"), 0);  // two names of one device
}

TEST(Gpus, NamesChooseByUniquePrefix) {
  EXPECT_EQ(Seen(kFour, "GPU-b,GPU-c1"), 2);
  EXPECT_EQ(Seen(kFour, "GPU-c,GPU-a"), 1);  // GPU-a is two devices
  EXPECT_EQ(Seen(kFour, "GPU-zz"), 0);
  EXPECT_EQ(Seen(kFour, "GPU-b1,0"), 1);  // one kind holds for the whole list
}

constexpr const char* kMig = "GPU-a:MIG-1+MIG-2,GPU-b:MIG-3";

TEST(Gpus, OfMigDevicesAProcessSeesOne) {
  EXPECT_EQ(Visible(kMig, {}), 1);
  EXPECT_EQ(Seen(kMig, "MIG-2"), 1);
  EXPECT_EQ(Seen(kMig, "MIG-1,MIG-3"), 1);
  EXPECT_EQ(Seen(kMig, "1"), 1);
  EXPECT_EQ(Seen(kMig, "MIG-9"), 0);
}

TEST(Gpus, AMigDeviceHidesWholeGpus) {
  EXPECT_EQ(Visible("GPU-a:MIG-1,GPU-b,GPU-c", {}), 1);
  EXPECT_EQ(Seen("GPU-a:MIG-1,GPU-b,GPU-c", "1,2"), 2);
}

TEST(Gpus, MigModeWithoutDevicesComputesNothing) {
  EXPECT_EQ(Visible("GPU-a:", {}), 0);
  EXPECT_EQ(Visible("GPU-a:,GPU-b", {}), 1);
}

TEST(Gpus, CardsThatKnowNoMigCount) { EXPECT_EQ(Visible("GPU-old1,GPU-old2", {}), 2); }

TEST(Gpus, ContainersWithoutGpusAreBelieved) {
  Driver driver(kFour);
  EXPECT_TRUE(Find({{"NVIDIA_VISIBLE_DEVICES", "none"}}).gpus.empty());
  // Device plugins that use CDI set "void" while they hand GPUs in: what NVML shows is there.
  EXPECT_EQ(Find({{"NVIDIA_VISIBLE_DEVICES", "void"}}).gpus.size(), 4u);
}

class Kernel : public testing::Test {
 protected:
  void Gpu(int minor, bool node) {
    const std::string folder = root_ / "proc/driver/nvidia/gpus/0000:0" + std::to_string(minor) + ":00.0";
    ASSERT_TRUE(MakeDirs(folder).ok());
    ASSERT_TRUE(WriteFileAtomic(folder + "/information", "Model: \t\t NVIDIA H100\nGPU UUID:   \t GPU-" +
                                                             std::to_string(minor) + "\nDevice Minor: \t " +
                                                             std::to_string(minor) + "\n")
                    .ok());
    if (!node) return;
    ASSERT_TRUE(MakeDirs(root_ / "dev").ok());
    ASSERT_TRUE(WriteFileAtomic(root_ / ("dev/nvidia" + std::to_string(minor)), "").ok());
  }

  Result<TempDir> made_ = TempDir::Create();
  TempDir& root_ = *made_;
};

TEST_F(Kernel, CountsWhereNvmlIsMissing) {
  Gpu(0, true);
  Gpu(1, true);
  const GpuList list = FindGpus({}, "/nonexistent/libnvidia-ml.so.1", root_.path());
  EXPECT_EQ(list.source, "/proc/driver/nvidia");
  EXPECT_THAT(list.note, HasSubstr("cannot be loaded"));
  ASSERT_EQ(list.gpus.size(), 2u);
  EXPECT_EQ(list.gpus[1].uuid, "GPU-1");
}

TEST_F(Kernel, CountsOnlyGpusWhoseDeviceNodeIsHere) {
  Gpu(0, false);
  Gpu(1, true);
  EXPECT_EQ(FindGpus({}, "/nonexistent/x.so", root_.path()).gpus.size(), 1u);
}

TEST_F(Kernel, CountsWhereNvmlDoesNotStart) {
  Driver driver("fail");
  Gpu(0, true);
  const GpuList list = Find({}, root_.path());
  EXPECT_EQ(list.gpus.size(), 1u);
  EXPECT_THAT(list.note, HasSubstr("does not start"));
}

TEST_F(Kernel, IsNotAskedInAContainerThatWasGivenNoGpu) {
  Gpu(0, true);
  EXPECT_TRUE(FindGpus({{"NVIDIA_VISIBLE_DEVICES", "void"}}, "/nonexistent/x.so", root_.path()).gpus.empty());
}

TEST(Gpus, WithoutAnyDriverThereAreNone) {
  const GpuList list = FindGpus({}, "/nonexistent/x.so", "/nonexistent");
  EXPECT_TRUE(list.gpus.empty());
  EXPECT_EQ(list.source, "no driver");
}

TEST(MachineFacts, AssumedGpusAreFilteredByTheEnvironment) {
  MachineOptions options;
  options.gpus = 8;
  options.host = "pod-3";
  options.cpus = 5;
  const Machine machine = ReadMachine({{"CUDA_VISIBLE_DEVICES", "0,5"}}, options);
  EXPECT_EQ(machine.gpus, 2);
  EXPECT_EQ(machine.host, "pod-3");
  EXPECT_EQ(machine.cpus, 5);
  EXPECT_EQ(ReadMachine({{"CUDA_VISIBLE_DEVICES", "GPU-x,GPU-y,GPU-z"}}, options).gpus, 3);
  EXPECT_EQ(ReadMachine({{"CUDA_VISIBLE_DEVICES", "8"}}, options).gpus, 0);
  EXPECT_EQ(ReadMachine({}, options).gpus, 8);
}

// A made-up /proc and /sys.
class Proc : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_ / path;
    ASSERT_TRUE(MakeDirs(fs::path(full).parent_path()).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  }
  void Process(const std::string& pid, const std::string& exe, const std::string& cgroup,
               const std::string& environment) {
    Write("proc/" + pid + "/cgroup", cgroup);
    Write("proc/" + pid + "/environ", environment);
    fs::create_symlink(exe, root_ / ("proc/" + pid + "/exe"));
  }
  void Self(const std::string& pid) { fs::create_directory_symlink(pid, root_ / "proc/self"); }
  static std::string Ranked(int rank, const std::string& world = "16", const std::string& port = "29500") {
    std::string text =
        "RANK=" + std::to_string(rank) + "|WORLD_SIZE=" + world + "|MASTER_ADDR=h|MASTER_PORT=" + port + "|";
    std::replace(text.begin(), text.end(), '|', '\0');
    return text;
  }

  Result<TempDir> made_ = TempDir::Create();
  TempDir& root_ = *made_;
};

TEST_F(Proc, CpusAreLimitedByTheQuotaOfAnyCgroupAbove) {
  Write("proc/self/cgroup", "0::/pod/box\n");
  Write("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
  EXPECT_GE(CountCpus(root_.path()), 1);
  Write("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  EXPECT_EQ(CountCpus(root_.path()), 1);  // half a CPU: at least one
  Write("proc/self/status", "Cpus_allowed_list:\t0-7\n");
  Write("sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  EXPECT_EQ(CountCpus(root_.path()), 3);  // a fourth thread would be stopped half of the time
}

TEST_F(Proc, CpusAreLimitedByTheOldHierarchyToo) {
  Write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CountCpus(root_.path()), 1);
}

TEST_F(Proc, CpusWithoutAQuotaAreThoseOfTheAffinity) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(CountCpus(root_.path()), CPU_COUNT(&set));
}

TEST_F(Proc, SiblingsAreOurProgramInOurCgroupAndOurJob) {
  Process("100", "/bin/lockstep", "0::/pod\n", Ranked(3));
  Process("101", "/bin/lockstep", "0::/pod\n", Ranked(4));
  Process("102", "/bin/lockstep", "0::/pod\n", Ranked(2));
  Process("103", "/bin/other", "0::/pod\n", Ranked(5));
  Process("104", "/bin/lockstep", "0::/elsewhere\n", Ranked(6));
  Process("105", "/bin/lockstep", "0::/pod\n", Ranked(7, "8"));
  Process("106", "/bin/lockstep", "0::/pod\n", Ranked(8, "16", "1234"));
  Self("100");
  const Environment env{{"RANK", "3"}, {"WORLD_SIZE", "16"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
  EXPECT_THAT(FindSiblingRanks(env, root_.path()), ElementsAre(2, 4));
}

TEST_F(Proc, TheNearestLauncherAmongTheParentsIsNamed) {
  auto process = [&](const std::string& pid, const std::string& parent, std::string command) {
    std::replace(command.begin(), command.end(), ' ', '\0');
    Write("proc/" + pid + "/stat", pid + " (a) b) c) S " + parent + " 1 1 0\n");
    Write("proc/" + pid + "/cmdline", command + std::string(1, '\0'));
  };
  process("self", "40", "lockstep run");
  process("40", "30", "bash run.sh torchrun");
  process("30", "20", "/usr/bin/python3.11 -u /opt/bin/torchrun --nproc-per-node 8");
  process("20", "1", "/usr/bin/python3 -m accelerate.commands.launch x.py");
  EXPECT_EQ(FindOuterLauncher(root_.path()), "torchrun (pid 30)");
  process("30", "20", "python train.py");
  EXPECT_EQ(FindOuterLauncher(root_.path()), "accelerate (pid 20)");
  process("20", "1", "sshd");
  EXPECT_EQ(FindOuterLauncher(root_.path()), "");
}

}  // namespace
}  // namespace lockstep::place
