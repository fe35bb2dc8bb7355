// The client side of the rendezvous: how the launcher of a node that is not node 0 finds the coordinator. It resolves
// the name (again and again: DNS may come late), connects (again and again: node 0 may start later), proves that it
// knows the token, and then carries messages. Lives on the loop's thread; only the name lookup runs on a thread of its
// own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/loop.h"
#include "base/sockets.h"
#include "launch/connection.h"
#include "launch/participant.h"

namespace lockstep::launch {

struct RendezvousClientOptions {
  std::string host;
  int port = 0;
  std::string token;
  Millis join_timeout{600000};
  Millis node_timeout{30000};
  Millis suspect_after{5000};
};

class RendezvousClient {
 public:
  struct Events {
    std::function<void(Json)> message;
    std::function<void(Status)> failed;         // never joined: refused or deadline
    std::function<void(std::string why)> lost;  // was joined, and the coordinator is gone
    std::function<void(const std::string&)> say;
    std::function<void(const std::string&)> status;
  };

  RendezvousClient(Loop& loop, RendezvousClientOptions options, Participant self, Events events);
  ~RendezvousClient();

  void Start();
  void Send(const Json& message);
  // Sends it, unless earlier bytes still wait; false then. For what may be lost.
  bool TrySend(const Json& message);
  // The last message has been read: the connection may go.
  void Done();
  bool joined() const { return joined_; }
  // How long node 0's machine has acknowledged nothing.
  Millis Silence() const { return connection_ ? connection_->Silence() : Millis(0); }

 private:
  void Attempt();
  void OnResolved(const Result<std::vector<Address>>& addresses);
  void TryNext();
  void OnConnected();
  void OnMessage(const Json& message);
  void OnClosed(const std::string& why);
  void Retry(const std::string& why);
  void Fail(Status status);
  void Tick();

  Loop& loop_;
  RendezvousClientOptions options_;
  Participant self_;
  Events events_;
  TimePoint start_ = Now();
  TimePoint last_tick_ = Now();
  TimePoint last_heard_ = Now();
  std::string trouble_;
  std::vector<Address> addresses_;
  size_t next_address_ = 0;
  UniqueFd connecting_;
  Loop::TimerId connect_timer_ = 0;
  Loop::TimerId retry_timer_ = 0;
  Loop::TimerId tick_timer_ = 0;
  std::unique_ptr<Connection> connection_;
  std::string server_nonce_, nonce_;
  bool joined_ = false;
  bool over_ = false;
  bool suspected_ = false;
  std::thread lookup_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for the answer of a lookup that outlives this
};

}  // namespace lockstep::launch
