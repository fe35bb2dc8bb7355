// Requests as clients and attackers send them, and a server whose clients do not behave.
#include "watch/web/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/sockets.h"
#include "watch/web/http_server.h"
#include "watch/web/serve.h"
#include "watch/web/site.h"

namespace lockstep::watch {
namespace {

TEST(HttpRequests, AreTakenWholeOrRefused) {
  struct Case {
    std::string text;
    int status;
    std::string path, query;  // of "a"
  };
  const std::string host = "Host: x\r\n\r\n";
  const Case cases[] = {
      {"GET / HTTP/1.1\r\n" + host, 200, "/", ""},
      {"HEAD /a%20b?a=1%2B+2&b HTTP/1.0\r\n\r\n", 200, "/a b", "1+ 2"},
      {"GET / HTTP/1.1\r\nHost: x", 0, "", ""},
      {"", 0, "", ""},
      {"POST / HTTP/1.1\r\n" + host, 405, "/", ""},
      {"GET http://x/ HTTP/1.1\r\n" + host, 400, "", ""},
      {"GET /%zz HTTP/1.1\r\n" + host, 400, "", ""},
      {"GET /%00 HTTP/1.1\r\n" + host, 400, "", ""},
      {"GET /?a=%0 HTTP/1.1\r\n" + host, 400, "", ""},
      {"GET /a b HTTP/1.1\r\n" + host, 400, "", ""},
      {"GET / HTTP/2\r\n" + host, 400, "", ""},
      {"GET\r\n\r\n", 400, "", ""},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, "", ""},
      {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400, "", ""},
      {"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400, "", ""},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "", ""},
      {"GET /" + std::string(20'000, 'a'), 431, "", ""},
      {"GET /" + std::string(20'000, 'a') + " HTTP/1.1\r\n\r\n", 431, "", ""},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.text.substr(0, 60));
    std::string buffer = one.text;
    HttpRequest request;
    EXPECT_EQ(TakeRequest(&buffer, &request), one.status);
    if (one.status == 200) {
      EXPECT_EQ(request.path, one.path);
      EXPECT_EQ(request.Query("a"), one.query);
      EXPECT_TRUE(buffer.empty());
    }
  }
  std::string two =
      "GET /1 HTTP/1.1\r\nCookie: a=1; lockstep_watch=xyz\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\n";
  HttpRequest request;
  EXPECT_EQ(TakeRequest(&two, &request), 200);
  EXPECT_EQ(request.Cookie("lockstep_watch"), "xyz");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_EQ(TakeRequest(&two, &request), 200);
  EXPECT_EQ(request.path, "/2");
  EXPECT_FALSE(request.keep_alive);
}

TEST(HttpRequests, LoopbackHostsAreToldFromForeignNames) {
  for (const char* host : {"localhost", "localhost:7077", "127.0.0.1:1", "127.0.0.1", "[::1]:80"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example", "10.0.0.1:7077", "[2001:db8::1]"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

TEST(HttpRequests, AddressesAreReadAsPeopleWriteThem) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& one :
       {Case{"", "127.0.0.1", 7077}, Case{":0", "127.0.0.1", 0}, Case{"8080", "127.0.0.1", 8080},
        Case{"0.0.0.0:81", "0.0.0.0", 81}, Case{"0.0.0.0", "0.0.0.0", 7077}, Case{"[::1]:5", "::1", 5}}) {
    const Result<ServeOptions> options = ParseHttp(one.text);
    ASSERT_TRUE(options.ok()) << one.text;
    EXPECT_EQ(options->host, one.host);
    EXPECT_EQ(options->port, one.port);
  }
  for (const char* text : {":x", "a:70000", ":"}) EXPECT_FALSE(ParseHttp(text).ok()) << text;
}

// A server in this thread's loop, and clients that are plain sockets.
class Served : public testing::Test {
 protected:
  void Start(HttpLimits limits) {
    server_.emplace(&loop_, Answer, limits);
    const Result<std::string> address = server_->Listen("127.0.0.1", 0);
    ASSERT_TRUE(address.ok()) << address.status().ToString();
    port_ = ParseHostPort(*address)->port;
  }
  static HttpResponse Answer(const HttpRequest& request) {
    if (request.path == "/large") return {.body = std::string(8u << 20, 'x')};
    if (request.path == "/events") return {.type = "text/event-stream", .body = "data: 0\n\n", .events = true};
    return {.body = "hello " + request.path};
  }
  UniqueFd Client(const std::string& text) {
    Result<UniqueFd> fd = Connect("127.0.0.1", port_, Now() + Millis(5000));
    EXPECT_TRUE(fd.ok());
    EXPECT_TRUE(SendAll(fd->get(), text.data(), text.size(), Now() + Millis(5000)).ok());
    return std::move(*fd);
  }
  void Turn() { loop_.RunOnce(Millis(1)); }
  // Everything until the server closes or `wanted` has arrived.
  std::string Received(int fd, const std::string& wanted) {
    std::string text;
    for (TimePoint until = Now() + Millis(20'000); Now() < until && text.find(wanted) == std::string::npos;) {
      Turn();
      std::string buffer(1u << 20, 0);
      const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n == 0) return text + "<closed>";
      if (n > 0) text.append(buffer, 0, static_cast<size_t>(n));
    }
    return text;
  }
  template <typename F>
  bool Until(F done) {
    for (TimePoint until = Now() + Millis(20'000); !done() && Now() < until;) Turn();
    return done();
  }

  Loop loop_;
  std::optional<HttpServer> server_;
  int port_ = 0;
};

TEST_F(Served, RequestsInPiecesAndBehindEachOther) {
  Start({});
  const UniqueFd client = Client("GET /a HT");
  Turn();
  const std::string rest = "TP/1.1\r\n\r\nGET /b HTTP/1.1\r\nConnection: close\r\n\r\n";
  EXPECT_TRUE(SendAll(client.get(), rest.data(), rest.size(), Now() + Millis(1000)).ok());
  const std::string text = Received(client.get(), "<never>");
  EXPECT_THAT(text, testing::HasSubstr("hello /a"));
  EXPECT_THAT(text, testing::HasSubstr("hello /b"));
  EXPECT_THAT(text, testing::EndsWith("<closed>"));
}

TEST_F(Served, EveryKindOfClientIsAnsweredAndLeft) {
  Start({});
  struct Case {
    const char* request;
    bool ends;  // its side of the connection, behind the request
    const char* has;
    const char* lacks;
  };
  for (const Case& one :
       {Case{"GET /a HTTP/1.1\r\n\r\n", true, "hello /a", "never"},
        Case{"GET /large HTTP/1.1\r\n\r\n", true, "xxxx", "never"}, Case{"GET /half HTTP", true, "", "hello"},
        Case{"HEAD /events HTTP/1.1\r\n\r\n", false, "text/event-stream", "data: 0"},
        Case{"POST / HTTP/1.1\r\n\r\n", false, "Allow: GET, HEAD", "hello"}}) {
    SCOPED_TRACE(one.request);
    const UniqueFd client = Client(one.request);
    if (one.ends) ::shutdown(client.get(), SHUT_WR);
    const std::string text = Received(client.get(), "<never>");
    EXPECT_THAT(text, testing::AllOf(testing::HasSubstr(one.has), testing::Not(testing::HasSubstr(one.lacks)),
                                     testing::EndsWith("<closed>")));
  }
  EXPECT_TRUE(Until([&] { return server_->connections() == 0; }));
}

TEST_F(Served, ClientsThatNeverReadOrNeverAskAreDroppedAndDelayNobody) {
  Start({.connections = 8, .request = Millis(600), .idle = Millis(600), .write = Millis(600)});
  std::vector<UniqueFd> stuck;
  for (int i = 0; i < 4; ++i) stuck.push_back(Client("GET /large HTTP/1.1\r\n\r\n"));
  stuck.push_back(Client("GET /half HTTP/1.1\r\n"));
  stuck.push_back(Client(""));
  EXPECT_TRUE(Until([&] { return server_->connections() == stuck.size(); }));
  const UniqueFd good = Client("GET /good HTTP/1.1\r\n\r\n");
  EXPECT_THAT(Received(good.get(), "/good"), testing::HasSubstr("hello /good"));
  EXPECT_TRUE(Until([&] { return server_->connections() == 0; }));
}

TEST_F(Served, MoreConnectionsThanAllowedAreRefusedAtOnce) {
  Start({.connections = 2});
  const UniqueFd first = Client(""), second = Client("");
  EXPECT_TRUE(Until([&] { return server_->connections() == 2; }));
  const UniqueFd third = Client("");
  EXPECT_THAT(Received(third.get(), "<never>"), testing::HasSubstr("503"));
  EXPECT_EQ(server_->connections(), 2u);
}

TEST_F(Served, EventsReachListenersAndPassOverThoseThatDoNotRead) {
  Start({.write = Millis(50)});
  const UniqueFd reads = Client("GET /events HTTP/1.1\r\n\r\n"), sleeps = Client("GET /events HTTP/1.1\r\n\r\n");
  EXPECT_THAT(Received(reads.get(), "data: 0\n\n"), testing::HasSubstr("text/event-stream"));
  EXPECT_TRUE(Until([&] { return server_->listeners() == 2; }));
  const std::string event = "data: " + std::string(1u << 20, 'e') + "\n\n";
  for (int i = 0; i < 12; ++i) {
    server_->Broadcast(event);
    if (!reads) break;
    Received(reads.get(), "e\n\n");
  }
  EXPECT_TRUE(Until([&] { return server_->listeners() == 1; }));
  server_->Broadcast("data: last\n\n");
  EXPECT_THAT(Received(reads.get(), "data: last"), testing::HasSubstr("data: last"));
}

TEST_F(Served, WhatAListenerSaysIsReadAndForgotten) {
  Start({});
  const UniqueFd talks = Client("GET /events HTTP/1.1\r\n\r\n" + std::string(64u << 10, 'x'));
  EXPECT_THAT(Received(talks.get(), "data: 0\n\n"), testing::HasSubstr("data: 0"));
  const std::string piece(1u << 20, 'x');
  size_t sent = 0;
  EXPECT_TRUE(Until([&] {
    const ssize_t n = ::send(talks.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    sent += n > 0 ? static_cast<size_t>(n) : 0;
    return sent > 32 * piece.size();
  }));
  server_->Broadcast("data: last\n\n");
  EXPECT_THAT(Received(talks.get(), "data: last"), testing::HasSubstr("data: last"));
}

TEST_F(Served, APortInUseSaysSo) {
  Start({});
  HttpServer other(&loop_, Answer);
  const Result<std::string> address = other.Listen("127.0.0.1", port_);
  ASSERT_FALSE(address.ok());
  EXPECT_THAT(address.status().ToString(), testing::HasSubstr("EADDRINUSE"));
  EXPECT_THAT(address.status().hint(), testing::HasSubstr("--http :0"));
}

}  // namespace
}  // namespace lockstep::watch
