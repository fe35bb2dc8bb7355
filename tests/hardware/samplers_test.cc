// What is read again and again while a job runs: GPUs by a library with NVML's interface, counters of links, processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "hardware/gpu_sampler.h"
#include "hardware/link_counters.h"
#include "hardware/proc_sampler.h"
#include "hardware/tree.h"
#include "paths.h"

namespace lockstep::hardware {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<GpuSampler> Open(const std::string& devices, const std::vector<std::string>& pci = {},
                                 const char* library = "/libfake_nvml.so") {
  setenv("LOCKSTEP_FAKE_NVML", devices.c_str(), 1);
  std::string why;
  auto sampler = GpuSampler::Open(TestProgramDir() + library, pci, &why);
  unsetenv("LOCKSTEP_FAKE_NVML");
  return sampler;
}

TEST(GpuSampler, ReadsWhatChanges) {
  const auto sampler = Open("GPU-aaa;throttle=0x40;ecc=3;xid=94,GPU-bbb;pid=4711");
  ASSERT_TRUE(sampler);
  const std::vector<GpuReading> gpus = sampler->Read();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, "GPU-aaa");
  EXPECT_EQ(gpus[0].utilisation, 7);
  EXPECT_EQ(gpus[0].memory_utilisation, 1);
  EXPECT_EQ(gpus[0].power_watts, 71);
  EXPECT_EQ(gpus[0].power_limit_watts, 700);
  EXPECT_EQ(gpus[0].temperature, 34);
  EXPECT_EQ(gpus[0].memory_total, 85899345920u);
  EXPECT_THAT(gpus[0].throttle, ElementsAre("hw thermal slowdown"));
  EXPECT_EQ(gpus[0].ecc_uncorrected, 3u);
  EXPECT_EQ(gpus[0].xid, 94);
  EXPECT_FALSE(gpus[1].xid);
  ASSERT_EQ(gpus[1].processes.size(), 1u);
  EXPECT_EQ(gpus[1].processes[0].pid, 4711);
  EXPECT_EQ(sampler->Read()[0].xid, 94);  // the event comes once and is kept
}

TEST(GpuSampler, OnlyTheGpusOfTheJob) {
  const auto sampler = Open("GPU-a;pci=0000:18:00,GPU-b;pci=0000:29:00", {"0000:29:00.0"});
  ASSERT_TRUE(sampler);
  ASSERT_EQ(sampler->Read().size(), 1u);
  EXPECT_EQ(sampler->Read()[0].index, 1);
}

TEST(GpuSampler, OldDriversLostGpusAndNoDriverAreNoErrors) {
  const auto old = Open("GPU-aaa", {}, "/libfake_nvml_old.so");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->Read()[0].temperature, 34);
  EXPECT_FALSE(old->Read()[0].power_limit_watts);
  const auto lost = Open("GPU-aaa,!");
  ASSERT_TRUE(lost);
  ASSERT_EQ(lost->Read().size(), 2u);
  EXPECT_THAT(lost->Read()[1].error, HasSubstr("lost"));
  const auto falls = Open("GPU-aaa;falls=2");  // off the bus with the third reading
  ASSERT_TRUE(falls);
  EXPECT_EQ(falls->Read()[0].error, "");
  EXPECT_EQ(falls->Read()[0].error, "");
  EXPECT_THAT(falls->Read()[0].error, HasSubstr("lost"));
  EXPECT_EQ(falls->Read()[0].uuid, "GPU-aaa");
  EXPECT_FALSE(falls->Read()[0].temperature);
  EXPECT_FALSE(Open("fail"));
}

TEST(LinkCounters, CountBytesAndErrorsOfNamedLinksOnly) {
  Tree tree = Tree::Empty();
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";
  tree.Write(port + "rate", "400 Gb/sec (4X NDR)\n");
  tree.Write(port + "counters/port_rcv_data", "1000\n");
  tree.Write(port + "counters/port_xmit_data", "250\n");
  tree.Write(port + "counters/symbol_error", "3\n");
  tree.Write(port + "counters/link_downed", "1\n");
  tree.Write("/sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "1\n");
  tree.Write("/sys/class/net/eth0/speed", "25000\n");
  tree.Write("/sys/class/net/eth0/statistics/rx_bytes", "77\n");
  tree.Write("/sys/class/net/eth0/statistics/tx_bytes", "88\n");
  tree.Write("/sys/class/net/eth0/statistics/rx_errors", "2\n");
  LinkCounters links(tree.root());
  for (const char* name : {"mlx5_0:1/IB", "mlx5_0", "eth0", "eth9", "", "../../etc", "mlx5_7:1"}) links.Add(name);
  const std::vector<LinkReading> read = links.Read();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name, "mlx5_0:1");
  EXPECT_EQ(read[0].gbit, 400);
  EXPECT_EQ(read[0].in, 4000u);  // words of four bytes
  EXPECT_EQ(read[0].out, 1000u);
  EXPECT_EQ(read[0].errors, 4u);
  EXPECT_EQ(read[1].gbit, 25);
  EXPECT_EQ(read[1].in, 77u);
  EXPECT_EQ(read[1].errors, 2u);
}

TEST(LinkCounters, ALinkIsNotReadAgainAfterItsFirstError) {
  Tree tree = Tree::Empty();
  const std::string counters = "/sys/class/infiniband/mlx5_0/ports/1/counters/";
  tree.Write(counters + "port_rcv_data", "1000\n");
  tree.Write(counters + "port_xmit_data", "not for you\n");
  LinkCounters links(tree.root());
  links.Add("mlx5_0:1");
  EXPECT_THAT(links.Read()[0].off, HasSubstr("port_xmit_data cannot be read"));
  tree.Write(counters + "port_xmit_data", "1000\n");
  EXPECT_THAT(links.Read()[0].off, HasSubstr("port_xmit_data"));
  EXPECT_FALSE(links.Read()[0].in);
}

TEST(LinkCounters, TheWayToThisMachineIsNoLink) {
  EXPECT_EQ(InterfaceTowards("127.0.0.1:29500"), "");
  EXPECT_EQ(InterfaceTowards("[::1]:29500"), "");
  EXPECT_EQ(InterfaceTowards(""), "");
}

TEST(ProcSampler, AProcessCountsWithItsChildren) {
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    (void)!write(ready[1], "x", 1);
    (void)!read(go[0], &byte, 1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto use = UseOfProcess(getpid());
  ASSERT_TRUE(use);
  EXPECT_THAT(use->pids, testing::Contains(child));
  EXPECT_GT(use->rss, 1u << 20);
  EXPECT_TRUE(UseOfProcess(child));
  (void)!write(go[1], "x", 1);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(UseOfProcess(child));
  const MachineUse machine = MachineSampler().Read();
  EXPECT_GT(machine.busy_seconds.value_or(0), 0);
  EXPECT_GT(machine.memory_total.value_or(0), machine.memory_used.value_or(~0ull) / 2);
}

}  // namespace
}  // namespace lockstep::hardware
