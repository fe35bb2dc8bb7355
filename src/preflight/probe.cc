#include "preflight/probe.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/digits.h"
#include "base/sockets.h"
#include "preflight/probe_wire.h"

namespace lockstep::preflight {
namespace {

constexpr int kEchoes = 10;
constexpr Millis kResendAfter{80};  // packets are sent again after this
// Sizes of packets that networks are built for: jumbo frames, tunnels through them, IPoIB, Ethernet, tunnels, IPv6's
// least, IPv4's.
constexpr int kLadder[] = {9000, 8942, 4092, 2044, 1500, 1450, 1420, 1400, 1280, 576};

// One TCP connection to one port of one target, on its way.
struct Attempt {
  size_t target = 0;
  int port = 0;
  bool main = false;
  UniqueFd fd;
  bool connected = false, done = false;
  int echoes = 0;
  TimePoint sent{};
  double best = 1e9;
  std::string trouble;

  void End(std::string why) {
    trouble = std::move(why);
    done = true;
    fd.reset();
  }
};

Result<Address> Numeric(const std::string& address, int port) {
  auto all = Resolve(address, port);
  if (!all.ok()) return all.status();
  if (all->empty()) return Status(Code::kEnvironment, "no address");
  return all->front();
}

void SendEcho(Attempt& attempt) {
  attempt.sent = Now();
  if (send(attempt.fd.get(), "e", 1, MSG_NOSIGNAL) != 1) attempt.End("the connection broke: " + ErrnoText(errno));
}

void OnReady(Attempt& attempt, const std::string& secret) {
  if (!attempt.connected) {
    const Status status = FinishConnect(attempt.fd.get());
    if (!status.ok()) return attempt.End(status.message());
    attempt.connected = true;
    NoDelay(attempt.fd.get());
    const std::string header = secret + "E0000";
    if (send(attempt.fd.get(), header.data(), header.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(header.size())) {
      return attempt.End("the connection broke: " + ErrnoText(errno));
    }
    return SendEcho(attempt);
  }
  char byte = 0;
  const ssize_t got = recv(attempt.fd.get(), &byte, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return attempt.End("something else answers there and hangs up");
  attempt.best = std::min(attempt.best, SecondsSince(attempt.sent));
  if (++attempt.echoes >= (attempt.main ? kEchoes : 1)) return attempt.End("");
  SendEcho(attempt);
}

// Packets of all sizes to one target.
struct Packets {
  size_t target = 0;
  UniqueFd fd;
  int overhead = 28;                        // IP and UDP
  std::vector<std::pair<int, bool>> sizes;  // of the whole packet, largest first; came through
};

int Through(const Packets& packets) {
  for (const auto& [size, through] : packets.sizes) {
    if (through) return size;
  }
  return 0;
}

void OpenPackets(const Target& target, int mtu, Packets* packets) {
  auto address = Numeric(target.address, target.udp_port);
  if (!address.ok()) return;
  const int family = address->storage.ss_family;
  UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return;
  // "Probe": never fragment, and do not believe an earlier answer about the path.
  const int v4 = IP_PMTUDISC_PROBE, v6 = IPV6_PMTUDISC_PROBE;
  if (family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &v6, sizeof v6);
    packets->overhead = 48;
  } else {
    setsockopt(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, &v4, sizeof v4);
  }
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->length) != 0) return;
  packets->fd = std::move(fd);
  packets->sizes.emplace_back(mtu, false);
  for (int size : kLadder) {
    if (size < mtu) packets->sizes.emplace_back(size, false);
  }
}

void SendPackets(const Packets& packets, const std::string& secret) {
  const int through = Through(packets);
  for (size_t i = 0; i < packets.sizes.size(); ++i) {
    const auto& [size, came] = packets.sizes[i];
    if (came || size < through) continue;
    std::string packet = secret + fmt::format("{:04}", i);
    packet.resize(std::max(packet.size(), static_cast<size_t>(size - packets.overhead)), '.');
    (void)send(packets.fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL);  // too large for here: not through
  }
}

void ReceivePackets(Packets& packets, const std::string& secret) {
  char packet[kPacketHeader + 1];
  while (true) {
    const ssize_t got = recv(packets.fd.get(), packet, sizeof packet, 0);
    if (got < 0) return;  // also an ICMP error of an earlier packet; the next round asks again
    if (got != kPacketHeader || std::string_view(packet, secret.size()) != secret) continue;
    const auto index = ParseDigits<size_t>(std::string_view(packet + 32, 4));
    if (index && *index < packets.sizes.size()) packets.sizes[*index].second = true;
  }
}

void TryPackets(const std::vector<Target>& targets, int mtu, TimePoint deadline, std::vector<Reached>* reached) {
  std::vector<Packets> all(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    all[i].target = i;
    if ((*reached)[i].trouble.empty()) OpenPackets(targets[i], mtu, &all[i]);
  }
  // The largest through is the end of it; else three times, for a packet may be lost by chance.
  for (int round = 0; round < 4 && Now() < deadline; ++round) {
    std::vector<Packets*> open;
    for (Packets& packets : all) {
      if (packets.fd && !packets.sizes.front().second) open.push_back(&packets);
    }
    if (open.empty()) break;
    for (Packets* packets : open) SendPackets(*packets, targets[packets->target].secret);
    const TimePoint until = std::min(deadline, Now() + kResendAfter);
    while (true) {
      std::vector<pollfd> watched;
      std::vector<Packets*> left;
      for (Packets* packets : open) {
        if (packets->sizes.front().second) continue;
        watched.push_back({packets->fd.get(), POLLIN, 0});
        left.push_back(packets);
      }
      const auto wait = std::chrono::duration_cast<Millis>(until - Now()).count();
      if (left.empty() || wait <= 0) break;
      if (poll(watched.data(), watched.size(), static_cast<int>(wait)) <= 0) break;
      for (size_t i = 0; i < left.size(); ++i) {
        if (watched[i].revents != 0) ReceivePackets(*left[i], targets[left[i]->target].secret);
      }
    }
  }
  for (Packets& packets : all) {
    if (!packets.fd) continue;
    Reached& result = (*reached)[packets.target];
    result.mtu_sent = packets.sizes.front().first;
    result.mtu_through = Through(packets);
    result.udp = result.mtu_through > 0;
  }
}

}  // namespace

