// The rendezvous of ranks (docs/formats/communicator.md): rank 0 listens on the master port (under torchrun on a port
// it announces in the agent's store), every rank connects and sends its identity, rank 0 sends the table. Then ranks of
// the same node connect to each other; those that cannot become nodes of their own, with a message. Last, the first
// rank of every node connects to those of the others. Used once, by Communicator::Connect, on its thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace lockstep::comm {

struct Peer {
  std::string node;       // as claimed, or as split by rank 0
  std::string host;       // for TCP; empty: where rank 0 was reached
  int port = 0;           // for TCP
  std::string unix_name;  // for memory
};

struct RendezvousResult {
  RankIdentity identity;
  std::vector<int> node_of;                // by rank
  std::vector<std::vector<int>> ranks_of;  // by node, ascending
  std::vector<UniqueFd> control;           // as Control takes them
  std::vector<UniqueFd> local;             // unix: the first rank of a node to each local rank; others only [0]
  std::vector<UniqueFd> links;             // TCP, by node: the first ranks of nodes to each other
};

Result<RendezvousResult> Rendezvous(const Bootstrap& bootstrap, const Options& options);

}  // namespace lockstep::comm
