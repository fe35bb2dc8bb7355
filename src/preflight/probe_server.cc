// The answering half of a probe: echoes, counts streams, acknowledges packets.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>

#include "base/digits.h"
#include "base/sockets.h"
#include "launch/auth.h"
#include "launch/ports.h"
#include "preflight/probe.h"
#include "preflight/probe_wire.h"

namespace lockstep::preflight {
namespace {

constexpr size_t kMaxClients = 4096;
constexpr Millis kStreamTime{4000};  // of one stream there and back

struct Client {
  UniqueFd fd;
  std::string header;
  bool known = false;
};

Result<UniqueFd> OpenUdp() {
  for (int family : {AF_INET6, AF_INET}) {
    UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;
    const int zero = 0, large = 4 << 20;
    if (family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(family);
    const socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&any), length) == 0) return fd;
  }
  return Status(Code::kEnvironment, "cannot open a UDP socket: " + ErrnoText(errno));
}

void AnswerPackets(int fd, const std::string& secret) {
  std::string packet(1 << 16, '\0');
  for (int i = 0; i < 256; ++i) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    const ssize_t got = recvfrom(fd, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (got < 0) return;
    if (static_cast<size_t>(got) < kPacketHeader || packet.compare(0, secret.size(), secret) != 0) continue;
    (void)sendto(fd, packet.data(), kPacketHeader, 0, reinterpret_cast<sockaddr*>(&from), length);
  }
}

// Counts what comes, tells it, and streams back. Holds up the others: rates are measured one pair at a time.
void ServeStream(const Client& client) {
  const TimePoint deadline = Now() + kStreamTime;
  const Millis time(LeadingDigits(std::string_view(client.header).substr(33)).value_or(0));
  const double bits = CountStream(client.fd.get(), deadline);
  const std::string told = StreamResult(bits);
  if (!SendAll(client.fd.get(), told.data(), told.size(), deadline).ok()) return;
  Stream(client.fd.get(), std::min(time, Millis(1000)), deadline);
  shutdown(client.fd.get(), SHUT_WR);
}

// False: this client is done.
bool Serve(Client& client, const std::string& secret) {
  char buffer[4096];
  if (!client.known) {
    const ssize_t got = recv(client.fd.get(), buffer, kStreamHeader - client.header.size(), 0);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    client.header.append(buffer, static_cast<size_t>(got));
    if (client.header.size() < kStreamHeader) return true;
    if (!launch::SameProof(std::string_view(client.header).substr(0, secret.size()), secret)) return false;
    client.known = true;
    if (client.header[32] == 'R') {
      ServeStream(client);
      return false;
    }
    return client.header[32] == 'E';
  }
  const ssize_t got = recv(client.fd.get(), buffer, sizeof buffer, 0);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  return send(client.fd.get(), buffer, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
}

}  // namespace

Result<std::unique_ptr<Probe>> Probe::Open(const std::vector<std::pair<int, int>>& ranges) {
  std::unique_ptr<Probe> probe(new Probe);
  probe->secret_ = launch::MakeNonce();
  auto listener = Listen(0);
  if (!listener.ok()) return listener.status();
  probe->port_ = LocalPort(listener->get());
  probe->listeners_.push_back(std::move(*listener));
  for (const auto& range : ranges) {
    launch::PortPicker picker(range);
    // Between the look and the bind somebody else may take it: then the next.
    for (int i = 0; i < 3; ++i) {
      auto port = picker.Next();
      if (!port.ok()) break;
      auto held = Listen(*port);
      if (!held.ok()) continue;
      probe->range_ports_.push_back(*port);
      probe->listeners_.push_back(std::move(*held));
      break;
    }
  }
  auto udp = OpenUdp();
  if (!udp.ok()) return udp.status();
  probe->udp_ = std::move(*udp);
  probe->udp_port_ = LocalPort(probe->udp_.get());
  probe->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  probe->thread_ = std::thread([raw = probe.get()] { raw->Serve(); });
  return probe;
}

Probe::~Probe() {
  stop_ = true;
  const uint64_t one = 1;
  if (wake_) (void)!write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void Probe::Serve() {
  std::list<Client> clients;
  while (!stop_) {
    std::vector<pollfd> watched;
    watched.push_back({wake_.get(), POLLIN, 0});
    watched.push_back({udp_.get(), POLLIN, 0});
    for (const UniqueFd& listener : listeners_) watched.push_back({listener.get(), POLLIN, 0});
    for (const Client& client : clients) watched.push_back({client.fd.get(), POLLIN, 0});
    if (poll(watched.data(), watched.size(), 1000) <= 0) continue;
    if (stop_) return;
    if ((watched[1].revents & POLLIN) != 0) AnswerPackets(udp_.get(), secret_);
    size_t at = 2 + listeners_.size();
    for (auto client = clients.begin(); client != clients.end(); ++at) {
      const bool keep = watched[at].revents == 0 || preflight::Serve(*client, secret_);
      client = keep ? std::next(client) : clients.erase(client);
    }
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if ((watched[2 + i].revents & POLLIN) == 0) continue;
      for (int n = 0; n < 256; ++n) {
        UniqueFd fd(accept4(listeners_[i].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd) break;
        if (clients.size() >= kMaxClients) clients.pop_front();
        NoDelay(fd.get());
        clients.push_back({std::move(fd), "", false});
      }
    }
  }
}

}  // namespace lockstep::preflight
