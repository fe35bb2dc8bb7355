// A launcher as the others see it: what it claims when it joins the rendezvous. On node level one participant is one
// node; on process level one participant is one rank. A plain value; messages.h has its JSON form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/fields.h"
#include "launch/wire.h"
#include "place/placement.h"

namespace lockstep::launch {

struct Participant {
  int index = -1;  // node rank or rank; -1: the coordinator assigns one
  int count = 1;   // nodes or ranks in the job
  place::Level level = place::Level::kNode;
  int nproc = 1;
  int world = -1;       // ranks this launcher expects in the whole job; -1: it has no opinion
  int local_rank = -1;  // process level only, -1: count by host
  int local_world = -1;
  int node_rank = -1;  // process level only
  std::string job;     // rendezvous id; empty: none was given
  std::string host;
  std::string boot_id;
  std::string version;
  int64_t pid = 0;
  bool has_token = false;
  std::vector<std::string> command;  // program and arguments, to show where nodes differ

  // "node 1 (pid 4711 on gpu-7)", "rank 3 (pid 4711 on gpu-7)".
  std::string Who() const;
  // "node 1" or "rank 3".
  std::string Name() const;

  static constexpr int kMostParticipants = 1 << 20;
  static constexpr int kMostProcs = 4096;
  LOCKSTEP_FIELDS(visit("index", self.index, Range{-1, kMostParticipants}),
                  visit("count", self.count, Range{1, kMostParticipants}), visit("level", self.level),
                  visit("nproc", self.nproc, Range{1, kMostProcs}),
                  visit("world", self.world, Range{-1, kMostParticipants}),
                  visit("local_rank", self.local_rank, Range{-1, kMostProcs}),
                  visit("local_world", self.local_world, Range{-1, kMostProcs}),
                  visit("node_rank", self.node_rank, Range{-1, kMostParticipants}), visit("job", self.job),
                  visit("host", self.host), visit("boot_id", self.boot_id), visit("version", self.version),
                  visit("pid", self.pid), visit("has_token", self.has_token), visit("command", self.command))
};

// "node" or "rank".
const char* ParticipantWord(place::Level level);

}  // namespace lockstep::launch
