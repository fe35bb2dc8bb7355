#include "engine/groups.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

namespace lockstep::engine {
namespace {

struct GroupedNet : torch::nn::Module {
  GroupedNet() {
    encoder = register_module("encoder", torch::nn::Linear(2, 3));
    decoder = register_module("decoder", torch::nn::Linear(3, 2));
  }
  torch::nn::Linear encoder{nullptr}, decoder{nullptr};
};

FlatParameters Flatten(GroupedNet& net) {
  return *FlatParameters::Create(net, [](int64_t n) { return at::zeros({n}); });
}

TEST(Groups, FirstMatchingRuleDecides) {
  GroupedNet net;
  FlatParameters flat = Flatten(net);
  const std::vector<GroupRule> rules = {{.match = "*.bias", .weight_decay = 0.0},
                                        {.match = "encoder.*", .lr_scale = 0.1}};
  const Groups groups = GroupParameters(rules, 0.5, flat);
  for (size_t i = 0; i < flat.parameters().size(); ++i) {
    const std::string& name = flat.parameters()[i].name;
    const GroupSettings& settings = groups.settings[static_cast<size_t>(groups.group_of[i])];
    EXPECT_EQ(settings.weight_decay, name.ends_with(".bias") ? 0.0 : 0.5) << name;
    EXPECT_EQ(settings.lr_scale, name == "encoder.weight" ? 0.1 : 1.0) << name;
  }
}

TEST(Groups, APatternThatMatchesNothingIsAnError) {
  GroupedNet net;
  const Status status = FreezeForGood({{.match = "encoder.wieght", .freeze = true}}, net);
  EXPECT_EQ(status.code(), Code::kUsage);
  EXPECT_NE(status.message().find("did you mean 'encoder.weight'"), std::string::npos) << status.message();
}

TEST(Groups, FrozenForGoodIsNotInTheFlatBuffer) {
  GroupedNet net;
  ASSERT_TRUE(FreezeForGood({{.match = "encoder.*", .freeze = true}}, net).ok());
  EXPECT_EQ(Flatten(net).count(), 3 * 2 + 2);
}

TEST(Groups, FreezeUntilEndsAtItsStep) {
  GroupedNet net;
  FlatParameters flat = Flatten(net);
  const std::vector<GroupRule> rules = {{.match = "decoder.*", .freeze_until = 5}};
  EXPECT_TRUE(ApplyFreeze(rules, 0, flat));
  EXPECT_FALSE(net.decoder->weight.requires_grad());
  EXPECT_TRUE(net.encoder->weight.requires_grad());
  EXPECT_FALSE(ApplyFreeze(rules, 4, flat));
  EXPECT_TRUE(ApplyFreeze(rules, 5, flat));
  EXPECT_TRUE(net.decoder->weight.requires_grad());
}

TEST(Flat, ParametersBecomeViewsInReverseOrder) {
  GroupedNet net;
  const at::Tensor weight = net.decoder->weight.detach().clone();
  FlatParameters flat = Flatten(net);
  EXPECT_EQ(flat.parameters().front().name, "decoder.bias");
  EXPECT_EQ(flat.parameters().back().name, "encoder.weight");
  EXPECT_TRUE(at::equal(net.decoder->weight, weight));
  flat.values().fill_(2);
  EXPECT_EQ(net.encoder->weight.max().item<float>(), 2);
  net.encoder->forward(at::ones({1, 2})).sum().backward();
  EXPECT_EQ(flat.gradients().sum().item<double>(), 2 * 3 + 3);
  flat.ResetGradients();
  EXPECT_EQ(net.encoder->weight.grad().abs().sum().item<double>(), 0);
}

TEST(Flat, RefusesHalfPrecisionWeights) {
  GroupedNet net;
  net.to(at::kHalf);
  const auto flat = FlatParameters::Create(net, [](int64_t n) { return at::zeros({n}); });
  ASSERT_FALSE(flat.ok());
  EXPECT_NE(flat.status().message().find("expected float32, found Half"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::engine
