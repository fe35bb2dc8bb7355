// Enough of a client for torchrun's key-value store (c10d TCPStore) to find rank 0 through it: under torchrun the agent
// listens on MASTER_PORT, so rank 0 cannot. Four requests of its wire protocol, unchanged since torch 2.1. Written by
// hand because this folder is free of torch. One thread.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace lockstep::comm {

class AgentStore {
 public:
  static Result<AgentStore> Connect(const std::string& host, int port, TimePoint deadline);

  Status Set(const std::string& key, const std::string& value, TimePoint deadline);
  // Empty when there is no such key yet.
  Result<std::string> Get(const std::string& key, TimePoint deadline);
  // The address by which this machine reaches the store.
  std::string OwnHost() const;

 private:
  explicit AgentStore(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace lockstep::comm
