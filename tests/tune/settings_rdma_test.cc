// Which RDMA ports carry the data, and which GID of theirs.
#include <gtest/gtest.h>

#include "tune/settings_scene.h"

namespace lockstep::tune {
namespace {

TEST(Tune, EightEqualHcasAreLeftToNccl) {
  const Settings settings = Derive(EightRails(), TwoNodes(), {});
  for (const Setting& s : settings.set) EXPECT_FALSE(s.name.starts_with("NCCL_IB")) << s.name;
  EXPECT_TRUE(Left(settings, "NCCL_IB_HCA"));
  EXPECT_TRUE(Left(settings, "NCCL_IB_GID_INDEX"));
  EXPECT_TRUE(Left(settings, "NCCL_NET_GDR_LEVEL"));
  EXPECT_TRUE(Left(settings, "NCCL_CROSS_NIC"));
  EXPECT_TRUE(settings.warnings.empty()) << settings.warnings[0];
}

TEST(Tune, StorageAndManagementHcasAreKeptOutByExactName) {
  Hardware here = EightRails();
  here.ib.insert(here.ib.begin() + 4, Port("mlx5_10", "Ethernet", 100));
  here.ib.push_back(Port("mlx5_bond_0", "Ethernet", 25));
  const Settings settings = Derive(here, TwoNodes(), {});
  ASSERT_NE(Find(settings, "NCCL_IB_HCA"), nullptr);
  EXPECT_EQ(Value(settings, "NCCL_IB_HCA"), "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7");
  EXPECT_TRUE(Find(settings, "NCCL_IB_HCA")->applies());
}

TEST(Tune, ASlowerHcaOfTheSameFabricIsNotExcludedSilently) {
  Hardware here = EightRails();
  here.ib[3].gbit = 100;  // a storage port, or a link that came up slow: nobody can tell
  Settings settings = Derive(here, TwoNodes(), {});
  ASSERT_NE(Find(settings, "NCCL_IB_HCA"), nullptr);
  EXPECT_FALSE(Find(settings, "NCCL_IB_HCA")->applies());
  EXPECT_TRUE(Warned(settings, "mlx5_3"));
  here.ib[3].gbit = 400;
  here.ib.push_back(Port("mlx5_8", "InfiniBand", 100));
  settings = Derive(here, TwoNodes(), {});
  EXPECT_TRUE(Find(settings, "NCCL_IB_HCA")->applies()) << "every GPU has a fast port, so the slow one is extra";
}

TEST(Tune, PortsOfOneDeviceWithDifferentLinksAreToldApart) {
  Hardware here = Node();
  AddGpus(2, &here);
  here.ib = {Port("mlx5_0", "InfiniBand", 200), Port("mlx5_0", "Ethernet", 100), Port("mlx5_1", "InfiniBand", 200)};
  here.ib[1].port = 2;
  EXPECT_EQ(Value(Derive(here, TwoNodes(), {}), "NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1");
}

TEST(Tune, PortsThatAreDownAreWarnedAbout) {
  Hardware here = EightRails();
  here.ib[2].state = here.ib[5].state = "DOWN";
  here.ib[2].phys_state = here.ib[5].phys_state = "Polling";
  Settings settings = Derive(here, TwoNodes(), {});
  EXPECT_TRUE(Warned(settings, "2 of 8 RDMA ports are not ACTIVE: mlx5_2 (DOWN, Polling), mlx5_5"));
  EXPECT_EQ(Find(settings, "NCCL_IB_HCA"), nullptr) << "NCCL skips them itself";
  for (IbPort& port : here.ib) port.state = "DOWN";
  EXPECT_TRUE(Warned(Derive(here, TwoNodes(), {}), "TCP instead"));
}

TEST(Tune, TheUnusedSecondPortOfACardIsNoFault) {
  Hardware here = Node();
  here.ib = {Port("mlx5_0", "InfiniBand", 200, "ACTIVE", "0000:1a:00.0"),
             Port("mlx5_1", "InfiniBand", 10, "DOWN", "0000:1a:00.1")};
  EXPECT_TRUE(Derive(here, TwoNodes(), {}).warnings.empty());
  here.ib[1].pci = "0000:1b:00.0";  // a card of its own
  EXPECT_FALSE(Derive(here, TwoNodes(), {}).warnings.empty());
}

TEST(Tune, APortWaitingForTheSubnetManagerSaysSo) {
  Hardware here = EightRails();
  here.ib[0].state = "INIT";
  EXPECT_TRUE(Warned(Derive(here, TwoNodes(), {}), "subnet manager"));
}

IbPort Roce(const std::string& device, const std::vector<int>& v2_ipv4) {
  IbPort port = Port(device, "Ethernet", 100);
  port.gids = {{0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", "eth2", false},
               {1, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth2", false},
               {2, "0000:0000:0000:0000:0000:ffff:0a00:0005", "IB/RoCE v1", "eth2", true}};
  for (int index : v2_ipv4) {
    port.gids.push_back({index, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2", "eth2", true});
  }
  return port;
}

TEST(Tune, TheGidIndexIsSetForAnOldNcclOnly) {
  Hardware here = Node();
  here.ib = {Roce("mlx5_0", {3}), Roce("mlx5_1", {3, 5})};
  EXPECT_EQ(Find(Derive(here, TwoNodes(), {}), "NCCL_IB_GID_INDEX"), nullptr);
  EXPECT_TRUE(Left(Derive(here, TwoNodes(), {}), "NCCL_IB_GID_INDEX"));
  here.nccl->version = "2.20.5";
  const Settings settings = Derive(here, TwoNodes(), {});
  EXPECT_EQ(Value(settings, "NCCL_IB_GID_INDEX"), "3");
  EXPECT_TRUE(Find(settings, "NCCL_IB_GID_INDEX")->applies());
  here.nccl.reset();
  EXPECT_EQ(Find(Derive(here, TwoNodes(), {}), "NCCL_IB_GID_INDEX"), nullptr);
}

TEST(Tune, GidIndicesThatDifferFitNoOldNccl) {
  Hardware here = Node();
  here.nccl->version = "2.18.3";
  here.ib = {Roce("mlx5_0", {3}), Roce("mlx5_1", {5})};
  Settings settings = Derive(here, TwoNodes(), {});
  EXPECT_EQ(Find(settings, "NCCL_IB_GID_INDEX"), nullptr);
  EXPECT_TRUE(Warned(settings, "mlx5_0 3, mlx5_1 5"));
  here.ib = {Roce("mlx5_0", {})};
  EXPECT_TRUE(Warned(Derive(here, TwoNodes(), {}), "no RoCE v2 GID"));
}

TEST(Tune, RoceOfIpv6OnlyIsFoundByItsFamily) {
  Hardware here = Node();
  here.ib = {Roce("mlx5_0", {}), Roce("mlx5_1", {})};
  for (IbPort& port : here.ib) {
    port.gids.resize(2);  // link-local only
    port.gids.push_back({2, "2001:0db8:0000:0000:0000:0000:0000:0005", "IB/RoCE v1", "eth2", false});
    port.gids.push_back({3, "2001:0db8:0000:0000:0000:0000:0000:0005", "RoCE v2", "eth2", false});
  }
  Settings settings = Derive(here, TwoNodes(), {});
  EXPECT_EQ(Value(settings, "NCCL_IB_ADDR_FAMILY"), "AF_INET6");
  EXPECT_TRUE(Find(settings, "NCCL_IB_ADDR_FAMILY")->applies());
  EXPECT_FALSE(Warned(settings, "no RoCE v2 GID"));
  here.nccl->version = "2.18.3";  // knows no family, only an index
  settings = Derive(here, TwoNodes(), {});
  EXPECT_EQ(Find(settings, "NCCL_IB_ADDR_FAMILY"), nullptr);
  EXPECT_EQ(Value(settings, "NCCL_IB_GID_INDEX"), "3");
  here.nccl->version = "2.27.5";
  here.ib.push_back(Roce("mlx5_2", {3}));
  settings = Derive(here, TwoNodes(), {});
  EXPECT_EQ(Find(settings, "NCCL_IB_ADDR_FAMILY"), nullptr) << "one port has IPv4";
  EXPECT_TRUE(Warned(settings, "mlx5_0 has RoCE v2 GIDs for IPv6 only"));
}

TEST(Tune, RoceOfTheFirstVersionAloneIsCalledThat) {
  Hardware here = Node();
  here.ib = {Roce("mlx4_0", {})};
  here.ib[0].gids.erase(here.ib[0].gids.begin() + 1);
  EXPECT_TRUE(Warned(Derive(here, TwoNodes(), {}), "mlx4_0 has GIDs of RoCE v1 only"));
}

TEST(Tune, OfSeveralVlansNobodyKnowsWhichJoinsTheNodes) {
  Hardware here = Node();
  here.nccl->version = "2.18.3";
  here.ib = {Roce("mlx5_0", {3, 5})};
  here.ib[0].gids.back().netdev = "eth2.60";
  const Settings settings = Derive(here, TwoNodes(), {});
  ASSERT_EQ(Value(settings, "NCCL_IB_GID_INDEX"), "3");
  EXPECT_FALSE(Find(settings, "NCCL_IB_GID_INDEX")->applies());
  EXPECT_NE(Find(settings, "NCCL_IB_GID_INDEX")->because.find("5 of eth2.60"), std::string::npos);
}

// Eight GPUs, each on a switch with its port; `extra` further ports of the same kind on root ports of their own.
Hardware SwitchesAnd(int extra) {
  Hardware here = EightRails();
  for (size_t i = 0; i < here.gpus.size(); ++i) {
    const std::string bridge = "pci0000:" + std::to_string(10 + i) + "/0000:" + std::to_string(10 + i) + ":01.0/";
    here.gpus[i].pci_path = bridge + "gpu";
    here.ib[i].pci_path = bridge + "nic";
  }
  for (int i = 0; i < extra; ++i) {
    IbPort far = here.ib[0];
    far.device = "mlx5_" + std::to_string(20 + i);
    far.pci_path = "pci0000:9" + std::to_string(i) + "/0000:90:01.0/nic";
    far.pci = "0000:9" + std::to_string(i) + ":00.0";
    here.ib.insert(here.ib.begin() + 2, far);  // numbered between the others, as by bus
  }
  return here;
}

TEST(Tune, PortsOfStorageAtTheSameRateAreKnownByTheirPlace) {
  const Settings settings = Derive(SwitchesAnd(2), TwoNodes(), {});
  EXPECT_EQ(Value(settings, "NCCL_IB_HCA"), "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7");
  EXPECT_TRUE(Find(settings, "NCCL_IB_HCA")->applies());
  EXPECT_EQ(Find(Derive(SwitchesAnd(0), TwoNodes(), {}), "NCCL_IB_HCA"), nullptr);
  Hardware pod = SwitchesAnd(0);  // one GPU of the eight is given to it, and all cards are seen
  pod.gpus.resize(1);
  EXPECT_EQ(Find(Derive(pod, TwoNodes(), {}), "NCCL_IB_HCA"), nullptr);
  // Where a GPU has none beside it, the far ones may be meant for it.
  Hardware here = SwitchesAnd(2);
  here.ib.back().pci_path = "pci0000:80/0000:80:01.0/nic";
  EXPECT_EQ(Find(Derive(here, TwoNodes(), {}), "NCCL_IB_HCA"), nullptr);
}

TEST(Tune, LanPortsOfTheMainboardAreLeftOutHoweverFewTheCardsAre) {
  Hardware here = Node();
  AddGpus(8, &here);
  here.ib = {Port("irdma0", "Ethernet", 10), Port("irdma1", "Ethernet", 10), Port("mlx5_0", "Ethernet", 100)};
  for (IbPort& port : here.ib) port.model = port.device.starts_with("irdma") ? "X722" : "MT4123";
  Settings settings = Derive(here, TwoNodes(), {});
  EXPECT_EQ(Value(settings, "NCCL_IB_HCA"), "=mlx5_0");
  EXPECT_TRUE(Find(settings, "NCCL_IB_HCA")->applies());
  for (IbPort& port : here.ib) port.model = "MT4123";  // the same card: a link that came up slow
  settings = Derive(here, TwoNodes(), {});
  EXPECT_FALSE(Find(settings, "NCCL_IB_HCA")->applies());
}

TEST(Tune, WhatBeginsWithAnEqualsSignIsQuotedForTheShell) {
  EXPECT_NE(ToShell(Derive(SwitchesAnd(1), TwoNodes(), {})).find("export NCCL_IB_HCA='=mlx5_0,"), std::string::npos);
}

TEST(Tune, ADownPortBesideNoGpuIsSomebodyElses) {
  Hardware here = SwitchesAnd(1);
  here.ib[2].state = "DOWN";
  EXPECT_FALSE(Warned(Derive(here, TwoNodes(), {}), "not ACTIVE"));
  here.ib[3].state = "DOWN";
  EXPECT_TRUE(Warned(Derive(here, TwoNodes(), {}), "1 of 8 RDMA ports is not ACTIVE: " + here.ib[3].device));
}

TEST(Tune, APodWithACardOfItsOwnMaySeeTheHostsOthers) {
  Hardware here = EightRails();
  for (IbPort& port : here.ib) port.driver = "mlx5_core";
  EXPECT_TRUE(Warned(Derive(here, TwoNodes(), {}), "no /dev/infiniband"));
  here.ib[3].verbs = "/dev/infiniband/uverbs3";
  const Settings settings = Derive(here, TwoNodes(), {});
  EXPECT_FALSE(Warned(settings, "no /dev/infiniband"));
  EXPECT_EQ(Find(settings, "NCCL_IB_HCA"), nullptr);
}

TEST(Tune, ACloudsPluginIsNotTouched) {
  Hardware here = EightRails();
  here.ib.push_back(Port("mlx5_9", "Ethernet", 25));
  here.net_plugins = {"/opt/amazon/ofi-nccl/lib/libnccl-net.so"};
  const Settings settings = Derive(here, TwoNodes(), {});
  for (const Setting& s : settings.set) EXPECT_FALSE(s.name.starts_with("NCCL_IB")) << s.name;
  EXPECT_TRUE(Left(settings, "NCCL_IB_*"));
}

TEST(Tune, AmazonsCardsAreNotTakenForRoce) {
  Hardware here = Node();
  AddGpus(8, &here);
  for (int i = 0; i < 4; ++i) {
    here.ib.push_back(Port("rdmap" + std::to_string(16 * i) + "s27", "Ethernet", 100));
    here.ib.back().driver = "efa";
    here.ib.back().verbs = "/dev/infiniband/uverbs0";
  }
  here.nccl->version = "2.18.3";
  const Settings settings = Derive(here, TwoNodes(), {});
  for (const Setting& s : settings.set) EXPECT_FALSE(s.name.starts_with("NCCL_IB")) << s.name;
  EXPECT_TRUE(Warned(settings, "aws-ofi-nccl"));
  EXPECT_FALSE(Warned(settings, "RoCE v2"));
}

TEST(Tune, AnNvlinkFabricWithoutAnImexChannelIsWarnedAbout) {
  Hardware here = EightRails();
  here.gpus[0].fabric_cluster = "cluster-1";
  EXPECT_TRUE(Warned(Derive(here, TwoNodes(), {}), "IMEX"));
  here.imex_channel = true;
  EXPECT_FALSE(Warned(Derive(here, TwoNodes(), {}), "IMEX"));
}

}  // namespace
}  // namespace lockstep::tune
