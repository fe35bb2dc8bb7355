#include "engine/ddp.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "engine/ranks_fixture.h"
#include "engine/recompute.h"

namespace lockstep::engine {
namespace {

struct DdpNet : torch::nn::Module {
  DdpNet() {
    for (const char* name : {"a", "b", "c"}) layers.push_back(register_module(name, torch::nn::Linear(8, 8)));
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(at::linspace(-0.3, 0.4, parameter.numel()).view(parameter.sizes()));
  }
  at::Tensor forward(at::Tensor x, bool all = true) {
    x = at::tanh(layers[0]->forward(x));
    if (all) x = at::tanh(layers[1]->forward(x));
    return layers[2]->forward(x);
  }
  std::vector<torch::nn::Linear> layers;
};

at::Tensor Input(int rank) { return at::arange(16, at::kFloat).view({2, 8}).mul(0.1).add(rank).sin(); }

struct Replica {
  explicit Replica(Ranks& ranks, StrategyConfig config = {})
      : flat(*FlatParameters::Create(
            net, [&](int64_t n) { return ranks.tensors().AllocateFlat(n, at::kFloat, at::kCPU); },
            StorageFor(config, ranks))),
        ddp(config, &flat, &ranks) {}
  DdpNet net;
  FlatParameters flat;
  Ddp ddp;
  // One step whose loss is computed by `loss`.
  Status Step(const std::function<at::Tensor()>& loss) {
    ddp.BeginStep();
    ddp.BeginBackward(true);
    loss().backward();
    LOCKSTEP_RETURN_IF_ERROR(ddp.EndBackward(ParallelStrategy::Backward::kDone));
    return ddp.FinishGradients();
  }
};

// The sum over ranks by a plain loop in one process.
at::Tensor Expected(int world, bool all = true) {
  DdpNet net;
  FlatParameters flat = *FlatParameters::Create(net, [](int64_t n) { return at::zeros({n}); });
  for (int rank = 0; rank < world; ++rank) net.forward(Input(rank), all).pow(2).sum().backward();
  return flat.gradients();
}

StrategyConfig Small() {
  StrategyConfig config;
  config.bucket_bytes = config.first_bucket_bytes = 256;  // one layer's weight fills a bucket
  return config;
}

TEST(Ddp, SumsGradientsOverRanks) {
  for (const int world : {1, 2, 4}) {
    OnRanks(world, [&](Ranks& ranks) {
      Replica replica(ranks, Small());
      EXPECT_GE(replica.flat.layout().buckets().size(), 3u);
      for (int step = 0; step < 3; ++step) {
        ASSERT_TRUE(replica.Step([&] { return replica.net.forward(Input(ranks.rank())).pow(2).sum(); }).ok());
        EXPECT_TRUE(at::allclose(replica.flat.gradients(), Expected(world), 1e-5, 1e-6));
      }
    });
  }
}

TEST(Ddp, WithoutTheReductionTheTestAboveWouldFail) {
  OnRanks(2, [&](Ranks& ranks) {
    StrategyConfig config = Small();
    config.reduce = false;
    Replica replica(ranks, config);
    ASSERT_TRUE(replica.Step([&] { return replica.net.forward(Input(ranks.rank())).pow(2).sum(); }).ok());
    EXPECT_FALSE(at::allclose(replica.flat.gradients(), Expected(2), 1e-5, 1e-6));
  });
}

TEST(Ddp, AccumulatesWithoutTalkingUntilTheLastBackward) {
  OnRanks(2, [&](Ranks& ranks) {
    Replica replica(ranks, Small());
    replica.ddp.BeginStep();
    const uint64_t calls = ranks.tensors().traffic().calls;
    replica.ddp.BeginBackward(false);
    replica.net.forward(Input(ranks.rank())).pow(2).sum().backward();
    ASSERT_TRUE(replica.ddp.EndBackward(ParallelStrategy::Backward::kDone).ok());
    EXPECT_EQ(ranks.tensors().traffic().calls, calls);
    replica.ddp.BeginBackward(true);
    replica.net.forward(Input(ranks.rank())).pow(2).sum().backward();
    ASSERT_TRUE(replica.ddp.EndBackward(ParallelStrategy::Backward::kDone).ok());
    ASSERT_TRUE(replica.ddp.FinishGradients().ok());
    EXPECT_TRUE(at::allclose(replica.flat.gradients(), Expected(2) * 2, 1e-5, 1e-6));
  });
}

TEST(Ddp, NamesParametersThatGotNoGradient) {
  OnRanks(2, [&](Ranks& ranks) {
    Replica replica(ranks, Small());
    const Status status = replica.Step([&] { return replica.net.forward(Input(ranks.rank()), false).pow(2).sum(); });
    EXPECT_EQ(status.code(), Code::kUsage);
    EXPECT_NE(status.message().find("b.bias, b.weight"), std::string::npos) << status.message();
  });
}

TEST(Ddp, FindsUnusedParametersByAgreement) {
  OnRanks(2, [&](Ranks& ranks) {
    StrategyConfig config = Small();
    config.find_unused = true;
    Replica replica(ranks, config);
    // Nobody uses b: it sits the step out. Then rank 1 alone does: it takes part everywhere.
    ASSERT_TRUE(replica.Step([&] { return replica.net.forward(Input(ranks.rank()), false).pow(2).sum(); }).ok());
    EXPECT_TRUE(at::allclose(replica.flat.gradients(), Expected(2, false), 1e-5, 1e-6));
    for (size_t i = 0; i < replica.flat.parameters().size(); ++i) {
      EXPECT_EQ(replica.ddp.used()[i], replica.flat.parameters()[i].name[0] != 'b');
    }
    ASSERT_TRUE(
        replica.Step([&] { return replica.net.forward(Input(ranks.rank()), ranks.rank() == 1).pow(2).sum(); }).ok());
    for (const bool used : replica.ddp.used()) EXPECT_TRUE(used);
  });
}

TEST(Ddp, ARankWithoutSamplesAddsZeros) {
  OnRanks(3, [&](Ranks& ranks) {
    Replica replica(ranks, Small());
    replica.ddp.BeginStep();
    replica.ddp.BeginBackward(true);
    const bool works = ranks.rank() != 2;
    if (works) replica.net.forward(Input(ranks.rank())).pow(2).sum().backward();
    ASSERT_TRUE(
        replica.ddp.EndBackward(works ? ParallelStrategy::Backward::kDone : ParallelStrategy::Backward::kEmpty).ok());
    ASSERT_TRUE(replica.ddp.FinishGradients().ok());
    EXPECT_TRUE(at::allclose(replica.flat.gradients(), Expected(2), 1e-5, 1e-6));
  });
}

TEST(Ddp, WorksWithRecomputedSegments) {
  OnRanks(2, [&](Ranks& ranks) {
    Replica replica(ranks, Small());
    ASSERT_TRUE(replica
                    .Step([&] {
                      return Recompute([&](const at::Tensor& x) { return replica.net.forward(x); }, Input(ranks.rank()))
                          .pow(2)
                          .sum();
                    })
                    .ok());
    EXPECT_TRUE(at::allclose(replica.flat.gradients(), Expected(2), 1e-5, 1e-6));
  });
}

// The weights of two recomputed segments: their gradient comes in two parts.
at::Tensor Twice(DdpNet& net, int rank) {
  const auto segment = [&](const at::Tensor& x) { return net.forward(x); };
  return Recompute(segment, Recompute(segment, Input(rank))).pow(2).sum();
}

TEST(Ddp, AGradientInPartsIsAnErrorOrLearntByStaticGraph) {
  OnRanks(2, [&](Ranks& ranks) {
    Replica plain(ranks, Small());
    const Status status = plain.Step([&] { return Twice(plain.net, ranks.rank()); });
    EXPECT_NE(status.message().find("came in several parts"), std::string::npos) << status.message();
    ASSERT_TRUE(ranks.Barrier().ok());

    DdpNet reference;
    FlatParameters expected = *FlatParameters::Create(reference, [](int64_t n) { return at::zeros({n}); });
    for (int rank = 0; rank < 2; ++rank) reference.forward(reference.forward(Input(rank))).pow(2).sum().backward();
    StrategyConfig config = Small();
    config.static_graph = true;
    Replica learns(ranks, config);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(learns.Step([&] { return Twice(learns.net, ranks.rank()); }).ok());
      EXPECT_TRUE(at::allclose(learns.flat.gradients(), expected.gradients(), 1e-5, 1e-6)) << step;
    }
  });
}

TEST(Ddp, FollowsAChangeOfWhatIsTrained) {
  OnRanks(2, [&](Ranks& ranks) {
    Replica replica(ranks, Small());
    for (auto& parameter : replica.net.layers[1]->parameters()) parameter.requires_grad_(false);
    replica.ddp.TrainableChanged();
    ASSERT_TRUE(replica.Step([&] { return replica.net.forward(Input(ranks.rank())).pow(2).sum(); }).ok());
    EXPECT_EQ(FlatParameters::View(replica.flat.gradients(), replica.flat.parameters()[2]).abs().sum().item<double>(),
              0);
    for (auto& parameter : replica.net.layers[1]->parameters()) parameter.requires_grad_(true);
    replica.ddp.TrainableChanged();
    ASSERT_TRUE(replica.Step([&] { return replica.net.forward(Input(ranks.rank())).pow(2).sum(); }).ok());
    EXPECT_TRUE(at::allclose(replica.flat.gradients(), Expected(2), 1e-5, 1e-6));
  });
}

}  // namespace
}  // namespace lockstep::engine
