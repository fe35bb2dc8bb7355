// What carries the data between nodes: which RDMA ports, which GID of theirs, or TCP.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "tune/settings_rules.h"

namespace lockstep::tune {
namespace {

using place::Gid;
using place::IbPort;

// Ports that belong together: one kind of link at one speed.
struct Rail {
  bool infiniband = false;
  double gbit = 0;
  std::vector<const IbPort*> ports;
};

std::string PortName(const IbPort& port) {
  return port.port == 1 ? port.device : fmt::format("{}:{}", port.device, port.port);
}

std::string Names(const std::vector<const IbPort*>& ports) {
  std::vector<std::string> names;
  for (const IbPort* port : ports) names.push_back(PortName(*port));
  return Join(names, ", ");
}

std::string Kind(const Rail& rail) {
  const char* layer = rail.infiniband ? "InfiniBand" : "RoCE";
  return rail.gbit > 0 ? fmt::format("{} {:g} Gb/s", layer, rail.gbit) : layer;
}

// Amazon's cards speak through their plugin only; NCCL's own InfiniBand code cannot use them.
bool IsEfa(const IbPort& port) { return port.driver == "efa" || port.device.starts_with("efa_"); }

// The kernel shows the port, but no program here can open the device: a container without /dev/infiniband.
bool OutOfReach(const IbPort& port) { return port.active() && port.verbs.empty() && !port.driver.empty(); }

// Below one root port with a GPU, and so meant for it.
bool BesideAGpu(const IbPort& port, const place::Hardware& here) {
  return std::any_of(here.gpus.begin(), here.gpus.end(), [&](const place::GpuState& gpu) {
    return place::PciDistance(gpu.pci_path, port.pci_path).has_value();
  });
}

// Fastest first; of equal ones the larger.
std::vector<Rail> Rails(const place::Hardware& here) {
  std::map<std::pair<bool, double>, Rail> rails;
  for (const IbPort& port : here.ib) {
    if (!port.active() || OutOfReach(port) || IsEfa(port)) continue;
    Rail& rail = rails[{port.infiniband(), port.gbit.value_or(0)}];
    rail.infiniband = port.infiniband();
    rail.gbit = port.gbit.value_or(0);
    rail.ports.push_back(&port);
  }
  std::vector<Rail> out;
  for (auto& [key, rail] : rails) out.push_back(std::move(rail));
  std::sort(out.begin(), out.end(), [](const Rail& a, const Rail& b) {
    return a.gbit != b.gbit ? a.gbit > b.gbit : a.ports.size() > b.ports.size();
  });
  return out;
}

// The card a port sits on: functions of one PCI device, or ports of one device.
std::string Card(const IbPort& port) {
  return port.pci.empty() ? port.device : port.pci.substr(0, port.pci.rfind('.'));
}

void WarnAboutPorts(Draft* draft) {
  std::map<std::string, int> active_on;
  int active = 0, most = 0;
  for (const IbPort& port : draft->here.ib) {
    if (!port.active()) continue;
    ++active;
    most = std::max(most, ++active_on[Card(port)]);
  }
  std::vector<std::string> down;
  bool no_manager = false;
  for (const IbPort& port : draft->here.ib) {
    if (port.active()) continue;
    // The second port of a card that no card uses is empty by design.
    if (active_on[Card(port)] > 0 && most == 1) continue;
    down.push_back(fmt::format("{} ({}{}{})", PortName(port), port.state.empty() ? "state unknown" : port.state,
                               port.phys_state.empty() ? "" : ", ", port.phys_state));
    no_manager = no_manager || (port.infiniband() && (port.state == "INIT" || port.state == "ARMED"));
  }
  std::vector<std::string> unreachable;
  for (const IbPort& port : draft->here.ib) {
    if (OutOfReach(port)) unreachable.push_back(PortName(port));
  }
  if (!unreachable.empty()) {
    draft->Warn(fmt::format(
        "{} {} ACTIVE, but there is no /dev/infiniband for {} here: NCCL will use TCP (give the container "
        "the RDMA devices)",
        Join(unreachable, ", "), unreachable.size() == 1 ? "is" : "are", unreachable.size() == 1 ? "it" : "them"));
  }
  if (down.empty()) return;
  draft->Warn(fmt::format("{} of {} RDMA ports {} not ACTIVE: {}; {}", down.size(), active + down.size(),
                          down.size() == 1 ? "is" : "are", Join(down, ", "),
                          no_manager    ? "INIT and ARMED wait for a subnet manager"
                          : active == 0 ? "NCCL will use TCP instead"
                                        : "NCCL uses the others, and GPUs beside these take a longer way"));
}

// GPUs of several nodes on one NVLink fabric reach each other through it only with an IMEX channel.
void WarnAboutFabric(Draft* draft) {
  const place::Hardware& here = draft->here;
  const bool fabric = std::any_of(here.gpus.begin(), here.gpus.end(),
                                  [](const place::GpuState& gpu) { return !gpu.fabric_cluster.empty(); });
  if (fabric && !here.imex_channel) {
    draft->Warn(
        "the GPUs belong to an NVLink fabric of several nodes, but there is no IMEX channel here: NCCL will use the "
        "network (start nvidia-imex and give the job /dev/nvidia-caps-imex-channels/channel0)");
  }
}

void WarnAboutRdma(Draft* draft) {
  const place::Hardware& here = draft->here;
  if (here.limits.memlock && *here.limits.memlock < (64ull << 20)) {
    draft->Warn(
        fmt::format("the limit of locked memory is {} KiB: RDMA cannot register its buffers (ulimit -l unlimited)",
                    *here.limits.memlock >> 10));
  }
  if (!here.gpus.empty() && here.peermem.empty()) {
    draft->Warn(
        "neither nvidia_peermem nor DMA-BUF is there: data between GPUs and the network goes through host memory");
  }
  for (const IbPort& port : here.ib) {
    if (port.active() && port.infiniband() && port.sm_lid && *port.sm_lid == 0) {
      draft->Warn(fmt::format("{} knows no subnet manager (SM LID 0)", PortName(port)));
    }
  }
}

// Exact names, and the port where one device has active ports of other rails too.
std::string HcaList(const Rail& rail, const place::Hardware& here) {
  std::vector<std::string> names;
  for (const IbPort* port : rail.ports) {
    const bool split = std::any_of(here.ib.begin(), here.ib.end(), [&](const IbPort& other) {
      return other.device == port->device && other.port != port->port && other.active() &&
             std::find(rail.ports.begin(), rail.ports.end(), &other) == rail.ports.end();
    });
    const std::string name = split ? fmt::format("{}:{}", port->device, port->port) : port->device;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return "=" + Join(names, ",");
}

void DeriveHcas(const std::vector<Rail>& rails, Draft* draft) {
  const Rail& fast = rails[0];
  if (rails.size() == 1) {
    draft->Leave("NCCL_IB_HCA",
                 fmt::format("{} active port{} of one kind ({}): NCCL takes all of them, each GPU the nearest",
                             fast.ports.size(), fast.ports.size() == 1 ? "" : "s", Kind(fast)));
    return;
  }
  std::vector<std::string> others;
  size_t most = 0;
  bool other_layer = true;
  for (size_t i = 1; i < rails.size(); ++i) {
    others.push_back(fmt::format("{} ({})", Names(rails[i].ports), Kind(rails[i])));
    most = std::max(most, rails[i].ports.size());
    other_layer = other_layer && rails[i].infiniband != fast.infiniband;
  }
  const size_t gpus =
      draft->here.gpus.empty() ? static_cast<size_t>(std::max(1, draft->job.nproc_per_node)) : draft->here.gpus.size();
  // A slower port of the same kind may be a lame link of the same fabric: sure only when the fast ones are a full set
  // for the GPUs and the slow ones the exception.
  const bool enough = fast.ports.size() * 2 >= gpus && fast.ports.size() >= most && fast.gbit > 0;
  const bool full_set = (fast.ports.size() >= gpus || gpus % fast.ports.size() == 0) && fast.ports.size() > most;
  // Or when the fast ones sit beside GPUs and the others beside none.
  const auto beside = [&](const IbPort* port) { return BesideAGpu(*port, draft->here); };
  bool apart = std::all_of(fast.ports.begin(), fast.ports.end(), beside);
  for (size_t i = 1; i < rails.size(); ++i) {
    apart = apart && std::none_of(rails[i].ports.begin(), rails[i].ports.end(), beside);
  }
  const bool certain = (enough && (other_layer || full_set)) || apart;
  draft->Set(
      "NCCL_IB_HCA", HcaList(fast, draft->here), certain ? Confidence::kCertain : Confidence::kLikely,
      fmt::format("{} port{} of {}{}; NCCL would also use {}", fast.ports.size(), fast.ports.size() == 1 ? "" : "s",
                  Kind(fast), apart ? " beside the GPUs" : "", Join(others, " and ")));
  if (!certain) {
    draft->Warn(fmt::format("active RDMA ports differ: {} beside {} ({}): storage, or a link that came up slow?",
                            Join(others, " and "), Names(fast.ports), Kind(fast)));
  }
}

// The indices of a port that RoCE v2 over IPv4 works with.
std::vector<int> GoodGids(const IbPort& port) {
  std::vector<int> out;
  for (const Gid& gid : port.gids) {
    if (gid.type == "RoCE v2" && gid.ipv4) out.push_back(gid.index);
  }
  return out;
}

void DeriveGid(const Rail& rail, Draft* draft) {
  if (rail.infiniband) {
    draft->Leave("NCCL_IB_GID_INDEX", "InfiniBand: the index is for RoCE and ignored here");
    return;
  }
  std::set<int> common;
  bool first = true;
  std::vector<std::string> per_port;
  for (const IbPort* port : rail.ports) {
    const std::vector<int> good = GoodGids(*port);
    if (good.empty()) {
      draft->Warn(fmt::format("{} has no RoCE v2 GID with an IPv4 address: {}", PortName(*port),
                              port->netdevs.empty()
                                  ? "does its interface have an address?"
                                  : fmt::format("does {} have an address?", Join(port->netdevs, ", "))));
      continue;
    }
    per_port.push_back(fmt::format("{} {}", PortName(*port), good[0]));
    std::set<int> both;
    for (int index : good) {
      if (first || common.contains(index)) both.insert(index);
    }
    common = std::move(both);
    first = false;
  }
  const auto nccl = draft->here.nccl ? MajorMinor(draft->here.nccl->version) : std::nullopt;
  const std::string indices = per_port.empty() ? "" : fmt::format(" (the table says {})", Join(per_port, ", "));
  if (!nccl || *nccl >= std::pair{2, 21}) {
    draft->Leave(
        "NCCL_IB_GID_INDEX",
        nccl ? fmt::format("NCCL {} finds the RoCE v2 index of each port itself{}", draft->here.nccl->version, indices)
             : fmt::format("NCCL 2.21 and newer find the index of each port; which will be loaded is not known{}",
                           indices));
    return;
  }
  if (common.empty()) {
    if (!per_port.empty()) {
      draft->Warn(
          fmt::format("NCCL {} uses one GID index for all ports, and the RoCE v2 indices differ: {}; NCCL 2.21 "
                      "chooses per port",
                      draft->here.nccl->version, Join(per_port, ", ")));
    }
    return;
  }
  draft->Set("NCCL_IB_GID_INDEX", std::to_string(*common.begin()), Confidence::kCertain,
             fmt::format("NCCL {} would take index 0; {} is RoCE v2 over IPv4 on {}", draft->here.nccl->version,
                         *common.begin(), Names(rail.ports)));
}

void DeriveTcp(const place::Interface* route, Draft* draft) {
  draft->Leave("NCCL_IB_DISABLE", "without an active RDMA port NCCL uses TCP by itself");
  if (route == nullptr) return;
  if (route->gbit && *route->gbit >= 25) {
    const std::string why = fmt::format(
        "TCP over {} at {:g} Gb/s: one stream does not fill it; measure before keeping it", route->name, *route->gbit);
    draft->Set("NCCL_SOCKET_NTHREADS", "4", Confidence::kLikely, why);
    draft->Set("NCCL_NSOCKS_PERTHREAD", "4", Confidence::kLikely, why);
    return;
  }
  draft->Leave("NCCL_SOCKET_NTHREADS, NCCL_NSOCKS_PERTHREAD",
               route->gbit ? fmt::format("{} has {:g} Gb/s, which one stream fills", route->name, *route->gbit)
                           : fmt::format("the speed of {} is not known", route->name));
}

// The network somebody else provides: a cloud's or a vendor's plugin.
std::string Plugin(const Draft& draft) {
  if (draft.UserHas("NCCL_NET_PLUGIN") && draft.User("NCCL_NET_PLUGIN") != "none") {
    return "NCCL_NET_PLUGIN=" + draft.User("NCCL_NET_PLUGIN");
  }
  return Join(draft.here.net_plugins, ", ");
}

}  // namespace

void DeriveData(const place::Interface* route, Draft* draft) {
  WarnAboutFabric(draft);
  draft->Leave("NCCL_CROSS_NIC",
               "2 (auto) fits every fabric but physically separate rails, which only its owner knows");
  if (const std::string plugin = Plugin(*draft); !plugin.empty()) {
    draft->Leave("NCCL_IB_*, NCCL_NET_*",
                 fmt::format("a network plugin is installed ({}) and brings its own settings", plugin));
    return;
  }
  if (std::any_of(draft->here.ib.begin(), draft->here.ib.end(), IsEfa)) {
    draft->Warn("EFA devices are here, but no NCCL network plugin is found (aws-ofi-nccl): NCCL will use TCP");
  } else {
    WarnAboutPorts(draft);
  }
  const std::vector<Rail> rails = Rails(draft->here);
  const std::string net = draft->User("NCCL_NET");
  const bool off = draft->User("NCCL_IB_DISABLE") == "1" || net == "Socket";
  if (off && !rails.empty()) {
    draft->Warn(fmt::format("{} switches RDMA off while {} {} ACTIVE ({})",
                            net == "Socket" ? "NCCL_NET=Socket" : "NCCL_IB_DISABLE=1", Names(rails[0].ports),
                            rails[0].ports.size() == 1 ? "is" : "are", Kind(rails[0])));
  }
  if (rails.empty() || off) return DeriveTcp(route, draft);
  WarnAboutRdma(draft);
  DeriveHcas(rails, draft);
  DeriveGid(rails[0], draft);
  draft->Leave("NCCL_NET_GDR_LEVEL", "PXB, the default, is right where GPU and HCA share a PCIe switch");
  draft->Leave("NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT",
               "20 and 7: a dead link is reported after 30 s; more only hides it");
}

}  // namespace lockstep::tune
