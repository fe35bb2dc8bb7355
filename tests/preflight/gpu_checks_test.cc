#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"
#include "preflight/scene.h"

namespace lockstep::preflight {
namespace {

using ::testing::HasSubstr;

// The row fails (or warns), its text holds the words, and it says what to do.
void ExpectProblem(const Outcome& outcome, State state, const std::string& words) {
  EXPECT_EQ(outcome.state(), state);
  ASSERT_FALSE(outcome.problems.empty());
  EXPECT_THAT(outcome.problems[0].text, HasSubstr(words));
  EXPECT_FALSE(outcome.problems[0].remedy.empty());
}

TEST(GpuChecks, AHealthyNodeHasNothingToComplainAbout) {
  const Scene scene = HealthyScene();
  for (auto* check : {CheckGpuCount, CheckGpuUnique, CheckGpuMemory, CheckGpuRecovery, CheckGpuXid, CheckGpuThrottle,
                      CheckGpuProcesses, CheckGpuLinks, CheckDriver}) {
    const Outcome outcome = check(scene);
    EXPECT_EQ(outcome.state(), State::kOk) << outcome.ToJson();
  }
}

TEST(GpuChecks, ANodeWithoutGpusSkipsThemAll) {
  Scene scene = HealthyScene(0);
  scene.here.driver = scene.here.driver_library = "";
  scene.root = "/nonexistent";
  for (auto* check : {CheckGpuCount, CheckGpuUnique, CheckGpuMemory, CheckGpuRecovery, CheckGpuXid, CheckGpuThrottle,
                      CheckGpuProcesses, CheckGpuLinks, CheckDriver}) {
    EXPECT_EQ(check(scene).state(), State::kSkipped);
  }
}

TEST(GpuChecks, CardsOnTheBusWithoutADriverFail) {
  auto root = TempDir::Create();
  ASSERT_TRUE(root.ok());
  const std::string device = *root / "sys/bus/pci/devices/0000:18:00.0";
  ASSERT_TRUE(MakeDirs(device).ok());
  ASSERT_TRUE(WriteFileAtomic(device + "/vendor", "0x10de\n").ok());
  ASSERT_TRUE(WriteFileAtomic(device + "/class", "0x030200\n").ok());
  Scene scene = HealthyScene(0);
  scene.root = root->path();
  ExpectProblem(CheckGpuCount(scene), State::kFail, "1 NVIDIA device on the PCI bus");
}

TEST(GpuChecks, MoreRanksThanGpusFail) {
  Scene scene = HealthyScene();
  scene.nproc = 9;
  ExpectProblem(CheckGpuCount(scene), State::kFail, "9 ranks and 8 visible GPUs");
  scene.nproc = 4;
  EXPECT_EQ(CheckGpuCount(scene).state(), State::kOk);
  // Where every rank is started by itself, each sees its own.
  scene.visible.resize(1);
  scene.nproc = 8;
  scene.process_level = true;
  EXPECT_EQ(CheckGpuCount(scene).state(), State::kOk);
  scene.process_level = false;
  scene.nproc = 2;
  const Outcome one = CheckGpuCount(scene);
  ExpectProblem(one, State::kFail, "2 ranks and 1 visible GPU");
  EXPECT_THAT(one.problems[0].remedy, testing::StartsWith("start 1 rank here"));
}

TEST(GpuChecks, AGpuThatIsLostIsNamedEvenWhenTheOthersAreEnough) {
  Scene scene = HealthyScene();
  scene.here.gpus[6].error = "the GPU is lost";
  scene.visible.erase(scene.visible.begin() + 6);
  scene.nproc = 4;
  ExpectProblem(CheckGpuCount(scene), State::kFail, "GPU 6 (0000:1e:00.0): the GPU is lost");
}

TEST(GpuChecks, OneUuidTwiceFails) {
  Scene scene = HealthyScene();
  scene.visible[3].uuid = scene.visible[1].uuid;
  ExpectProblem(CheckGpuUnique(scene), State::kFail, "GPU 1 (0000:19:00.0) and GPU 3");
}

TEST(GpuChecks, MemoryErrorsByGravity) {
  Scene scene = HealthyScene();
  scene.visible[2].ecc_uncorrected = 3;
  ExpectProblem(CheckGpuMemory(scene), State::kFail, "3 uncorrected ECC errors");
  scene.visible[2].remap_pending = true;
  ExpectProblem(CheckGpuMemory(scene), State::kFail, "waits for a reset");
  scene.visible[2].remap_failed = true;
  ExpectProblem(CheckGpuMemory(scene), State::kFail, "row remapping failed");
  scene = HealthyScene();
  scene.visible[0].remapped_uncorrectable = 1;
  ExpectProblem(CheckGpuMemory(scene), State::kWarn, "1 rows were remapped");
}

TEST(GpuChecks, TheDriversVerdictIsPassedOn) {
  Scene scene = HealthyScene();
  scene.visible[5].recovery_action = "node reboot";
  const Outcome outcome = CheckGpuRecovery(scene);
  ExpectProblem(outcome, State::kFail, "GPU 5 (0000:1d:00.0): the driver asks for: node reboot");
  EXPECT_THAT(outcome.problems[0].remedy, HasSubstr("reboot"));
}

TEST(GpuChecks, XidsOfTheHardwareFailAndThoseOfProgramsDoNot) {
  Scene scene = HealthyScene();
  scene.visible[0].xids = {31, 43, 13};
  EXPECT_EQ(CheckGpuXid(scene).state(), State::kOk);
  scene.visible[1].xids = {79};
  scene.visible[1].recovery_action = "";
  ExpectProblem(CheckGpuXid(scene), State::kFail, "GPU 1 (0000:19:00.0): Xid 79 (fallen off the bus)");
  scene.visible[1].recovery_action = "none";  // it happened, and the driver says all is well now
  ExpectProblem(CheckGpuXid(scene), State::kWarn, "Xid 79");
}

TEST(GpuChecks, SlowedByHardwareFailsHeldBackBySoftwareWarns) {
  Scene scene = HealthyScene();
  scene.visible[7].throttle = {"sw power cap"};
  ExpectProblem(CheckGpuThrottle(scene), State::kWarn, "GPU 7");
  scene.visible[7].throttle = {"hw thermal slowdown"};
  ExpectProblem(CheckGpuThrottle(scene), State::kFail, "hw thermal slowdown");
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
  Scene scene = HealthyScene();
  scene.root = root->path();
  scene.visible[0].processes = {{4711, "python", 30ull << 30}};
  scene.visible[1].processes = {{4711, "python", 10ull << 30}};
  const Outcome outcome = CheckGpuProcesses(scene);
  ExpectProblem(outcome, State::kFail, "pid 4711 (python) uses GPU 0, 1 with 40.0 GiB");
  EXPECT_EQ(outcome.problems.size(), 1u);
  EXPECT_THAT(outcome.problems[0].text, HasSubstr("left over from run 'exp7', its launcher is gone"));
  EXPECT_THAT(outcome.problems[0].remedy, HasSubstr("kill 4711"));
  // A desktop's share is in nobody's way.
  scene.visible[0].processes = {{99, "Xorg", 40ull << 20}};
  scene.visible[1].processes.clear();
  EXPECT_EQ(CheckGpuProcesses(scene).state(), State::kWarn);
  // Of another container only the number is known.
  scene.visible[0].processes = {{99, "", 40ull << 30}};
  ExpectProblem(CheckGpuProcesses(scene), State::kFail, "pid 99 uses GPU 0");
}

TEST(GpuChecks, LinksAndFabric) {
  Scene scene = HealthyScene();
  scene.visible[0].nvlinks_active = 7;
  ExpectProblem(CheckGpuLinks(scene), State::kWarn, "7 of 8 NVLinks");
  scene.visible[0].nvlinks_active = 0;
  ExpectProblem(CheckGpuLinks(scene), State::kFail, "0 of 8 NVLinks");
  scene = HealthyScene();
  scene.visible[3].fabric = "in progress";
  ExpectProblem(CheckGpuLinks(scene), State::kFail, "fabric state 'in progress'");
  scene = HealthyScene();
  scene.visible[3].pcie_width = 8;
  ExpectProblem(CheckGpuLinks(scene), State::kWarn, "PCIe x8 of x16");
}

TEST(GpuChecks, DriverAgainstItsLibraryAndAgainstPyTorch) {
  Scene scene = HealthyScene();
  scene.here.driver_library = "560.28.03";
  ExpectProblem(CheckDriver(scene), State::kFail, "kernel module 550.90.07 and library 560.28.03 differ");
  scene = HealthyScene(0);
  scene.here.driver = scene.here.driver_library = "";
  scene.here.notes = {"libnvidia-ml.so.1 does not start: driver and library have different versions (NVML error 18)"};
  ExpectProblem(CheckDriver(scene), State::kFail, "different versions");
  scene.here.notes = {"libnvidia-ml.so.1 does not start: the NVIDIA driver is not loaded (NVML error 9)"};
  EXPECT_EQ(CheckDriver(scene).state(), State::kSkipped);
  scene = HealthyScene();
  scene.python.torch_cuda = "13.0";
  ExpectProblem(CheckDriver(scene), State::kFail, "needs CUDA 13.0, driver 550.90.07 serves up to 12.4");
  scene.python.torch_cuda = "12.8";
  ExpectProblem(CheckDriver(scene), State::kWarn, "built for CUDA 12.8");
  scene.python.torch_cuda = "11.8";
  EXPECT_EQ(CheckDriver(scene).state(), State::kOk);
  scene.python.torch_cuda = "";
  ExpectProblem(CheckDriver(scene), State::kWarn, "built without CUDA");
}

}  // namespace
}  // namespace lockstep::preflight
