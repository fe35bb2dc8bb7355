// Machines of tests/hardware/trees read below a root. What is expected was written by hand from the trees' generator.
#include "hardware/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/environment.h"
#include "hardware/tree.h"

namespace lockstep::hardware {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Hardware Scan(const Tree& tree, const Environment& env = {}) {
  HardwareOptions options;
  options.env = env;
  options.root = tree.root();
  options.gpus = true;
  return ScanHardware(options);
}

Hardware ScanNamed(const std::string& name) { return Scan(Tree::Unpack(name)); }

const IbPort& Port(const Hardware& here, const std::string& device) {
  for (const IbPort& port : here.ib)
    if (port.device == device) return port;
  static const IbPort kNone;
  ADD_FAILURE() << "no RDMA device " << device;
  return kNone;
}

const Interface& Named(const Hardware& here, const std::string& name) {
  for (const Interface& it : here.interfaces)
    if (it.name == name) return it;
  static const Interface kNone;
  ADD_FAILURE() << "no interface " << name;
  return kNone;
}

std::string Way(const Hardware& here, const std::string& address) {
  const Interface* it = RouteTo(here, address);
  return it ? it->name : "";
}

TEST(Infiniband, EveryPortOfAnH800Machine) {
  const Hardware here = ScanNamed("h800-8ib");
  ASSERT_EQ(here.ib.size(), 9u);
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(here.ib[i].device, "mlx5_" + std::to_string(i));
  const IbPort& port = Port(here, "mlx5_0");
  EXPECT_TRUE(port.active());
  EXPECT_TRUE(port.infiniband());
  EXPECT_EQ(port.gbit, 400);
  EXPECT_EQ(port.phys_state, "LinkUp");
  EXPECT_EQ(port.pci, "0000:19:00.0");
  EXPECT_EQ(port.numa, 0);
  EXPECT_EQ(port.driver, "mlx5_core");
  EXPECT_EQ(port.model, "MT4129");
  EXPECT_EQ(port.fw, "28.39.1002");
  EXPECT_EQ(port.lid, 100);
  EXPECT_EQ(port.sm_lid, 1);
  EXPECT_EQ(port.verbs, "/dev/infiniband/uverbs0");
  EXPECT_THAT(port.netdevs, ElementsAre("ib0"));
  ASSERT_EQ(port.gids.size(), 1u);
  EXPECT_EQ(port.gids[0].gid, "fe80:0000:0000:0000:a088:c203:0012:0010");
  EXPECT_EQ(Port(here, "mlx5_8").numa, 1);
  EXPECT_EQ(Port(here, "mlx5_4").gbit, 200);
}

TEST(Infiniband, ACardIsNearTheGpuBelowItsSwitch) {
  const Hardware here = ScanNamed("h800-8ib");
  ASSERT_EQ(here.gpus.size(), 8u);
  EXPECT_EQ(PciDistance(here.gpus[0].pci_path, Port(here, "mlx5_0").pci_path), 4);
  EXPECT_EQ(PciDistance(here.gpus[0].pci_path, Port(here, "mlx5_1").pci_path), std::nullopt);
  EXPECT_EQ(PciDistance(here.gpus[4].pci_path, Port(here, "mlx5_5").pci_path), 4);
  EXPECT_EQ(PciDistance(here.gpus[0].pci_path, Port(here, "mlx5_4").pci_path), std::nullopt);
  EXPECT_EQ(PciDistance(here.gpus[0].pci_path, here.gpus[0].pci_path), 0);
  EXPECT_EQ(PciDistance("", here.gpus[0].pci_path), std::nullopt);
}

TEST(Infiniband, DownPortsSayWhatTheyAre) {
  const Hardware here = ScanNamed("h800-down-ports");
  EXPECT_EQ(Port(here, "mlx5_2").state, "DOWN");
  EXPECT_EQ(Port(here, "mlx5_2").phys_state, "Polling");
  EXPECT_EQ(Port(here, "mlx5_3").phys_state, "Disabled");
  EXPECT_EQ(Port(here, "mlx5_7").state, "INIT");
  EXPECT_EQ(Port(here, "mlx5_7").sm_lid, 0);
  EXPECT_FALSE(Port(here, "mlx5_7").active());
  EXPECT_TRUE(Port(here, "mlx5_0").active());
}

TEST(Infiniband, TheGidTableOfRoceKeepsIndexTypeAndInterface) {
  const Hardware here = ScanNamed("roce-mixed-gids");
  const IbPort& second = Port(here, "mlx5_1");
  EXPECT_EQ(second.link_layer, "Ethernet");
  ASSERT_EQ(second.gids.size(), 6u);
  EXPECT_EQ(second.gids[5].index, 5);
  EXPECT_EQ(second.gids[5].type, "RoCE v2");
  EXPECT_EQ(second.gids[5].netdev, "ens2np0");
  EXPECT_TRUE(second.gids[5].ipv4);
  EXPECT_FALSE(second.gids[3].ipv4);
  const IbPort& third = Port(here, "mlx5_2");  // entries 2 and 3 are unset
  ASSERT_EQ(third.gids.size(), 4u);
  EXPECT_EQ(third.gids[3].index, 5);
  EXPECT_EQ(third.gids[3].netdev, "ens3np0.30");
  EXPECT_THAT(third.netdevs, ElementsAre("ens3np0", "ens3np0.30"));
  for (const Gid& gid : Port(here, "mlx5_3").gids) EXPECT_FALSE(gid.ipv4);
}

TEST(Infiniband, ADeviceWithoutANodeInDevCannotBeOpened) {
  Tree tree = Tree::Unpack("h800-8ib");
  tree.Remove("/dev/infiniband/uverbs2");
  const Hardware here = Scan(tree);
  EXPECT_EQ(Port(here, "mlx5_2").verbs, "");
  EXPECT_EQ(Port(here, "mlx5_3").verbs, "/dev/infiniband/uverbs3");
}

TEST(Infiniband, LinksThatWereCopiedAsFoldersAreReadToo) {
  // cp -rL of /sys: `device` is a folder, so the address comes from uevent.
  Tree tree = Tree::Empty();
  const std::string at = "/sys/class/infiniband/mlx5_0";
  tree.Write(at + "/device/uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:5e:00.0\n");
  tree.Write(at + "/device/numa_node", "1\n");
  tree.Write(at + "/ports/1/state", "4: ACTIVE\n");
  tree.Write(at + "/ports/2/state", "1: DOWN\n");
  tree.Write(at + "/device/net/eth0/dev_port", "0\n");
  tree.Write(at + "/device/net/eth1/dev_port", "1\n");
  const Hardware here = Scan(tree);
  ASSERT_EQ(here.ib.size(), 2u);
  EXPECT_EQ(here.ib[0].pci, "0000:5e:00.0");
  EXPECT_EQ(here.ib[0].driver, "mlx5_core");
  EXPECT_EQ(here.ib[0].numa, 1);
  EXPECT_THAT(here.ib[0].netdevs, ElementsAre("eth0"));
  EXPECT_THAT(here.ib[1].netdevs, ElementsAre("eth1"));
  EXPECT_EQ(here.ib[1].gbit, std::nullopt);
}

TEST(Infiniband, NoneInAPod) { EXPECT_THAT(ScanNamed("pod-without-rdma").ib, IsEmpty()); }

TEST(Interfaces, HaveStateSpeedKindAndAddresses) {
  const Hardware here = ScanNamed("h800-8ib");
  const Interface& ethernet = Named(here, "eno1");
  EXPECT_TRUE(ethernet.up);
  EXPECT_FALSE(ethernet.is_virtual);
  EXPECT_EQ(ethernet.kind, "ethernet");
  EXPECT_EQ(ethernet.gbit, 25);
  EXPECT_EQ(ethernet.mtu, 1500);
  EXPECT_EQ(ethernet.pci, "0000:02:00.0");
  EXPECT_THAT(ethernet.addresses, ElementsAre("10.20.1.17/22", "fe80::3eec:efff:fe0a:1117/64"));
  EXPECT_FALSE(Named(here, "eno2").up);
  EXPECT_EQ(Named(here, "ib4").kind, "ipoib");
  EXPECT_THAT(Named(here, "ib4").addresses, ElementsAre("172.16.4.17/16"));
  EXPECT_TRUE(Named(here, "lo").loopback);
  EXPECT_TRUE(Named(here, "lo").up);
}

TEST(Interfaces, ABondOverCardsIsRealAndAVlanAboveItToo) {
  const Hardware here = ScanNamed("bonded");
  const Interface& bond = Named(here, "bond0");
  EXPECT_EQ(bond.kind, "bond");
  EXPECT_FALSE(bond.is_virtual);
  EXPECT_THAT(bond.lower, ElementsAre("ens1f0np0", "ens1f1np1"));
  EXPECT_EQ(bond.numa, 0);
  const Interface& vlan = Named(here, "bond0.100");
  EXPECT_EQ(vlan.kind, "vlan");
  EXPECT_FALSE(vlan.is_virtual);
  EXPECT_THAT(vlan.lower, ElementsAre("bond0"));
  EXPECT_EQ(Named(here, "ens1f1np1").master, "bond0");
  EXPECT_THAT(Port(here, "mlx5_bond_0").netdevs, ElementsAre("ens1f0np0", "bond0", "bond0.100"));
}

TEST(Interfaces, ContainerNetworksAreVirtual) {
  const Hardware here = ScanNamed("docker-bridges");
  EXPECT_EQ(Named(here, "docker0").kind, "bridge");
  EXPECT_EQ(Named(here, "br-5f2e9d3c1a77").kind, "bridge");
  EXPECT_EQ(Named(here, "veth8a1c2d3").kind, "veth");
  EXPECT_EQ(Named(here, "veth8a1c2d3").master, "br-5f2e9d3c1a77");
  EXPECT_EQ(Named(here, "flannel.1").kind, "vxlan");
  EXPECT_EQ(Named(here, "tun0").kind, "tunnel");
  for (const char* name : {"docker0", "br-5f2e9d3c1a77", "veth8a1c2d3", "flannel.1", "tun0", "dummy0"})
    EXPECT_TRUE(Named(here, name).is_virtual) << name;
  EXPECT_FALSE(Named(here, "enp3s0").is_virtual);
  EXPECT_FALSE(Named(here, "docker0").up);
  EXPECT_TRUE(Named(here, "tun0").up);
}

TEST(Interfaces, ThePodsHalfOfAPairHasItsAddressWithoutANetwork) {
  const Hardware here = ScanNamed("pod-without-rdma");
  EXPECT_EQ(Named(here, "eth0").kind, "veth");
  EXPECT_THAT(Named(here, "eth0").addresses, ElementsAre("10.0.37.201/32"));
}

std::string RouteLine(const std::string& interface, const char* destination, const char* gateway, const char* mask) {
  return interface + "\t" + destination + "\t" + gateway + "\t0003\t0\t0\t0\t" + mask + "\t0\t0\t0\n";
}

std::string Trie(const std::vector<std::string>& addresses) {
  std::string text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n";
  for (const std::string& address : addresses) text += "     |-- " + address + "\n        /32 host LOCAL\n";
  return text;
}

TEST(Interfaces, AddressesWithoutANetworkGoWhereTheGatewaysBeginAlike) {
  // A cloud's machine with a card in each of several networks: every address is a /32.
  Tree tree = Tree::Empty();
  std::string routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
  routes +=
      RouteLine("eth0", "00000000", "0100800A", "00000000") + RouteLine("eth0", "0100800A", "00000000", "FFFFFFFF");
  routes +=
      RouteLine("eth1", "0100010A", "00000000", "FFFFFFFF") + RouteLine("eth1", "0000010A", "0100010A", "0000FFFF");
  tree.Write("/proc/net/route", routes);
  tree.Write("/proc/net/fib_trie", Trie({"10.1.0.7", "10.128.0.7", "192.0.2.9"}));
  const Hardware here = Scan(tree);
  EXPECT_THAT(Named(here, "eth0").addresses, ElementsAre("10.128.0.7/32"));
  EXPECT_THAT(Named(here, "eth1").addresses, ElementsAre("10.1.0.7/32"));  // and 192.0.2.9 is nobody's
}

TEST(Interfaces, TwoInOneNetworkHaveAnAddressEach) {
  Tree tree = Tree::Empty();
  tree.Write("/proc/net/route", RouteLine("hsn0", "0000960A", "00000000", "0000FFFF") +
                                    RouteLine("hsn1", "0000960A", "00000000", "0000FFFF"));
  tree.Write("/proc/net/fib_trie", Trie({"10.150.0.7", "10.150.0.8"}));
  const Hardware here = Scan(tree);
  EXPECT_THAT(Named(here, "hsn0").addresses, ElementsAre("10.150.0.7/16"));
  EXPECT_THAT(Named(here, "hsn1").addresses, ElementsAre("10.150.0.8/16"));
}

TEST(Interfaces, WithoutSysTheyAreUpAndANoteSaysWhatIsMissing) {
  Tree tree = Tree::Empty();
  tree.Write("/proc/net/route", RouteLine("eth0", "0000030A", "00000000", "00FFFFFF"));
  tree.Write("/proc/net/fib_trie", Trie({"10.3.0.2", "127.0.0.1"}));
  const Hardware here = Scan(tree);
  EXPECT_TRUE(Named(here, "eth0").up);
  EXPECT_FALSE(Named(here, "eth0").loopback);
  EXPECT_TRUE(Named(here, "lo").loopback);
  EXPECT_THAT(here.notes, Contains(HasSubstr("/sys cannot be read")));
  EXPECT_THAT(ScanNamed("pod-without-rdma").notes, testing::Not(Contains(HasSubstr("/sys cannot be read"))));
}

TEST(System, AmdGpusAreSeenAndNotCounted) {
  Tree tree = Tree::Empty();
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes/";
  tree.Write(nodes + "0/gpu_id", "0\n");  // the CPU
  tree.Write(nodes + "1/gpu_id", "51110\n");
  tree.Write(nodes + "2/gpu_id", "9219\n");
  const Hardware here = Scan(tree);
  EXPECT_EQ(here.gpu_source, "amdgpu");
  EXPECT_THAT(here.gpus, IsEmpty());
  EXPECT_THAT(here.notes, Contains(HasSubstr("2 AMD GPUs are here")));
}

TEST(Routes, TheLongestPrefixDecides) {
  const Hardware here = ScanNamed("roce-mixed-gids");
  EXPECT_EQ(Way(here, "10.1.1.77"), "ens2np0");  // /24
  EXPECT_EQ(Way(here, "10.1.9.77"), "ens1np0");  // /16
  EXPECT_EQ(Way(here, "8.8.8.8"), "eno8303");    // default
  EXPECT_EQ(Way(here, "10.1.2.9"), "ens3np0.30");
  EXPECT_EQ(Way(here, "2001:db8:3::9"), "ens4np0");
  EXPECT_EQ(Way(here, "::ffff:10.1.1.77"), "ens2np0");
}

TEST(Routes, OwnAddressesAreReachedByTheInterfaceThatHasThem) {
  const Hardware here = ScanNamed("roce-mixed-gids");
  EXPECT_EQ(Way(here, "10.1.1.3"), "ens2np0");
  EXPECT_EQ(Way(here, "127.0.0.1"), "lo");
  EXPECT_EQ(Way(here, "127.0.1.1"), "lo");
  EXPECT_EQ(Way(here, "fe80::1%ens4np0"), "ens4np0");
}

TEST(Routes, NoRouteIsNoInterface) {
  Hardware here = ScanNamed("roce-mixed-gids");
  EXPECT_EQ(Way(here, "2001:db8:99::1"), "");  // no default for IPv6 here
  EXPECT_EQ(Way(here, "not an address"), "");
  EXPECT_EQ(Way(here, ""), "");
  EXPECT_EQ(Way(ScanNamed("ethernet-only"), "2001:db8:99::1"), "enp5s0f0");
}

TEST(Routes, OfTwoEqualPrefixesTheLowerMetricCounts) {
  Hardware here = ScanNamed("docker-bridges");
  EXPECT_EQ(Way(here, "10.77.0.1"), "tun0");
  EXPECT_EQ(Way(here, "10.9.8.99"), "enp3s0");
  here.routes.push_back({"10.0.0.0/8", "10.9.8.1", "enp3s0", "", 10});
  EXPECT_EQ(Way(here, "10.77.0.1"), "enp3s0");
}

TEST(Numa, NodesCoresAndMemory) {
  const Hardware here = ScanNamed("h800-8ib");
  ASSERT_EQ(here.numa.size(), 2u);
  EXPECT_EQ(here.numa[1].cpus, "48-95,144-191");
  EXPECT_EQ(here.numa[1].memory, 1056500000ull * 1024);
  EXPECT_EQ(here.cores, 96);
  EXPECT_EQ(here.cpus, 192);
  EXPECT_EQ(here.memory_total, 2113000000ull * 1024);
  EXPECT_EQ(here.cpu_model, "Intel(R) Xeon(R) Platinum 8468");
}

TEST(Limits, OfTheProcess) {
  const Hardware here = ScanNamed("roce-mixed-gids");
  EXPECT_EQ(here.limits.memlock, 65536u);
  EXPECT_EQ(here.limits.nofile, 1024u);
  EXPECT_EQ(here.limits.nofile_hard, 1048576u);
  EXPECT_EQ(ScanNamed("h800-8ib").limits.memlock, UINT64_MAX);
  EXPECT_EQ(here.limits.memory_max, std::nullopt);
}

TEST(Limits, OfACgroupOfVersion2) {
  const Hardware here = ScanNamed("pod-without-rdma");
  EXPECT_EQ(here.limits.memory_max, 137438953472u);
  EXPECT_EQ(here.limits.memory_now, 42949672960u - 21474836480u);  // without inactive file cache
  EXPECT_EQ(here.limits.pids_max, 1024u);
  EXPECT_EQ(here.limits.pids_now, 37u);
  EXPECT_EQ(here.limits.cpu_quota, 12.5);
  EXPECT_EQ(here.cpus, 12);
}

TEST(Limits, OfACgroupOfVersion1) {
  const Hardware here = ScanNamed("cgroup-v1");
  EXPECT_EQ(here.limits.memory_max, 68719476736u);
  EXPECT_EQ(here.limits.memory_now, 4294967296u);
  EXPECT_EQ(here.limits.pids_max, std::nullopt);
  EXPECT_EQ(here.limits.pids_now, 12u);
  EXPECT_EQ(here.limits.cpu_quota, 8.5);
  EXPECT_EQ(here.cpus, 8);
}

TEST(Limits, TheNarrowestCgroupAboveUsBinds) {
  Tree tree = Tree::Empty();
  tree.Write("/proc/self/cgroup", "0::/job/step\n");
  tree.Write("/sys/fs/cgroup/job/step/memory.max", "max\n");
  tree.Write("/sys/fs/cgroup/job/step/memory.current", "5\n");
  tree.Write("/sys/fs/cgroup/job/memory.max", "1000\n");
  tree.Write("/sys/fs/cgroup/job/memory.current", "900\n");
  tree.Write("/sys/fs/cgroup/job/step/pids.max", "10\n");
  tree.Write("/sys/fs/cgroup/job/pids.max", "20\n");
  const Hardware here = Scan(tree);
  EXPECT_EQ(here.limits.memory_max, 1000u);
  EXPECT_EQ(here.limits.memory_now, 900u);
  EXPECT_EQ(here.limits.pids_max, 10u);
}

TEST(Filesystems, RoomAndTypeOfShmAndTmp) {
  const Hardware here = ScanNamed("pod-without-rdma");
  ASSERT_EQ(here.filesystems.size(), 2u);
  EXPECT_EQ(here.filesystems[0].path, "/dev/shm");
  EXPECT_EQ(here.filesystems[0].type, "tmpfs");
  EXPECT_EQ(here.filesystems[0].total, 67108864u);
  EXPECT_EQ(here.filesystems[1].mount, "/tmp");
}

TEST(Filesystems, AFolderBelongsToTheDeepestMountAboveIt) {
  Tree tree = Tree::Empty();
  tree.Write("/proc/self/mountinfo",
             "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
             "2 1 0:40 / /data rw,relatime - nfs4 server:/export rw\n"
             "3 1 0:41 / /data\\040set rw - lustre a@tcp:/fs ro,flock\n");
  tree.Folder("/data/train");
  tree.Folder("/data set/x");
  tree.Folder("/database");
  tree.Write("/statvfs.json", R"({"/data": {"total": 10, "free": 4, "inodes": 7, "inodes_free": 1}})");
  HardwareOptions options;
  options.root = tree.root();
  options.folders = {"/data/train", "/data set/x", "/database"};
  const Hardware here = ScanHardware(options);
  ASSERT_EQ(here.filesystems.size(), 3u);  // there is no /dev/shm and no /tmp
  EXPECT_EQ(here.filesystems[0].type, "nfs4");
  EXPECT_EQ(here.filesystems[0].free, 4u);
  EXPECT_EQ(here.filesystems[0].inodes_free, 1u);
  EXPECT_EQ(here.filesystems[1].mount, "/data set");
  EXPECT_TRUE(here.filesystems[1].read_only);
  EXPECT_EQ(here.filesystems[2].mount, "/");
}

TEST(System, HostKernelDriverAndPeerMemory) {
  const Hardware ib = ScanNamed("h800-8ib");
  EXPECT_EQ(ib.host, "gpu-a17");
  EXPECT_EQ(ib.kernel, "5.15.0-105-generic");
  EXPECT_EQ(ib.os, "Ubuntu 22.04.4 LTS");
  EXPECT_EQ(ib.driver, "535.161.08");
  EXPECT_EQ(ib.peermem, "nvidia_peermem");
  EXPECT_EQ(ib.clock_source, "tsc");
  EXPECT_EQ(ib.container, "");
  EXPECT_EQ(ScanNamed("roce-mixed-gids").peermem, "dma-buf");  // open modules, 5.14
  EXPECT_EQ(ScanNamed("bonded").peermem, "");                  // closed modules
}

TEST(System, Containers) {
  EXPECT_EQ(ScanNamed("pod-without-rdma").container, "kubernetes");
  EXPECT_EQ(ScanNamed("cgroup-v1").container, "docker");
  const Tree host = Tree::Unpack("ethernet-only");
  EXPECT_EQ(Scan(host, {{"APPTAINER_CONTAINER", "/x.sif"}}).container, "apptainer");
  EXPECT_EQ(Scan(host, {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"SINGULARITY_CONTAINER", "x"}}).container,
            "kubernetes");
  EXPECT_EQ(Scan(host, {{"container", "podman"}}).container, "podman");
}

