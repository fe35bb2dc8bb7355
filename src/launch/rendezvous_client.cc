#include "launch/rendezvous_client.h"

#include <fmt/format.h>

#include "launch/auth.h"
#include "launch/connection.h"
#include "launch/messages.h"

namespace lockstep::launch {
namespace {

constexpr Millis kRetry{200};
constexpr Millis kConnect{5000};

}  // namespace

RendezvousClient::RendezvousClient(Loop& loop, RendezvousClientOptions options, Participant self, Events events)
    : loop_(loop), options_(std::move(options)), self_(std::move(self)), events_(std::move(events)) {}

RendezvousClient::~RendezvousClient() {
  *alive_ = false;
  if (connecting_) loop_.Unwatch(connecting_.get());
  for (Loop::TimerId id : {connect_timer_, retry_timer_, tick_timer_}) {
    if (id != 0) loop_.Cancel(id);
  }
  if (lookup_.joinable()) lookup_.join();
}

void RendezvousClient::Start() {
  start_ = last_tick_ = Now();
  Tick();
  Attempt();
}

void RendezvousClient::Attempt() {
  if (over_ || joined_) return;
  // getaddrinfo blocks for as long as the resolver likes; the loop has signals and a display to serve meanwhile.
  if (lookup_.joinable()) lookup_.join();  // it has posted its answer: that is why we are here
  lookup_ = std::thread([loop = &loop_, alive = alive_, this, host = options_.host, port = options_.port] {
    auto addresses = std::make_shared<Result<std::vector<Address>>>(Resolve(host, port));
    loop->Post([alive, this, addresses] {
      if (*alive) OnResolved(*addresses);
    });
  });
}

void RendezvousClient::OnResolved(const Result<std::vector<Address>>& addresses) {
  if (over_) return;
  if (!addresses.ok()) return Retry(addresses.status().message());
  addresses_ = *addresses;
  next_address_ = 0;
  TryNext();
}

void RendezvousClient::TryNext() {
  if (over_) return;
  if (next_address_ >= addresses_.size()) return Retry(trouble_.empty() ? "no address" : trouble_);
  const Address address = addresses_[next_address_++];
  auto fd = StartConnect(address);
  if (!fd.ok()) {
    trouble_ = fd.status().message();
    return TryNext();
  }
  connecting_ = std::move(*fd);
  connect_timer_ = loop_.After(kConnect, [this, address] {
    connect_timer_ = 0;
    loop_.Unwatch(connecting_.get());
    connecting_.reset();
    trouble_ = fmt::format("{} does not answer (no route, or a firewall drops packets)", address.ToString());
    TryNext();
  });
  loop_.Watch(connecting_.get(), EPOLLOUT, [this, address](uint32_t) {
    loop_.Cancel(std::exchange(connect_timer_, 0));
    loop_.Unwatch(connecting_.get());
    const Status status = FinishConnect(connecting_.get());
    if (!status.ok()) {
      connecting_.reset();
      trouble_ = fmt::format("{}: {}", address.ToString(), status.message());
      return TryNext();
    }
    OnConnected();
  });
}

void RendezvousClient::OnConnected() {
  last_heard_ = Now();
  connection_ = std::make_unique<Connection>(loop_, std::move(connecting_),
                                             Connection::Events{[this](const Json& message) { OnMessage(message); },
                                                                [this](const std::string& why) { OnClosed(why); }});
}

void RendezvousClient::OnMessage(const Json& message) {
  last_heard_ = Now();
  Receiver on(message, fmt::format("{}:{}", options_.host, options_.port));
  on.Case<message::Refuse>([&](const message::Refuse& refuse) {
    Fail(Status(Code::kRendezvous,
                fmt::format("{}:{} refused {}: {}", options_.host, options_.port, self_.Who(), refuse.why),
                refuse.hint));
  });
  if (joined_ && !on.taken()) return events_.message(message);
  on.Case<message::Challenge>([&](const message::Challenge& challenge) {
    if (!server_nonce_.empty()) return;
    server_nonce_ = challenge.nonce;
    nonce_ = MakeNonce();
    const std::string claims = ToJsonLine(ToJson(self_));
    connection_->Send(ToJson(message::Hello{nonce_, claims, !options_.token.empty(),
                                            Proof(options_.token, {"client", server_nonce_, nonce_, claims})}));
  });
  on.Case<message::Welcome>([&](const message::Welcome& welcome) {
    if (!SameProof(welcome.proof, Proof(options_.token, {"server", nonce_, server_nonce_}))) {
      return Fail(Status(Code::kRendezvous,
                         fmt::format("{}:{} does not know the job token", options_.host, options_.port),
                         "something else answers there; check the master address and port"));
    }
    joined_ = true;
    connection_->set_limit(kFrameLimit);
    events_.status("");
  });
  if (!on.status().ok()) Fail(on.status());
}

void RendezvousClient::OnClosed(const std::string& why) {
  if (over_) return;
  if (joined_) {
    over_ = true;
    return loop_.Post([alive = alive_, this, why] {
      if (*alive) events_.lost(why);
    });
  }
  // Somebody answered, but not (or no longer) a coordinator: a dying predecessor, or a proxy in front of nobody.
  trouble_ = fmt::format("{}:{} answered and hung up: {}", options_.host, options_.port, why);
  loop_.Post([alive = alive_, this] {
    if (!*alive) return;
    connection_.reset();
    server_nonce_.clear();
    Retry(trouble_);
  });
}

void RendezvousClient::Retry(const std::string& why) {
  trouble_ = why;
  if (over_ || retry_timer_ != 0) return;
  retry_timer_ = loop_.After(kRetry, [this] {
    retry_timer_ = 0;
    Attempt();
  });
}

void RendezvousClient::Fail(Status status) {
  if (over_) return;
  over_ = true;
  loop_.Post([alive = alive_, this, status] {
    if (*alive) events_.failed(status);
  });
}

void RendezvousClient::Send(const Json& message) {
  if (connection_ && joined_) connection_->Send(message);
}

bool RendezvousClient::TrySend(const Json& message) {
  if (!connection_ || !joined_ || !connection_->flushed()) return false;
  connection_->Send(message);
  return true;
}

void RendezvousClient::Done() {
  over_ = true;
  if (connection_) connection_->Close();
}

void RendezvousClient::Tick() {
  tick_timer_ = loop_.After(kTick, [this] { Tick(); });
  const TimePoint now = Now();
  const auto late = std::chrono::duration_cast<Millis>(now - last_tick_) - kTick;
  const Millis own_delay = late > Millis(500) ? late : Millis(0);
  last_tick_ = now;
  if (over_) return;
  if (!joined_) {
    const auto waited = std::chrono::duration_cast<Millis>(now - start_);
    if (waited >= options_.join_timeout) {
      return Fail(Status(
          Code::kRendezvous,
          fmt::format("{} could not join at {}:{} within {:.0f} s: {}", self_.Who(), options_.host, options_.port,
                      options_.join_timeout.count() / 1000.0, trouble_.empty() ? "no answer" : trouble_),
          "check that the launcher of node 0 runs there and that this machine reaches that port"));
    }
    if (waited >= kTick) {
      events_.status(fmt::format("waiting for node 0 at {}:{} ({:.0f} s left): {}", options_.host, options_.port,
                                 (options_.join_timeout - waited).count() / 1000.0,
                                 trouble_.empty() ? "no answer yet" : trouble_));
    }
    return;
  }
  const Millis silence = connection_->Silence(own_delay);
  connection_->Ping();
  if (silence >= options_.node_timeout) {
    over_ = true;
    connection_->Close();
    return events_.lost(
        fmt::format("its machine has acknowledged nothing for {:.0f} s (--node-timeout)", silence.count() / 1000.0));
  }
  if (silence >= options_.suspect_after && !suspected_) {
    suspected_ = true;
    events_.say(
        fmt::format("suspecting node 0 at {}:{}: its machine has acknowledged nothing for {:.0f} s; lost at "
                    "{:.0f} s",
                    options_.host, options_.port, silence.count() / 1000.0, options_.node_timeout.count() / 1000.0));
  } else if (silence < kTick && suspected_) {
    suspected_ = false;
    events_.say("node 0 is back");
  }
}

}  // namespace lockstep::launch
