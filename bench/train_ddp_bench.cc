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
#include <torch/types.h>

#include "engine/c10d_reducer.h"
#include "engine/ddp.h"
#include "train_ranks.h"

namespace lockstep::engine {
namespace {

using bench::Must;

struct Shape {
  int64_t width = 256, layers = 8, batch = 64;
  int blocks = 10, steps = 30, ranks = 2;
  uint64_t bucket = StrategyConfig().bucket_bytes;
};

struct Replica {
  Replica(const Shape& shape, Ranks* ranks, bool reduce)
      : share(1.0 / shape.ranks),
        net(bench::Perceptron(shape.width, shape.layers)),
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

void Rank(const Shape& shape, Ranks& ranks, const std::shared_ptr<comm::TensorCommunicator>& comm) {
  const at::Tensor x = at::rand({shape.batch, shape.width});
  const at::Tensor y = at::rand({shape.batch, shape.width});

  torch::nn::Sequential plain = bench::Perceptron(shape.width, shape.layers);
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

  torch::nn::Sequential other = bench::Perceptron(shape.width, shape.layers);
  auto group = comm::MakeProcessGroup(comm);
  auto made = MakeReducer(other->parameters(), group, /*gradient_as_bucket_view=*/true);
  const auto reducer = [&] {
    other->zero_grad();
    ReducerStep(*made, [&] { return at::mse_loss(other->forward(x), y); });
  };

  const std::vector<bench::Work> works = {
      {"alone", alone}, {"ours", ours}, {"unreduced", [&] { unreduced.Step(x, y); }}, {"reducer", reducer}};
  const auto medians = bench::InTurns(ranks, works, shape.blocks, shape.steps);
  if (!ranks.is_main()) return;
  fmt::print("{{\"parameters\": {}, \"exposed\": {:.9f}{}}}\n", replica.flat.count(), bench::Median(exposed),
             bench::AsJson(works, medians));
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
  return lockstep::bench::RunRanks(shape.ranks, [&](auto& ranks, auto comm) { Rank(shape, ranks, comm); });
}
