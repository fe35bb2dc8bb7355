#include "launch/rendezvous_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include "launch/auth.h"
#include "launch/connection.h"
#include "launch/messages.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMaxPending = 8192;
constexpr Millis kHandshake{10000};  // a peer that has not introduced itself by then is dropped

}  // namespace

RendezvousServer::RendezvousServer(Loop& loop, std::string token, std::string version, Events events)
    : loop_(loop), token_(std::move(token)), version_(std::move(version)), events_(std::move(events)) {}

RendezvousServer::~RendezvousServer() {
  *alive_ = false;
  StopListening();
}

void RendezvousServer::Serve(UniqueFd listener) {
  listener_ = std::move(listener);
  loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
}

void RendezvousServer::StopListening() {
  if (!listener_) return;
  loop_.Unwatch(listener_.get());
  listener_.reset();
}

void RendezvousServer::Expire() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    it = Now() - it->second.since > kHandshake ? pending_.erase(it) : std::next(it);
  }
}

void RendezvousServer::Forget(uint64_t id) {
  loop_.Post([this, id, alive = alive_] {
    if (*alive) pending_.erase(id);
  });
}

void RendezvousServer::Accept() {
  for (int i = 0; i < 256; ++i) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    if (pending_.size() >= kMaxPending) pending_.erase(pending_.begin());  // the oldest is dropped
    const uint64_t id = next_pending_++;
    Pending pending;
    pending.nonce = MakeNonce();
    pending.connection =
        std::make_unique<Connection>(loop_, std::move(fd),
                                     Connection::Events{[this, id](const Json& message) { OnHello(id, message); },
                                                        [this, id](const std::string&) { Forget(id); }});
    pending.connection->Send(ToJson(message::Challenge{kProtocol, version_, pending.nonce}));
    pending_.emplace(id, std::move(pending));
  }
}

Status RendezvousServer::OtherVersion(const std::string& peer, const std::string& version) const {
  return Status(Code::kRendezvous,
                fmt::format("different versions: {} runs lockstep {}, this node runs {}", peer, version, version_),
                "install the same lockstep on every node");
}

void RendezvousServer::OnHello(uint64_t id, const Json& json) {
  auto it = pending_.find(id);
  if (it == pending_.end()) return;
  const std::string peer = it->second.connection->peer();
  if (TypeOf(json) != message::Hello::kType) return Forget(id);
  const Result<message::Hello> hello = Parse<message::Hello>(json, "a launcher at " + peer);
  if (!hello.ok()) return Refuse(id, "a launcher at " + peer, hello.status());
  const std::string expected = Proof(token_, {"client", it->second.nonce, hello->nonce, hello->claims});
  if (!SameProof(hello->proof, expected)) {
    const std::string found = token_.empty()     ? "the other side has a token and this job has none"
                              : hello->has_token ? "the tokens differ"
                                                 : "this job has a token and the other side gave none";
    return Refuse(id, "a launcher at " + peer,
                  Status(Code::kRendezvous, "job token refused: " + found,
                         "give every node the same token (--token-file or LOCKSTEP_TOKEN)"));
  }
  const Json claims = Json::parse(hello->claims, nullptr, false);
  const Result<Participant> participant = Parse<Participant>(claims, "a launcher at " + peer);
  if (!participant.ok()) {
    // Another version may claim other things: then that is what to say.
    const std::string version = GetString(claims, "version");
    return Refuse(id, "a launcher at " + peer,
                  version.empty() || version == version_ ? participant.status() : OtherVersion(peer, version));
  }
  const Status admitted = events_.admit(*participant);
  if (!admitted.ok()) return Refuse(id, participant->Who() + " at " + peer, admitted, &*participant);
  it->second.connection->Send(ToJson(message::Welcome{Proof(token_, {"server", hello->nonce, it->second.nonce})}));
  it->second.connection->set_limit(kFrameLimit);
  auto node = pending_.extract(id);
  events_.joined(*participant, std::move(node.mapped().connection));
}

void RendezvousServer::Refuse(uint64_t id, const std::string& who, const Status& why, const Participant* participant) {
  auto it = pending_.find(id);
  if (it == pending_.end()) return;
  events_.refused(who, participant, why);
  it->second.connection->Send(ToJson(message::Refuse{why.message(), why.hint()}));
  it->second.connection->CloseAfterFlush(kGoodbye);
}

}  // namespace lockstep::launch
