#include "hardware/link_counters.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/digits.h"
#include "base/fd.h"
#include "base/sockets.h"
#include "base/text.h"
#include "hardware/addresses.h"

namespace lockstep::hardware {
namespace {

constexpr unsigned kErrorsEvery = 5;

// Absent counters are left out of the sum; what exists and cannot be read ends all reading of the link.
constexpr const char* kPortErrors[] = {"symbol_error",
                                       "link_error_recovery",
                                       "link_downed",
                                       "port_rcv_errors",
                                       "port_xmit_discards",
                                       "local_link_integrity_errors",
                                       "excessive_buffer_overrun_errors"};
constexpr const char* kInterfaceErrors[] = {"rx_errors", "tx_errors", "rx_dropped", "tx_dropped"};

struct Counter {
  std::optional<uint64_t> value;
  int error = 0;  // 0 with no value: there is none
};

Counter ReadCounter(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {std::nullopt, errno == ENOENT ? 0 : errno};
  char text[64];
  const ssize_t size = ::read(fd.get(), text, sizeof text);
  if (size < 0) return {std::nullopt, errno};
  std::string_view digits(text, static_cast<size_t>(size));
  while (!digits.empty() && (digits.back() == '\n' || digits.back() == ' ')) digits.remove_suffix(1);
  const std::optional<uint64_t> value = ParseDigits<uint64_t>(digits);
  return {value, value ? 0 : EINVAL};
}

}  // namespace

void LinkCounters::Add(const std::string& name) {
  LinkReading link;
  std::string plain = name.substr(0, name.find('/'));
  if (plain.empty() || plain.find("..") != std::string::npos) return;
  const size_t colon = plain.find(':');
  const std::string device = plain.substr(0, colon);
  link.infiniband = tree_.IsFolder("/sys/class/infiniband/" + device);
  if (!link.infiniband && !tree_.Exists("/sys/class/net/" + plain)) return;
  if (link.infiniband && colon == std::string::npos) plain += ":1";
  link.name = plain;
  const bool known =
      std::any_of(links_.begin(), links_.end(), [&](const LinkReading& one) { return one.name == plain; });
  if (known) return;
  if (link.infiniband) {
    const std::string rate =
        tree_.Text(fmt::format("/sys/class/infiniband/{}/ports/{}/rate", device, plain.substr(plain.find(':') + 1)));
    double gbit = 0;
    if (std::from_chars(rate.data(), rate.data() + rate.size(), gbit).ec == std::errc() && gbit > 0) link.gbit = gbit;
  } else if (const auto mbit = tree_.Number("/sys/class/net/" + plain + "/speed"); mbit && *mbit > 0) {
    link.gbit = static_cast<double>(*mbit) / 1000;
  }
  links_.push_back(std::move(link));
}

void LinkCounters::ReadOne(LinkReading* link, bool slow) const {
  if (!link->off.empty()) return;
  const size_t colon = link->name.find(':');
  const std::string folder =
      tree_.Path(link->infiniband ? fmt::format("/sys/class/infiniband/{}/ports/{}/counters",
                                                link->name.substr(0, colon), link->name.substr(colon + 1))
                                  : fmt::format("/sys/class/net/{}/statistics", link->name));
  const auto refuse = [&](const std::string& what, int error) {
    *link = LinkReading{link->name, link->infiniband, link->gbit, {}, {}, {}, ""};
    link->off =
        fmt::format("{} cannot be read: {}", what, error == 0 ? "there is no such counter" : std::strerror(error));
  };
  const auto bytes = [&](const char* what, std::optional<uint64_t>* out) {
    const Counter counter = ReadCounter(folder + "/" + what);
    if (!counter.value) {
      refuse(what, counter.error);
      return false;
    }
    *out = *counter.value * (link->infiniband ? 4 : 1);  // InfiniBand counts words of four bytes
    return true;
  };
  if (!bytes(link->infiniband ? "port_rcv_data" : "rx_bytes", &link->in)) return;
  if (!bytes(link->infiniband ? "port_xmit_data" : "tx_bytes", &link->out)) return;
  if (!slow) return;
  uint64_t errors = 0;
  const auto sum = [&](const auto& names) {
    for (const char* name : names) {
      const Counter counter = ReadCounter(folder + "/" + name);
      if (counter.error != 0) {
        refuse(name, counter.error);
        return;
      }
      errors += counter.value.value_or(0);
    }
    link->errors = errors;
  };
  link->infiniband ? sum(kPortErrors) : sum(kInterfaceErrors);
}

const std::vector<LinkReading>& LinkCounters::Read() {
  const bool slow = reads_++ % kErrorsEvery == 0;
  for (LinkReading& link : links_) ReadOne(&link, slow || !link.errors);
  return links_;
}

std::string InterfaceTowards(const std::string& address) {
  std::string host = address;
  // "10.0.0.2:29500", "[fd00::2]:29500"
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else if (std::count(host.begin(), host.end(), ':') == 1) {
    host = host.substr(0, host.find(':'));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0 || found == nullptr) return "";
  // Connecting a datagram socket sends nothing: the kernel chooses the route and with it our address.
  const UniqueFd fd(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  const bool routed = fd && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0;
  freeaddrinfo(found);
  if (!routed) return "";
  const Address mine = FromSockaddr(reinterpret_cast<sockaddr*>(&own));
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* one = all; one != nullptr && name.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const Address theirs = FromSockaddr(one->ifa_addr);
    if (!theirs.bytes.empty() && theirs == mine) name = one->ifa_name;
  }
  freeifaddrs(all);
  return name == "lo" ? "" : name;
}

}  // namespace lockstep::hardware