TEST(System, ImexChannel) {
  Tree tree = Tree::Unpack("ethernet-only");
  EXPECT_FALSE(Scan(tree).imex_channel);
  tree.Write("/dev/nvidia-caps-imex-channels/channel0", "");
  EXPECT_TRUE(Scan(tree).imex_channel);
}

TEST(Gpus, WithoutNvmlComeFromTheKernelModule) {
  const Hardware here = Scan(Tree::Unpack("h800-8ib"), {{"CUDA_VISIBLE_DEVICES", "2,3"}});
  EXPECT_EQ(here.gpu_source, "/proc/driver/nvidia");
  ASSERT_EQ(here.gpus.size(), 8u);
  EXPECT_EQ(here.gpus[4].name, "NVIDIA H800");
  EXPECT_EQ(here.gpus[4].pci, "0000:9a:00.0");
  EXPECT_EQ(here.gpus[4].numa, 1);
  EXPECT_EQ(here.gpus[4].memory_total, std::nullopt);
  EXPECT_EQ(here.gpus_visible, 2);
}

TEST(Gpus, OnTheBusWithoutADriverAreNoticed) {
  Tree tree = Tree::Empty();
  tree.Write("/sys/bus/pci/devices/0000:18:00.0/vendor", "0x10de\n");
  tree.Write("/sys/bus/pci/devices/0000:18:00.0/class", "0x030200\n");
  tree.Write("/sys/bus/pci/devices/0000:19:00.0/vendor", "0x10de\n");
  tree.Write("/sys/bus/pci/devices/0000:19:00.0/class", "0x068000\n");  // a switch
  EXPECT_THAT(Scan(tree).notes, Contains("the PCI bus has 1 NVIDIA GPU, 0 are seen (no driver)"));
  tree.Write("/.dockerenv", "");
  EXPECT_THAT(Scan(tree).notes, testing::Not(Contains(HasSubstr("PCI bus"))));
}

