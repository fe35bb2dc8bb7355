#include "hardware/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Address FromBytes(const void* bytes, size_t size) {
  const auto* from = static_cast<const uint8_t*>(bytes);
  if (size == 16 && std::memcmp(from, kMapped, sizeof kMapped) == 0) return {{from + 12, from + 16}, ""};
  return {{from, from + size}, ""};
}

// The lines "|-- 10.0.0.5" followed by "/32 host LOCAL": an address of this machine. The tree prints each twice.
std::vector<Address> LocalFromTrie(const std::string& trie) {
  std::vector<Address> found;
  Address last;
  for (const std::string& line : Split(trie, '\n')) {
    const std::vector<std::string> words = Words(line);
    if (words.size() >= 2 && words[0] == "|--") {
      last = ParseAddress(words[1]);
    } else if (words.size() >= 3 && words[0] == "/32" && words[1] == "host" && words[2] == "LOCAL") {
      if (last.v4() && std::find(found.begin(), found.end(), last) == found.end()) found.push_back(last);
    }
  }
  return found;
}

constexpr int kAlike = 15;  // bits in common that say nothing: 10.244.* is half of a cluster

int CommonBits(const Address& a, const Address& b) {
  int bits = 0;
  if (!a.v4() || !b.v4()) return bits;
  while (bits < 32 && ((a.bytes[bits / 8] ^ b.bytes[bits / 8]) >> (7 - bits % 8) & 1) == 0) ++bits;
  return bits;
}

}  // namespace

Address ParseAddress(const std::string& text) {
  const size_t percent = text.find('%');
  const std::string number = text.substr(0, percent);
  Address address;
  uint8_t bytes[16];
  if (::inet_pton(AF_INET, number.c_str(), bytes) == 1) {
    address = FromBytes(bytes, 4);
  } else if (::inet_pton(AF_INET6, number.c_str(), bytes) == 1) {
    address = FromBytes(bytes, 16);
  }
  if (percent != std::string::npos) address.scope = text.substr(percent + 1);
  return address;
}

Address FromSockaddr(const sockaddr* address) {
  if (address->sa_family == AF_INET) return FromBytes(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  if (address->sa_family != AF_INET6) return {};
  const uint8_t* bytes = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr;
  return {{bytes, bytes + 16}, ""};
}

std::string ToString(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.bytes.empty()) return "";
  ::inet_ntop(address.v4() ? AF_INET : AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

Prefix ParsePrefix(const std::string& text) {
  const size_t slash = text.find('/');
  Prefix prefix{ParseAddress(text.substr(0, slash)), -1};
  if (prefix.base.bytes.empty()) return prefix;
  const int most = static_cast<int>(prefix.base.bytes.size()) * 8;
  const auto bits = slash == std::string::npos ? std::optional<int64_t>(most) : ToNumber(text.substr(slash + 1));
  if (bits && *bits >= 0 && *bits <= most) prefix.bits = static_cast<int>(*bits);
  return prefix;
}

bool Contains(const Prefix& prefix, const Address& address) {
  if (prefix.bits < 0 || prefix.base.bytes.size() != address.bytes.size()) return false;
  for (int bit = 0; bit < prefix.bits; bit += 8) {
    const int left = prefix.bits - bit;
    const uint8_t mask = left >= 8 ? 0xff : static_cast<uint8_t>(0xff << (8 - left));
    if ((prefix.base.bytes[bit / 8] ^ address.bytes[bit / 8]) & mask) return false;
  }
  return true;
}

std::vector<OwnAddress> AddressesFromProc(const SysTree& tree) {
  std::vector<OwnAddress> own;
  std::vector<Address> lone;
  Hardware routes;
  ScanRoutes(tree, &routes);
  const auto has_one = [&](const std::string& interface) {
    return std::any_of(own.begin(), own.end(), [&](const OwnAddress& o) { return o.interface == interface; });
  };
  for (const Address& address : LocalFromTrie(NetFile(tree, "fib_trie"))) {
    if (address.bytes[0] == 127) {
      own.push_back({"lo", ToString(address) + "/8"});
      continue;
    }
    // The narrowest connected network it lies in; of several interfaces in that network one that has none yet.
    const Route* best = nullptr;
    int bits = -1;
    for (const Route& route : routes.routes) {
      const Prefix prefix = ParsePrefix(route.destination);
      if (!route.via.empty() || prefix.bits < bits || !Contains(prefix, address)) continue;
      if (prefix.bits == bits && !(has_one(best->interface) && !has_one(route.interface))) continue;
      best = &route;
      bits = prefix.bits;
    }
    if (best)
      own.push_back({best->interface, ToString(address) + "/" + std::to_string(bits)});
    else
      lone.push_back(address);
  }
  // An address without a network of its own (a pod's /32) belongs to the one interface that has routes and no address;
  // of several, to the one whose gateways and networks begin like it.
  std::vector<std::string> bare;
  for (const Route& route : routes.routes) {
    if (route.destination.find(':') != std::string::npos || has_one(route.interface)) continue;
    if (std::find(bare.begin(), bare.end(), route.interface) == bare.end()) bare.push_back(route.interface);
  }
  for (const Address& address : lone) {
    std::string nearest = bare.size() == 1 ? bare[0] : "";
    int most = kAlike;
    for (const Route& route : routes.routes) {
      if (bare.size() == 1 || std::find(bare.begin(), bare.end(), route.interface) == bare.end()) continue;
      const int common = std::max(CommonBits(ParsePrefix(route.destination).base, address),
                                  CommonBits(ParseAddress(route.via), address));
      if (common <= most) continue;
      nearest = route.interface;
      most = common;
    }
    if (!nearest.empty()) own.push_back({nearest, ToString(address) + "/32"});
  }
  // "fe800000000000000000000000000001 02 40 20 80     eth0": address, index, prefix length, scope, flags, name; all
  // hex.
  for (const std::string& line : Split(NetFile(tree, "if_inet6"), '\n')) {
    const std::vector<std::string> words = Words(line);
    if (words.size() < 6 || words[0].size() != 32) continue;
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < 32; i += 2)
      bytes.push_back(static_cast<uint8_t>(ToNumber("0x" + words[0].substr(i, 2)).value_or(0)));
    const auto bits = ToNumber("0x" + words[2]);
    if (!bits || *bits > 128) continue;
    own.push_back({words[5], ToString(Address{bytes, ""}) + "/" + std::to_string(*bits)});
  }
  return own;
}

}  // namespace lockstep::hardware
