// TCP with deadlines. Two ways to use it: blocking calls that take a deadline (Connect, SendAll, ReceiveAll), and
// non-blocking pieces for an event loop (Listen, StartConnect, FinishConnect). Everything is close-on-exec; errors name
// the address. Thread-safe in the way the system calls are.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace lockstep {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  std::string ToString() const;  // "10.0.0.1:29500", "[::1]:29500"
  std::string Host() const;      // without the port; IPv4-mapped IPv6 as IPv4
  int port() const;
  bool IsLoopback() const;
};

// "host:port", "host", "[v6]:port"; a missing port is -1.
struct HostPort {
  std::string host;
  int port = -1;
};
Result<HostPort> ParseHostPort(const std::string& text);

// Blocks as long as the system's resolver does. kTimeout when the name may exist later (DNS not ready), kUsage when the
// name is malformed.
Result<std::vector<Address>> Resolve(const std::string& host, int port);

// "localhost" or a literal loopback address; no lookup.
bool IsLoopbackName(const std::string& host);

// Is this one of the addresses of this machine (in this network namespace)?
bool IsLocal(const Address& address);

// Listens on every interface (IPv6 and IPv4 where both exist), or on loopback alone. Port 0: any free port.
Result<UniqueFd> Listen(int port, bool loopback_only = false, int backlog = 4096);
int LocalPort(int fd);
std::optional<Address> PeerAddress(int fd);

Result<UniqueFd> StartConnect(const Address& address);  // non-blocking; writable when decided
Status FinishConnect(int fd);

Result<UniqueFd> Connect(const std::string& host, int port, TimePoint deadline);
Status SendAll(int fd, const void* data, size_t size, TimePoint deadline);
Status ReceiveAll(int fd, void* data, size_t size, TimePoint deadline);

// The liveness of a peer as the kernel sees it.
struct PeerState {
  bool known = false;
  // Bytes given to the kernel that the peer's kernel has not acknowledged, whether they left this machine or not: with
  // its own link down, no route or a firewall in the way nothing leaves, and nothing is in flight either.
  uint64_t waiting = 0;
  // The peer's kernel answers, but its process does not read: its window is closed, and our probes of it are answered.
  bool window_closed = false;
};
PeerState GetPeerState(int fd);

}  // namespace lockstep
