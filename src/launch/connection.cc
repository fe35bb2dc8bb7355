#include "launch/connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/sockets.h"
#include "launch/messages.h"

namespace lockstep::launch {

Connection::Connection(Loop& loop, UniqueFd fd, Events events)
    : loop_(loop), fd_(std::move(fd)), events_(std::move(events)) {
  const int one = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const auto peer = PeerAddress(fd_.get());
  peer_ = peer ? peer->ToString() : "unknown";
  loop_.Watch(fd_.get(), EPOLLIN, [this](uint32_t events) { OnEvents(events); });
}

Connection::~Connection() { Close(); }

void Connection::Close() {
  if (linger_ != 0) loop_.Cancel(std::exchange(linger_, 0));
  if (!fd_) return;
  loop_.Unwatch(fd_.get());
  fd_.reset();
}

void Connection::Fail(const std::string& why) {
  if (!fd_) return;
  const bool tell = !closing_;
  Close();
  const auto handler = events_.closed;
  if (tell && handler) handler(why);
}

void Connection::Send(const Json& message) {
  if (!fd_ || closing_) return;
  outgoing_ += EncodeFrame(message);
  Flush();
}

void Connection::CloseAfterFlush(Millis linger) {
  if (!fd_) return;
  closing_ = true;
  if (outgoing_.empty()) {
    // Half-close: the last frame reaches the peer even though it may still be sending.
    shutdown(fd_.get(), SHUT_WR);
  }
  if (linger_ == 0) {
    linger_ = loop_.After(linger, [this] {
      linger_ = 0;
      Close();
    });
  }
}

void Connection::Flush() {
  while (fd_ && !outgoing_.empty()) {
    const ssize_t sent = send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      sent_ += static_cast<uint64_t>(sent);
      outgoing_.erase(0, static_cast<size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) break;
    // Reading tells the same, with whatever the peer said last; fail from there.
    outgoing_.clear();
    break;
  }
  if (!fd_) return;
  loop_.Modify(fd_.get(), outgoing_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  if (outgoing_.empty() && closing_) shutdown(fd_.get(), SHUT_WR);
}

void Connection::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  char buffer[65536];
  // One read per turn: a flooding peer gets its share of the loop and no more.
  const ssize_t got = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    return Fail(ErrnoText(errno));
  }
  if (got == 0) return Fail("closed by the other side");
  if (closing_) return;
  parser_.Feed({buffer, static_cast<size_t>(got)});
  while (fd_ && !closing_) {
    auto next = parser_.Next();
    if (!next.ok()) return Fail(next.status().message());
    if (!next->has_value()) return;
    // The handler may put another in its place while it runs.
    const auto handler = events_.message;
    handler(std::move(**next));
  }
}

Millis Connection::Silence(Millis own_delay) {
  if (!fd_) return Millis(0);
  const PeerState state = GetPeerState(fd_.get());
  const TimePoint now = Now();
  const uint64_t acked = sent_ - std::min(sent_, state.waiting);
  if (!state.known || state.waiting == 0 || acked != acked_ || state.window_closed) {
    acked_ = acked;
    silent_since_ = now;
  } else {
    silent_since_ = std::min(now, silent_since_ + own_delay);
  }
  return std::chrono::duration_cast<Millis>(now - silent_since_);
}

void Connection::Ping() {
  if (fd_ && outgoing_.empty() && GetPeerState(fd_.get()).waiting == 0) Send(ToJson(message::Ping{}));
}

}  // namespace lockstep::launch
