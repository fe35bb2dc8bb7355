// Routes of the main table, from /proc/net/route and ipv6_route, and the choice among them.
#include <algorithm>

#include "base/text.h"
#include "hardware/addresses.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

// Flags of net/route.h and linux/ipv6_route.h.
constexpr int64_t kUp = 0x1, kReject = 0x200, kAnycast = 0x100000, kCache = 0x01000000, kLocal = 0x80000000;

// An IPv4 address as /proc/net/route writes it: hexadecimal of the memory as a little-endian number.
std::optional<Address> LittleHex(const std::string& text) {
  const auto number = ToNumber("0x" + text);
  if (!number || text.size() != 8) return std::nullopt;
  Address address;
  for (int i = 0; i < 4; ++i) address.bytes.push_back(static_cast<uint8_t>(*number >> (8 * i)));
  return address;
}

Address LongHex(const std::string& text) {
  Address address;
  if (text.size() != 32) return address;
  for (size_t i = 0; i < 32; i += 2)
    address.bytes.push_back(static_cast<uint8_t>(ToNumber("0x" + text.substr(i, 2)).value_or(0)));
  return address;
}

bool IsZero(const Address& address) {
  return std::all_of(address.bytes.begin(), address.bytes.end(), [](uint8_t b) { return b == 0; });
}

void ReadV4(const std::string& text, std::vector<Route>* routes) {
  for (const std::string& line : Split(text, '\n')) {
    const std::vector<std::string> words = Words(line);
    if (words.size() < 8) continue;
    const auto destination = LittleHex(words[1]), gateway = LittleHex(words[2]), mask = LittleHex(words[7]);
    const auto flags = ToNumber("0x" + words[3]), metric = ToNumber(words[6]);
    if (!destination || !gateway || !mask || !flags || !(*flags & kUp) || (*flags & kReject)) continue;
    int bits = 0;
    for (const uint8_t byte : mask->bytes)
      for (int bit = 7; bit >= 0; --bit) bits += (byte >> bit) & 1;
    Route route;
    route.destination = bits == 0 ? "default" : ToString(*destination) + "/" + std::to_string(bits);
    if (!IsZero(*gateway)) route.via = ToString(*gateway);
    route.interface = words[0];
    route.metric = static_cast<int>(metric.value_or(0));
    routes->push_back(route);
  }
}

void ReadV6(const std::string& text, std::vector<Route>* routes) {
  for (const std::string& line : Split(text, '\n')) {
    const std::vector<std::string> words = Words(line);
    if (words.size() < 10) continue;
    const Address destination = LongHex(words[0]), gateway = LongHex(words[4]);
    const auto bits = ToNumber("0x" + words[1]), metric = ToNumber("0x" + words[5]), flags = ToNumber("0x" + words[8]);
    if (destination.bytes.empty() || gateway.bytes.empty() || !bits || *bits > 128 || !flags) continue;
    if (!(*flags & kUp) || (*flags & (kReject | kAnycast | kCache | kLocal))) continue;
    if (destination.bytes[0] == 0xff) continue;  // multicast
    Route route;
    route.destination = ToString(destination) + "/" + std::to_string(*bits);
    if (!IsZero(gateway)) route.via = ToString(gateway);
    route.interface = words[9];
    route.metric = static_cast<int>(std::min<int64_t>(metric.value_or(0), INT32_MAX));
    routes->push_back(route);
  }
}

const Interface* Named(const Hardware& here, const std::string& name) {
  for (const Interface& it : here.interfaces)
    if (it.name == name) return &it;
  return nullptr;
}

int PrefixBits(const Route& route, const Address& address) {
  if (route.destination == "default") return address.v4() ? 0 : -1;
  const Prefix prefix = ParsePrefix(route.destination);
  return Contains(prefix, address) ? prefix.bits : -1;
}

}  // namespace

std::string NetFile(const SysTree& tree, const std::string& name) {
  for (const char* folder : {"/proc/thread-self/net/", "/proc/self/net/", "/proc/net/"}) {
    std::string text = tree.Text(folder + name);
    if (!text.empty()) return text;
  }
  return "";
}

void ScanRoutes(const SysTree& tree, Hardware* here) {
  ReadV4(NetFile(tree, "route"), &here->routes);
  ReadV6(NetFile(tree, "ipv6_route"), &here->routes);
}

const Interface* RouteTo(const Hardware& here, const std::string& address) {
  const Address wanted = ParseAddress(address);
  if (wanted.bytes.empty()) return nullptr;
  if (!wanted.scope.empty()) return Named(here, wanted.scope);
  const bool loopback = wanted.v4() ? wanted.bytes[0] == 127 : ToString(wanted) == "::1";
  for (const Interface& it : here.interfaces) {
    if (loopback && it.loopback) return &it;
    for (const std::string& own : it.addresses)
      if (ParsePrefix(own).base == wanted) return &it;
  }
  const Interface* best = nullptr;
  int bits = -1, metric = 0;
  for (const Route& route : here.routes) {
    const int found = PrefixBits(route, wanted);
    const Interface* interface = Named(here, route.interface);
    if (found < 0 || !interface || found < bits || (found == bits && route.metric >= metric)) continue;
    best = interface;
    bits = found;
    metric = route.metric;
  }
  return best;
}

}  // namespace lockstep::hardware
