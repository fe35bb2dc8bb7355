// The settings of real machines: their /proc and /sys as recorded in tests/hardware/trees.
#include <gtest/gtest.h>

#include "hardware/tree.h"
#include "tune/settings.h"

namespace lockstep::tune {
namespace {

hardware::Hardware Scan(const std::string& name, int gpus = 8) {
  const hardware::Tree machine = hardware::Tree::Unpack(name);
  hardware::Hardware here = hardware::ScanHardware({.root = machine.root(), .gpus = false});
  if (here.gpus.empty()) here.gpus.resize(static_cast<size_t>(gpus));
  here.nccl = hardware::Library{"/x/libnccl.so.2", "2.27.5", "system", ""};
  here.limits.memlock = UINT64_MAX;
  here.peermem = "nvidia_peermem";
  return here;
}

Settings For(const hardware::Hardware& here, const std::string& peer) {
  JobShape job;
  job.nnodes = 2;
  job.nproc_per_node = 8;
  job.peers = {peer};
  job.own_addresses = std::vector<std::string>{"127.0.1.1"};
  return Derive(here, job, {});
}

std::string ValueAndConfidence(const Settings& settings, const std::string& name) {
  for (const Setting& s : settings.set) {
    if (s.name == name) return s.applies() ? s.value : s.value + " (" + Name(s.confidence) + ")";
  }
  return "(none)";
}

std::string Warnings(const Settings& settings) {
  std::string out;
  for (const std::string& warning : settings.warnings) out += warning + "\n";
  return out;
}

TEST(TuneTrees, EightRailsOfAnH800WithAStoragePort) {
  const Settings settings = For(Scan("h800-8ib"), "10.20.0.7");
  EXPECT_EQ(ValueAndConfidence(settings, "NCCL_IB_HCA"), "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_5,mlx5_6,mlx5_7,mlx5_8");
  EXPECT_EQ(ValueAndConfidence(settings, "NCCL_SOCKET_IFNAME"), "eno1") << "not ib4, which leads to the storage";
  EXPECT_EQ(ValueAndConfidence(settings, "GLOO_SOCKET_IFNAME"), "eno1");
  EXPECT_EQ(ValueAndConfidence(settings, "NCCL_IB_GID_INDEX"), "(none)");
  EXPECT_EQ(Warnings(settings), "");
}

TEST(TuneTrees, PortsThatAreDownOrWaitForTheSubnetManager) {
  const Settings settings = For(Scan("h800-down-ports"), "10.20.0.7");
  const std::string warnings = Warnings(settings);
  EXPECT_NE(warnings.find("mlx5_2 (DOWN"), std::string::npos) << warnings;
  EXPECT_NE(warnings.find("mlx5_7 (INIT"), std::string::npos) << warnings;
  EXPECT_NE(warnings.find("subnet manager"), std::string::npos) << warnings;
  EXPECT_EQ(ValueAndConfidence(settings, "NCCL_IB_HCA").find("mlx5_2"), std::string::npos);
}

TEST(TuneTrees, TheStoragePortOfAnH800WithPortsDownIsKnownByItsPlace) {
  hardware::Hardware here = Scan("h800-down-ports");
  // A GPU on the switch of each compute port, as in that machine.
  here.gpus.clear();
  for (const hardware::IbPort& port : here.ib) {
    if (port.device == "mlx5_4") continue;
    hardware::GpuState& gpu = here.gpus.emplace_back();
    gpu.pci_path = port.pci_path.substr(0, port.pci_path.rfind('/')) + "/0000:ff:00.0";
  }
  const std::string hcas = ValueAndConfidence(For(here, "10.20.0.7"), "NCCL_IB_HCA");
  EXPECT_EQ(hcas, "=mlx5_0,mlx5_1,mlx5_5,mlx5_6,mlx5_8");
  for (hardware::GpuState& gpu : here.gpus) gpu.pci_path.clear();
  EXPECT_EQ(ValueAndConfidence(For(here, "10.20.0.7"), "NCCL_IB_HCA"), hcas) << "and by its model";
  for (hardware::IbPort& port : here.ib) port.model = "MT4129";
  EXPECT_NE(ValueAndConfidence(For(here, "10.20.0.7"), "NCCL_IB_HCA").find("(likely)"), std::string::npos)
      << "without both";
}

TEST(TuneTrees, RoceWithMixedGids) {
  hardware::Hardware here = Scan("roce-mixed-gids", 4);
  Settings settings = For(here, "10.1.0.9");
  EXPECT_EQ(ValueAndConfidence(settings, "NCCL_IB_GID_INDEX"), "(none)") << "NCCL 2.27 finds it itself";
  EXPECT_EQ(ValueAndConfidence(settings, "NCCL_SOCKET_IFNAME"), "ens1np0");
  here.nccl->version = "2.19.3";
  settings = For(here, "10.1.0.9");
  // Whatever the table of this machine says: an index is set only when it is RoCE v2 over IPv4 on every port.
  const std::string value = ValueAndConfidence(settings, "NCCL_IB_GID_INDEX");
  bool everywhere = value != "(none)";
  for (const hardware::IbPort& port : here.ib) {
    bool good = false;
    for (const hardware::Gid& gid : port.gids) {
      good = good || (std::to_string(gid.index) == value && gid.type == "RoCE v2" && gid.ipv4);
    }
    everywhere = everywhere && good;
  }
  EXPECT_TRUE(everywhere || (value == "(none)" && !settings.warnings.empty())) << value << Warnings(settings);
}

TEST(TuneTrees, EthernetOnly) {
  const Settings settings = For(Scan("ethernet-only"), "192.168.1.20");
  for (const Setting& s : settings.set) EXPECT_FALSE(s.name.starts_with("NCCL_IB")) << s.name;
  EXPECT_EQ(ValueAndConfidence(settings, "GLOO_SOCKET_IFNAME"), "enp5s0f0");
}

TEST(TuneTrees, ABondWithVlans) {
  const Settings settings = For(Scan("bonded"), "33.5.8.20");
  EXPECT_EQ(ValueAndConfidence(settings, "GLOO_SOCKET_IFNAME"), "bond0.100");
  for (const Setting& s : settings.set) EXPECT_NE(s.name, "NCCL_IB_HCA");
}

TEST(TuneTrees, APodThatSeesRdmaPortsItCannotOpen) {
  const hardware::Hardware here = Scan("pod-without-rdma");
  const Settings settings = For(here, "10.244.3.8");
  EXPECT_EQ(ValueAndConfidence(settings, "NCCL_IB_HCA"), "(none)");
  if (!here.ib.empty()) EXPECT_NE(Warnings(settings).find("/dev/infiniband"), std::string::npos) << Warnings(settings);
}

TEST(TuneTrees, BridgesOfContainersAreNotTheWayOut) {
  const Settings settings = For(Scan("docker-bridges"), "172.17.0.9");
  EXPECT_NE(Warnings(settings).find("container bridge"), std::string::npos) << Warnings(settings);
}

}  // namespace
}  // namespace lockstep::tune
