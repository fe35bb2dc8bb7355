// Network interfaces: the list and the addresses from the kernel (getifaddrs), the rest from /sys/class/net. Below a
// root the list is /sys/class/net and the addresses are those of /proc/net/fib_trie and if_inet6.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "base/text.h"
#include "hardware/addresses.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

constexpr std::string_view kNet = "/sys/class/net/";

// ARPHRD_* of linux/if_arp.h that matter here.
enum {
  kEthernet = 1,
  kInfiniband = 32,
  kTunnel = 768,
  kTunnel6 = 769,
  kLoopback = 772,
  kSit = 776,
  kGre = 778,
  kNone = 65534
};

// What the name says where the kernel says nothing more than "no device": only for interfaces made by software.
const char* KindByName(std::string_view name) {
  struct Row {
    const char *prefix, *kind;
  };
  for (const Row& row : {Row{"veth", "veth"},
                         {"cali", "veth"},
                         {"lxc", "veth"},
                         {"cilium", "veth"},
                         {"docker", "bridge"},
                         {"br-", "bridge"},
                         {"virbr", "bridge"},
                         {"cni", "bridge"},
                         {"flannel", "vxlan"},
                         {"vxlan", "vxlan"},
                         {"tun", "tunnel"},
                         {"tap", "tunnel"},
                         {"wg", "tunnel"},
                         {"dummy", "dummy"},
                         {"kube-ipvs", "dummy"},
                         {"nodelocaldns", "dummy"},
                         {"bond", "bond"},
                         {"team", "team"},
                         {"ifb", "dummy"}})
    if (name.starts_with(row.prefix)) return row.kind;
  return "";
}

std::string KindOf(const SysTree& tree, const Interface& it, bool device) {
  const std::string at = std::string(kNet) + it.name;
  const int64_t type = tree.Number(at + "/type").value_or(it.loopback ? kLoopback : kEthernet);
  if (it.loopback || type == kLoopback) return "loopback";
  if (tree.IsFolder(at + "/bonding")) return "bond";
  if (tree.IsFolder(at + "/bridge")) return "bridge";
  std::string devtype = LineValue(tree.Text(at + "/uevent"), "DEVTYPE", '=');
  if (devtype == "wireguard" || devtype == "gre" || devtype == "geneve") return "tunnel";
  if (!devtype.empty()) return devtype;  // bond, bridge, vlan, vxlan, macvlan, ipvlan, wlan, ...
  if (tree.Exists(at + "/tun_flags")) return "tunnel";
  if (type == kInfiniband) return "ipoib";
  if (type == kTunnel || type == kTunnel6 || type == kSit || type == kGre || type == kNone) return "tunnel";
  if (device) return "ethernet";
  if (!NetFile(tree, "vlan/" + it.name).empty()) return "vlan";
  if (const char* kind = KindByName(it.name); *kind) return kind;
  // Half of a pair whose other half is in another namespace: eth0 of a container.
  const auto own = tree.Number(at + "/ifindex"), other = tree.Number(at + "/iflink");
  if (own && other && *own != *other) return "veth";
  return type == kEthernet ? "ethernet" : "other";
}

void ReadSysfs(const SysTree& tree, Interface* it) {
  const std::string at = std::string(kNet) + it->name;
  if (!tree.Exists(at)) return;
  // /sys may show another network namespace than ours (nsenter, unshare without a mount of its own).
  if (tree.real()) {
    const auto index = tree.Number(at + "/ifindex");
    if (index && static_cast<unsigned>(*index) != if_nametoindex(it->name.c_str())) return;
  }
  const auto flags = tree.Number(at + "/flags");
  const std::string state = tree.Text(at + "/operstate");
  const auto carrier = tree.Number(at + "/carrier");
  if (flags) it->loopback = (*flags & IFF_LOOPBACK) != 0;
  it->loopback = it->loopback || tree.Number(at + "/type") == kLoopback;
  // "unknown" is what drivers without link detection say, the loopback among them.
  if (!state.empty() || flags) {
    const bool administratively = flags ? (*flags & IFF_UP) != 0 : state == "up" || state == "unknown";
    it->up = administratively && (state == "up" || ((state == "unknown" || state.empty()) && carrier.value_or(1) != 0));
  }
  if (auto mtu = tree.Number(at + "/mtu"); mtu && *mtu > 0) it->mtu = static_cast<int>(*mtu);
  if (auto speed = tree.Number(at + "/speed"); speed && *speed > 0 && *speed < (1 << 30)) it->gbit = *speed / 1000.0;
  const bool device = tree.Exists(at + "/device");
  if (device) {
    const PciPlace place = PciOf(tree, at + "/device");
    it->pci = place.address;
    it->numa = place.numa;
  }
  it->kind = KindOf(tree, *it, device);
  it->is_virtual = !device;
  it->master = tree.LinkName(at + "/master");
  if (it->master.empty()) it->master = LineValue(tree.Text(at + "/master/uevent"), "INTERFACE", '=');
  for (const std::string& name : tree.Names(at))
    if (name.starts_with("lower_")) it->lower.push_back(name.substr(6));
  if (it->lower.empty()) it->lower = Words(tree.Text(at + "/bonding/slaves"));
  if (it->lower.empty() && it->kind == "bond") {
    for (const std::string& line : Split(NetFile(tree, "bonding/" + it->name), '\n'))
      if (line.starts_with("Slave Interface:")) it->lower.emplace_back(Trim(std::string_view(line).substr(16)));
  }
  if (it->lower.empty() && it->kind == "vlan") {
    const std::string device_of = LineValue(NetFile(tree, "vlan/" + it->name), "Device", ':');
    if (!device_of.empty()) it->lower.push_back(device_of);
  }
}

