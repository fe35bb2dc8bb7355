#include "engine/average.h"

#include <torch/torch.h>

namespace lockstep::engine {
namespace {

struct Net : torch::nn::Module {
  Net() { weight = register_parameter("weight", at::full({70000}, 1.0F)); }
  at::Tensor weight;
};

FlatParameters Flatten(Net& net) {
  return *FlatParameters::Create(net, [](int64_t n) { return at::zeros({n}); });
}

TEST(Average, FollowsTheFormula) {
  Net net;
  FlatParameters flat = Flatten(net);
  Average average({.decay = 0.9, .warmup = false}, &flat);
  double expected = 1;
  for (uint64_t step = 1; step <= 5; ++step) {
    flat.values().fill_(static_cast<double>(step) * 2);
    average.Update(step);
    expected = 0.9 * expected + 0.1 * static_cast<double>(step) * 2;
  }
  EXPECT_NEAR(average.values()[0].item<double>(), expected, 1e-6);
  EXPECT_NEAR(average.values()[69999].item<double>(), expected, 1e-6);
}

TEST(Average, WarmsUpFromASmallDecay) {
  Net net;
  FlatParameters flat = Flatten(net);
  Average average({.decay = 0.999}, &flat);
  flat.values().fill_(11);
  average.Update(1);  // decay (1 + 0) / (10 + 0)
  EXPECT_NEAR(average.values()[0].item<double>(), 0.1 * 1 + 0.9 * 11, 1e-5);
}

TEST(Average, IsUpdatedEverySoManySteps) {
  Net net;
  FlatParameters flat = Flatten(net);
  Average average({.decay = 0.5, .warmup = false, .every = 3}, &flat);
  for (uint64_t step = 1; step <= 7; ++step) average.Update(step);
  EXPECT_EQ(average.updates(), 2u);
}

TEST(Average, SwapsForAValidationAndBack) {
  Net net;
  FlatParameters flat = Flatten(net);
  Average average({.decay = 0.5}, &flat);
  flat.values().fill_(5);
  average.Swap();
  EXPECT_EQ(net.weight[3].item<float>(), 1);
  average.Swap();
  EXPECT_EQ(net.weight[3].item<float>(), 5);
  EXPECT_EQ(average.values()[3].item<float>(), 1);
}

TEST(Average, OffCostsNothing) {
  Net net;
  FlatParameters flat = Flatten(net);
  Average average({}, &flat);
  average.Update(1);
  EXPECT_FALSE(average.values().defined());
}

}  // namespace
}  // namespace lockstep::engine
