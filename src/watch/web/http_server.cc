#include "watch/web/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/sockets.h"
#include "base/text.h"

namespace lockstep::watch {
namespace {

constexpr size_t kFilePiece = 64u << 10;
constexpr off_t kLargestFile = 64 << 20;

// A regular file of bounded size, links not followed.
UniqueFd OpenPlain(const std::string& path, uint64_t* size) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kLargestFile) return UniqueFd();
  *size = static_cast<uint64_t>(info.st_size);
  return fd;
}

}  // namespace

HttpServer::HttpServer(Loop* loop, Handler handler, HttpLimits limits)
    : loop_(loop), handler_(std::move(handler)), limits_(limits) {}

HttpServer::~HttpServer() {
  if (sweep_ != 0) loop_->Cancel(sweep_);
  if (listener_) loop_->Unwatch(listener_.get());
  for (auto& [fd, client] : clients_) loop_->Unwatch(fd);
}

Result<std::string> HttpServer::Listen(const std::string& host, int port) {
  Result<std::vector<Address>> found = Resolve(host, port);
  if (!found.ok()) return found.status().Context("--http").WithCode(Code::kUsage);
  const Address& address = found->front();
  listener_.reset(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return Status(Code::kEnvironment, "cannot create a TCP socket: " + ErrnoText(errno));
  const int one = 1;
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 ||
      ::listen(listener_.get(), 64) != 0) {
    const int error = errno;
    const char* remedy = error == EADDRINUSE      ? "another program has this port; `--http :0` takes any free one"
                         : error == EADDRNOTAVAIL ? "give an address of this machine, or 0.0.0.0 for all of them"
                         : error == EACCES        ? "ports below 1024 need privileges; take a higher one"
                                                  : "";
    return Status(Code::kEnvironment, fmt::format("cannot listen on {}: {}", address.ToString(), ErrnoText(error)),
                  remedy);
  }
  loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
  Sweep();
  Address bound;
  bound.length = sizeof bound.storage;
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length);
  return bound.ToString();
}

void HttpServer::Accept() {
  while (true) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    if (clients_.size() >= limits_.connections) {
      const std::string answer = ResponseHead({.status = 503}, 0, false);
      (void)::send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      continue;
    }
    const int number = fd.get();
    auto client = std::make_unique<Client>();
    client->fd = std::move(fd);
    client->since = Now();
    clients_[number] = std::move(client);
    loop_->Watch(number, EPOLLIN, [this, number](uint32_t what) { Ready(number, what); });
  }
}

void HttpServer::Ready(int fd, uint32_t what) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client* client = found->second.get();
  bool open = (what & (EPOLLERR | EPOLLHUP)) == 0;
  if (open && (what & EPOLLIN) != 0) open = Read(client);
  if (open) open = Write(client) && Answer(client);
  if (client->ended && !client->more && client->sent == client->out.size() && client->left == 0) open = false;
  if (!open) {
    Drop(fd);
  } else {
    Expect(*client);
  }
}

// What the client sends while its answer is being written waits in the socket, not here. Who has sent several requests
// at once comes again when the others had their turn.
void HttpServer::Expect(const Client& client) {
  const bool writing = client.sent < client.out.size() || client.left > 0;
  loop_->Modify(client.fd.get(), writing || client.more ? EPOLLOUT : EPOLLIN);
}

bool HttpServer::Read(Client* client) {
  char buffer[8 << 10];
  while (client->in.size() <= kLongestRequest) {
    const ssize_t n = ::recv(client->fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    client->ended = n == 0;
    if (n == 0 || client->events) return true;  // whatever a listener says: it has asked already
    if (client->in.empty()) client->since = Now();
    client->in.append(buffer, static_cast<size_t>(n));
  }
  return true;
}

// One request.
bool HttpServer::Answer(Client* client) {
  if (client->events || client->close || client->sent < client->out.size() || client->left > 0) return true;
  HttpRequest request;
  const int status = TakeRequest(&client->in, &request);
  client->more = status != 0 && !client->in.empty();
  if (status == 0) return true;
  HttpResponse response;
  if (status == 200) {
    response = handler_(request);
  } else {
    response.status = status;
    response.body = status == 405 ? "only GET: this page changes nothing\n" : "this is no request that is understood\n";
  }
  uint64_t length = response.body.size();
  if (!response.file.empty()) {
    client->file = OpenPlain(response.file, &length);
    if (!client->file) response = {.status = 404, .body = "it is no longer there\n"};
    if (!client->file) length = response.body.size();
  }
  if (status == 405) response.headers["Allow"] = "GET, HEAD";
  const bool listens = response.events && request.method != "HEAD";
  client->close = status != 200 || !request.keep_alive || (response.events && !listens);
  client->events = listens;
  if (listens) client->in.clear();
  client->more = client->more && !listens;
  client->out = ResponseHead(response, length, !client->close);
  client->sent = 0;
  if (request.method == "HEAD") {
    client->file.reset();
  } else {
    client->out += response.body;
    client->left = client->file ? length : 0;
  }
  client->since = Now();
  return Write(client);
}

bool HttpServer::Write(Client* client) {
  while (true) {
    if (client->sent == client->out.size()) {
      if (!client->out.empty()) std::string().swap(client->out);
      client->sent = 0;
      if (client->left == 0) break;
      client->out.resize(std::min<uint64_t>(kFilePiece, client->left));
      const ssize_t n = ::read(client->file.get(), client->out.data(), client->out.size());
      if (n <= 0) return false;  // it became shorter: the client sees that bytes are missing
      client->out.resize(static_cast<size_t>(n));
      client->left -= static_cast<uint64_t>(n);
      continue;
    }
    const ssize_t n =
        ::send(client->fd.get(), client->out.data() + client->sent, client->out.size() - client->sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    client->sent += static_cast<size_t>(n);
    client->since = Now();
  }
  client->file.reset();
  return !client->close;
}

void HttpServer::Broadcast(const std::string& event) {
  std::vector<int> gone;
  for (auto& [fd, client] : clients_) {
    if (!client->events || client->sent < client->out.size()) continue;
    client->out = event;
    client->sent = 0;
    client->since = Now();
    if (Write(client.get())) {
      Expect(*client);
    } else {
      gone.push_back(fd);
    }
  }
  for (int fd : gone) Drop(fd);
}

size_t HttpServer::listeners() const {
  return static_cast<size_t>(
      std::count_if(clients_.begin(), clients_.end(), [](const auto& item) { return item.second->events; }));
}

void HttpServer::Drop(int fd) {
  loop_->Unwatch(fd);
  clients_.erase(fd);
}

void HttpServer::Sweep() {
  std::vector<int> late;
  for (const auto& [fd, client] : clients_) {
    const bool writing = client->sent < client->out.size() || client->left > 0;
    if (client->events && !writing) continue;
    const Millis limit = writing ? limits_.write : client->in.empty() ? limits_.idle : limits_.request;
    if (Now() - client->since > limit) late.push_back(fd);
  }
  for (int fd : late) Drop(fd);
  sweep_ = loop_->After(std::clamp(limits_.write / 4, Millis(10), Millis(1000)), [this] { Sweep(); });
}

}  // namespace lockstep::watch