// A bond or VLAN over real cards is as real as they are. A bridge is not: what it carries is for containers. The link
// speed and the NUMA node come from below, too.
void LookBelow(std::vector<Interface>* interfaces) {
  auto find = [&](const std::string& name) {
    return std::find_if(interfaces->begin(), interfaces->end(), [&](const Interface& i) { return i.name == name; });
  };
  for (int depth = 0; depth < 3; ++depth) {  // a VLAN over a bond over cards
    for (Interface& it : *interfaces) {
      if (!it.is_virtual || it.lower.empty() || it.kind == "bridge" || it.kind == "vxlan" || it.kind == "veth")
        continue;
      bool all_real = true, same = true;
      std::optional<int> numa;
      std::optional<double> gbit;
      for (const std::string& name : it.lower) {
        const auto lower = find(name);
        if (lower == interfaces->end() || lower->is_virtual) all_real = false;
        if (lower == interfaces->end()) continue;
        if (!numa) numa = lower->numa;
        same = same && numa == lower->numa;
        if (lower->gbit && it.kind == "vlan") gbit = lower->gbit;
      }
      if (all_real) it.is_virtual = false;
      if (same && !it.numa) it.numa = numa;
      if (!it.gbit) it.gbit = gbit;
    }
  }
}

std::vector<Interface> FromKernel() {
  std::vector<Interface> interfaces;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return interfaces;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    // A label of an old alias ("eth0:1") is an address of eth0.
    const std::string name = std::string(entry->ifa_name).substr(0, std::string_view(entry->ifa_name).find(':'));
    auto it = std::find_if(interfaces.begin(), interfaces.end(), [&](const Interface& i) { return i.name == name; });
    if (it == interfaces.end()) {
      it = interfaces.insert(interfaces.end(), Interface{});
      it->name = name;
      it->up = (entry->ifa_flags & IFF_UP) && (entry->ifa_flags & IFF_RUNNING);
      it->loopback = entry->ifa_flags & IFF_LOOPBACK;
      it->kind = it->loopback ? "loopback" : "ethernet";
    }
    if (!entry->ifa_addr || !entry->ifa_netmask) continue;
    const Address address = FromSockaddr(entry->ifa_addr), mask = FromSockaddr(entry->ifa_netmask);
    if (address.bytes.empty()) continue;
    int bits = 0;
    for (const uint8_t byte : mask.bytes) bits += std::popcount(byte);
    it->addresses.push_back(ToString(address) + "/" + std::to_string(bits));
  }
  ::freeifaddrs(list);
  return interfaces;
}

std::vector<Interface> FromTree(const SysTree& tree) {
  std::vector<Interface> interfaces;
  auto at = [&](const std::string& name) -> Interface& {
    for (Interface& it : interfaces)
      if (it.name == name) return it;
    interfaces.emplace_back().name = name;
    return interfaces.back();
  };
  for (const std::string& name : tree.Names(std::string(kNet)))
    if (tree.IsFolder(std::string(kNet) + name)) at(name);  // not bonding_masters, a file
  for (const OwnAddress& own : AddressesFromProc(tree)) at(own.interface).addresses.push_back(own.address);
  // Without /sys the kernel says of an interface only that it is there; one with an address is taken as up.
  for (Interface& it : interfaces) {
    if (tree.Exists(std::string(kNet) + it.name)) continue;
    it.up = true;
    it.loopback = it.name == "lo";
    it.kind = it.loopback ? "loopback" : KindByName(it.name);
    it.is_virtual = !it.kind.empty();
  }
  return interfaces;
}

}  // namespace

void ScanInterfaces(const SysTree& tree, Hardware* here) {
  here->interfaces = tree.real() ? FromKernel() : FromTree(tree);
  for (Interface& it : here->interfaces) ReadSysfs(tree, &it);
  LookBelow(&here->interfaces);
  if (here->interfaces.empty()) here->notes.push_back("no network interface is visible");
}

}  // namespace lockstep::hardware