TEST(Gpus, OfATreeWithoutDeviceNodesCountToo) {
  Tree tree = Tree::Empty();
  tree.Write("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t NVIDIA A100\nDevice Minor: \t 0\n");
  EXPECT_EQ(Scan(tree).gpus.size(), 1u);
  tree.Folder("/dev");
  EXPECT_EQ(Scan(tree).gpus.size(), 0u);  // a container that was given none
}

TEST(Xids, AreReadFromTheKernelLogByGpu) {
  const Hardware here = ScanNamed("h800-down-ports");
  EXPECT_THAT(here.gpus[1].xids, ElementsAre(63));
  EXPECT_THAT(here.gpus[2].xids, ElementsAre(79, 154));
  EXPECT_THAT(here.gpus[0].xids, IsEmpty());
}

TEST(Xids, OfOlderAndNewerDriversAndOfDevicesThatAreGone) {
  Tree tree = Tree::Unpack("h800-8ib");
  tree.Write("/dev/kmsg",
             "4,812,99,-;NVRM: Xid (0000:18:00): 31, Ch 00000010\n"
             "4,813,99,-;NVRM: Xid (PCI:0000:29:00 GPU-I:05 GPU-CI:00): 94, pid=1, name=python, Contained\n"
             "4,814,99,-;NVRM: Xid (PCI:0000:EE:00): 79, GPU has fallen off the bus.\n"
             "4,815,99,-;nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32\n"
             "4,816,99,-;NVRM: Xid (PCI:0000:3a:00): , broken\n"
             "4,817,99,-;NVRM: Xid (PCI:0000:3a:00");
  const Hardware here = Scan(tree);
  EXPECT_THAT(here.gpus[0].xids, ElementsAre(31));
  EXPECT_THAT(here.gpus[1].xids, ElementsAre(94));
  EXPECT_THAT(here.gpus[2].xids, IsEmpty());
  EXPECT_THAT(here.notes, Contains(HasSubstr("Xid 79 of 0000:ee:00.0")));
  EXPECT_THAT(here.notes, Contains(HasSubstr("SXid 12028 of 0000:c1:00.0 (NVSwitch)")));
}

