#include "tune/settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace lockstep::tune {
namespace {

using place::Gid;
using place::GpuState;
using place::Hardware;
using place::IbPort;
using place::Interface;

Interface Link(const std::string& name, const std::string& address, double gbit = 10, bool up = true) {
  Interface out;
  out.name = name;
  out.up = up;
  out.kind = name == "lo" ? "loopback" : name.starts_with("docker") ? "bridge" : "ethernet";
  out.loopback = name == "lo";
  out.is_virtual = out.loopback || out.kind == "bridge";
  if (gbit > 0) out.gbit = gbit;
  if (!address.empty()) out.addresses = {address};
  return out;
}

IbPort Port(const std::string& device, const std::string& layer, double gbit, const std::string& state = "ACTIVE",
            const std::string& pci = "") {
  IbPort out;
  out.device = device;
  out.link_layer = layer;
  out.gbit = gbit;
  out.state = state;
  out.phys_state = state == "ACTIVE" ? "LinkUp" : "Polling";
  out.pci = pci;
  out.lid = layer == "InfiniBand" ? 7 : 0;
  out.sm_lid = layer == "InfiniBand" ? 1 : 0;
  return out;
}

// Node 10.0.0.5 with eth0 towards the peers and the default route.
Hardware Node() {
  Hardware here;
  here.host = "n5";
  here.cpus = 64;
  here.interfaces = {Link("lo", "127.0.0.1/8"), Link("eth0", "10.0.0.5/16")};
  here.routes = {{"default", "10.0.0.1", "eth0", "", 100}, {"10.0.0.0/16", "", "eth0", "10.0.0.5", 100}};
  here.nccl = place::Library{"/x/libnccl.so.2", "2.27.5", "system"};
  here.torch = place::Library{"/x/libtorch.so", "2.12.0", "system"};
  here.peermem = "nvidia_peermem";
  return here;
}

void AddGpus(int count, Hardware* here) {
  for (int i = 0; i < count; ++i) {
    here->gpus.emplace_back();
    here->gpus.back().index = i;
  }
}

JobShape TwoNodes() {
  JobShape job;
  job.nnodes = 2;
  job.nproc_per_node = 8;
  job.peers = {"10.0.0.4"};
  job.own_addresses = {"10.0.0.5"};
  return job;
}

const Setting* Find(const Settings& settings, const std::string& name) {
  for (const Setting& setting : settings.set) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

std::string Value(const Settings& settings, const std::string& name) {
  const Setting* found = Find(settings, name);
  return found == nullptr ? "(none)" : found->value;
}

bool Left(const Settings& settings, const std::string& name) {
  for (const LeftAlone& left : settings.left) {
    if (left.name.find(name) != std::string::npos) return true;
  }
  return false;
}

bool Warned(const Settings& settings, const std::string& words) {
  for (const std::string& warning : settings.warnings) {
    if (warning.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(Tune, OneNodeSetsNothingForTheNetworkAndSaysSo) {
  Hardware here = Node();
  here.ib = {Port("mlx5_0", "InfiniBand", 400), Port("mlx5_1", "Ethernet", 25)};
  JobShape job;
  job.own_addresses = {"127.0.1.1"};
  const Settings settings = Derive(here, job, {});
  for (const Setting& s : settings.set) {
    EXPECT_FALSE(s.name.starts_with("NCCL_") || s.name.starts_with("GLOO_")) << s.name;
  }
  EXPECT_TRUE(Left(settings, "NCCL_SOCKET_IFNAME"));
}

TEST(Tune, TheOnlyInterfaceOnTheRouteIsLeftToNccl) {
  const Settings settings = Derive(Node(), TwoNodes(), {});
  EXPECT_EQ(Value(settings, "NCCL_SOCKET_IFNAME"), "(none)");
  EXPECT_TRUE(Left(settings, "NCCL_SOCKET_IFNAME"));
  EXPECT_EQ(Value(settings, "GLOO_SOCKET_IFNAME"), "(none)");
  EXPECT_TRUE(Left(settings, "GLOO_SOCKET_IFNAME"));
}

TEST(Tune, DockerBridgesDoNotCountAsAChoice) {
  Hardware here = Node();
  here.interfaces.insert(here.interfaces.begin(), Link("docker0", "172.17.0.1/16"));
  EXPECT_EQ(Value(Derive(here, TwoNodes(), {}), "NCCL_SOCKET_IFNAME"), "(none)");
  here.interfaces.insert(here.interfaces.begin(), Link("br-4f2a", "172.18.0.1/16"));
  EXPECT_EQ(Value(Derive(here, TwoNodes(), {}), "NCCL_SOCKET_IFNAME"), "eth0");
}

TEST(Tune, OfSeveralInterfacesTheOneOnTheRouteIsNamed) {
  Hardware here = Node();
  here.interfaces.push_back(Link("eth1", "192.168.7.5/24"));
  here.routes.push_back({"192.168.7.0/24", "", "eth1", "", 0});
  Settings settings = Derive(here, TwoNodes(), {});
  const Setting* setting = Find(settings, "NCCL_SOCKET_IFNAME");
  ASSERT_NE(setting, nullptr);
  EXPECT_EQ(setting->value, "eth0");
  EXPECT_TRUE(setting->applies());
  EXPECT_NE(setting->because.find("10.0.0.4"), std::string::npos) << setting->because;
  JobShape other = TwoNodes();
  other.peers = {"192.168.7.9"};
  EXPECT_EQ(Value(Derive(here, other, {}), "NCCL_SOCKET_IFNAME"), "eth1");
  EXPECT_EQ(Value(Derive(here, other, {}), "GLOO_SOCKET_IFNAME"), "eth1") << "the host's name leads to eth0";
}

TEST(Tune, ANameThatIsThePrefixOfAnotherIsMadeExact) {
  Hardware here = Node();
  here.interfaces[1].name = "bond0";
  here.interfaces.push_back(Link("bond0.100", "10.9.0.5/16"));
  here.routes = {{"default", "10.0.0.1", "bond0", "", 0}, {"10.9.0.0/16", "", "bond0.100", "", 0}};
  EXPECT_EQ(Value(Derive(here, TwoNodes(), {}), "NCCL_SOCKET_IFNAME"), "=bond0");
  JobShape vlan = TwoNodes();
  vlan.peers = {"10.9.0.4"};
  EXPECT_EQ(Value(Derive(here, vlan, {}), "NCCL_SOCKET_IFNAME"), "bond0.100");
  EXPECT_EQ(Value(Derive(here, vlan, {}), "GLOO_SOCKET_IFNAME"), "bond0.100") << "Gloo knows no '='";
}

TEST(Tune, IpoibIsNotTakenWhenTheRouteLeavesElsewhere) {
  Hardware here = Node();
  here.interfaces.push_back(Link("ib0", "172.30.0.5/16", 200));
  here.interfaces.back().kind = "ipoib";
  EXPECT_EQ(Value(Derive(here, TwoNodes(), {}), "NCCL_SOCKET_IFNAME"), "eth0");
}

TEST(Tune, TheMasterFindsItsOwnAddressOnItsInterface) {
  Hardware here = Node();
  here.interfaces[1].addresses = {"10.0.0.5/32"};  // as some clouds give it
  here.interfaces.push_back(Link("eth1", "192.168.7.5/24"));
  here.routes = {{"default", "10.0.0.1", "eth1", "", 0}};
  JobShape job = TwoNodes();
  job.peers = {"10.0.0.5"};
  EXPECT_EQ(Value(Derive(here, job, {}), "NCCL_SOCKET_IFNAME"), "eth0");
}

TEST(Tune, AHostNameThatLeadsToLoopbackIsMendedForGloo) {
  JobShape job = TwoNodes();
  job.own_addresses = {"127.0.1.1"};
  Settings settings = Derive(Node(), job, {});
  ASSERT_NE(Find(settings, "GLOO_SOCKET_IFNAME"), nullptr);
  EXPECT_TRUE(Find(settings, "GLOO_SOCKET_IFNAME")->applies());
  EXPECT_EQ(Value(settings, "GLOO_SOCKET_IFNAME"), "eth0");
  job.own_addresses = std::vector<std::string>{};
  EXPECT_EQ(Value(Derive(Node(), job, {}), "GLOO_SOCKET_IFNAME"), "eth0") << "does not resolve";
  job.own_addresses = {"203.0.113.9"};
  EXPECT_EQ(Value(Derive(Node(), job, {}), "GLOO_SOCKET_IFNAME"), "eth0") << "resolves to another machine";
  job.own_addresses = {"203.0.113.9", "10.0.0.5"};
  EXPECT_EQ(Value(Derive(Node(), job, {}), "GLOO_SOCKET_IFNAME"), "(none)") << "the second can be bound, and is right";
}

TEST(Tune, WithoutAPeerTheInterfaceIsAGuessAndNotApplied) {
  Hardware here = Node();
  here.interfaces.push_back(Link("eth1", "192.168.7.5/24"));
  JobShape job = TwoNodes();
  job.peers.clear();
  const Settings settings = Derive(here, job, {});
  ASSERT_NE(Find(settings, "NCCL_SOCKET_IFNAME"), nullptr);
  EXPECT_EQ(Find(settings, "NCCL_SOCKET_IFNAME")->confidence, Confidence::kGuess);
  EXPECT_FALSE(Find(settings, "NCCL_SOCKET_IFNAME")->applies());
}

TEST(Tune, PeersBehindDifferentInterfacesAreWarnedAbout) {
  Hardware here = Node();
  here.interfaces.push_back(Link("eth1", "192.168.7.5/24"));
  here.routes.push_back({"192.168.7.0/24", "", "eth1", "", 0});
  JobShape job = TwoNodes();
  job.peers = {"10.0.0.4", "192.168.7.9"};
  const Settings settings = Derive(here, job, {});
  EXPECT_TRUE(Warned(settings, "several interfaces"));
  EXPECT_FALSE(Find(settings, "NCCL_SOCKET_IFNAME")->applies());
}

TEST(Tune, NoRouteIsAWarningNotASetting) {
  Hardware here = Node();
  here.routes = {{"10.0.0.0/16", "", "eth0", "", 0}};
  JobShape job = TwoNodes();
  job.peers = {"192.0.2.1"};
  const Settings settings = Derive(here, job, {});
  EXPECT_TRUE(Warned(settings, "no route to 192.0.2.1"));
  EXPECT_EQ(Find(settings, "NCCL_SOCKET_IFNAME"), nullptr);
}

TEST(Tune, PeersWithIpv6AddressesOnly) {
  Hardware here = Node();
  here.interfaces[1].addresses = {"2001:db8::5/64", "fe80::1/64"};
  here.routes = {{"2001:db8::/64", "", "eth0", "", 256}};
  JobShape job = TwoNodes();
  job.peers = {"2001:db8::4"};
  job.own_addresses = {"2001:db8::5"};
  Settings settings = Derive(here, job, {});
  EXPECT_EQ(Find(settings, "NCCL_SOCKET_FAMILY"), nullptr);
  EXPECT_TRUE(Left(settings, "NCCL_SOCKET_FAMILY"));
  here.interfaces[1].addresses.push_back("10.0.0.5/16");
  settings = Derive(here, job, {});
  EXPECT_EQ(Value(settings, "NCCL_SOCKET_FAMILY"), "AF_INET6");
  EXPECT_FALSE(Find(settings, "NCCL_SOCKET_FAMILY")->applies()) << "likely, not certain";
}

Hardware EightRails() {
  Hardware here = Node();
  AddGpus(8, &here);
  for (int i = 0; i < 8; ++i) here.ib.push_back(Port("mlx5_" + std::to_string(i), "InfiniBand", 400));
  return here;
}

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

TEST(Tune, AddressesKeptOnLoopbackNameNoInterface) {
  // Hosts that take part in routing: the node's address is on lo, the cards have link-local ones only.
  Hardware here = Node();
  here.interfaces[0].addresses.push_back("10.255.0.1/32");
  here.interfaces[1].addresses = {"fe80::5/64"};
  JobShape job = TwoNodes();
  job.own_addresses = {"10.255.0.1"};
  for (const char* peer : {"10.255.0.1", "10.0.0.4"}) {
    job.peers = {peer};
    for (const Setting& s : Derive(here, job, {}).set) EXPECT_FALSE(s.name.ends_with("_IFNAME")) << s.name << peer;
  }
  EXPECT_TRUE(Warned(Derive(here, job, {}), "no IPv4 address of its own"));
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

TEST(Tune, FasterCardsThatTcpWouldLeaveIdleAreNamed) {
  Hardware here = Node();
  for (int i = 1; i <= 2; ++i) {
    here.interfaces.push_back(Link("eth" + std::to_string(i), "10." + std::to_string(i) + ".0.5/24", 200));
  }
  const Settings settings = Derive(here, TwoNodes(), {});
  EXPECT_EQ(Value(settings, "NCCL_SOCKET_IFNAME"), "eth0");
  EXPECT_TRUE(Warned(settings, "NCCL_SOCKET_IFNAME==eth1,eth2 with NCCL_OOB_NET_IFNAME=eth0"));
  EXPECT_FALSE(Warned(Derive(here, TwoNodes(), {{"NCCL_SOCKET_IFNAME", "eth0"}}), "idle")) << "the user has chosen";
  here.ib = {Port("mlx5_0", "InfiniBand", 400)};
  EXPECT_FALSE(Warned(Derive(here, TwoNodes(), {}), "idle")) << "RDMA carries the data";
  here.ib.clear();
  here.interfaces[2].is_virtual = here.interfaces[3].is_virtual = true;
  EXPECT_FALSE(Warned(Derive(here, TwoNodes(), {}), "idle"));
}

TEST(Tune, AmdGpusAreNotCalledNone) {
  JobShape job = TwoNodes();
  job.gpus = false;
  Hardware here = Node();
  here.gpu_source = "amdgpu";
  for (const LeftAlone& left : Derive(here, job, {}).left) {
    EXPECT_EQ(left.because.find("no GPU"), std::string::npos) << left.because;
  }
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

TEST(Tune, FastEthernetWithoutRdmaSuggestsMoreStreamsWithoutSettingThem) {
  Hardware here = Node();
  here.interfaces[1].gbit = 100;
  Settings settings = Derive(here, TwoNodes(), {});
  EXPECT_EQ(Value(settings, "NCCL_SOCKET_NTHREADS"), "4");
  EXPECT_FALSE(Find(settings, "NCCL_SOCKET_NTHREADS")->applies());
  EXPECT_EQ(ToShell(settings).find("NCCL_SOCKET_NTHREADS"), std::string::npos);
  here.interfaces[1].gbit = 10;
  EXPECT_EQ(Find(Derive(here, TwoNodes(), {}), "NCCL_SOCKET_NTHREADS"), nullptr);
  EXPECT_TRUE(Left(Derive(here, TwoNodes(), {}), "NCCL_SOCKET_NTHREADS"));
}

TEST(Tune, TheUsersOwnValueWinsAndTheDifferenceIsSaidOnce) {
  Hardware here = Node();
  here.interfaces.push_back(Link("eth1", "192.168.7.5/24"));
  const Settings settings = Derive(here, TwoNodes(), {{"NCCL_SOCKET_IFNAME", "eth1"}, {"PYTHONFAULTHANDLER", "1"}});
  ASSERT_NE(Find(settings, "NCCL_SOCKET_IFNAME"), nullptr);
  EXPECT_FALSE(Find(settings, "NCCL_SOCKET_IFNAME")->applies());
  EXPECT_EQ(ToShell(settings).find("NCCL_SOCKET_IFNAME"), std::string::npos);
  const std::vector<std::string> lines = StartLines(settings);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("NCCL_SOCKET_IFNAME=eth1 is yours"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("eth0"), std::string::npos) << lines[0];
}

TEST(Tune, RdmaSwitchedOffByTheUserIsWarnedAboutWhenAPortIsActive) {
  EXPECT_TRUE(Warned(Derive(EightRails(), TwoNodes(), {{"NCCL_IB_DISABLE", "1"}}), "NCCL_IB_DISABLE=1"));
  EXPECT_FALSE(Warned(Derive(Node(), TwoNodes(), {{"NCCL_IB_DISABLE", "1"}}), "NCCL_IB_DISABLE"));
}

TEST(Tune, TheFlightRecorderHasItsOldNamesForAnOldPyTorchOnly) {
  Hardware here = Node();
  JobShape job;
  job.log_dir = "/runs/a b/logs";
  EXPECT_EQ(Value(Derive(here, job, {}), "TORCH_FR_BUFFER_SIZE"), "2000");
  EXPECT_EQ(Value(Derive(here, job, {}), "TORCH_NCCL_TRACE_BUFFER_SIZE"), "(none)");
  here.torch->version = "2.6.0+cu124";
  EXPECT_EQ(Value(Derive(here, job, {}), "TORCH_NCCL_TRACE_BUFFER_SIZE"), "2000");
  EXPECT_EQ(Value(Derive(here, job, {}), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), "/runs/a b/logs/nccl_trace_rank_");
  const Settings user = Derive(here, job, {{"TORCH_NCCL_TRACE_BUFFER_SIZE", "77"}});
  EXPECT_EQ(Find(user, "TORCH_FR_BUFFER_SIZE"), nullptr) << "the user chose the other spelling";
  EXPECT_NE(ToShell(user).find("export TORCH_FR_DUMP_TEMP_FILE='/runs/a b/logs/nccl_trace_rank_'"), std::string::npos);
}

TEST(Tune, RasGetsAPortPerJobWhereNcclHasRas) {
  Hardware here = Node();
  JobShape a, b;
  a.job_id = "run-a";
  b.job_id = "run-b";
  EXPECT_NE(Value(Derive(here, a, {}), "NCCL_RAS_ADDR"), Value(Derive(here, b, {}), "NCCL_RAS_ADDR"));
  EXPECT_EQ(Value(Derive(here, a, {}), "NCCL_RAS_ADDR"), Value(Derive(here, a, {}), "NCCL_RAS_ADDR"));
  EXPECT_TRUE(Value(Derive(here, a, {}), "NCCL_RAS_ADDR").starts_with("localhost:28"));
  here.nccl->version = "2.23.4";
  EXPECT_EQ(Find(Derive(here, a, {}), "NCCL_RAS_ADDR"), nullptr);
}

TEST(Tune, AJobWithoutGpusGetsNothingOfNccl) {
  JobShape job = TwoNodes();
  job.gpus = false;
  job.own_addresses = {"127.0.1.1"};
  const Settings settings = Derive(EightRails(), job, {});
  for (const Setting& s : settings.set) EXPECT_EQ(s.name.find("NCCL"), std::string::npos) << s.name;
  EXPECT_EQ(Value(settings, "GLOO_SOCKET_IFNAME"), "eth0");
}

TEST(Tune, ConfFilesOfNcclCountAsTheUsersSettings) {
  const std::string root = testing::TempDir() + "/tune_conf_" + std::to_string(getpid());
  std::filesystem::create_directories(root + "/etc");
  std::filesystem::create_directories(root + "/home/a");
  std::ofstream(root + "/etc/nccl.conf") << "# site\nNCCL_SOCKET_IFNAME=bond0\r\nNCCL_DEBUG=WARN\n";
  std::ofstream(root + "/home/a/.nccl.conf") << "NCCL_DEBUG=INFO\nnonsense\n";
  const place::Environment found = ConfFileSettings({{"HOME", "/home/a"}}, root);
  EXPECT_EQ(found, (place::Environment{{"NCCL_SOCKET_IFNAME", "bond0"}, {"NCCL_DEBUG", "INFO"}}));
  std::filesystem::remove_all(root);
}

TEST(Tune, EveryLineHasAReasonAndTheTableShowsIt) {
  Hardware here = EightRails();
  here.ib.push_back(Port("mlx5_9", "Ethernet", 25));
  const Settings settings = Derive(here, TwoNodes(), {});
  const std::string text = ToText(settings, false);
  for (const Setting& s : settings.set) {
    EXPECT_FALSE(s.because.empty()) << s.name;
    EXPECT_NE(text.find(s.name + "=" + s.value), std::string::npos);
  }
  for (const LeftAlone& left : settings.left) EXPECT_NE(text.find(left.name), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const nlohmann::json json = ToJson(settings);
  EXPECT_EQ(json["set"].size(), settings.set.size());
  EXPECT_EQ(json["set"][0]["confidence"], "certain");
}

TEST(Tune, VersionsAreReadAsNumbers) {
  EXPECT_EQ(MajorMinor("2.9.1"), (std::pair{2, 9}));
  EXPECT_EQ(MajorMinor("2.27.5+cuda12.9"), (std::pair{2, 27}));
  EXPECT_FALSE(MajorMinor("two").has_value());
  EXPECT_FALSE(MajorMinor("").has_value());
}

}  // namespace
}  // namespace lockstep::tune
