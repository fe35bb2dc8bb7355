#include "base/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <linux/tcp.h>  // glibc's own tcp_info ends before tcpi_snd_wnd
#include <netdb.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/digits.h"

namespace lockstep {
namespace {

const sockaddr_in* V4(const Address& a) { return reinterpret_cast<const sockaddr_in*>(&a.storage); }
const sockaddr_in6* V6(const Address& a) { return reinterpret_cast<const sockaddr_in6*>(&a.storage); }

// Waits for `events` on fd; false at the deadline.
bool WaitFor(int fd, short events, TimePoint deadline) {
  while (true) {
    const auto left = std::chrono::ceil<Millis>(deadline - Now()).count();
    pollfd p{fd, events, 0};
    const int ready = poll(&p, 1, left > 0 ? static_cast<int>(std::min<int64_t>(left, 3600000)) : 0);
    if (ready > 0) return true;
    if (ready < 0 && errno == EINTR) continue;
    if (Now() >= deadline) return false;
  }
}

void TuneTcp(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

}  // namespace

std::string Address::Host() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &V4(*this)->sin_addr, text, sizeof text);
  } else if (storage.ss_family == AF_INET6) {
    const in6_addr& address = V6(*this)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
      inet_ntop(AF_INET, address.s6_addr + 12, text, sizeof text);
    } else {
      inet_ntop(AF_INET6, &address, text, sizeof text);
    }
  }
  return text;
}

int Address::port() const { return ntohs(storage.ss_family == AF_INET6 ? V6(*this)->sin6_port : V4(*this)->sin_port); }

std::string Address::ToString() const {
  const std::string host = Host();
  return (host.find(':') != std::string::npos ? "[" + host + "]" : host) + ":" + std::to_string(port());
}

bool Address::IsLoopback() const {
  if (storage.ss_family == AF_INET) return (ntohl(V4(*this)->sin_addr.s_addr) >> 24) == 127;
  const in6_addr& address = V6(*this)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) return address.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&address);
}

Result<HostPort> ParseHostPort(const std::string& text) {
  HostPort result;
  std::string port;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    if (close == std::string::npos) return Status(Code::kUsage, "'" + text + "': missing ']'");
    result.host = text.substr(1, close - 1);
    if (close + 1 < text.size()) {
      if (text[close + 1] != ':') return Status(Code::kUsage, "'" + text + "': expected [address]:port");
      port = text.substr(close + 2);
      if (port.empty()) return Status(Code::kUsage, "'" + text + "': expected a port after ':'");
    }
  } else {
    const size_t colon = text.find(':');
    if (colon != std::string::npos && text.find(':', colon + 1) == std::string::npos) {
      result.host = text.substr(0, colon);
      port = text.substr(colon + 1);
      if (port.empty()) return Status(Code::kUsage, "'" + text + "': expected a port after ':'");
    } else {
      result.host = text;  // no colon, or a bare IPv6 address
    }
  }
  if (result.host.empty()) return Status(Code::kUsage, "'" + text + "': expected host[:port], found no host");
  if (!port.empty()) {
    const std::optional<int> value = ParseDigits(port);
    if (!value || *value > 65535) {
      return Status(Code::kUsage, "'" + text + "': expected a port from 0 to 65535, found '" + port + "'");
    }
    result.port = *value;
  }
  return result;
}

Result<std::vector<Address>> Resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    const std::string why = error == EAI_SYSTEM ? ErrnoText(errno) : gai_strerror(error);
    return Status(Code::kTimeout, "host name '" + host + "' does not resolve: " + why,
                  "check the name, DNS and /etc/hosts on this machine");
  }
  std::vector<Address> addresses;
  for (addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(list);
  return addresses;
}

bool IsLoopbackName(const std::string& host) {
  return host == "localhost" || host.rfind("localhost.", 0) == 0 || host.rfind("127.", 0) == 0 || host == "::1";
}

bool IsLocal(const Address& address) {
  if (address.IsLoopback()) return true;
  const std::string host = address.Host();
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (ifaddrs* entry = list; entry != nullptr && !found; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Address own;
    own.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&own.storage, entry->ifa_addr, own.length);
    found = own.Host() == host;
  }
  freeifaddrs(list);
  return found;
}

