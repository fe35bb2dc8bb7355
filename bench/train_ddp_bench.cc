// What a step costs more on two ranks than alone: a multilayer perceptron, gradients reset, forward, loss, backward,
// gradients of all ranks there. No optimizer. In one process per rank, in turns, block by block:
//
//   alone     every rank computes for itself, at the same time (so both cores are busy, as in the others)
//   ours      our Ddp over our communicator
//   unreduced our Ddp with the exchange switched off: the share of flat buffers and hooks in what it adds
//   reducer   c10d's Reducer over our communicator (gradient_as_bucket_view)
//
// One JSON object: per mode the median step of every block, in seconds, on rank 0; and the exposed part of ours.
//
//   train_ddp_bench WIDTH [LAYERS [BATCH [BLOCKS [STEPS [RANKS [BUCKET_BYTES]]]]]]
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/sockets.h"
#include "engine/c10d_reducer.h"
#include "engine/ddp.h"

namespace lockstep::engine {
namespace {

struct Shape {
  int64_t width = 256, layers = 8, batch = 64;
  int blocks = 10, steps = 30, ranks = 2;
  uint64_t bucket = StrategyConfig().bucket_bytes;
};

torch::nn::Sequential Perceptron(const Shape& shape) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < shape.layers; ++i) {
    if (i > 0) net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Linear(shape.width, shape.width));
  }
  return net;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.ToString());
  std::_Exit(1);
}

struct Replica {
  Replica(const Shape& shape, Ranks* ranks, bool reduce)
      : share(1.0 / shape.ranks),
        net(Perceptron(shape)),
        flat(*FlatParameters::Create(
            *net, [&](int64_t n) { return ranks->tensors().AllocateFlat(n, at::kFloat, at::kCPU); },
            StorageFor(Config(shape, reduce), *ranks))),
        ddp(Config(shape, reduce), &flat, ranks) {}
  static StrategyConfig Config(const Shape& shape, bool reduce) {
    StrategyConfig config;
    config.bucket_bytes = shape.bucket;
    config.reduce = reduce;
    return config;
  }
  void Step(const at::Tensor& x, const at::Tensor& y) {
    ddp.BeginStep();
    ddp.BeginBackward(/*last=*/true);
    at::mse_loss(net->forward(x), y).mul(share).backward();
    Must(ddp.EndBackward(ParallelStrategy::Backward::kDone));
    Must(ddp.FinishGradients());
  }

  double share;
  torch::nn::Sequential net;
  FlatParameters flat;
  Ddp ddp;
};

void Rank(int rank, int port, const Shape& shape) {
  at::set_num_threads(1);
  comm::Bootstrap me;
  me.rank = me.local_rank = rank;
  me.size = me.local_size = shape.ranks;
  me.master_port = port;
  auto comm = comm::TensorCommunicator::Create(me, {}, comm::Backend::kHost, at::kCPU);
  Must(comm.status());
  Ranks ranks(*comm);
  const at::Tensor x = at::rand({shape.batch, shape.width});
  const at::Tensor y = at::rand({shape.batch, shape.width});

  torch::nn::Sequential plain = Perceptron(shape);
  const auto alone = [&] {
    plain->zero_grad();
    at::mse_loss(plain->forward(x), y).backward();
  };

  Replica replica(shape, &ranks, /*reduce=*/true);
  Replica unreduced(shape, &ranks, /*reduce=*/false);
  std::vector<double> exposed;
  const auto ours = [&] {
    replica.Step(x, y);
    exposed.push_back(replica.ddp.exposed_seconds());
  };

  torch::nn::Sequential other = Perceptron(shape);
  auto group = comm::MakeProcessGroup(*comm);
  auto made = MakeReducer(other->parameters(), group, /*gradient_as_bucket_view=*/true);
  const auto reducer = [&] {
    other->zero_grad();
    ReducerStep(*made, [&] { return at::mse_loss(other->forward(x), y); });
  };

  const std::vector<std::pair<const char*, std::function<void()>>> modes = {
      {"alone", alone}, {"ours", ours}, {"unreduced", [&] { unreduced.Step(x, y); }}, {"reducer", reducer}};
  std::vector<std::vector<double>> medians(modes.size());
  for (int block = -1; block < shape.blocks; ++block) {  // the first is for warming up
    for (size_t mode = 0; mode < modes.size(); ++mode) {
      Must(ranks.Barrier());
      std::vector<double> times;
      for (int step = 0; step < shape.steps; ++step) {
        const TimePoint start = Now();
        modes[mode].second();
        times.push_back(SecondsSince(start));
      }
      if (block >= 0) medians[mode].push_back(Median(times));
    }
  }
  Must(ranks.Barrier());
  if (rank != 0) return;
  fmt::print("{{\"parameters\": {}, \"exposed\": {:.9f}", replica.flat.count(), Median(exposed));
  for (size_t mode = 0; mode < modes.size(); ++mode) {
    fmt::print(", \"{}\": [{:.9f}]", modes[mode].first, fmt::join(medians[mode], ", "));
  }
  fmt::print("}}\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace lockstep::engine

int main(int argc, char** argv) {
  lockstep::engine::Shape shape;
  const auto argument = [&](int at, int64_t value) { return argc > at ? std::atoll(argv[at]) : value; };
  shape.width = argument(1, shape.width);
  shape.layers = argument(2, shape.layers);
  shape.batch = argument(3, shape.batch);
  shape.blocks = static_cast<int>(argument(4, shape.blocks));
  shape.steps = static_cast<int>(argument(5, shape.steps));
  shape.ranks = static_cast<int>(argument(6, shape.ranks));
  shape.bucket = static_cast<uint64_t>(argument(7, static_cast<int64_t>(shape.bucket)));
  const int port = lockstep::LocalPort(lockstep::Listen(0, true)->get());
  for (int rank = 0; rank < shape.ranks; ++rank) {
    if (fork() == 0) {
      lockstep::engine::Rank(rank, port, shape);
      std::exit(0);
    }
  }
  int failed = 0;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    int status = 0;
    wait(&status);
    failed += status != 0;
  }
  return failed == 0 ? 0 : 1;
}
