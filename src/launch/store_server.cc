#include "launch/store_server.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/sockets.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMaxStrangers = 1024;
constexpr size_t kEnoughUnsent = 1 << 20;  // beyond it a client's next request waits until it has read
constexpr Millis kNoDescriptors{100};      // before the next try
constexpr int kLines = 20;                 // about refused clients, per store

}  // namespace

StoreServer::StoreServer(Loop& loop, UniqueFd listener, std::function<void(const std::string&)> say, StoreLimits limits)
    : loop_(loop), listener_(std::move(listener)), say_(std::move(say)), store_(limits) {
  loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
}

StoreServer::~StoreServer() {
  if (paused_ != 0) loop_.Cancel(paused_);
  loop_.Unwatch(listener_.get());
  for (auto& [id, peer] : peers_) loop_.Unwatch(peer.fd.get());
}

void StoreServer::Accept() {
  for (int i = 0; i < 256; ++i) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) PauseAccepting();
      return;
    }
    const int one = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (strangers_.size() >= kMaxStrangers) Drop(*strangers_.begin());  // the oldest makes room
    const Store::ClientId id = next_++;
    strangers_.insert(id);
    Peer& peer = peers_[id];
    peer.watched = EPOLLIN;
    loop_.Watch(fd.get(), EPOLLIN, [this, id](uint32_t events) { OnEvents(id, events); });
    peer.fd = std::move(fd);
  }
}

// The connection stays in the queue, and the loop would be told of it without end.
void StoreServer::PauseAccepting() {
  if (lines_++ == 0) say_(fmt::format("warning: store: cannot accept a connection: {} (ulimit -n)", ErrnoText(errno)));
  if (!strangers_.empty()) Drop(*strangers_.begin());
  loop_.Unwatch(listener_.get());
  paused_ = loop_.After(kNoDescriptors, [this] {
    paused_ = 0;
    loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
  });
}

void StoreServer::OnEvents(Store::ClientId id, uint32_t events) {
  auto it = peers_.find(id);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  if ((events & EPOLLOUT) != 0) {
    Flush(peer);
    Serve(id);  // what had to wait for it
    if (!peers_.contains(id)) return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  if ((peer.watched & EPOLLIN) == 0) {  // not read from, because it does not read
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) Drop(id);
    return;
  }
  char buffer[65536];
  // One read per turn: a flooding client gets its share of the loop and no more.
  const ssize_t got = recv(peer.fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return Drop(id);
  store_.Feed(id, {buffer, static_cast<size_t>(got)});
  Serve(id);
}

void StoreServer::Serve(Store::ClientId id) {
  Peer& peer = peers_.at(id);
  std::vector<Store::Reply> replies;
  while (true) {
    if (peer.waiting() >= kEnoughUnsent) Flush(peer);
    if (peer.waiting() >= kEnoughUnsent) break;
    replies.clear();
    const Result<bool> answered = store_.Answer(id, &replies);
    for (Store::Reply& reply : replies) {
      auto to = peers_.find(reply.to);
      if (to == peers_.end()) continue;
      to->second.unsent += reply.bytes;
      if (reply.to != id) Flush(to->second);
    }
    if (!answered.ok()) return Refuse(id, answered.status());
    if (!*answered) break;
  }
  if (store_.Validated(id)) strangers_.erase(id);
  Flush(peer);
}

void StoreServer::Flush(Peer& peer) {
  while (peer.waiting() > 0) {
    const ssize_t sent =
        send(peer.fd.get(), peer.unsent.data() + peer.sent, peer.waiting(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      peer.sent += static_cast<size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) peer.sent = peer.unsent.size();  // it is gone; reading tells
    break;
  }
  if (peer.waiting() == 0) {
    peer.unsent = std::string();
    peer.sent = 0;
  } else if (peer.sent >= kEnoughUnsent) {
    peer.unsent.erase(0, std::exchange(peer.sent, 0));
  }
  WatchPeer(peer);
}

void StoreServer::WatchPeer(Peer& peer) {
  uint32_t wanted = 0;
  if (peer.waiting() < kEnoughUnsent) wanted |= EPOLLIN;
  if (peer.waiting() > 0) wanted |= EPOLLOUT;
  if (wanted == peer.watched) return;
  peer.watched = wanted;
  loop_.Modify(peer.fd.get(), wanted);
}

void StoreServer::Drop(Store::ClientId id) {
  auto it = peers_.find(id);
  if (it == peers_.end()) return;
  store_.Disconnect(id);
  strangers_.erase(id);
  loop_.Unwatch(it->second.fd.get());
  peers_.erase(it);
}

void StoreServer::Refuse(Store::ClientId id, const Status& why) {
  if (lines_ < kLines) {
    const auto peer = PeerAddress(peers_.at(id).fd.get());
    say_(fmt::format("store: disconnected {}: {}{}", peer ? peer->ToString() : "a client", why.message(),
                     lines_ + 1 == kLines ? "; further ones are not reported" : ""));
  }
  ++lines_;
  Drop(id);
}

}  // namespace lockstep::launch
