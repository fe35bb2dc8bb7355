// The network between nodes, tried for real. Every node opens a Probe: listening sockets on a port the kernel chooses
// and on some of --port-range, and a UDP socket, served by a thread of its own. Then each node calls ReachAll and, one
// pair at a time, MeasureRate towards the probes of others. Strangers are told apart by a secret that travelled over
// the rendezvous. The calls of the client side belong to one thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace lockstep::preflight {

class Probe {
 public:
  // Opens one free port of each of `ranges` beside the one the kernel chooses; a range without a free port is left out.
  static Result<std::unique_ptr<Probe>> Open(const std::vector<std::pair<int, int>>& ranges);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  const std::string& secret() const { return secret_; }
  int port() const { return port_; }
  const std::vector<int>& range_ports() const { return range_ports_; }
  int udp_port() const { return udp_port_; }

 private:
  Probe() = default;
  void Serve();

  std::string secret_;
  int port_ = 0, udp_port_ = 0;
  std::vector<int> range_ports_;
  std::vector<UniqueFd> listeners_;
  UniqueFd udp_, wake_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Where a peer's probe is.
struct Target {
  int node = -1;
  std::string address, secret;
  int port = 0, udp_port = 0;
  std::vector<int> range_ports;
};

struct Reached {
  int node = -1;
  std::string trouble;                              // of the port the kernel chose; empty: reached
  std::vector<std::pair<int, std::string>> closed;  // ports of the range that were not, and why
  double round_trip = 0;                            // seconds, the shortest of several
  int mtu_sent = 0, mtu_through = 0;                // size of the largest packet tried, and that came through
  bool udp = true;                                  // false: not even a small one did
};

// All targets at once. `mtu` is that of the interface towards them; 0: packets are not tried.
std::vector<Reached> ReachAll(const std::vector<Target>& targets, int mtu, Millis deadline);

struct Rate {
  double forth = 0, back = 0;  // bit/s
};
// A stream there for `time`, then one back.
Result<Rate> MeasureRate(const Target& target, Millis time);

// The matches of a round-robin tournament: in each round every node is in at most one pair.
std::vector<std::vector<std::pair<int, int>>> Tournament(int players);

}  // namespace lockstep::preflight
