#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"
#include "preflight/healthy_node.h"

namespace lockstep::preflight {
namespace {

using ::testing::HasSubstr;

TEST(GpuChecks, AHealthyNodeHasNothingToComplainAbout) {
  const CheckInput input = HealthyNode();
  for (auto* check : {CheckGpuCount, CheckGpuUnique, CheckGpuMemory, CheckGpuRecovery, CheckGpuXid, CheckGpuThrottle,
                      CheckGpuProcesses, CheckGpuLinks, CheckDriver}) {
    const CheckOutcome outcome = check(input);
    EXPECT_EQ(outcome.state(), State::kOk) << outcome.ToJson();
  }
}

TEST(GpuChecks, ANodeWithoutGpusSkipsThemAll) {
  CheckInput input = HealthyNode(0);
  input.here.driver = input.here.driver_library = "";
  input.root = "/nonexistent";
  for (auto* check : {CheckGpuCount, CheckGpuUnique, CheckGpuMemory, CheckGpuRecovery, CheckGpuXid, CheckGpuThrottle,
                      CheckGpuProcesses, CheckGpuLinks, CheckDriver}) {
    EXPECT_EQ(check(input).state(), State::kSkipped);
  }
}

TEST(GpuChecks, CardsOnTheBusWithoutADriverFail) {
  auto root = TempDir::Create();
  ASSERT_TRUE(root.ok());
  const std::string device = *root / "sys/bus/pci/devices/0000:18:00.0";
  ASSERT_TRUE(MakeDirs(device).ok());
  ASSERT_TRUE(WriteFileAtomic(device + "/vendor", "0x10de\n").ok());
  ASSERT_TRUE(WriteFileAtomic(device + "/class", "0x030200\n").ok());
  CheckInput input = HealthyNode(0);
  input.root = root->path();
  ExpectProblem(CheckGpuCount(input), State::kFail, "1 NVIDIA device on the PCI bus");
}

TEST(GpuChecks, MoreRanksThanGpusFail) {
  CheckInput input = HealthyNode();
  input.nproc = 9;
  ExpectProblem(CheckGpuCount(input), State::kFail, "9 ranks and 8 visible GPUs");
  input.nproc = 4;
  EXPECT_EQ(CheckGpuCount(input).state(), State::kOk);
  // Where every rank is started by itself, each sees its own.
  input.visible.resize(1);
  input.nproc = 8;
  input.process_level = true;
  EXPECT_EQ(CheckGpuCount(input).state(), State::kOk);
  input.process_level = false;
  input.nproc = 2;
  const CheckOutcome one = CheckGpuCount(input);
  ExpectProblem(one, State::kFail, "2 ranks and 1 visible GPU");
  EXPECT_THAT(one.problems[0].remedy, testing::StartsWith("start 1 rank here"));
}

TEST(GpuChecks, AGpuThatIsLostIsNamedEvenWhenTheOthersAreEnough) {
  CheckInput input = HealthyNode();
  input.here.gpus[6].error = "the GPU is lost";
  input.visible.erase(input.visible.begin() + 6);
  input.nproc = 4;
  ExpectProblem(CheckGpuCount(input), State::kFail, "GPU 6 (0000:1e:00.0): the GPU is lost");
}

TEST(GpuChecks, OneUuidTwiceFails) {
  CheckInput input = HealthyNode();
  input.visible[3].uuid = input.visible[1].uuid;
  ExpectProblem(CheckGpuUnique(input), State::kFail, "GPU 1 (0000:19:00.0) and GPU 3");
}

TEST(GpuChecks, MemoryErrorsByGravity) {
  CheckInput input = HealthyNode();
  input.visible[2].ecc_uncorrected = 3;
  ExpectProblem(CheckGpuMemory(input), State::kFail, "3 uncorrected ECC errors");
  input.visible[2].remap_pending = true;
  ExpectProblem(CheckGpuMemory(input), State::kFail, "waits for a reset");
  input.visible[2].remap_failed = true;
  ExpectProblem(CheckGpuMemory(input), State::kFail, "row remapping failed");
  input = HealthyNode();
  input.visible[0].remapped_uncorrectable = 1;
  ExpectProblem(CheckGpuMemory(input), State::kWarn, "1 rows were remapped");
}

TEST(GpuChecks, TheDriversVerdictIsPassedOn) {
  CheckInput input = HealthyNode();
  input.visible[5].recovery_action = "node reboot";
  const CheckOutcome outcome = CheckGpuRecovery(input);
  ExpectProblem(outcome, State::kFail, "GPU 5 (0000:1d:00.0): the driver asks for: node reboot");
  EXPECT_THAT(outcome.problems[0].remedy, HasSubstr("reboot"));
}

TEST(GpuChecks, XidsOfTheHardwareFailAndThoseOfProgramsDoNot) {
  CheckInput input = HealthyNode();
  input.visible[0].xids = {31, 43, 13};
  EXPECT_EQ(CheckGpuXid(input).state(), State::kOk);
  input.visible[1].xids = {79};
  input.visible[1].recovery_action = "";
  ExpectProblem(CheckGpuXid(input), State::kFail, "GPU 1 (0000:19:00.0): Xid 79 (fallen off the bus)");
  input.visible[1].recovery_action = "none";  // it happened, and the driver says all is well now
  ExpectProblem(CheckGpuXid(input), State::kWarn, "Xid 79");
}

TEST(GpuChecks, SlowedByHardwareFailsHeldBackBySoftwareWarns) {
  CheckInput input = HealthyNode();
  input.visible[7].throttle = {"sw power cap"};
  ExpectProblem(CheckGpuThrottle(input), State::kWarn, "GPU 7");
  input.visible[7].throttle = {"hw thermal slowdown"};
  ExpectProblem(CheckGpuThrottle(input), State::kFail, "hw thermal slowdown");
}

TEST(GpuChecks, AForeignProcessIsNamedWithItsPid) {
  auto root = TempDir::Create();
  ASSERT_TRUE(root.ok());
  ASSERT_TRUE(MakeDirs(*root / "proc/4711").ok());
  ASSERT_TRUE(
      WriteFileAtomic(*root / "proc/4711/environ", std::string("A=1\0LOCKSTEP_RUN_ID=exp7\0RANK=3\0", 33)).ok());
  ASSERT_TRUE(WriteFileAtomic(*root / "proc/4711/status",
                              fmt::format("Name:\tpython\nPPid:\t1\nUid:\t{0}\t{0}\t{0}\t{0}\n", getuid()))
                  .ok());
  CheckInput input = HealthyNode();
  input.root = root->path();
  input.visible[0].processes = {{4711, "python", 30ull << 30}};
  input.visible[1].processes = {{4711, "python", 10ull << 30}};
  const CheckOutcome outcome = CheckGpuProcesses(input);
  ExpectProblem(outcome, State::kFail, "pid 4711 (python) uses GPU 0, 1 with 40.0 GiB");
  EXPECT_EQ(outcome.problems.size(), 1u);
  EXPECT_THAT(outcome.problems[0].text, HasSubstr("left over from run 'exp7', its launcher is gone"));
  EXPECT_THAT(outcome.problems[0].remedy, HasSubstr("kill 4711"));
  // A desktop's share is in nobody's way.
  input.visible[0].processes = {{99, "Xorg", 40ull << 20}};
  input.visible[1].processes.clear();
  EXPECT_EQ(CheckGpuProcesses(input).state(), State::kWarn);
  // Of another container only the number is known.
  input.visible[0].processes = {{99, "", 40ull << 30}};
  ExpectProblem(CheckGpuProcesses(input), State::kFail, "pid 99 uses GPU 0");
}

TEST(GpuChecks, LinksAndFabric) {
  CheckInput input = HealthyNode();
  input.visible[0].nvlinks_active = 7;
  ExpectProblem(CheckGpuLinks(input), State::kWarn, "7 of 8 NVLinks");
  input.visible[0].nvlinks_active = 0;
  ExpectProblem(CheckGpuLinks(input), State::kFail, "0 of 8 NVLinks");
  input = HealthyNode();
  input.visible[3].fabric = "in progress";
  ExpectProblem(CheckGpuLinks(input), State::kFail, "fabric state 'in progress'");
  input = HealthyNode();
  input.visible[3].pcie_width = 8;
  ExpectProblem(CheckGpuLinks(input), State::kWarn, "PCIe x8 of x16");
}

TEST(GpuChecks, DriverAgainstItsLibraryAndAgainstPyTorch) {
  CheckInput input = HealthyNode();
  input.here.driver_library = "560.28.03";
  ExpectProblem(CheckDriver(input), State::kFail, "kernel module 550.90.07 and library 560.28.03 differ");
  input = HealthyNode(0);
  input.here.driver = input.here.driver_library = "";
  input.here.notes = {"libnvidia-ml.so.1 does not start: driver and library have different versions (NVML error 18)"};
  ExpectProblem(CheckDriver(input), State::kFail, "different versions");
  input.here.notes = {"libnvidia-ml.so.1 does not start: the NVIDIA driver is not loaded (NVML error 9)"};
  EXPECT_EQ(CheckDriver(input).state(), State::kSkipped);
  input = HealthyNode();
  input.python.torch_cuda = "13.0";
  ExpectProblem(CheckDriver(input), State::kFail, "needs CUDA 13.0, driver 550.90.07 serves up to 12.4");
  input.python.torch_cuda = "12.8";
  ExpectProblem(CheckDriver(input), State::kWarn, "built for CUDA 12.8");
  input.python.torch_cuda = "11.8";
  EXPECT_EQ(CheckDriver(input).state(), State::kOk);
  input.python.torch_cuda = "";
  ExpectProblem(CheckDriver(input), State::kWarn, "built without CUDA");
}

}  // namespace
}  // namespace lockstep::preflight
