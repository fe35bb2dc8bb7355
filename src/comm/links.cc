#include "comm/links.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace lockstep::comm {
namespace {

constexpr uint32_t kTransferMagic = 0x544d434c;  // "LCMT"
constexpr int kNapMs = 50;                       // between looks for a broken communicator

}  // namespace

struct Links::Progress {
  Transfer what;
  Head out{};
  Head in{};
  size_t sent = 0;      // head included
  size_t received = 0;  // head included
  bool sending = false;
  bool receiving = false;
};

Links::Links(int node, std::vector<UniqueFd> fds, std::vector<int> first_rank, Health* health)
    : node_(node), fds_(std::move(fds)), first_rank_(std::move(first_rank)), health_(health), waited_ns_(fds_.size()) {}

Status Links::Push(Progress* p) {
  const size_t total = sizeof(Head) + p->what.send_bytes;
  while (p->sent < total) {
    iovec parts[2];
    int count = 0;
    if (p->sent < sizeof(Head)) parts[count++] = {reinterpret_cast<char*>(&p->out) + p->sent, sizeof(Head) - p->sent};
    const size_t done = p->sent < sizeof(Head) ? 0 : p->sent - sizeof(Head);
    if (p->what.send_bytes > done) {
      parts[count++] = {const_cast<char*>(static_cast<const char*>(p->what.send)) + done, p->what.send_bytes - done};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t sent = sendmsg(fds_[static_cast<size_t>(p->what.node)].get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      p->sent += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      return {};
    } else if (errno != EINTR) {
      return Status(Code::kNodeLost, ErrnoText(errno));
    }
  }
  bytes_sent_ += p->what.send_bytes;
  p->sending = false;
  return {};
}

Status Links::Pull(Progress* p, const Descriptor& what, uint32_t step) {
  const int fd = fds_[static_cast<size_t>(p->what.node)].get();
  const size_t total = sizeof(Head) + p->what.receive_bytes;
  while (p->received < total) {
    char* to = p->received < sizeof(Head) ? reinterpret_cast<char*>(&p->in) + p->received
                                          : static_cast<char*>(p->what.receive) + (p->received - sizeof(Head));
    const size_t room = (p->received < sizeof(Head) ? sizeof(Head) : total) - p->received;
    const ssize_t got = recv(fd, to, room, MSG_DONTWAIT);
    if (got == 0) return Status(Code::kNodeLost, "it closed the connection");
    if (got < 0) {
      if (errno == EAGAIN) return {};
      if (errno == EINTR) continue;
      return Status(Code::kNodeLost, ErrnoText(errno));
    }
    p->received += static_cast<size_t>(got);
    if (p->received != sizeof(Head)) continue;
    const int peer = first_rank_[static_cast<size_t>(p->what.node)];
    const int own = first_rank_[static_cast<size_t>(node_)];
    if (p->in.magic != kTransferMagic) {
      return Status(Code::kRankFailed, fmt::format("rank {} sent bytes that are no message of ours", peer));
    }
    if (!Same(p->in.what, what)) {
      // The lower rank first, so that both sides say the same.
      return own < peer ? Mismatch(peer, p->in.what, own, what) : Mismatch(own, what, peer, p->in.what);
    }
    if (p->in.step != step || p->in.bytes != p->what.receive_bytes) {
      return Status(Code::kInternal,
                    fmt::format("rank {} is at step {} with {} bytes of {}, rank {} at step {} with {}", peer,
                                p->in.step, p->in.bytes, DescribeNumbered(what), own, step, p->what.receive_bytes),
                    "do all ranks use the same staging size (comm options)?");
    }
  }
  p->receiving = false;
  return {};
}

Status Links::Exchange(const Descriptor& what, uint32_t step, std::vector<Transfer> transfers, TimePoint deadline) {
  std::vector<Progress> all(transfers.size());
  std::vector<pollfd> polls(transfers.size());
  for (size_t k = 0; k < all.size(); ++k) {
    all[k].what = transfers[k];
    all[k].out = {kTransferMagic, step, transfers[k].send_bytes, what, 0};
    all[k].sending = transfers[k].sends;
    all[k].receiving = transfers[k].receives;
  }
  const TimePoint start = Now();
  int last = -1;  // whose message came in last
  while (true) {
    bool busy = false;
    for (size_t k = 0; k < all.size(); ++k) {
      Progress* p = &all[k];
      Status status;
      const bool pulling = p->receiving;
      if (p->sending) status = Push(p);
      if (status.ok() && p->receiving) status = Pull(p, what, step);
      if (!status.ok()) {
        if (status.code() != Code::kNodeLost) return status;
        return Status(Code::kNodeLost,
                      fmt::format("rank {} was lost during {}: {}", first_rank_[static_cast<size_t>(p->what.node)],
                                  DescribeNumbered(what), status.message()));
      }
      if (status.ok() && pulling && !p->receiving) {
        last = p->what.node;
      }
      const int events = (p->sending ? POLLOUT : 0) | (p->receiving ? POLLIN : 0);
      polls[k] = {events != 0 ? fds_[static_cast<size_t>(p->what.node)].get() : -1, static_cast<short>(events), 0};
      busy = busy || events != 0;
    }
    if (!busy) {
      if (last >= 0) {
        waited_ns_[static_cast<size_t>(last)].fetch_add((Now() - start).count(), std::memory_order_relaxed);
      }
      return {};
    }
    if (health_->broken()) return health_->status();
    if (Now() >= deadline) return Status(Code::kTimeout, "deadline");
    (void)poll(polls.data(), polls.size(), kNapMs);
  }
}

}  // namespace lockstep::comm
