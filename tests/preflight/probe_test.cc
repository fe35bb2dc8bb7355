// Probes over loopback: what they reach, what they do not, and that nobody without the secret gets an answer.
#include "preflight/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sockets.h"

namespace lockstep::preflight {
namespace {

Target Towards(const Probe& probe) {
  return {1, "127.0.0.1", probe.secret(), probe.port(), probe.udp_port(), probe.range_ports()};
}

TEST(Probe, IsReachedOnEveryPortItOpensWithPacketsOfTheGivenSize) {
  auto probe = Probe::Open({{20000, 24000}, {24001, 32000}});
  ASSERT_TRUE(probe.ok());
  ASSERT_EQ((*probe)->range_ports().size(), 2u);
  const auto reached = ReachAll({Towards(**probe)}, 1500, Millis(10000));
  ASSERT_EQ(reached.size(), 1u);
  EXPECT_EQ(reached[0].trouble, "");
  EXPECT_TRUE(reached[0].closed.empty());
  EXPECT_GT(reached[0].round_trip, 0);
  EXPECT_EQ(reached[0].mtu_sent, 1500);
  EXPECT_EQ(reached[0].mtu_through, 1500);
}

TEST(Probe, APacketLargerThanTheInterfaceIsLostAndTheLargestThatPassesIsFound) {
  auto probe = Probe::Open({});
  ASSERT_TRUE(probe.ok());
  const auto reached = ReachAll({Towards(**probe)}, 65536 + 28, Millis(10000));  // loopback carries 65536
  EXPECT_TRUE(reached[0].udp);
  EXPECT_EQ(reached[0].mtu_through, 9000);
}

TEST(Probe, AClosedPortSaysSo) {
  auto probe = Probe::Open({});
  ASSERT_TRUE(probe.ok());
  int closed = 0;
  {
    auto listener = Listen(0, true);
    closed = LocalPort(listener->get());
  }
  Target target = Towards(**probe);
  target.range_ports = {closed};
  const auto reached = ReachAll({target}, 0, Millis(5000));
  EXPECT_EQ(reached[0].trouble, "");
  ASSERT_EQ(reached[0].closed.size(), 1u);
  EXPECT_THAT(reached[0].closed[0].second, ::testing::HasSubstr("refused"));
  EXPECT_EQ(reached[0].mtu_sent, 0);
}

TEST(Probe, SomebodyElseOnThePortIsNotTakenForTheProbe) {
  auto probe = Probe::Open({});
  ASSERT_TRUE(probe.ok());
  Target target = Towards(**probe);
  target.secret = std::string(32, 'x');
  const auto reached = ReachAll({target}, 1500, Millis(5000));
  EXPECT_THAT(reached[0].trouble, ::testing::HasSubstr("something else answers"));
}

TEST(Probe, MeasuresAStreamThereAndBack) {
  auto probe = Probe::Open({});
  ASSERT_TRUE(probe.ok());
  auto rate = MeasureRate(Towards(**probe), Millis(50));
  ASSERT_TRUE(rate.ok()) << rate.status().ToString();
  EXPECT_GT(rate->forth, 1e6);
  EXPECT_GT(rate->back, 1e6);
}

TEST(Probe, EndsWhileClientsAreConnected) {
  auto probe = Probe::Open({});
  ASSERT_TRUE(probe.ok());
  auto fd = Connect("127.0.0.1", (*probe)->port(), Now() + Millis(5000));
  ASSERT_TRUE(fd.ok());
  probe->reset();
}

}  // namespace
}  // namespace lockstep::preflight
