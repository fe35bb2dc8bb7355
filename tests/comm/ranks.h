// Ranks as threads of one process: each has its own communicator, over loopback, unix sockets and shared memory as real
// ranks have. Nodes are told apart by name. And ranks as processes, for those that are killed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/sockets.h"
#include "comm/communicator.h"

namespace lockstep::comm {

// A port outside of the range from which the system hands out ports by itself, so that nobody gets it by accident.
inline int FreePort() {
  static std::atomic<int> counter{0};
  while (true) {
    const int port = 20000 + (static_cast<int>(getpid()) * 61 + counter++) % 12000;
    if (Listen(port).ok()) return port;
  }
}

// One node unless `nodes` names one per rank.
inline Bootstrap MakeBootstrap(int rank, int size, int port, const std::vector<std::string>& nodes = {}) {
  Bootstrap me;
  me.rank = rank;
  me.size = size;
  me.master_addr = "127.0.0.1";
  me.master_port = port;
  me.node = nodes.empty() ? "n" : nodes[static_cast<size_t>(rank)];
  return me;
}

inline Options Patient(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  Options options;
  options.timeout = timeout;
  return options;
}

using Body = std::function<void(Communicator&)>;

inline void RunRanks(int size, const std::vector<std::string>& nodes, const Options& options, const Body& body) {
  const int port = FreePort();
  std::vector<std::thread> threads;
  std::latch connected(size);  // a body that fails on purpose must not reach a rank that is still connecting
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm = Communicator::Connect(MakeBootstrap(rank, size, port, nodes), options);
      connected.arrive_and_wait();
      ASSERT_TRUE(comm.ok()) << comm.status().ToString();
      body(**comm);
    });
  }
  for (auto& thread : threads) thread.join();
}

inline void RunRanks(int size, const Body& body) { RunRanks(size, {}, Patient(), body); }

// Ranks as processes. Each runs `body`, whose text comes back when it ends; a killed one has none.
class Processes {
 public:
  using Run = std::function<std::string(int rank)>;
  Processes(int size, const Run& body) {
    for (int rank = 0; rank < size; ++rank) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      const pid_t pid = fork();
      if (pid == 0) {
        close(ends[0]);
        alarm(30);  // whatever happens, nothing is left behind
        const std::string text = body(rank);
        (void)!write(ends[1], text.data(), text.size());
        _exit(0);
      }
      close(ends[1]);
      pids_.push_back(pid);
      reads_.push_back(ends[0]);
    }
  }
  ~Processes() {
    for (size_t r = 0; r < pids_.size(); ++r) {
      if (pids_[r] > 0) {
        kill(pids_[r], SIGKILL);
        waitpid(pids_[r], nullptr, 0);
      }
      close(reads_[r]);
    }
  }
  void Signal(int rank, int signal) { kill(pids_[static_cast<size_t>(rank)], signal); }
  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  std::string Text(int rank) {
    std::string text;
    char bytes[4096];
    for (ssize_t got; (got = read(reads_[static_cast<size_t>(rank)], bytes, sizeof bytes)) > 0;) {
      text.append(bytes, static_cast<size_t>(got));
    }
    waitpid(pids_[static_cast<size_t>(rank)], nullptr, 0);
    pids_[static_cast<size_t>(rank)] = -1;
    return text;
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> reads_;
};

}  // namespace lockstep::comm
