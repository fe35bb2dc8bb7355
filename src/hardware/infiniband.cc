// InfiniBand, RoCE and other RDMA devices, from /sys/class/infiniband alone. Counters are not touched: reading those of
// a firmware-restricted function fills the kernel log.
#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

// "4: ACTIVE" -> "ACTIVE"
std::string AfterColon(const std::string& text) {
  const size_t colon = text.find(':');
  return std::string(Trim(std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 1)));
}

// "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
std::optional<double> Rate(const std::string& text) {
  double gbit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gbit);
  if (error != std::errc() || !(gbit > 0) || gbit > 1e6) return std::nullopt;
  return gbit;
}

bool IsUnset(const std::string& gid) {
  // A port that has no address yet shows the prefix alone.
  const std::string_view tail = std::string_view(gid).substr(std::min<size_t>(gid.size(), 20));
  return gid.size() < 39 || tail.find_first_not_of("0:") == std::string_view::npos;
}

std::vector<Gid> ReadGids(const SysTree& tree, const std::string& port) {
  std::vector<Gid> gids;
  for (const std::string& name : tree.Names(port + "/gids")) {
    const std::optional<int64_t> index = ToNumber(name);
    const std::string text = tree.Text(port + "/gids/" + name);
    if (!index || *index < 0 || *index > (1 << 16) || IsUnset(text)) continue;
    gids.push_back({static_cast<int>(*index), text, tree.Text(port + "/gid_attrs/types/" + name),
                    tree.Text(port + "/gid_attrs/ndevs/" + name), text.starts_with("0000:0000:0000:0000:0000:ffff:")});
  }
  return gids;
}

// The character device through which a program opens it; there may be none in a container.
std::string VerbsNode(const SysTree& tree, const std::string& device, const std::string& folder) {
  std::vector<std::string> names = tree.Names(folder + "/device/infiniband_verbs");
  if (names.empty()) {
    for (const std::string& name : tree.Names("/sys/class/infiniband_verbs"))
      if (tree.Text("/sys/class/infiniband_verbs/" + name + "/ibdev") == device) names.push_back(name);
  }
  for (const std::string& name : names)
    if (tree.Exists("/dev/infiniband/" + name)) return "/dev/infiniband/" + name;
  return "";
}

}  // namespace

void ScanInfiniband(const SysTree& tree, Hardware* here) {
  const std::string all = "/sys/class/infiniband";
  for (const std::string& device : tree.Names(all)) {
    const std::string folder = all + "/" + device;
    IbPort port;
    port.device = device;
    const PciPlace place = PciOf(tree, folder + "/device");
    port.pci = place.address;
    port.pci_path = place.path;
    port.numa = place.numa;
    port.driver = tree.LinkName(folder + "/device/driver");
    if (port.driver.empty()) port.driver = LineValue(tree.Text(folder + "/device/uevent"), "DRIVER", '=');
    port.model = tree.Text(folder + "/hca_type");
    port.fw = tree.Text(folder + "/fw_ver");
    port.verbs = VerbsNode(tree, device, folder);
    const std::vector<std::string> netdevs = tree.Names(folder + "/device/net");
    const std::vector<std::string> ports = tree.Names(folder + "/ports");
    if (ports.empty()) here->notes.push_back("the RDMA device " + device + " has no ports in sysfs");
    for (const std::string& name : ports) {
      const std::optional<int64_t> number = ToNumber(name);
      if (!number || *number < 1 || *number > 255) continue;
      const std::string at = folder + "/ports/" + name;
      IbPort one = port;
      one.port = static_cast<int>(*number);
      one.state = AfterColon(tree.Text(at + "/state"));
      one.phys_state = AfterColon(tree.Text(at + "/phys_state"));
      one.link_layer = tree.Text(at + "/link_layer");
      one.gbit = Rate(tree.Text(at + "/rate"));
      if (auto lid = tree.Number(at + "/lid")) one.lid = static_cast<int>(*lid);
      if (auto lid = tree.Number(at + "/sm_lid")) one.sm_lid = static_cast<int>(*lid);
      one.gids = ReadGids(tree, at);
      for (const std::string& netdev : netdevs) {
        // A card with several ports behind one function numbers its interfaces from 0.
        const auto at_port = tree.Number(folder + "/device/net/" + netdev + "/dev_port");
        if (ports.size() < 2 || !at_port || *at_port == *number - 1) one.netdevs.push_back(netdev);
      }
      for (const Gid& gid : one.gids) {
        if (!gid.netdev.empty() && std::find(one.netdevs.begin(), one.netdevs.end(), gid.netdev) == one.netdevs.end())
          one.netdevs.push_back(gid.netdev);
      }
      here->ib.push_back(std::move(one));
    }
  }
}

}  // namespace lockstep::hardware
