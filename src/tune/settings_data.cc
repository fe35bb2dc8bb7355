// What carries the data between nodes: which RDMA ports, which GID of theirs, or TCP.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"
#include "tune/settings_rules.h"

namespace lockstep::tune {
namespace {

using hardware::Gid;
using hardware::IbPort;

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
bool BesideAGpu(const IbPort& port, const hardware::Hardware& here) {
  return std::any_of(here.gpus.begin(), here.gpus.end(), [&](const hardware::GpuState& gpu) {
    return hardware::PciDistance(gpu.pci_path, port.pci_path).has_value();
  });
}

// Ports of the fastest rail that sit beside no GPU are storage's or the front end's where the others are a full set,
// one beside every GPU, and they the few: they become a rail of their own. Otherwise the far ones may be meant to help,
// or belong to GPUs that are not seen here.
void SetAside(const hardware::Hardware& here, std::vector<Rail>* rails) {
  if (rails->empty()) return;
  Rail near = rails->front(), far = rails->front();
  std::erase_if(near.ports, [&](const IbPort* port) { return !BesideAGpu(*port, here); });
  std::erase_if(far.ports, [&](const IbPort* port) { return BesideAGpu(*port, here); });
  const auto served = [&](const hardware::GpuState& gpu) {
    return std::any_of(near.ports.begin(), near.ports.end(), [&](const IbPort* port) {
      return hardware::PciDistance(gpu.pci_path, port->pci_path).has_value();
    });
  };
  const bool full_set =
      near.ports.size() >= here.gpus.size() && std::all_of(here.gpus.begin(), here.gpus.end(), served);
  if (far.ports.empty() || far.ports.size() >= near.ports.size() || !full_set) return;
  rails->front() = std::move(near);
  rails->insert(rails->begin() + 1, std::move(far));
}

// Fastest first; of equal ones the larger.
std::vector<Rail> Rails(const hardware::Hardware& here) {
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
  SetAside(here, &out);
  return out;
}

// The card a port sits on: functions of one PCI device, or ports of one device.
std::string Card(const IbPort& port) {
  return port.pci.empty() ? port.device : port.pci.substr(0, port.pci.rfind('.'));
}

void WarnAboutPorts(Draft* draft) {
  const auto active =
      std::count_if(draft->here.ib.begin(), draft->here.ib.end(), [](const IbPort& port) { return port.active(); });
  std::vector<std::string> down;
  bool no_manager = false;
  for (const IbPort* port : MissedPorts(draft->here)) {
    down.push_back(fmt::format("{} ({}{}{})", PortName(*port), port->state.empty() ? "state unknown" : port->state,
                               port->phys_state.empty() ? "" : ", ", port->phys_state));
    no_manager = no_manager || (port->infiniband() && (port->state == "INIT" || port->state == "ARMED"));
  }
  std::vector<std::string> unreachable;
  bool reachable = false;
  for (const IbPort& port : draft->here.ib) {
    if (OutOfReach(port)) unreachable.push_back(PortName(port));
    reachable = reachable || (port.active() && !OutOfReach(port));
  }
  // A pod with a card of its own sees the host's others in /sys: nothing is wrong with that.
  if (!unreachable.empty() && !reachable) {
    draft->Warn(fmt::format(
        "{} {} ACTIVE, but there is no /dev/infiniband for {} here: NCCL will use TCP (give the container "
        "the RDMA devices)",
        Join(unreachable, ", "), unreachable.size() == 1 ? "is" : "are", unreachable.size() == 1 ? "it" : "them"));
  }
  if (down.empty()) return;
  draft->Warn(fmt::format("{} of {} RDMA ports {} not ACTIVE: {}; {}", down.size(),
                          static_cast<size_t>(active) + down.size(), down.size() == 1 ? "is" : "are", Join(down, ", "),
                          no_manager    ? "INIT and ARMED wait for a subnet manager"
                          : active == 0 ? "NCCL will use TCP instead"
                                        : "NCCL uses the others, and GPUs beside these take a longer way"));
}

// GPUs of several nodes on one NVLink fabric reach each other through it only with an IMEX channel.
void WarnAboutFabric(Draft* draft) {
  const hardware::Hardware& here = draft->here;
  const bool fabric = std::any_of(here.gpus.begin(), here.gpus.end(),
                                  [](const hardware::GpuState& gpu) { return !gpu.fabric_cluster.empty(); });
  if (fabric && !here.imex_channel) {
    draft->Warn(
        "the GPUs belong to an NVLink fabric of several nodes, but there is no IMEX channel here: NCCL will use the "
        "network (start nvidia-imex and give the job /dev/nvidia-caps-imex-channels/channel0)");
  }
}

void WarnAboutRdma(Draft* draft) {
  const hardware::Hardware& here = draft->here;
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
std::string HcaList(const Rail& rail, const hardware::Hardware& here) {
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

// A slow link of the same fabric has the same model at its end.
bool OtherMake(const IbPort& port, const Rail& rail) {
  return std::all_of(rail.ports.begin(), rail.ports.end(), [&](const IbPort* one) {
    return one->infiniband() != port.infiniband() ||
           (!port.model.empty() && !one->model.empty() && port.model != one->model) ||
           (!port.driver.empty() && !one->driver.empty() && port.driver != one->driver);
  });
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
  // Or when the others are cards of another make and hardly worth counting: the LAN ports on the mainboard.
  const auto carries = [](double sum, const IbPort* port) { return sum + port->gbit.value_or(0); };
  const double fast_sum = std::accumulate(fast.ports.begin(), fast.ports.end(), 0.0, carries);
  double other_sum = 0;
  bool other_make = true;
  for (size_t i = 1; i < rails.size(); ++i) {
    other_sum = std::accumulate(rails[i].ports.begin(), rails[i].ports.end(), other_sum, carries);
    for (const IbPort* port : rails[i].ports) other_make = other_make && OtherMake(*port, fast);
  }
  const bool dwarfed = other_make && other_sum * 2 <= fast_sum;
  const bool certain = (enough && (other_layer || full_set)) || apart || dwarfed;
  draft->Set(
      "NCCL_IB_HCA", HcaList(fast, draft->here), certain ? Confidence::kCertain : Confidence::kLikely,
      fmt::format("{} port{} of {}{}; NCCL would also use {}{}", fast.ports.size(), fast.ports.size() == 1 ? "" : "s",
                  Kind(fast), apart ? " beside the GPUs" : "", Join(others, " and "), apart ? ", beside none" : ""));
  if (!certain) {
    draft->Warn(fmt::format("active RDMA ports differ: {} beside {} ({}): storage, or a link that came up slow?",
                            Join(others, " and "), Names(fast.ports), Kind(fast)));
  }
}

// What of a port's table RoCE v2 works with: IPv4, or IPv6 that is routed.
std::vector<const Gid*> GoodGids(const IbPort& port, bool ipv4) {
  std::vector<const Gid*> out;
  for (const Gid& gid : port.gids) {
    if (gid.type == "RoCE v2" && gid.ipv4 == ipv4 && !gid.gid.starts_with("fe80")) out.push_back(&gid);
  }
  return out;
}

// Why a port has none over IPv4.
std::string NoGid(const IbPort& port) {
  if (!GoodGids(port, false).empty()) return "has RoCE v2 GIDs for IPv6 only, others for IPv4";
  const bool v1 = !port.gids.empty() && std::none_of(port.gids.begin(), port.gids.end(),
                                                     [](const Gid& gid) { return gid.type == "RoCE v2"; });
  if (v1) return "has GIDs of RoCE v1 only: peers beyond its own Ethernet network are not reached";
  return fmt::format("has no RoCE v2 GID with an IPv4 address: {}",
                     port.netdevs.empty() ? "does its interface have an address?"
                                          : fmt::format("does {} have an address?", Join(port.netdevs, ", ")));
}

bool OfSeveralNetworks(const std::vector<const Gid*>& gids) {
  return std::any_of(gids.begin(), gids.end(), [&](const Gid* gid) { return gid->netdev != gids[0]->netdev; });
}

void DeriveGid(const Rail& rail, Draft* draft) {
  if (rail.infiniband) {
    draft->Leave("NCCL_IB_GID_INDEX", "InfiniBand: the index is for RoCE and ignored here");
    return;
  }
  const bool ipv4 = std::any_of(rail.ports.begin(), rail.ports.end(),
                                [](const IbPort* port) { return !GoodGids(*port, true).empty(); });
  const bool ipv6 = !ipv4 && std::all_of(rail.ports.begin(), rail.ports.end(),
                                         [](const IbPort* port) { return !GoodGids(*port, false).empty(); });
  const char* family = ipv6 ? "IPv6" : "IPv4";
  std::set<int> common;
  bool several = false;
  std::vector<std::string> per_port;
  std::vector<const IbPort*> good_ports;
  for (const IbPort* port : rail.ports) {
    const std::vector<const Gid*> good = GoodGids(*port, !ipv6);
    if (good.empty()) {
      draft->Warn(fmt::format("{} {}", PortName(*port), NoGid(*port)));
      continue;
    }
    std::set<int> both;
    std::vector<std::string> named;
    for (const Gid* gid : good) {
      if (good_ports.empty() || common.contains(gid->index)) both.insert(gid->index);
      named.push_back(std::to_string(gid->index) +
                      (OfSeveralNetworks(good) ? fmt::format(" of {}", gid->netdev) : std::string()));
    }
    several = several || OfSeveralNetworks(good);
    if (!OfSeveralNetworks(good)) named.resize(1);
    per_port.push_back(fmt::format("{} {}", PortName(*port), Join(named, " or ")));
    common = std::move(both);
    good_ports.push_back(port);
  }
  const auto nccl = draft->here.nccl ? MajorMinor(draft->here.nccl->version) : std::nullopt;
  const std::string indices = per_port.empty() ? "" : fmt::format(" (the table says {})", Join(per_port, ", "));
  if (!nccl || *nccl >= std::pair{2, 21}) {
    if (ipv6) {
      draft->Set("NCCL_IB_ADDR_FAMILY", "AF_INET6", nccl ? Confidence::kCertain : Confidence::kLikely,
                 fmt::format("the RoCE v2 GIDs here are of IPv6 only, and NCCL looks for IPv4 ones{}", indices));
    }
    draft->Leave(
        "NCCL_IB_GID_INDEX",
        nccl ? fmt::format("NCCL {} finds the RoCE v2 index of each port itself{}{}", draft->here.nccl->version,
                           indices, several ? "; of several networks it takes the first: NCCL_IB_ADDR_RANGE" : "")
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
  draft->Set("NCCL_IB_GID_INDEX", std::to_string(*common.begin()), several ? Confidence::kLikely : Confidence::kCertain,
             fmt::format("NCCL {} would take index 0; {} is RoCE v2 over {} on {}{}", draft->here.nccl->version,
                         *common.begin(), family, Names(good_ports),
                         several ? fmt::format("; which network joins the nodes is not known{}", indices) : ""));
}

// NCCL spreads TCP over all interfaces it is left; naming the one of the route leaves faster cards idle.
void WarnAboutIdleCards(const hardware::Interface& route, Draft* draft) {
  const bool named = std::any_of(draft->out.set.begin(), draft->out.set.end(),
                                 [](const Setting& s) { return s.name == "NCCL_SOCKET_IFNAME" && !s.user_value; });
  if (!named) return;
  const double least = std::max(route.gbit.value_or(0), 25.0);
  std::vector<std::string> idle, all;
  double gbit = 0;
  for (const hardware::Interface& one : draft->here.interfaces) {
    const bool real = one.up && !one.is_virtual && !one.loopback && one.master.empty() && !one.addresses.empty();
    if (!real || one.name == route.name || one.gbit.value_or(0) < least) continue;
    if (std::find(route.lower.begin(), route.lower.end(), one.name) != route.lower.end()) continue;
    if (std::find(one.lower.begin(), one.lower.end(), route.name) != one.lower.end()) continue;
    idle.push_back(one.name);
    gbit = std::max(gbit, *one.gbit);
  }
  if (idle.empty()) return;
  if (route.gbit.value_or(0) >= gbit) all.push_back(route.name);
  all.insert(all.end(), idle.begin(), idle.end());
  draft->Warn(fmt::format(
      "TCP would carry all data over {}, while {} ({:g} Gb/s) {} idle; if the nodes reach each other there: "
      "NCCL_SOCKET_IFNAME=={} with NCCL_OOB_NET_IFNAME={} (NCCL 2.23), or the network's own plugin",
      route.name, Join(idle, ", "), gbit, idle.size() == 1 ? "is" : "are", Join(all, ","), route.name));
}

void DeriveTcp(const hardware::Interface* route, Draft* draft) {
  draft->Leave("NCCL_IB_DISABLE", "without an active RDMA port NCCL uses TCP by itself");
  if (route == nullptr) return;
  WarnAboutIdleCards(*route, draft);
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

std::vector<const IbPort*> DataPorts(const hardware::Hardware& here) {
  const std::vector<Rail> rails = Rails(here);
  if (!rails.empty()) return rails[0].ports;
  std::vector<const IbPort*> out;
  for (const IbPort& port : here.ib) {
    if (port.active() && IsEfa(port)) out.push_back(&port);
  }
  return out;
}

std::vector<const IbPort*> MissedPorts(const hardware::Hardware& here) {
  std::map<std::string, int> active_on;
  int most = 0;
  bool beside = false;
  for (const IbPort& port : here.ib) {
    if (!port.active()) continue;
    most = std::max(most, ++active_on[Card(port)]);
    beside = beside || BesideAGpu(port, here);
  }
  std::vector<const IbPort*> out;
  for (const IbPort& port : here.ib) {
    if (port.active()) continue;
    // The second port of a card that no card uses is empty by design.
    if (active_on[Card(port)] > 0 && most == 1) continue;
    // Where cards sit beside the GPUs, the other ports are somebody else's.
    if (beside && !BesideAGpu(port, here)) continue;
    out.push_back(&port);
  }
  return out;
}

void DeriveData(const hardware::Interface* route, Draft* draft) {
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
