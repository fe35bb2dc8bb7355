#include "engine/ema.h"

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::engine {
namespace {

struct EmaNet : torch::nn::Module {
  EmaNet() { weight = register_parameter("weight", at::full({70000}, 1.0F)); }
  at::Tensor weight;
};

FlatParameters Flatten(EmaNet& net) {
  return *FlatParameters::Create(net, [](int64_t n) { return at::zeros({n}); });
}

TEST(Ema, FollowsTheFormula) {
  EmaNet net;
  FlatParameters flat = Flatten(net);
  Ema average({.decay = 0.9, .warmup = EmaConfig::Warmup::kNone}, flat.owned());
  double expected = 1;
  for (uint64_t step = 1; step <= 5; ++step) {
    flat.values().fill_(static_cast<double>(step) * 2);
    average.Update();
    expected = 0.9 * expected + 0.1 * static_cast<double>(step) * 2;
  }
  EXPECT_NEAR(average.values()[0].item<double>(), expected, 1e-6);
  EXPECT_NEAR(average.values()[69999].item<double>(), expected, 1e-6);
}

TEST(Ema, WarmsUpFromASmallDecay) {
  EmaNet net;
  FlatParameters flat = Flatten(net);
  Ema average({.decay = 0.999}, flat.owned());
  flat.values().fill_(11);
  average.Update();  // decay (1 + 0) / (10 + 0)
  EXPECT_NEAR(average.values()[0].item<double>(), 0.1 * 1 + 0.9 * 11, 1e-5);
}

TEST(Ema, IsUpdatedEverySoManySteps) {
  EmaNet net;
  FlatParameters flat = Flatten(net);
  Ema average({.decay = 0.5, .warmup = EmaConfig::Warmup::kNone, .every = 3}, flat.owned());
  for (uint64_t step = 1; step <= 7; ++step) {
    if (average.Due(step)) average.Update();
  }
  EXPECT_EQ(average.updates(), 2u);
}

TEST(Ema, SwapsForAValidationAndBack) {
  EmaNet net;
  FlatParameters flat = Flatten(net);
  Ema average({.decay = 0.5}, flat.owned());
  flat.values().fill_(5);
  average.Swap();
  EXPECT_EQ(net.weight[3].item<float>(), 1);
  average.Swap();
  EXPECT_EQ(net.weight[3].item<float>(), 5);
  EXPECT_EQ(average.values()[3].item<float>(), 1);
}

TEST(Ema, BeginsWithCopiesWhereTheWarmUpIsLinear) {
  EmaNet net;
  FlatParameters flat = Flatten(net);
  Ema average({.decay = 0.15, .warmup = EmaConfig::Warmup::kLinear}, flat.owned());
  double expected = 0;
  for (int n = 0; n < 4; ++n) {
    flat.values().fill_(n + 2);
    average.Update();
    const double decay = std::min(0.15, n / 10.0);
    expected = decay * expected + (1 - decay) * (n + 2);
    EXPECT_NEAR(average.values()[3].item<float>(), expected, 1e-6);
  }
}

TEST(Ema, QueuedIsTheSameAndLeavesOutWhatWasNotFinite) {
  for (const auto warmup : {EmaConfig::Warmup::kNone, EmaConfig::Warmup::kInverse, EmaConfig::Warmup::kLinear}) {
    EmaNet net;
    FlatParameters flat = Flatten(net);
    Ema now({.decay = 0.9, .warmup = warmup}, flat.owned());
    Ema queued({.decay = 0.9, .warmup = warmup}, flat.owned());
    for (int n = 0; n < 20; ++n) {
      flat.values().fill_(n * n);
      const bool finite = n % 5 != 3;
      if (finite) now.Update();
      queued.QueueUpdate(at::full({}, finite ? 0.0F : 1.0F));
      queued.Settle(finite);
    }
    EXPECT_LT((now.values() - queued.values()).abs().max().item<float>(), 1e-4);
    EXPECT_EQ(now.updates(), queued.updates());
  }
}

TEST(Ema, OffCostsNothing) {
  EmaNet net;
  FlatParameters flat = Flatten(net);
  Ema average({}, flat.owned());
  EXPECT_FALSE(average.Due(1));
  EXPECT_FALSE(average.values().defined());
}

}  // namespace
}  // namespace lockstep::engine