void NoDelay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

std::string StreamResult(double bits) { return fmt::format("{:0{}.0f}", std::min(bits, 1e15), kResultSize); }

void Stream(int fd, Millis time, TimePoint deadline) {
  static const std::string block(256 << 10, 's');
  const TimePoint until = std::min(Now() + time, deadline);
  while (true) {
    const auto left = std::chrono::duration_cast<Millis>(until - Now()).count();
    if (left <= 0) return;
    const ssize_t sent = send(fd, block.data(), block.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) continue;
    if (errno != EAGAIN && errno != EINTR) return;
    pollfd wait{fd, POLLOUT, 0};
    (void)poll(&wait, 1, static_cast<int>(left));
  }
}

double CountStream(int fd, TimePoint deadline) {
  std::string buffer(1 << 20, '\0');
  uint64_t bytes = 0;
  TimePoint first{}, last{};
  while (true) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) break;
    if (got > 0) {
      last = Now();
      // What had come before the first look took an unknown time.
      if (first == TimePoint{}) {
        first = last;
      } else {
        bytes += static_cast<uint64_t>(got);
      }
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return 0;
    const auto left = std::chrono::duration_cast<Millis>(deadline - Now()).count();
    pollfd wait{fd, POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) <= 0) return 0;
  }
  const double seconds = std::chrono::duration<double>(last - first).count();
  return seconds > 1e-4 ? static_cast<double>(bytes) * 8 / seconds : 0;
}

