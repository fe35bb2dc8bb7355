#include "launch/ports.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "base/fd.h"

namespace lockstep::launch {
namespace {

using testing::HasSubstr;

// A listener on a port the kernel chose; family and address as asked.
struct Listener {
  UniqueFd fd;
  int port = 0;
};

Listener ListenOn(int family, bool loopback) {
  Listener out{UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (family == AF_INET6) {
    auto* address = reinterpret_cast<sockaddr_in6*>(&storage);
    address->sin6_family = AF_INET6;
    if (loopback) address->sin6_addr = in6addr_loopback;
    length = sizeof *address;
  } else {
    auto* address = reinterpret_cast<sockaddr_in*>(&storage);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    length = sizeof *address;
  }
  if (!out.fd.valid() || ::bind(out.fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
      ::listen(out.fd.get(), 1) != 0)
    return {};
  ::getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&storage), &length);
  out.port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                      : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
  return out;
}

TEST(Ports, NoPortIsGivenTwice) {
  PortPicker picker;
  std::set<int> ports;
  for (int i = 0; i < 50; ++i) {
    const Result<int> port = picker.Next();
    ASSERT_TRUE(port.ok()) << port.status().ToString();
    EXPECT_TRUE(ports.insert(*port).second) << *port;
  }
}

TEST(Ports, WithoutARangeThePortIsOutsideTheEphemeralOneWherePossible) {
  const auto [low, high] = EphemeralRange();
  if (low <= 20100 && high >= 65000) GTEST_SKIP() << "this kernel uses nearly all ports";
  PortPicker picker;
  for (int i = 0; i < 10; ++i) {
    const Result<int> port = picker.Next();
    ASSERT_TRUE(port.ok());
    EXPECT_TRUE(*port < low || *port > high) << *port;
  }
}

TEST(Ports, ARangeIsKeptAndAPortInUseOrAvoidedIsPassedOver) {
  // A listener somewhere in the middle of the range.
  Listener busy = ListenOn(AF_INET, false);
  ASSERT_GT(busy.port, 1);
  PortPicker picker(std::make_pair(busy.port - 1, busy.port));
  std::set<int> ports;
  for (Result<int> port = picker.Next(); port.ok(); port = picker.Next()) ports.insert(*port);
  EXPECT_FALSE(ports.contains(busy.port));
  const Result<int> none = PortPicker(std::make_pair(busy.port, busy.port)).Next();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kEnvironment);
  EXPECT_THAT(none.status().message(), AllOf(HasSubstr("no free port"), HasSubstr("in use by pid")));

  const int port = busy.port;
  busy.fd.reset();
  EXPECT_FALSE(PortPicker(std::make_pair(port, port)).Next(/*avoid=*/port).ok());
}

TEST(Ports, AListenerOnAnyInterfaceOrFamilyBlocksThePort) {
  for (const int family : {AF_INET, AF_INET6}) {
    for (const bool loopback : {false, true}) {
      const Listener busy = ListenOn(family, loopback);
      if (!busy.fd.valid()) continue;  // no IPv6 here
      EXPECT_THAT(ProbePort(busy.port).message(), HasSubstr("is in use by pid")) << family << loopback;
    }
  }
}

TEST(Ports, TheOwnerIsNamedByPidAndCommand) {
  const Listener busy = ListenOn(AF_INET, true);
  ASSERT_GT(busy.port, 0);
  const std::string owner = PortOwner(busy.port);
  EXPECT_THAT(owner, HasSubstr("pid " + std::to_string(::getpid()) + " ("));
  EXPECT_EQ(ProbePort(busy.port).message(), "port " + std::to_string(busy.port) + " is in use by " + owner);
}

TEST(Ports, APortWithoutAListenerHasNoOwner) {
  Listener gone = ListenOn(AF_INET, true);
  gone.fd.reset();
  EXPECT_EQ(PortOwner(gone.port), "");
}

TEST(Ports, AnImpossiblePortIsAUsageError) {
  EXPECT_EQ(ProbePort(0).code(), Code::kUsage);
  EXPECT_EQ(ProbePort(70000).code(), Code::kUsage);
}

}  // namespace
}  // namespace lockstep::launch
