#include "launch/inspect.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/process.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostQuestions = 8;
constexpr size_t kAnswerLimit = 256u << 20;

socklen_t SocketAddress(pid_t pid, uint64_t start_time, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const std::string name = fmt::format("lockstep/{}/{}", pid, start_time);
  std::memcpy(address->sun_path + 1, name.data(), name.size());  // a leading zero: no file
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

InspectServer::InspectServer(Loop& loop, std::function<void(const Json&, Reply)> ask)
    : loop_(loop), ask_(std::move(ask)) {
  sockaddr_un address;
  const socklen_t size = SocketAddress(getpid(), ProcessStartTime(getpid()), &address);
  listener_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_ || bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_.get(), 8) != 0) {
    listener_.reset();  // nobody can ask then; the job does not depend on it
    return;
  }
  loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
}

InspectServer::~InspectServer() {
  *alive_ = false;
  if (listener_) loop_.Unwatch(listener_.get());
}

void InspectServer::Accept() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  if ((peer.uid != geteuid() && peer.uid != 0) || open_.size() >= kMostQuestions) return;
  const uint64_t id = next_++;
  const auto forget = [this, id, alive = alive_] {
    loop_.Post([this, id, alive] {
      if (*alive) open_.erase(id);
    });
  };
  open_[id] = std::make_unique<Connection>(loop_, std::move(fd),
                                           Connection::Events{[this, id, alive = alive_](const Json& question) {
                                                                ask_(question, [this, id, alive](const Json& answer) {
                                                                  auto it = open_.find(id);
                                                                  if (!*alive || it == open_.end()) return;
                                                                  it->second->Send(answer);
                                                                });
                                                              },
                                                              [forget](const std::string&) { forget(); }});
}

Result<Json> AskLauncher(pid_t pid, uint64_t start_time, const Json& question, Millis patience) {
  const auto failed = [&](const std::string& what) {
    return Status(Code::kEnvironment, fmt::format("the launcher (pid {}) {}", pid, what));
  };
  sockaddr_un address;
  const socklen_t size = SocketAddress(pid, start_time, &address);
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return failed("cannot be asked: " + ErrnoText(errno));
  }
  const std::string frame = EncodeFrame(question);
  if (send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size())) {
    return failed("does not listen: " + ErrnoText(errno));
  }
  FrameParser parser(kAnswerLimit);
  const TimePoint until = Now() + patience;
  char buffer[65536];
  while (true) {
    auto next = parser.Next();
    if (!next.ok()) return failed("answered with something else: " + next.status().message());
    if (next->has_value()) return std::move(**next);
    const auto left = std::chrono::duration_cast<Millis>(until - Now()).count();
    pollfd poller{fd.get(), POLLIN, 0};
    if (left <= 0 || poll(&poller, 1, static_cast<int>(left)) <= 0) return failed("does not answer");
    const ssize_t n = recv(fd.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return failed("refused to answer (another user's run?)");
    parser.Feed({buffer, static_cast<size_t>(n)});
  }
}

}  // namespace lockstep::launch