std::vector<Reached> ReachAll(const std::vector<Target>& targets, int mtu, Millis deadline) {
  std::vector<Reached> reached(targets.size());
  std::vector<Attempt> attempts;
  for (size_t i = 0; i < targets.size(); ++i) {
    reached[i].node = targets[i].node;
    std::vector<int> ports{targets[i].port};
    ports.insert(ports.end(), targets[i].range_ports.begin(), targets[i].range_ports.end());
    for (size_t p = 0; p < ports.size(); ++p) {
      Attempt attempt;
      attempt.target = i;
      attempt.port = ports[p];
      attempt.main = p == 0;
      auto address = Numeric(targets[i].address, ports[p]);
      auto fd = address.ok() ? StartConnect(*address) : Result<UniqueFd>(address.status());
      if (fd.ok()) {
        attempt.fd = std::move(*fd);
      } else {
        attempt.End(fd.status().message());
      }
      attempts.push_back(std::move(attempt));
    }
  }
  const TimePoint end = Now() + deadline;
  while (true) {
    std::vector<pollfd> watched;
    std::vector<Attempt*> open;
    for (Attempt& attempt : attempts) {
      if (attempt.done) continue;
      watched.push_back({attempt.fd.get(), static_cast<short>(attempt.connected ? POLLIN : POLLOUT), 0});
      open.push_back(&attempt);
    }
    const auto left = std::chrono::duration_cast<Millis>(end - Now()).count();
    if (open.empty() || left <= 0) break;
    if (poll(watched.data(), watched.size(), static_cast<int>(left)) <= 0) continue;
    for (size_t i = 0; i < open.size(); ++i) {
      if (watched[i].revents != 0) OnReady(*open[i], targets[open[i]->target].secret);
    }
  }
  for (Attempt& attempt : attempts) {
    if (!attempt.done) {
      attempt.End(attempt.connected ? "it accepts the connection and is then silent"
                                    : fmt::format("no answer within {:g} s: packets are dropped (firewall, no route)",
                                                  deadline.count() / 1000.0));
    }
    Reached& result = reached[attempt.target];
    if (attempt.main) {
      result.trouble = attempt.trouble;
      result.round_trip = attempt.trouble.empty() ? attempt.best : 0;
    } else if (!attempt.trouble.empty()) {
      result.closed.emplace_back(attempt.port, attempt.trouble);
    }
  }
  if (mtu > 0) TryPackets(targets, mtu, Now() + deadline, &reached);
  return reached;
}

Result<Rate> MeasureRate(const Target& target, Millis time) {
  const TimePoint deadline = Now() + 4 * time + Millis(1500);
  auto fd = Connect(target.address, target.port, deadline);
  if (!fd.ok()) return fd.status();
  NoDelay(fd->get());
  const std::string header = target.secret + fmt::format("R{:04}", std::min<int64_t>(9999, time.count()));
  LOCKSTEP_RETURN_IF_ERROR(SendAll(fd->get(), header.data(), header.size(), deadline));
  Stream(fd->get(), time, deadline);
  shutdown(fd->get(), SHUT_WR);
  std::string told(kResultSize, '0');
  LOCKSTEP_RETURN_IF_ERROR(ReceiveAll(fd->get(), told.data(), told.size(), deadline));
  Rate rate;
  rate.forth = std::strtod(told.c_str(), nullptr);
  rate.back = CountStream(fd->get(), deadline);
  return rate;
}

std::vector<std::vector<std::pair<int, int>>> Tournament(int players) {
  // The circle method: player 0 stays, the others move on by one slot each round.
  std::vector<std::vector<std::pair<int, int>>> rounds;
  const int slots = players + players % 2;
  for (int round = 0; round + 1 < slots; ++round) {
    std::vector<std::pair<int, int>> matches;
    const auto slot = [&](int i) { return i == 0 ? 0 : 1 + (i - 1 + round) % (slots - 1); };
    for (int i = 0; i < slots / 2; ++i) {
      const auto [a, b] = std::minmax({slot(i), slot(slots - 1 - i)});
      if (b < players) matches.emplace_back(a, b);
    }
    rounds.push_back(std::move(matches));
  }
  return rounds;
}

}  // namespace lockstep::preflight
