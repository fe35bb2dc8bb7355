#include "place/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "paths.h"

namespace lockstep::place {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

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
