// Ranks as threads: each test thread is one rank with a communicator of its own, over loopback. Hundreds of cases in
// seconds; processes of their own are for tests that kill.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/torch/tensor_comm.h"
#include "engine/ranks.h"
#include "gtest/gtest.h"

namespace lockstep::engine {

inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

// Runs `work` on `world` ranks at once. `nodes` names the node of each rank where they are not all on one.
inline void OnRanks(int world, const std::function<void(Ranks&)>& work, const std::vector<std::string>& nodes = {}) {
  const int port = FreePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      comm::Bootstrap who;
      who.rank = who.local_rank = rank;
      who.size = who.local_size = world;
      who.master_port = port;
      if (!nodes.empty()) who.node = nodes[static_cast<size_t>(rank)];
      comm::Options options;
      options.timeout = std::chrono::seconds(60);
      auto comm = comm::TensorCommunicator::Create(who, options, comm::Backend::kHost, at::kCPU);
      ASSERT_TRUE(comm.ok()) << comm.status().ToString();
      Ranks ranks(*comm);
      work(ranks);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lockstep::engine