TEST(Json, EveryMachineComesBackAsItWas) {
  for (const char* name : {"h800-8ib", "h800-down-ports", "roce-mixed-gids", "ethernet-only", "bonded",
                           "pod-without-rdma", "cgroup-v1", "docker-bridges"}) {
    const nlohmann::json json = ToJson(ScanNamed(name));
    const Result<Hardware> back = HardwareFromJson(nlohmann::json::parse(json.dump()));
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(ToJson(*back), json) << name;
  }
}

TEST(Json, TheUnknownIsNullAndUnlimitedIsTheLargestNumber) {
  const nlohmann::json json = ToJson(ScanNamed("h800-8ib"));
  EXPECT_TRUE(json["gpus"][0]["memory_total"].is_null());
  EXPECT_TRUE(json["limits"]["memory_max"].is_null());
  EXPECT_EQ(json["limits"]["memlock"], UINT64_MAX);
  EXPECT_TRUE(json["nccl"].is_null());
}

TEST(Json, UnknownKeysAreIgnoredAndWrongTypesNamed) {
  const Result<Hardware> good = HardwareFromJson({{"host", "a"}, {"colour", "blue"}, {"ib", {{{"device", "mlx5_0"}}}}});
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->ib[0].device, "mlx5_0");
  const Result<Hardware> bad = HardwareFromJson({{"gpus", {{{"index", 0}}, {{"index", "one"}}}}});
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.status().message(), HasSubstr("gpus[1].index"));
  EXPECT_FALSE(HardwareFromJson({{"cpus", 5000000000}}).ok());
  EXPECT_FALSE(HardwareFromJson({{"limits", {{"memlock", -1}}}}).ok());
  EXPECT_FALSE(HardwareFromJson(nlohmann::json::array()).ok());
}

TEST(Scan, AnEmptyTreeIsKnownToBeUnknown) {
  const Hardware here = Scan(Tree::Empty());
  EXPECT_EQ(here.gpu_source, "no driver");
  EXPECT_THAT(here.gpus, IsEmpty());
  EXPECT_EQ(here.memory_total, std::nullopt);
  EXPECT_EQ(here.limits.memlock, std::nullopt);
  EXPECT_THAT(here.notes, Contains(HasSubstr("/proc/self/limits")));
}

TEST(Scan, ThisMachineHasALoopbackMemoryAndLimits) {
  HardwareOptions options;
  options.env = CurrentEnvironment();
  options.gpus = false;
  const Hardware here = ScanHardware(options);
  EXPECT_EQ(Way(here, "127.0.0.1"), "lo");
  EXPECT_GT(here.memory_total.value_or(0), 0u);
  EXPECT_TRUE(here.limits.nofile.has_value());
  EXPECT_GE(here.cores, 1);
  EXPECT_GE(here.filesystems.size(), 1u);
}

}  // namespace
}  // namespace lockstep::hardware
