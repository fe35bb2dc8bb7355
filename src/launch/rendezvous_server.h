// The server side of the rendezvous, on node 0: accepts connections, asks each for the token and its claims
// (docs/formats/rendezvous.md), and hands over those that belong to the job; connections that do not answer are dropped
// after a while. Owned by a coordinator or a launcher group; lives on the loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/loop.h"
#include "launch/connection.h"
#include "launch/participant.h"

namespace lockstep::launch {

class RendezvousServer {
 public:
  struct Events {
    std::function<Status(const Participant&)> admit;
    std::function<void(Participant, std::unique_ptr<Connection>)> joined;  // set_events of the connection at once
    // `participant` is null where it did not prove that it knows the token.
    std::function<void(const std::string& who, const Participant* participant, const Status& why)> refused;
  };

  RendezvousServer(Loop& loop, std::string token, std::string version, Events events);
  ~RendezvousServer();

  void Serve(UniqueFd listener);
  // Frees the port; who is being asked stays until asked.
  void StopListening();
  // Drops those who have not introduced themselves in time. Call about once a second.
  void Expire();

 private:
  struct Pending {
    std::unique_ptr<Connection> connection;
    std::string nonce;
    TimePoint since = Now();
  };
  void Accept();
  void Forget(uint64_t id);
  void OnHello(uint64_t id, const Json& json);
  Status OtherVersion(const std::string& peer, const std::string& version) const;
  void Refuse(uint64_t id, const std::string& who, const Status& why, const Participant* participant = nullptr);

  Loop& loop_;
  std::string token_, version_;
  Events events_;
  UniqueFd listener_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_pending_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what was posted and outlives this
};

}  // namespace lockstep::launch
