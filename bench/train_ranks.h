// What the benchmarks of several ranks have in common: a multilayer perceptron, one process of one thread per rank, and
// works that are timed in turns, block by block.
#pragma once

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/sockets.h"
#include "engine/ranks.h"

namespace lockstep::bench {

inline void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.ToString());
  std::_Exit(1);
}

inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Layer i is the module number 2 i.
inline torch::nn::Sequential Perceptron(int64_t width, int64_t layers) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < layers; ++i) {
    if (i > 0) net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Linear(width, width));
  }
  return net;
}

struct Work {
  const char* name;
  std::function<void()> step;
};

// Per work the median step of every block, in seconds.
inline std::vector<std::vector<double>> InTurns(engine::Ranks& ranks, const std::vector<Work>& works, int blocks,
                                                int steps) {
  std::vector<std::vector<double>> medians(works.size());
  for (int block = -1; block < blocks; ++block) {  // the first is for warming up
    for (size_t work = 0; work < works.size(); ++work) {
      Must(ranks.Barrier());
      std::vector<double> times;
      for (int step = 0; step < steps; ++step) {
        const TimePoint start = Now();
        works[work].step();
        times.push_back(SecondsSince(start));
      }
      if (block >= 0) medians[work].push_back(Median(times));
    }
  }
  Must(ranks.Barrier());
  return medians;
}

inline std::string AsJson(const std::vector<Work>& works, const std::vector<std::vector<double>>& medians) {
  std::string text;
  for (size_t work = 0; work < works.size(); ++work) {
    text += fmt::format(", \"{}\": [{:.9f}]", works[work].name, fmt::join(medians[work], ", "));
  }
  return text;
}

// Runs `rank` in `size` processes; the exit code.
inline int RunRanks(int size,
                    const std::function<void(engine::Ranks&, std::shared_ptr<comm::TensorCommunicator>)>& rank) {
  const int port = LocalPort(Listen(0, true)->get());
  for (int i = 0; i < size; ++i) {
    if (fork() != 0) continue;
    at::set_num_threads(1);
    comm::Bootstrap me;
    me.rank = me.local_rank = i;
    me.size = me.local_size = size;
    me.master_port = port;
    auto comm = comm::TensorCommunicator::Create(me, {}, comm::Backend::kHost, at::kCPU);
    Must(comm.status());
    engine::Ranks ranks(*comm);
    rank(ranks, *comm);
    std::fflush(stdout);
    std::exit(0);
  }
  int failed = 0;
  for (int i = 0; i < size; ++i) {
    int status = 0;
    wait(&status);
    failed += status != 0;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace lockstep::bench