Result<UniqueFd> Listen(int port, bool loopback_only, int backlog) {
  for (int family : {AF_INET6, AF_INET}) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;  // no IPv6 in this kernel
    const int one = 1;
    const int zero = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in6 v6{};
    sockaddr_in v4{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(port));
    v6.sin6_addr = in6addr_any;
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
    v4.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
    if (family == AF_INET6) {
      if (loopback_only) continue;
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    const int bound = family == AF_INET6 ? bind(fd.get(), reinterpret_cast<sockaddr*>(&v6), sizeof v6)
                                         : bind(fd.get(), reinterpret_cast<sockaddr*>(&v4), sizeof v4);
    if (bound == 0 && listen(fd.get(), backlog) == 0) return fd;
    if (family == AF_INET || errno == EADDRINUSE || errno == EACCES) {
      return Status(errno == EADDRINUSE ? Code::kRendezvous : Code::kEnvironment,
                    "cannot listen on port " + std::to_string(port) + ": " + ErrnoText(errno));
    }
  }
  return Status(Code::kEnvironment, "cannot create a TCP socket: " + ErrnoText(errno));
}

int LocalPort(int fd) {
  Address address;
  address.length = sizeof address.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return -1;
  return address.port();
}

std::optional<Address> PeerAddress(int fd) {
  Address address;
  address.length = sizeof address.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return std::nullopt;
  return address;
}

Result<UniqueFd> StartConnect(const Address& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Status(Code::kEnvironment, "cannot create a TCP socket: " + ErrnoText(errno));
  TuneTcp(fd.get());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 &&
      errno != EINPROGRESS) {
    return Status(Code::kTimeout, "connect to " + address.ToString() + ": " + ErrnoText(errno));
  }
  return fd;
}

Status FinishConnect(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? Status() : Status(Code::kTimeout, ErrnoText(error));
}

Result<UniqueFd> Connect(const std::string& host, int port, TimePoint deadline) {
  Status last(Code::kTimeout, "connect to " + host + ":" + std::to_string(port) + ": deadline passed");
  auto addresses = Resolve(host, port);
  if (!addresses.ok()) return addresses.status();
  for (const Address& address : *addresses) {
    auto fd = StartConnect(address);
    if (!fd.ok()) {
      last = fd.status();
      continue;
    }
    if (!WaitFor(fd->get(), POLLOUT, deadline)) {
      last = Status(Code::kTimeout, "connect to " + address.ToString() + ": no answer before the deadline");
      continue;
    }
    const Status status = FinishConnect(fd->get());
    if (status.ok()) return fd;
    last = status.Context("connect to " + address.ToString());
  }
  return last;
}

Status SendAll(int fd, const void* data, size_t size, TimePoint deadline) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += sent;
      size -= static_cast<size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Status(Code::kTimeout, "send: " + ErrnoText(errno));
    if (!WaitFor(fd, POLLOUT, deadline))
      return Status(Code::kTimeout, "send: the peer took nothing before the deadline");
  }
  return {};
}

Status ReceiveAll(int fd, void* data, size_t size, TimePoint deadline) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = recv(fd, at, size, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      size -= static_cast<size_t>(got);
      continue;
    }
    if (got == 0) return Status(Code::kTimeout, "receive: the peer closed the connection");
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Status(Code::kTimeout, "receive: " + ErrnoText(errno));
    if (!WaitFor(fd, POLLIN, deadline))
      return Status(Code::kTimeout, "receive: the peer sent nothing before the deadline");
  }
  return {};
}

PeerState GetPeerState(int fd) {
  PeerState state;
  int waiting = 0;
  if (ioctl(fd, SIOCOUTQ, &waiting) != 0) return state;
  state.known = true;
  state.waiting = waiting > 0 ? static_cast<uint64_t>(waiting) : 0;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return state;
  // Since Linux 5.4. An answer resets the count of probes, so one may be under way and a second means silence.
  const bool window_known = length >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
  state.window_closed = window_known && info.tcpi_snd_wnd == 0 && info.tcpi_unacked == 0 && info.tcpi_probes <= 1;
  return state;
}

}  // namespace lockstep
