// Interfaces, evidence, the user's word and how settings are told; RDMA is in settings_rdma_test.cc.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tune/settings_scene.h"

namespace lockstep::tune {
namespace {

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
  const Environment found = ConfFileSettings({{"HOME", "/home/a"}}, root);
  EXPECT_EQ(found, (Environment{{"NCCL_SOCKET_IFNAME", "bond0"}, {"NCCL_DEBUG", "INFO"}}));
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
