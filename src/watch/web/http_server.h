// A small HTTP server on an event loop: a bounded number of connections, of bytes waiting in each, and of time a client
// may take to ask or to read. A client that never reads costs its buffer until the limit and is then dropped; it delays
// nobody. Belongs to the loop's thread.
//
//   HttpServer server(&loop, [](const HttpRequest& request) { return HttpResponse{.body = "hello\n"}; });
//   Result<std::string> address = server.Listen("127.0.0.1", 0);
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/status.h"
#include "watch/web/http.h"

namespace lockstep::watch {

struct HttpLimits {
  size_t connections = 64;
  Millis request{10'000};  // from the first byte to the last of a request
  Millis idle{60'000};     // between two requests
  Millis write{15'000};    // without a byte that the client takes
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  HttpServer(Loop* loop, Handler handler, HttpLimits limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The address as it listens, "127.0.0.1:7077". Port 0: any free one.
  Result<std::string> Listen(const std::string& host, int port);

  // An event for every client of an event stream. One that has not yet read the last one is passed over: an event is a
  // state, the next one replaces it.
  void Broadcast(const std::string& event);
  size_t listeners() const;
  size_t connections() const { return clients_.size(); }

 private:
  struct Client {
    UniqueFd fd;
    std::string in, out;
    size_t sent = 0;    // of out
    UniqueFd file;      // what follows out
    uint64_t left = 0;  // of the file
    bool events = false, close = false;
    bool more = false;   // `in` may hold another request
    bool ended = false;  // it sends nothing any more, and may still read
    TimePoint since;     // of the wait for what comes next
  };

  void Accept();
  void Ready(int fd, uint32_t what);
  bool Read(Client* client);
  bool Answer(Client* client);
  bool Write(Client* client);
  void Expect(const Client& client);
  void Drop(int fd);
  void Sweep();

  Loop* loop_;
  Handler handler_;
  HttpLimits limits_;
  UniqueFd listener_;
  std::map<int, std::unique_ptr<Client>> clients_;
  Loop::TimerId sweep_ = 0;
};

}  // namespace lockstep::watch
