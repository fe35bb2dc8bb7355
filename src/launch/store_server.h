// The store of a job's workers on a port of this machine: sockets around launch/store.h, on the launcher's loop. Lives
// for one attempt; its end closes the port and all connections. Memory is bounded: a client that does not read its
// replies is not read from either, and one that breaks the protocol or a limit is disconnected with a line of log.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/fd.h"
#include "base/loop.h"
#include "launch/store.h"

namespace lockstep::launch {

class StoreServer {
 public:
  StoreServer(Loop& loop, UniqueFd listener, std::function<void(const std::string&)> say, StoreLimits limits = {});
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  size_t clients() const { return peers_.size(); }

 private:
  struct Peer {
    UniqueFd fd;
    std::string unsent;
    size_t sent = 0;  // bytes of unsent that are
    uint32_t watched = 0;
    size_t waiting() const { return unsent.size() - sent; }
  };

  void Accept();
  void PauseAccepting();
  void OnEvents(Store::ClientId id, uint32_t events);
  void Serve(Store::ClientId id);
  void Flush(Peer& peer);
  void WatchPeer(Peer& peer);
  void Drop(Store::ClientId id);
  void Refuse(Store::ClientId id, const Status& why);

  Loop& loop_;
  UniqueFd listener_;
  std::function<void(const std::string&)> say_;
  Store store_;
  std::map<Store::ClientId, Peer> peers_;
  std::set<Store::ClientId> strangers_;  // have not sent the magic number yet, the oldest first
  Store::ClientId next_ = 1;
  Loop::TimerId paused_ = 0;
  int lines_ = 0;
};

}  // namespace lockstep::launch
