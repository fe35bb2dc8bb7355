#include "launch/store_server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/sockets.h"
#include "sanitized.h"

namespace lockstep::launch {
namespace {

class StoreServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto listener = Listen(0, /*loopback_only=*/true);
    ASSERT_TRUE(listener.ok());
    port_ = LocalPort(listener->get());
    server_ = std::make_unique<StoreServer>(loop_, std::move(*listener),
                                            [this](const std::string& text) { said_.push_back(text); });
  }

  Result<UniqueFd> Open() const { return Connect("127.0.0.1", port_, Now() + Millis(10000)); }
  static void Send(const UniqueFd& client, const std::string& bytes) {
    ASSERT_TRUE(SendAll(client.get(), bytes.data(), bytes.size(), Now() + Millis(10000)).ok());
  }
  // Bytes that have come, after turns of the loop until `size` of them are there or the server has closed.
  std::string Get(const UniqueFd& client, size_t size) {
    std::string got;
    const TimePoint deadline = Now() + Millis(20000);
    while (got.size() < size && Now() < deadline) {
      loop_.RunOnce(Millis(5));
      char buffer[65536];
      const ssize_t more = recv(client.get(), buffer, std::min(sizeof buffer, size - got.size()), MSG_DONTWAIT);
      if (more == 0) break;
      if (more > 0) got.append(buffer, static_cast<size_t>(more));
    }
    return got;
  }
  std::string Ping(const UniqueFd& client) {
    Send(client, std::string("\x0d"
                             "abcd",
                             5));
    return Get(client, 4);
  }

  const std::string hello_{"\0\xCE\xF7\x85\x3C", 5};
  Loop loop_;
  int port_ = 0;
  std::vector<std::string> said_;
  std::unique_ptr<StoreServer> server_;
};

#ifndef LOCKSTEP_SANITIZED  // its checks need descriptors themselves
TEST_F(StoreServerTest, ConnectionsThatFindNoDescriptorAreServedWhenThereIsOne) {
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 20; ++i) {
    auto client = Open();
    ASSERT_TRUE(client.ok());
    Send(*client, hello_);
    clients.push_back(std::move(*client));
  }
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const UniqueFd next(dup(0));
  const rlimit few{static_cast<rlim_t>(next.get()) + 4, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int i = 0; i < 20; ++i) loop_.RunOnce(Millis(1));
  EXPECT_LT(server_->clients(), 20u);
  clients.erase(clients.begin(), clients.begin() + 10);
  // Those that were served have gone, so that the rest can be.
  for (const UniqueFd& client : clients) EXPECT_EQ(Ping(client), "abcd");
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("ulimit -n"), std::string::npos);
}
#endif

TEST_F(StoreServerTest, TheOldestStrangerMakesRoom) {
  const UniqueFd first = *Open();
  const UniqueFd friendly = *Open();
  Send(friendly, hello_);
  EXPECT_EQ(Ping(friendly), "abcd");
  std::vector<UniqueFd> strangers;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit many{limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &many);
  for (int i = 0; i < 1024; ++i) {
    auto client = Open();
    ASSERT_TRUE(client.ok()) << client.status().message();
    strangers.push_back(std::move(*client));
    if (i % 64 == 0) loop_.RunOnce(Millis(0));
  }
  char byte = 0;
  const TimePoint deadline = Now() + Millis(20000);
  ssize_t got = -1;
  while (got < 0 && Now() < deadline) {
    loop_.RunOnce(Millis(5));
    got = recv(first.get(), &byte, 1, MSG_DONTWAIT);
  }
  EXPECT_EQ(got, 0) << "closed";
  EXPECT_EQ(Ping(friendly), "abcd");
  EXPECT_EQ(server_->clients(), 1025u);
}

TEST_F(StoreServerTest, OfManyRefusedClientsTwentyAreReported) {
  for (int i = 0; i < 25; ++i) {
    const UniqueFd client = *Open();
    Send(client, "GET /");
    EXPECT_EQ(Get(client, 1), "");
  }
  ASSERT_EQ(said_.size(), 20u);
  EXPECT_NE(said_.back().find("further ones are not reported"), std::string::npos);
  EXPECT_EQ(server_->clients(), 0u);
}

}  // namespace
}  // namespace lockstep::launch
