// GPUs by a library with NVML's interface (fake_nvml.cc), in the states a scheduler meets.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "hardware/hardware.h"
#include "hardware/tree.h"
#include "paths.h"

namespace lockstep::hardware {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Hardware Scan(const std::string& devices, const Tree& tree, const Environment& env = {},
              const std::string& library = TestProgramDir() + "/libfake_nvml.so") {
  setenv("LOCKSTEP_FAKE_NVML", devices.c_str(), 1);
  HardwareOptions options;
  options.env = env;
  options.root = tree.root();
  options.nvml = library;
  Hardware here = ScanHardware(options);
  unsetenv("LOCKSTEP_FAKE_NVML");
  return here;
}

Hardware Scan(const std::string& devices) { return Scan(devices, Tree::Empty()); }

TEST(GpuStates, EightHealthyGpus) {
  std::string devices;
  for (const char* bus : {"18", "29", "3a", "59", "9a", "aa", "ba", "da"})
    devices += fmt::format("{}GPU-{};pci=0000:{}:00", devices.empty() ? "" : ",", bus, bus);
  const Hardware here = Scan(devices, Tree::Unpack("h800-8ib"));
  EXPECT_EQ(here.gpu_source, "nvml");
  EXPECT_EQ(here.driver, "535.161.08");
  EXPECT_EQ(here.driver_library, "535.161.08");
  EXPECT_EQ(here.cuda, "12.2");
  ASSERT_EQ(here.gpus.size(), 8u);
  EXPECT_EQ(here.gpus_visible, 8);
  const GpuState& gpu = here.gpus[5];
  EXPECT_EQ(gpu.index, 5);
  EXPECT_EQ(gpu.name, "NVIDIA H800");
  EXPECT_EQ(gpu.uuid, "GPU-aa");
  EXPECT_EQ(gpu.pci, "0000:aa:00.0");
  EXPECT_EQ(gpu.numa, 1);
  EXPECT_EQ(gpu.memory_total, 85899345920u);
  EXPECT_EQ(gpu.memory_used, 473741824u);  // without what the driver keeps
  EXPECT_EQ(gpu.ecc, true);
  EXPECT_EQ(gpu.ecc_corrected, 2u);
  EXPECT_EQ(gpu.ecc_uncorrected, 0u);
  EXPECT_EQ(gpu.remapped_uncorrectable, 0);
  EXPECT_EQ(gpu.remap_pending, false);
  EXPECT_EQ(gpu.recovery_action, "none");
  EXPECT_EQ(gpu.nvlinks, 8);
  EXPECT_EQ(gpu.nvlinks_active, 8);
  EXPECT_EQ(gpu.fabric, "completed");
  EXPECT_EQ(gpu.fabric_cluster, "");
  EXPECT_EQ(gpu.sm_clock, 345);
  EXPECT_EQ(gpu.sm_clock_max, 1980);
  EXPECT_EQ(gpu.memory_clock, 2619);
  EXPECT_THAT(gpu.throttle, IsEmpty());  // idle is no throttling
  EXPECT_EQ(gpu.temperature, 34);
  EXPECT_EQ(gpu.power_watts, 71);
  EXPECT_EQ(gpu.utilisation, 7);
  EXPECT_EQ(gpu.compute_capability, "9.0");
  EXPECT_EQ(gpu.pcie_gen, 5);
  EXPECT_EQ(gpu.pcie_width_max, 16);
  EXPECT_THAT(gpu.processes, IsEmpty());
  EXPECT_THAT(here.notes, Each(Not(HasSubstr("NVML"))));
  EXPECT_EQ(PciDistance(here.gpus[0].pci_path, here.ib[0].pci_path), 4);
}

TEST(GpuStates, ErrorsOfMemory) {
  const Hardware here = Scan("GPU-a;ecc=3,GPU-b;remap=pending,GPU-c;remap=failed,GPU-old");
  EXPECT_EQ(here.gpus[0].ecc_uncorrected, 3u);
  EXPECT_EQ(here.gpus[1].ecc_uncorrected, 0u);
  EXPECT_EQ(here.gpus[1].remap_pending, true);
  EXPECT_EQ(here.gpus[1].remapped_uncorrectable, 1);
  EXPECT_EQ(here.gpus[1].remap_failed, false);
  EXPECT_EQ(here.gpus[2].remap_failed, true);
  EXPECT_EQ(here.gpus[3].ecc, std::nullopt);  // a card without ECC
  EXPECT_EQ(here.gpus[3].ecc_uncorrected, std::nullopt);
}

TEST(GpuStates, TheDriversOwnVerdict) {
  const Hardware here = Scan("GPU-a;recovery=1,GPU-b;recovery=2,GPU-c;recovery=3,GPU-d;recovery=4,GPU-e;recovery=9");
  EXPECT_EQ(here.gpus[0].recovery_action, "gpu reset");
  EXPECT_EQ(here.gpus[1].recovery_action, "node reboot");
  EXPECT_EQ(here.gpus[2].recovery_action, "drain P2P");
  EXPECT_EQ(here.gpus[3].recovery_action, "drain and reset");
  EXPECT_EQ(here.gpus[4].recovery_action, "action 9");
}

TEST(GpuStates, SlowedClocksSayWhy) {
  const Hardware here = Scan("GPU-a;throttle=0x48,GPU-b;throttle=0x3,GPU-c;throttle=0x84");
  EXPECT_THAT(here.gpus[0].throttle, ElementsAre("hw slowdown", "hw thermal slowdown"));
  EXPECT_THAT(here.gpus[1].throttle, IsEmpty());
  EXPECT_THAT(here.gpus[2].throttle, ElementsAre("sw power cap", "hw power brake slowdown"));
}

TEST(GpuStates, ProcessesHaveThePidsOfTheHost) {
  Tree tree = Tree::Empty();
  tree.Write("/proc/4242/comm", "python3\n");
  const Hardware here = Scan("GPU-a;pid=4242;pid2=77,GPU-b", tree);
  ASSERT_EQ(here.gpus[0].processes.size(), 2u);
  EXPECT_EQ(here.gpus[0].processes[0].pid, 4242);
  EXPECT_EQ(here.gpus[0].processes[0].name, "python3");
  EXPECT_EQ(here.gpus[0].processes[0].memory, 1u << 30);
  EXPECT_EQ(here.gpus[0].processes[1].name, "");              // of another namespace
  EXPECT_EQ(here.gpus[0].processes[1].memory, std::nullopt);  // NVML says: not available
  EXPECT_THAT(here.gpus[1].processes, IsEmpty());
}

TEST(GpuStates, LinksAndFabric) {
  const Hardware here = Scan("GPU-a;links=16/18,GPU-b;links=0/0,GPU-c;fabric=2,GPU-d;cluster=7,GPU-e;fabric=0");
  EXPECT_EQ(here.gpus[0].nvlinks_active, 16);
  EXPECT_EQ(here.gpus[0].nvlinks, 18);
  EXPECT_EQ(here.gpus[1].nvlinks, std::nullopt);
  EXPECT_EQ(here.gpus[2].fabric, "in progress");
  EXPECT_EQ(here.gpus[3].fabric_cluster, "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf.7");
  EXPECT_EQ(here.gpus[4].fabric, "");
}

TEST(GpuStates, MigDevicesAreNamedAndOneIsVisible) {
  const Hardware here = Scan("GPU-a:MIG-1+MIG-2,GPU-b");
  EXPECT_TRUE(here.gpus[0].mig);
  EXPECT_THAT(here.gpus[0].migs, ElementsAre("MIG-1", "MIG-2"));
  EXPECT_FALSE(here.gpus[1].mig);
  EXPECT_EQ(here.gpus_visible, 1);
}

TEST(GpuStates, ALostGpuIsShownWithWhatTheKernelStillKnows) {
  // Seven of the tree's eight answer.
  std::string devices;
  for (const char* bus : {"18", "29", "!", "59", "9a", "aa", "ba", "da"})
    devices += (devices.empty() ? "" : ",") +
               (*bus == '!' ? std::string("!") : fmt::format("GPU-{};pci=0000:{}:00", bus, bus));
  const Hardware here = Scan(devices, Tree::Unpack("h800-down-ports"));
  ASSERT_EQ(here.gpus.size(), 8u);
  EXPECT_THAT(here.gpus[2].error, HasSubstr("fell off the bus"));
  EXPECT_EQ(here.gpus[2].pci, "0000:3a:00.0");
  EXPECT_THAT(here.gpus[2].xids, ElementsAre(79, 154));
  EXPECT_EQ(here.gpus_visible, 7);
  EXPECT_THAT(here.notes, Contains(HasSubstr("GPU 2 cannot be opened")));
}

TEST(GpuStates, AnOldDriverLeavesGapsAndSaysSo) {
  const Hardware here =
      Scan("GPU-a;recovery=1;throttle=0x40", Tree::Empty(), {}, TestProgramDir() + "/libfake_nvml_old.so");
  ASSERT_EQ(here.gpus.size(), 1u);
  EXPECT_EQ(here.gpus[0].recovery_action, "");
  EXPECT_EQ(here.gpus[0].remap_pending, std::nullopt);
  EXPECT_EQ(here.gpus[0].fabric, "");
  EXPECT_THAT(here.gpus[0].throttle, ElementsAre("hw thermal slowdown"));  // by the older name
  EXPECT_EQ(here.gpus[0].memory_used, 1073741824u);                        // the older call
  EXPECT_EQ(here.gpus[0].nvlinks, 8);
  EXPECT_THAT(here.notes, Contains(HasSubstr("lacks nvmlDeviceGetMemoryInfo_v2")));
}

TEST(GpuStates, DriverAndLibraryOfDifferentVersions) {
  const Hardware here = Scan("fail=18", Tree::Unpack("ethernet-only"));
  EXPECT_EQ(here.gpu_source, "/proc/driver/nvidia");
  EXPECT_EQ(here.gpus.size(), 2u);
  EXPECT_THAT(here.notes, Contains(HasSubstr("different versions (NVML error 18); the library is 535.161.08")));
}

TEST(GpuStates, NoDriver) {
  const Hardware here = Scan("fail");
  EXPECT_EQ(here.gpu_source, "no driver");
  EXPECT_THAT(here.gpus, IsEmpty());
  EXPECT_THAT(here.notes, Contains(HasSubstr("the NVIDIA driver is not loaded")));
}

TEST(GpuStates, NoDevice) {
  const Hardware here = Scan("");
  EXPECT_EQ(here.gpu_source, "nvml");
  EXPECT_THAT(here.gpus, IsEmpty());
}

TEST(GpuStates, HiddenByTheContainer) {
  const Hardware here = Scan("GPU-a", Tree::Empty(), {{"NVIDIA_VISIBLE_DEVICES", "none"}});
  EXPECT_THAT(here.gpus, IsEmpty());
  EXPECT_EQ(here.gpu_source, "NVIDIA_VISIBLE_DEVICES=none");
}

}  // namespace
}  // namespace lockstep::hardware
