// Ports for the workers' own rendezvous. A port is probed the way PyTorch's TCPStore will bind it (every interface,
// IPv6 with IPv4, SO_REUSEADDR) and given out once in the life of this process, so that each attempt gets a new one.
// Between the probe and the worker's bind another program may take it: ports outside the kernel's ephemeral range make
// that rare. PortPicker: one thread. PortOwner: any thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/status.h"

namespace lockstep::launch {

class PortPicker {
 public:
  // `range` is --port-range. Without it: ports of 20000-32767 and below the ephemeral range where possible.
  explicit PortPicker(std::optional<std::pair<int, int>> range = std::nullopt);

  // A port that was free a moment ago and was never returned before. `avoid` is the launchers' own port.
  Result<int> Next(int avoid = 0);

 private:
  std::optional<std::pair<int, int>> range_;
  std::set<int> given_;
  unsigned start_;  // where the search begins; differs between processes so that two rarely choose the same port
};

// Ok when a server may listen on every interface at this port now. Otherwise the reason, naming the owner if it can be
// found: "port 29500 is in use by pid 123 (python3 train.py)".
Status ProbePort(int port);

// "pid 123 (python3 train.py)", "another user's process", or empty when nothing listens there. Reads the kernel's
// socket tables of this network namespace.
std::string PortOwner(int port);

// The ports the kernel gives to outgoing connections.
std::pair<int, int> EphemeralRange();

}  // namespace lockstep::launch
