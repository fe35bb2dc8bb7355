#include "base/sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TimePoint Soon() { return Now() + Millis(10000); }

TEST(Sockets, HostAndPortAreParsedStrictly) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& c : {Case{"a", "a", -1}, Case{"a:1", "a", 1}, Case{"[::1]:5", "::1", 5}, Case{"[::1]", "::1", -1},
                        Case{"fe80::1", "fe80::1", -1}, Case{"h:0", "h", 0}, Case{"h:65535", "h", 65535}}) {
    auto parsed = ParseHostPort(c.text);
    ASSERT_TRUE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed->host, c.host);
    EXPECT_EQ(parsed->port, c.port);
  }
  for (const char* bad : {"", ":5", "a:", "a:65536", "a:x", "a:-1", "[::1", "[::1]x", "[::1]:", "a:1 "}) {
    EXPECT_FALSE(ParseHostPort(bad).ok()) << bad;
  }
}

TEST(Sockets, BytesGoBothWays) {
  auto listener = Listen(0, true);
  ASSERT_TRUE(listener.ok());
  const int port = LocalPort(listener->get());
  std::thread client([port] {
    auto fd = Connect("127.0.0.1", port, Soon());
    ASSERT_TRUE(fd.ok());
    ASSERT_TRUE(SendAll(fd->get(), "ping", 4, Soon()).ok());
    char answer[4];
    ASSERT_TRUE(ReceiveAll(fd->get(), answer, 4, Soon()).ok());
    EXPECT_EQ(std::string(answer, 4), "pong");
  });
  UniqueFd fd;
  while (!fd) fd.reset(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  char text[4];
  ASSERT_TRUE(ReceiveAll(fd.get(), text, 4, Soon()).ok());
  ASSERT_TRUE(SendAll(fd.get(), "pong", 4, Soon()).ok());
  client.join();
}

TEST(Sockets, APeerThatSaysNothingEndsAtTheDeadline) {
  auto listener = Listen(0, true);
  ASSERT_TRUE(listener.ok());
  auto fd = Connect("127.0.0.1", LocalPort(listener->get()), Soon());
  ASSERT_TRUE(fd.ok());
  char byte;
  const Status status = ReceiveAll(fd->get(), &byte, 1, Now() + Millis(30));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("deadline"));
  const std::string much(64 << 20, 'x');
  EXPECT_THAT(SendAll(fd->get(), much.data(), much.size(), Now() + Millis(30)).message(), HasSubstr("deadline"));
}

TEST(Sockets, NobodyListeningIsRefusedByName) {
  int port = 0;
  {
    auto listener = Listen(0, true);
    ASSERT_TRUE(listener.ok());
    port = LocalPort(listener->get());
  }
  auto fd = Connect("127.0.0.1", port, Soon());
  ASSERT_FALSE(fd.ok());
  EXPECT_THAT(fd.status().message(), HasSubstr("ECONNREFUSED"));
  EXPECT_THAT(fd.status().message(), HasSubstr("127.0.0.1:" + std::to_string(port)));
}

TEST(Sockets, AHeldPortIsRefused) {
  auto first = Listen(0);
  ASSERT_TRUE(first.ok());
  auto second = Listen(LocalPort(first->get()));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kRendezvous);
  EXPECT_THAT(second.status().message(), HasSubstr("EADDRINUSE"));
}

TEST(Sockets, AWildcardListenerTakesBothFamilies) {
  auto listener = Listen(0);
  ASSERT_TRUE(listener.ok());
  for (const char* host : {"127.0.0.1", "::1"}) {
    EXPECT_TRUE(Connect(host, LocalPort(listener->get()), Soon()).ok()) << host;
  }
}

TEST(Sockets, LoopbackAndOwnAddressesAreKnown) {
  auto own = Resolve("127.0.0.1", 1);
  ASSERT_TRUE(own.ok());
  EXPECT_TRUE((*own)[0].IsLoopback());
  EXPECT_TRUE(IsLocal((*own)[0]));
  EXPECT_EQ((*own)[0].ToString(), "127.0.0.1:1");
  auto foreign = Resolve("203.0.113.7", 1);
  ASSERT_TRUE(foreign.ok());
  EXPECT_FALSE(IsLocal((*foreign)[0]));
}

TEST(Sockets, LoopbackNamesAreKnownWithoutALookup) {
  for (const char* name : {"localhost", "localhost.localdomain", "127.0.0.1", "127.0.1.1", "::1"}) {
    EXPECT_TRUE(IsLoopbackName(name)) << name;
  }
  for (const char* name : {"", "local", "10.0.0.1", "localhost2", "128.0.0.1"})
    EXPECT_FALSE(IsLoopbackName(name)) << name;
}

TEST(Sockets, AnUnresolvableNameSaysSo) {
  auto none = Resolve("no-such-host.invalid", 1);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("no-such-host.invalid"));
}

TEST(Sockets, AcknowledgedBytesAreNoSilence) {
  auto listener = Listen(0, true);
  ASSERT_TRUE(listener.ok());
  auto fd = Connect("127.0.0.1", LocalPort(listener->get()), Soon());
  ASSERT_TRUE(fd.ok());
  ASSERT_TRUE(SendAll(fd->get(), "x", 1, Soon()).ok());
  // Nobody accepted, nobody reads; the kernel acknowledges all the same.
  const TimePoint deadline = Soon();
  while (GetPeerState(fd->get()).waiting != 0) ASSERT_LT(Now(), deadline);
  EXPECT_TRUE(GetPeerState(fd->get()).known);
}

TEST(Sockets, APeerThatDoesNotReadIsToldFromOneThatDoesNotAnswer) {
  auto listener = Listen(0, true);
  ASSERT_TRUE(listener.ok());
  auto fd = Connect("127.0.0.1", LocalPort(listener->get()), Soon());
  ASSERT_TRUE(fd.ok());
  const std::string bytes(1 << 16, 'x');
  while (send(fd->get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  const TimePoint deadline = Soon();
  while (!GetPeerState(fd->get()).window_closed) ASSERT_LT(Now(), deadline);
  EXPECT_GT(GetPeerState(fd->get()).waiting, 0u);
}

}  // namespace
}  // namespace lockstep
