// Which interface the processes of a job should meet on: that of the route to the peers, on each node its own.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "tune/settings_rules.h"

namespace lockstep::tune {
namespace {

using hardware::Interface;

std::string WithoutPrefixLength(const std::string& address) { return address.substr(0, address.find('/')); }

bool IsIpv6(const std::string& address) { return address.find(':') != std::string::npos; }

bool IsLoopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

const Interface* OwnerOf(const hardware::Hardware& here, const std::string& address) {
  for (const Interface& interface : here.interfaces) {
    for (const std::string& own : interface.addresses) {
      if (WithoutPrefixLength(own) == address) return &interface;
    }
  }
  return nullptr;
}

// The peer may be this node itself (the master on node 0): then the interface that has the address.
const Interface* InterfaceTo(const hardware::Hardware& here, const std::string& address) {
  const Interface* own = OwnerOf(here, address);
  return own != nullptr ? own : hardware::RouteTo(here, address);
}

// Naming an interface means one of its addresses: there must be one of the peer's family.
bool HasAddressFor(const Interface& interface, const std::string& peer) {
  return std::any_of(interface.addresses.begin(), interface.addresses.end(),
                     [&](const std::string& own) { return IsIpv6(own) == IsIpv6(peer); });
}

// What NCCL would take by itself: `ib*`, else everything that runs but docker and lo. Which of several comes first
// depends on the kernel's order, and over TCP it uses all of them.
std::vector<const Interface*> NcclChoice(const hardware::Hardware& here) {
  std::vector<const Interface*> ib, other;
  for (const Interface& interface : here.interfaces) {
    if (!interface.up || interface.addresses.empty()) continue;
    if (interface.name.starts_with("ib")) ib.push_back(&interface);
    if (!interface.name.starts_with("docker") && !interface.name.starts_with("lo")) other.push_back(&interface);
  }
  return ib.empty() ? other : ib;
}

// NCCL compares prefixes: eth1 would also take eth10, bond0 also bond0.100.
std::string Exact(const hardware::Hardware& here, const std::string& name) {
  const bool ambiguous = std::any_of(here.interfaces.begin(), here.interfaces.end(), [&](const Interface& other) {
    return other.name != name && other.name.starts_with(name);
  });
  return ambiguous ? "=" + name : name;
}

std::string Names(const std::vector<const Interface*>& interfaces) {
  std::vector<std::string> names;
  for (const Interface* interface : interfaces) names.push_back(interface->name);
  return Join(names, ", ");
}

void DeriveNccl(const Interface& route, const std::string& why, Confidence confidence, Draft* draft) {
  const std::vector<const Interface*> choice = NcclChoice(draft->here);
  if (choice.size() == 1 && choice[0]->name == route.name) {
    draft->Leave("NCCL_SOCKET_IFNAME", fmt::format("{}, and NCCL finds no other by itself", why));
  } else {
    const std::string value = Exact(draft->here, route.name);
    draft->Set("NCCL_SOCKET_IFNAME", value, confidence,
               fmt::format("{}; NCCL by itself would take {}{}", why,
                           choice.empty()      ? "none"
                           : choice.size() > 4 ? fmt::format("any of {}", choice.size())
                                               : Names(choice),
                           value[0] == '=' ? " ('=': other names begin alike)" : ""));
  }
  const bool peers_v6 =
      !draft->job.peers.empty() && std::all_of(draft->job.peers.begin(), draft->job.peers.end(), IsIpv6);
  const bool has_v4 = std::any_of(route.addresses.begin(), route.addresses.end(),
                                  [](const std::string& address) { return !IsIpv6(address); });
  if (peers_v6 && has_v4) {
    draft->Set("NCCL_SOCKET_FAMILY", "AF_INET6", Confidence::kLikely,
               fmt::format("the peers are known by IPv6 addresses, and {} also has an IPv4 one, which NCCL prefers",
                           route.name));
  } else if (peers_v6) {
    draft->Leave("NCCL_SOCKET_FAMILY", fmt::format("{} has IPv6 addresses only, so NCCL uses IPv6", route.name));
  }
}

// Gloo binds to what the host's own name resolves to.
void DeriveGloo(const Interface& route, const std::string& why, Confidence confidence, Draft* draft) {
  const auto& own = draft->job.own_addresses;
  const std::string host = draft->here.host.empty() ? "this host's name" : draft->here.host;
  if (!own) {
    draft->Set("GLOO_SOCKET_IFNAME", route.name, Confidence::kLikely,
               why + "; whether the host's name leads there was not looked up");
    return;
  }
  if (own->empty()) {
    draft->Set("GLOO_SOCKET_IFNAME", route.name, confidence,
               fmt::format("{} does not resolve, so Gloo would fall back to loopback; {}", host, why));
    return;
  }
  // Gloo takes the first it can bind to, and loopback when there is none.
  const auto usable = std::find_if(own->begin(), own->end(), [&](const std::string& address) {
    return IsLoopback(address) || OwnerOf(draft->here, address) != nullptr;
  });
  if (usable == own->end()) {
    draft->Set("GLOO_SOCKET_IFNAME", route.name, confidence,
               fmt::format("{} resolves to {}, which is no address of this node: Gloo would fall back to loopback; {}",
                           host, own->front(), why));
    return;
  }
  const std::string& first = *usable;
  const Interface* owner = OwnerOf(draft->here, first);
  if (IsLoopback(first) || owner == nullptr || owner->loopback) {
    draft->Set("GLOO_SOCKET_IFNAME", route.name, confidence,
               fmt::format("{} resolves to {}, where no other node reaches Gloo; {}", host, first, why));
  } else if (owner->name == route.name) {
    draft->Leave("GLOO_SOCKET_IFNAME", fmt::format("{} resolves to {} on {}, which is right", host, first, route.name));
  } else {
    draft->Set("GLOO_SOCKET_IFNAME", route.name, confidence,
               fmt::format("{} resolves to {} on {}, but {}", host, first, owner->name, why));
  }
}

const Interface* DefaultRoute(const hardware::Hardware& here) {
  const hardware::Route* best = nullptr;
  for (const hardware::Route& route : here.routes) {
    if ((route.destination == "default" || route.destination == "::/0") &&
        (best == nullptr || route.metric < best->metric))
      best = &route;
  }
  if (best == nullptr) return nullptr;
  for (const Interface& interface : here.interfaces) {
    if (interface.name == best->interface) return &interface;
  }
  return nullptr;
}

}  // namespace

const Interface* DeriveInterfaces(Draft* draft) {
  const hardware::Hardware& here = draft->here;
  std::vector<const Interface*> found;
  std::vector<std::string> reached;
  for (const std::string& peer : draft->job.peers) {
    if (IsLoopback(peer)) continue;  // says nothing about the way to other nodes
    const Interface* interface = InterfaceTo(here, peer);
    if (interface == nullptr) {
      draft->Warn(fmt::format("no route to {}: the nodes cannot meet", peer));
    } else if (interface->loopback) {
      continue;  // this node's own address kept on lo, as where hosts take part in routing
    } else if (!HasAddressFor(*interface, peer)) {
      draft->Warn(fmt::format("the route to {} leaves by {}, which has no {} address of its own: no name is set", peer,
                              interface->name, IsIpv6(peer) ? "IPv6" : "IPv4"));
    } else if (std::find(found.begin(), found.end(), interface) == found.end()) {
      found.push_back(interface);
      reached.push_back(peer);
    }
  }
  if (found.empty()) {
    const Interface* fallback = DefaultRoute(here);
    if (fallback == nullptr || !draft->job.peers.empty()) {
      draft->Leave("NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME", "the way to the other nodes is not known");
      return fallback;
    }
    const std::string why = fmt::format("the default route leaves by {}; no peer was named", fallback->name);
    if (draft->job.gpus) DeriveNccl(*fallback, why, Confidence::kGuess, draft);
    DeriveGloo(*fallback, why, Confidence::kGuess, draft);
    for (Setting& setting : draft->out.set) setting.confidence = Confidence::kGuess;
    return fallback;
  }
  const Interface& route = *found[0];
  const std::string why = fmt::format("the route to {} leaves by {}", reached[0], route.name);
  if (!route.up) draft->Warn(fmt::format("{}, which is down", why));
  if (route.kind == "bridge" && (route.name.starts_with("docker") || route.name.starts_with("cni"))) {
    draft->Warn(fmt::format("{}: a container bridge, which other machines do not see", why));
  }
  Confidence confidence = Confidence::kCertain;
  if (found.size() > 1) {
    confidence = Confidence::kLikely;
    std::vector<std::string> ways;
    for (size_t i = 0; i < found.size(); ++i) ways.push_back(fmt::format("{} by {}", reached[i], found[i]->name));
    draft->Warn(
        fmt::format("the peers are reached by several interfaces ({}): no single one serves all", Join(ways, ", ")));
  }
  if (draft->job.gpus) DeriveNccl(route, why, confidence, draft);
  DeriveGloo(route, why, confidence, draft);
  return &route;
}

}  // namespace lockstep::tune
