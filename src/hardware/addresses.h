// Numeric IPv4 and IPv6 addresses and prefixes as the kernel writes them, and the addresses of a machine read from
// /proc. Pure values, any thread. Not used outside this folder.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hardware/sys_tree.h"

namespace lockstep::hardware {

struct Address {
  std::vector<uint8_t> bytes;  // 4 or 16, most significant first; empty: no address
  std::string scope;           // the interface after '%'
  bool v4() const { return bytes.size() == 4; }
  bool operator==(const Address& other) const { return bytes == other.bytes; }
};

// "10.0.0.1", "fe80::1%eth0"; ::ffff:10.0.0.1 is the IPv4 address. A prefix length behind '/' is not accepted.
Address ParseAddress(const std::string& text);
Address FromSockaddr(const sockaddr* address);
std::string ToString(const Address& address);

struct Prefix {
  Address base;
  int bits = -1;  // -1: no prefix
};
Prefix ParsePrefix(const std::string& text);  // "10.0.0.0/16"; a bare address is a prefix of its own length
bool Contains(const Prefix& prefix, const Address& address);

struct OwnAddress {
  std::string interface, address;  // "eth0", "10.0.0.5/24"
};

// IPv4 from fib_trie, each put onto the interface whose connected route it lies in; IPv6 from if_inet6.
std::vector<OwnAddress> AddressesFromProc(const SysTree& tree);

}  // namespace lockstep::hardware
