// What sharing a model costs a step under the stages of ZeRO, and what a rank then holds. A multilayer perceptron whose
// layers are the units; gradients reset, forward, loss, backward, own gradients there, parameters published. No
// optimizer. In one process per rank, in turns, block by block:
//
//   alone             every rank computes for itself, at the same time (so both cores are busy, as in the others)
//   stage0 .. stage3  our strategies; stage 0 is DDP
//
// One JSON object: per mode the median step of every block, in seconds, on rank 0.
//
//   train_zero_bench WIDTH [LAYERS [BATCH [BLOCKS [STEPS [RANKS]]]]]
//
// With `bytes` as the first word no step is timed: one step of every stage is run, with parameters in float32 and in
// bf16, and the object has what rank 0 holds afterwards, in bytes: the whole parameters, the whole gradients, the own
// values (the master copy), the own gradients, the optimizer's slots and the shards of ZeRO-3, each piece of memory
// once. Not in it: activations, and what stages 2 and 3 use again and again during a pass (three buckets of gradients,
// the units that are gathered).
#include <torch/types.h>

#include <set>
#include <string>

#include "engine/optimizer.h"
#include "engine/strategy.h"
#include "engine/unit_runner.h"
#include "train_ranks.h"

namespace lockstep::engine {
namespace {

using bench::Must;

struct Shape {
  int64_t width = 512, layers = 8, batch = 64;
  int blocks = 10, steps = 12, ranks = 2;
};

struct Replica {
  Replica(const Shape& shape, int stage, at::ScalarType type, Ranks* ranks)
      : share(1.0 / shape.ranks),
        net(bench::Perceptron(shape.width, shape.layers)),
        config(ConfigFor(shape, stage, type)),
        flat(Place(ranks)),
        strategy(MakeStrategy(config, &flat, ranks)),
        run(MakeUnitRunner(strategy->wraps_units() ? strategy.get() : nullptr, /*recompute=*/false)) {
    Must(strategy->AdoptParameters());
  }
  static StrategyConfig ConfigFor(const Shape& shape, int stage, at::ScalarType type) {
    StrategyConfig config;
    config.zero.stage = stage;
    config.parameters = type;
    for (int64_t i = 0; i < shape.layers; ++i) {
      config.units.push_back(
          {fmt::format("layer{}", i), {fmt::format("{}.weight", 2 * i), fmt::format("{}.bias", 2 * i)}});
    }
    return config;
  }
  // As the trainer does: whole parameters that others write are in shared memory.
  FlatParameters Place(Ranks* ranks) const {
    const auto shared = [ranks](at::ScalarType type) {
      return [ranks, type](int64_t n) { return ranks->tensors().AllocateFlat(n, type, at::kCPU); };
    };
    FlatParameters::Options storage = StorageFor(config, *ranks);
    if (storage.stage == Stage::kOptimizer || storage.stage == Stage::kGradients) {
      storage.values = shared(storage.parameters);
    }
    Result<FlatParameters> made = FlatParameters::Create(*net, shared(storage.gradients), storage);
    Must(made.status());
    return std::move(*made);
  }
  at::Tensor Forward(at::Tensor x) const {
    for (size_t i = 0; i < config.units.size(); ++i) {
      auto* layer = net->ptr(2 * i)->as<torch::nn::Linear>();
      x = run(i, [layer](const at::Tensor& input) { return layer->forward(input); }, x);
      if (i + 1 < config.units.size()) x = at::relu(x);
    }
    return x;
  }
  void Step(const at::Tensor& x, const at::Tensor& y) {
    strategy->BeginStep();
    strategy->BeginBackward(/*last=*/true);
    at::mse_loss(Forward(x.to(config.parameters)), y.to(config.parameters)).mul(share).backward();
    Must(strategy->EndBackward(ParallelStrategy::Backward::kDone));
    Must(strategy->FinishGradients());
    Must(strategy->PublishParameters());
  }

  double share;
  torch::nn::Sequential net;
  StrategyConfig config;
  FlatParameters flat;
  std::unique_ptr<ParallelStrategy> strategy;
  UnitRunner run;
};

// Memory that several of them share counts once.
int64_t BytesOf(const std::vector<at::Tensor>& tensors) {
  std::set<const void*> seen;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.storage().data()).second) continue;
    bytes += static_cast<int64_t>(tensor.storage().nbytes());
  }
  return bytes;
}

void Bytes(const Shape& shape, Ranks& ranks) {
  const at::Tensor x = at::rand({shape.batch, shape.width});
  const at::Tensor y = at::rand({shape.batch, shape.width});
  std::string text;
  int64_t parameters = 0;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      Replica replica(shape, stage, type, &ranks);
      const FlatParameters& flat = replica.flat;
      parameters = flat.count();
      const size_t count = flat.parameters().size();
      Optimizer optimizer({}, flat.owned(), {GroupSettings{1, 0.01}}, std::vector<int>(count, 0));
      replica.Step(x, y);
      optimizer.Step(1, 1, std::vector<bool>(count, true));
      std::vector<at::Tensor> held = {flat.values(), flat.gradients(), flat.owned().values, flat.owned().gradients};
      if (stage == 3) held.push_back(flat.Shard(0));
      for (const Optimizer::Slot& slot : optimizer.slots()) held.push_back(slot.own);
      text += fmt::format(", \"{}_stage{}\": {}", type == at::kFloat ? "fp32" : "bf16", stage, BytesOf(held));
      Must(ranks.Barrier());
    }
  }
  if (ranks.is_main()) fmt::print("{{\"parameters\": {}{}}}\n", parameters, text);
}

void Times(const Shape& shape, Ranks& ranks) {
  const at::Tensor x = at::rand({shape.batch, shape.width});
  const at::Tensor y = at::rand({shape.batch, shape.width});
  torch::nn::Sequential plain = bench::Perceptron(shape.width, shape.layers);
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int stage = 0; stage <= 3; ++stage) {
    replicas.push_back(std::make_unique<Replica>(shape, stage, at::kFloat, &ranks));
  }
  const auto step = [&](size_t stage) { return [&, stage] { replicas[stage]->Step(x, y); }; };
  const auto alone = [&] {
    plain->zero_grad();
    at::mse_loss(plain->forward(x), y).backward();
  };
  const std::vector<bench::Work> works = {
      {"alone", alone}, {"stage0", step(0)}, {"stage1", step(1)}, {"stage2", step(2)}, {"stage3", step(3)}};
  const auto medians = bench::InTurns(ranks, works, shape.blocks, shape.steps);
  if (!ranks.is_main()) return;
  fmt::print("{{\"parameters\": {}{}}}\n", replicas[0]->flat.count(), bench::AsJson(works, medians));
}

}  // namespace
}  // namespace lockstep::engine

int main(int argc, char** argv) {
  lockstep::engine::Shape shape;
  const bool bytes = argc > 1 && std::string(argv[1]) == "bytes";
  const auto argument = [&](int at, int64_t value) { return argc > at + bytes ? std::atoll(argv[at + bytes]) : value; };
  shape.width = argument(1, shape.width);
  shape.layers = argument(2, shape.layers);
  shape.batch = argument(3, shape.batch);
  shape.blocks = static_cast<int>(argument(4, shape.blocks));
  shape.steps = static_cast<int>(argument(5, shape.steps));
  shape.ranks = static_cast<int>(argument(6, shape.ranks));
  return lockstep::bench::RunRanks(shape.ranks, [&](auto& ranks, auto) {
    (bytes ? lockstep::engine::Bytes : lockstep::engine::Times)(shape, ranks);
  });
}
