#include "comm/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace lockstep::comm {
namespace {

// The kernel takes at most 253 descriptors in one message.
constexpr size_t kFdsPerMessage = 200;

socklen_t AbstractAddress(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof address->sun_path - 1);
  std::memcpy(address->sun_path + 1, name.data(), size);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
}

Status Ready(int fd, short events, TimePoint deadline) {
  while (true) {
    const auto left = std::chrono::ceil<Millis>(deadline - Now()).count();
    pollfd p{fd, events, 0};
    const int ready = poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 3600000)));
    if (ready > 0) return {};
    if (ready < 0 && errno == EINTR) continue;
    if (Now() >= deadline) return Status(Code::kTimeout, "no answer over the unix socket before the deadline");
  }
}

}  // namespace

Result<UniqueFd> MakeMemory(size_t bytes) {
  UniqueFd fd(memfd_create("lockstep", MFD_CLOEXEC));
  if (!fd) return Status(Code::kEnvironment, "cannot make shared memory (memfd_create): " + ErrnoText(errno));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status(Code::kEnvironment,
                  fmt::format("cannot make {} bytes of shared memory: {}", bytes, ErrnoText(errno)));
  }
  return fd;
}

Result<std::shared_ptr<std::byte>> MapMemory(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return Status(Code::kEnvironment, fmt::format("cannot map {} bytes of shared memory: {}", bytes, ErrnoText(errno)));
  }
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [bytes](std::byte* at) { munmap(at, bytes); });
}

std::string RandomName() {
  uint64_t words[2] = {};
  (void)!getrandom(words, sizeof words, 0);
  return fmt::format("lockstep-{:016x}{:016x}", words[0], words[1]);
}

Result<UniqueFd> ListenUnix(const std::string& name) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t size = AbstractAddress(name, &address);
  if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd.get(), 4096) != 0) {
    return Status(Code::kEnvironment, "cannot listen on a unix socket: " + ErrnoText(errno));
  }
  return fd;
}

Result<UniqueFd> ConnectUnix(const std::string& name, TimePoint deadline) {
  while (true) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    const socklen_t size = AbstractAddress(name, &address);
    if (fd && connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
    if ((errno != EINTR && errno != EAGAIN) || Now() >= deadline) {
      return Status(Code::kEnvironment, "cannot connect to its unix socket: " + ErrnoText(errno));
    }
  }
}

bool SameUser(int unix_fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(unix_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

Status SendFds(int socket, const std::vector<int>& fds, TimePoint deadline) {
  for (size_t at = 0; at < fds.size(); at += kFdsPerMessage) {
    const size_t count = std::min(kFdsPerMessage, fds.size() - at);
    alignas(cmsghdr) char space[CMSG_SPACE(kFdsPerMessage * sizeof(int))] = {};
    char byte = 'F';
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(head), fds.data() + at, count * sizeof(int));
    while (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      if (errno == EAGAIN) {
        LOCKSTEP_RETURN_IF_ERROR(Ready(socket, POLLOUT, deadline));
      } else if (errno != EINTR) {
        return Status(Code::kEnvironment, "cannot pass shared memory on: " + ErrnoText(errno));
      }
    }
  }
  return {};
}

Result<std::vector<UniqueFd>> ReceiveFds(int socket, size_t count, TimePoint deadline) {
  std::vector<UniqueFd> fds;
  while (fds.size() < count) {
    LOCKSTEP_RETURN_IF_ERROR(Ready(socket, POLLIN, deadline));
    alignas(cmsghdr) char space[CMSG_SPACE(kFdsPerMessage * sizeof(int))] = {};
    char byte = 0;
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) {
      return Status(Code::kEnvironment,
                    got == 0 ? "the peer closed its unix socket" : "cannot receive shared memory: " + ErrnoText(errno));
    }
    const size_t before = fds.size();
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
      for (size_t k = 0; k < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++k) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(head) + k * sizeof(int), sizeof fd);
        fds.emplace_back(fd);
      }
    }
    if (fds.size() == before) {
      return Status(Code::kEnvironment, "the peer passed no shared memory (too many open files here?)");
    }
  }
  return fds;
}

void FutexWait(const std::atomic<uint32_t>* word, uint32_t seen, std::chrono::nanoseconds limit) {
  timespec time{};
  time.tv_sec = limit.count() / 1000000000;
  time.tv_nsec = limit.count() % 1000000000;
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void FutexWakeAll(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep::comm
