// Which interfaces a list as NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME write it means on this node. Pure.
#pragma once

#include <string>
#include <vector>

#include "hardware/hardware.h"

namespace lockstep::preflight {

// NCCL's rules: prefixes, "=" in front for exact names, "^" for all others. Loopback and interfaces that are down are
// among the answers only when named.
std::vector<const hardware::Interface*> NamedInterfaces(const hardware::Hardware& here, const std::string& list);

// The first IPv4 (else global IPv6) address without its prefix length; empty: none.
std::string AddressOf(const hardware::Interface& interface);

// The interface that has this numeric address; null: none.
const hardware::Interface* InterfaceWith(const hardware::Hardware& here, const std::string& address);

}  // namespace lockstep::preflight
