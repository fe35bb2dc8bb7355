// Byte and error counters of network links, from /sys/class/infiniband and /sys/class/net. Only of links that the
// caller names: a counter of an InfiniBand port is a question to its firmware, and one that the firmware refuses fills
// the kernel's log. So after its first read error a link is never read again. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/sys_tree.h"

namespace lockstep::hardware {

struct LinkReading {
  std::string name;  // "mlx5_0:1", "eth0"
  bool infiniband = false;
  std::optional<double> gbit;               // speed
  std::optional<uint64_t> in, out, errors;  // bytes, bytes, all kinds of errors and discards
  std::string off;                          // why it is not read (any more)
};

class LinkCounters {
 public:
  // `root` is "" but in tests.
  explicit LinkCounters(std::string root = "") : tree_(std::move(root)) {}

  // Names as NCCL and the kernel write them: "mlx5_0:1", "mlx5_0:1/IB", "mlx5_0" (its port 1), "eth0". Known ones stay
  // as they are.
  void Add(const std::string& name);
  // Errors are read with every fifth call only and kept in between.
  const std::vector<LinkReading>& Read();
  bool empty() const { return links_.empty(); }

 private:
  void ReadOne(LinkReading* link, bool slow) const;

  SysTree tree_;
  std::vector<LinkReading> links_;
  unsigned reads_ = 0;
};

// The interface by which packets to this host (name or address, a port may follow) leave; empty: none, or loopback. A
// name is resolved, which may take as long as the resolver likes.
std::string InterfaceTowards(const std::string& address);

}  // namespace lockstep::hardware
