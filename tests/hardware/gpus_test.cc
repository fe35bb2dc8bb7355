#include "hardware/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "paths.h"

namespace lockstep::hardware {
namespace {

using testing::HasSubstr;

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

}  // namespace
}  // namespace lockstep::hardware
