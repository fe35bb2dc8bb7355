// Our Ddp against c10d's Reducer, the core of PyTorch's DistributedDataParallel: same model, same inputs, same
// communicator underneath. They average in different places (we scale the loss, it scales the gradients), so for a
// power-of-two world every gradient is equal to the last bit, otherwise to rounding.
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "engine/c10d_reducer.h"
#include "engine/ddp.h"
#include "engine/ranks_fixture.h"

namespace lockstep::engine {
namespace {

constexpr int kOracleSteps = 3;

struct Perceptron : torch::nn::Module {
  explicit Perceptron(uint64_t seed) {
    for (int i = 0; i < 6; ++i) layers.push_back(register_module("l" + std::to_string(i), torch::nn::Linear(24, 24)));
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.uniform_(-0.4, 0.4, generator);
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = at::tanh(layer->forward(x));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

at::Tensor Inputs(int rank, int step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 * step + rank));
  return at::empty({5, 24}).uniform_(-1, 1, generator);
}

using Gradients = std::vector<at::Tensor>;  // by parameter, in order of registration

Gradients Copied(const torch::nn::Module& module) {
  Gradients out;
  for (const at::Tensor& parameter : module.parameters()) out.push_back(parameter.grad().clone());
  return out;
}

struct Both {
  Gradients ours, theirs;
};

// The gradients of step `kOracleSteps` on one rank, by both.
Both Compare(Ranks& ranks, const std::shared_ptr<comm::TensorCommunicator>& tensors, bool bucket_view, bool reduce) {
  Both both;
  constexpr int64_t kBucket = 4 << 10;  // several buckets: a layer has 2.4 kB
  Perceptron mine(7);
  StrategyConfig config;
  config.bucket_bytes = config.first_bucket_bytes = kBucket;
  config.reduce = reduce;
  auto flat = *FlatParameters::Create(
      mine, [&](int64_t n) { return tensors->AllocateFlat(n, at::kFloat, at::kCPU); }, StorageFor(config, ranks));
  Ddp ddp(config, &flat, &ranks);
  EXPECT_GE(flat.layout().buckets().size(), 3u);
  Perceptron other(7);
  auto group = comm::MakeProcessGroup(tensors);
  auto reducer = MakeReducer(other.parameters(), group, bucket_view, kBucket, kBucket);
  for (int step = 0; step < kOracleSteps; ++step) {
    const at::Tensor x = Inputs(ranks.rank(), step);
    ddp.BeginStep();
    ddp.BeginBackward(true);
    mine.forward(x).pow(2).mean().mul(1.0 / ranks.size()).backward();
    EXPECT_TRUE(ddp.EndBackward(ParallelStrategy::Backward::kDone).ok());
    EXPECT_TRUE(ddp.FinishGradients().ok());
    other.zero_grad();
    ReducerStep(*reducer, [&] { return other.forward(x).pow(2).mean(); });
  }
  both.ours = Copied(mine);
  both.theirs = Copied(other);
  return both;
}

// Same values on every rank is part of the promise: rank 0's are compared with each rank's.
void Check(int world, bool bucket_view) {
  std::vector<Both> results(static_cast<size_t>(world));
  OnRanks(world, [&](Ranks& ranks) {
    // A handle that does not own: the fixture keeps the communicator alive.
    const std::shared_ptr<comm::TensorCommunicator> tensors(&ranks.tensors(), [](comm::TensorCommunicator*) {});
    results[static_cast<size_t>(ranks.rank())] = Compare(ranks, tensors, bucket_view, /*reduce=*/true);
  });
  const bool power_of_two = (world & (world - 1)) == 0;
  for (int rank = 0; rank < world; ++rank) {
    const Both& both = results[static_cast<size_t>(rank)];
    ASSERT_EQ(both.ours.size(), both.theirs.size());
    for (size_t i = 0; i < both.ours.size(); ++i) {
      EXPECT_TRUE(at::equal(both.ours[i], results[0].ours[i])) << "rank " << rank << ", parameter " << i;
      EXPECT_GT(both.theirs[i].abs().max().item<float>(), 0) << i;
      if (power_of_two) {
        EXPECT_TRUE(at::equal(both.ours[i], both.theirs[i]))
            << "rank " << rank << ", parameter " << i << ": differs by up to "
            << (both.ours[i] - both.theirs[i]).abs().max().item<float>();
      } else {
        EXPECT_TRUE(at::allclose(both.ours[i], both.theirs[i], 1e-5, 1e-8)) << "rank " << rank << ", parameter " << i;
      }
    }
  }
}

TEST(ReducerOracle, TwoRanksGiveTheSameBits) { Check(2, /*bucket_view=*/true); }
TEST(ReducerOracle, TwoRanksGiveTheSameBitsWhereItCopiesGradients) { Check(2, /*bucket_view=*/false); }
TEST(ReducerOracle, FourRanksGiveTheSameBits) { Check(4, /*bucket_view=*/true); }
TEST(ReducerOracle, ThreeRanksAgreeToRounding) { Check(3, /*bucket_view=*/true); }

TEST(ReducerOracle, SeesAMissingReduction) {
  OnRanks(2, [&](Ranks& ranks) {
    const std::shared_ptr<comm::TensorCommunicator> tensors(&ranks.tensors(), [](comm::TensorCommunicator*) {});
    const Both both = Compare(ranks, tensors, true, /*reduce=*/false);
    for (size_t i = 0; i < both.ours.size(); ++i) {
      EXPECT_FALSE(at::allclose(both.ours[i], both.theirs[i], 1e-3, 1e-6)) << i;
    }
  });
}

}  // namespace
}  // namespace lockstep::engine
