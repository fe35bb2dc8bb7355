// The decoder without goldens: shapes, drawn weights, packing, units, generation.
#include "models/decoder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::models {
namespace {

TEST(DecoderConfigs, HaveTheExactParameterCounts) {
  const std::map<std::string, int64_t> counts = {
      {"tiny", 1017984},          {"124m", 123614976},        {"qwen2.5-0.5b", 494032768}, {"qwen2.5-1.5b", 1543714304},
      {"qwen2.5-3b", 3085938688}, {"qwen2.5-7b", 7615616512},
  };
  ASSERT_EQ(counts.size(), DecoderConfig::Named().size());
  for (const auto& [name, config] : DecoderConfig::Named()) {
    EXPECT_TRUE(config.Check().ok()) << name;
    EXPECT_EQ(config.ParameterCount(), counts.at(name)) << name;
    const Decoder model(config, 0, Decoder::Weights::kUnallocated);
    int64_t count = 0;
    for (const auto& item : model.named_parameters()) count += item.value().numel();
    EXPECT_EQ(count, counts.at(name)) << name;
  }
}

TEST(Decoder, LearnsAndAllParametersGetGradients) {
  at::manual_seed(1);
  for (const bool tied : {true, false}) {
    Decoder model({.vocabulary = 61, .width = 32, .layers = 2, .mlp = 48, .tied = tied}, 3);
    const at::Tensor tokens = at::randint(0, 61, {2, 7});
    const at::Tensor loss = model.Loss(model.Hidden(tokens, {}), ShiftedLabels(tokens, {}));
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), std::log(61), 0.1);
    for (const auto& item : model.named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_GT(item.value().grad().norm().item<double>(), 0) << item.key();
    }
  }
}

}  // namespace
}  // namespace lockstep::models
