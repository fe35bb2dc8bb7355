#include "launch/ports.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/digits.h"
#include "base/fd.h"
#include "base/process.h"

namespace lockstep::launch {
namespace {

// 0, or the errno with which a listener on this port fails.
int TryListen(int family, int port) {
  const UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return family == AF_INET6 && errno == EAFNOSUPPORT ? 0 : errno;
  const int on = 1, off = 0;
  // TCPStore sets it, so a port in TIME_WAIT is good enough; a port with a listener still is not.
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  socklen_t length = 0;
  if (family == AF_INET6) {
    (void)::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&address);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(static_cast<uint16_t>(port));
    length = sizeof *in6;
  } else {
    auto* in4 = reinterpret_cast<sockaddr_in*>(&address);
    in4->sin_family = AF_INET;
    in4->sin_port = htons(static_cast<uint16_t>(port));
    length = sizeof *in4;
  }
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    // No IPv6 address on this machine: IPv4 decides alone.
    return family == AF_INET6 && errno == EADDRNOTAVAIL ? 0 : errno;
  }
  // With SO_REUSEADDR the conflict with another listener may show only here.
  if (::listen(fd.get(), 1) != 0) return errno;
  return 0;
}

int ListenError(int port) {
  const int v6 = TryListen(AF_INET6, port);
  return v6 != 0 ? v6 : TryListen(AF_INET, port);
}

// Inodes of sockets that listen on the port, or hold it bound.
std::vector<std::string> Inodes(int port) {
  std::vector<std::string> inodes;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    std::getline(table, line);  // header
    while (std::getline(table, line)) {
      unsigned local_port = 0, state = 0;
      unsigned long inode = 0;
      char local[64], remote[64];
      if (std::sscanf(line.c_str(), " %*d: %63[0-9A-Fa-f]:%x %63[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu",
                      local, &local_port, remote, &state, &inode) == 5 &&
          static_cast<int>(local_port) == port && state == 0x0A && inode != 0) {
        inodes.push_back(fmt::format("socket:[{}]", inode));
      }
    }
  }
  return inodes;
}

bool HoldsAny(const std::string& pid, const std::vector<std::string>& inodes) {
  const std::string dir = "/proc/" + pid + "/fd";
  DIR* fds = ::opendir(dir.c_str());
  if (fds == nullptr) return false;
  bool holds = false;
  while (const dirent* entry = ::readdir(fds)) {
    char target[64];
    const ssize_t size = ::readlinkat(::dirfd(fds), entry->d_name, target, sizeof target);
    if (size <= 0) continue;
    const std::string_view link(target, static_cast<size_t>(size));
    if (std::find(inodes.begin(), inodes.end(), link) != inodes.end()) {
      holds = true;
      break;
    }
  }
  ::closedir(fds);
  return holds;
}

}  // namespace

std::pair<int, int> EphemeralRange() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0, last = 0;
  if (file >> first >> last && first > 0 && last >= first) return {first, last};
  return {32768, 60999};
}

std::string PortOwner(int port) {
  const std::vector<std::string> inodes = Inodes(port);
  if (inodes.empty()) return "";
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return "another process";
  std::string owner;
  while (const dirent* entry = ::readdir(proc)) {
    const std::string pid = entry->d_name;
    const std::optional<pid_t> number = ParseDigits<pid_t>(pid);
    if (!number) continue;
    if (!HoldsAny(pid, inodes)) continue;
    const std::string command = ProcessCommand(*number);
    owner = command.empty() ? "pid " + pid : fmt::format("pid {} ({})", pid, command);
    break;
  }
  ::closedir(proc);
  return owner.empty() ? "a process that cannot be seen from here (another user's, or outside this container)" : owner;
}

Status ProbePort(int port) {
  if (port < 1 || port > 65535) {
    return Status(Code::kUsage, fmt::format("expected a port from 1 to 65535, found {}", port));
  }
  const int error = ListenError(port);
  if (error == 0) return Status::Ok();
  if (error == EACCES) {
    return Status(Code::kEnvironment, fmt::format("port {} needs a privilege this user does not have", port),
                  "use a port above 1023");
  }
  if (error != EADDRINUSE) {
    return Status(Code::kEnvironment, fmt::format("cannot listen on port {}: {}", port, ErrnoText(error)));
  }
  const std::string owner = PortOwner(port);
  return Status(Code::kEnvironment,
                owner.empty()
                    ? fmt::format("port {} is in use, although nothing listens there (an outgoing connection)", port)
                    : fmt::format("port {} is in use by {}", port, owner),
                "stop that process, or choose another port (--master-port, --port-range)");
}

PortPicker::PortPicker(std::optional<std::pair<int, int>> range)
    : range_(range), start_(static_cast<unsigned>(::getpid()) * 2654435761u >> 7) {}

Result<int> PortPicker::Next(int avoid) {
  int first = 20000, last = 32767;
  if (range_) {
    std::tie(first, last) = *range_;
  } else {
    // Prefer what the kernel never hands to outgoing connections; a range configured to begin low leaves the upper end.
    const auto [low, high] = EphemeralRange();
    if (low > 20100) {
      last = std::min(last, low - 1);
    } else if (high < 65000) {
      first = high + 1;
      last = 65535;
    } else {
      last = 65535;
    }
  }
  const int count = last - first + 1;
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const int port = first + static_cast<int>((start_ + static_cast<unsigned>(i)) % static_cast<unsigned>(count));
    if (port == avoid || given_.contains(port)) continue;
    const int error = ListenError(port);
    if (error == EACCES) ++refused;
    if (error != 0) continue;
    given_.insert(port);
    start_ += static_cast<unsigned>(i) + 1;
    return port;
  }
  std::string message = fmt::format("no free port in {}-{}: {} already used by this job", first, last, given_.size());
  if (refused > 0) message += fmt::format(", {} not permitted", refused);
  if (count == 1) {
    if (const std::string owner = PortOwner(first); !owner.empty())
      message += fmt::format(", {} in use by {}", first, owner);
  }
  return Status(Code::kEnvironment, message, "widen --port-range: every attempt needs a new port");
}

}  // namespace lockstep::launch
