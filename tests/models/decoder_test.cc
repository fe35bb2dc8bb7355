// The decoder without goldens: shapes, drawn weights, packing, units.
#include "models/decoder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace lockstep::models {
namespace {

DecoderConfig SmallDecoder(bool tied = true) {
  return {.vocabulary = 61, .width = 32, .layers = 3, .mlp = 48, .rope_theta = 1e4, .tied = tied};
}

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
    const auto back = DecoderConfig::FromJson(config.ToJson());
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(*back, config) << name;
  }
}

TEST(DecoderConfigs, ThatCannotBeBuiltAreRefusedByName) {
  struct Row {
    DecoderConfig config;
    const char* message;
  };
  const Row rows[] = {
      {{.heads = 0}, "num_attention_heads is 0"},
      {{.width = 250}, "hidden_size 250 is not a multiple of num_attention_heads 4"},
      {{.kv_heads = 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
      {{.width = 36}, "head size 9"},
      {{.rope_theta = 0}, "rope_theta is 0"},
  };
  for (const Row& row : rows) {
    EXPECT_NE(row.config.Check().message().find(row.message), std::string::npos) << row.config.Check().message();
    EXPECT_THROW(Decoder(row.config, 0, Decoder::Weights::kUnallocated), std::invalid_argument);
  }
}

TEST(DecoderConfigs, FromJsonTakesWhatItKnowsAndNamesWhatItDoesNot) {
  const nlohmann::json good = SmallDecoder().ToJson();
  struct Row {
    const char* patch;
    const char* message;  // "": accepted
  };
  const Row rows[] = {
      {R"({})", ""},
      {R"({"rope_scaling": null, "sliding_window": 32768, "use_sliding_window": false, "head_dim": 8})", ""},
      {R"({"layer_types": ["full_attention"], "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})",
       ""},
      {R"({"model_type": "mamba"})", "model_type is \"mamba\""},
      {R"({"model_type": null})", "model_type is null"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})", "rope_scaling is"},
      {R"({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}})", "rope_parameters is"},
      {R"({"use_sliding_window": true})", "use_sliding_window is true"},
      {R"({"layer_types": ["sliding_attention"]})", "layer_types has \"sliding_attention\""},
      {R"({"hidden_act": "gelu"})", "hidden_act is \"gelu\""},
      {R"({"attention_dropout": 0.1})", "attention_dropout is 0.1"},
      {R"({"quantization_config": {"bits": 4}})", "quantization_config"},
      {R"({"head_dim": 16})", "head_dim is 16"},
      {R"({"vocab_size": "many"})", "vocab_size is \"many\""},
      {R"({"hidden_size": null})", "hidden_size is null"},
      {R"({"num_key_value_heads": 3})", "num_key_value_heads 3"},
      {R"({"model_type": "llama", "attention_bias": true})", "attention_bias is true"},
  };
  for (const Row& row : rows) {
    nlohmann::json json = good;
    json.update(nlohmann::json::parse(row.patch));
    const auto config = DecoderConfig::FromJson(json);
    EXPECT_EQ(config.ok(), row.message[0] == '\0') << row.patch;
    EXPECT_NE(config.status().message().find(row.message), std::string::npos) << config.status().message();
    if (config.ok()) EXPECT_EQ(*config, SmallDecoder()) << row.patch;
  }
}

TEST(DecoderDraws, AnyPieceOfAnyParameterInAnyOrder) {
  const Decoder model(SmallDecoder(false), 9), other(SmallDecoder(false), 10);
  const Decoder empty(SmallDecoder(false), 9, Decoder::Weights::kUnallocated);
  std::set<std::string> seen;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor whole = item.value().detach().flatten();
    at::Tensor pieces = at::empty_like(whole);
    const int64_t half = whole.numel() / 3 + 1;
    empty.Draw(item.key(), half, pieces.narrow(0, half, whole.numel() - half));
    empty.Draw(item.key(), 0, pieces.narrow(0, 0, half));
    EXPECT_TRUE(at::equal(whole, pieces)) << item.key();
    EXPECT_TRUE(at::isnan(*empty.named_parameters().find(item.key())).all().item<bool>()) << "not drawn";
    if (item.key().ends_with("norm.weight")) {
      EXPECT_TRUE(at::equal(whole, at::ones_like(whole)));
    } else if (item.key().ends_with("bias")) {
      EXPECT_TRUE(at::equal(whole, at::zeros_like(whole)));
    } else {
      EXPECT_NEAR(whole.std().item<double>(), 0.02, 0.003) << item.key();
      EXPECT_NEAR(whole.mean().item<double>(), 0, 0.003) << item.key();
      EXPECT_FALSE(at::equal(item.value(), *other.named_parameters().find(item.key()))) << "another seed";
      EXPECT_TRUE(seen.insert(fmt::format("{}", whole[0].item<float>())).second) << "another parameter's numbers";
    }
  }
}

TEST(DecoderDraws, UnallocatedParametersTakeMemoryBySetData) {
  Decoder model(SmallDecoder(), 9, Decoder::Weights::kUnallocated), whole(SmallDecoder(), 9);
  for (auto& item : model.named_parameters()) {
    EXPECT_EQ(item.value().storage().nbytes(), 4u);
    at::Tensor memory = at::empty(item.value().sizes());
    model.Draw(item.key(), 0, memory.view({-1}));
    item.value().set_data(memory);
  }
  const at::Tensor tokens = at::arange(10).view({2, 5});
  EXPECT_TRUE(at::equal(model.Hidden(tokens, {}), whole.Hidden(tokens, {})));
}

struct DecoderLearned {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
};

DecoderLearned LearnDecoder(Decoder& model, const std::vector<std::pair<at::Tensor, Packing>>& batches, double labels) {
  DecoderLearned learned;
  model.zero_grad();
  for (const auto& [tokens, packing] : batches) {
    const at::Tensor targets = ShiftedLabels(tokens, packing.documents);
    const double share = (targets >= 0).sum().item<double>() / labels;
    const at::Tensor loss = model.Loss(model.Hidden(tokens, packing), targets) * share;
    loss.backward();
    learned.loss += loss.item<double>();
  }
  for (const auto& item : model.named_parameters()) learned.gradients[item.key()] = item.value().grad().clone();
  return learned;
}

double DecoderDifference(const DecoderLearned& a, const DecoderLearned& b) {
  double largest = std::abs(a.loss - b.loss);
  for (const auto& [name, gradient] : a.gradients) {
    const double scale = gradient.abs().max().item<double>() + 1e-12;
    largest = std::max(largest, (gradient - b.gradients.at(name)).abs().max().item<double>() / scale);
  }
  return largest;
}

TEST(DecoderPacking, DocumentsInARowAreRowsAlone) {
  at::manual_seed(2);
  for (const bool tied : {true, false}) {
    Decoder model(SmallDecoder(tied), 3);
    const at::Tensor a = at::randint(0, 61, {1, 6}), b = at::randint(0, 61, {1, 5}), c = at::randint(0, 61, {1, 4});
    const at::Tensor d = at::randint(0, 61, {1, 15});
    const DecoderLearned alone = LearnDecoder(model, {{a, {}}, {b, {}}, {c, {}}, {d, {}}}, 26);
    const at::Tensor rows = at::cat({at::cat({a, b, c}, 1), d});
    // Numbers of documents need not grow, only change.
    const at::Tensor documents = at::cat({at::full({6}, 8), at::full({5}, 2), at::full({4}, 8), at::full({15}, 8)});
    const Packing packing{.documents = documents.to(at::kLong).view({2, 15})};
    EXPECT_LT(DecoderDifference(alone, LearnDecoder(model, {{rows, packing}}, 26)), 1e-5);
    const at::Tensor positions = at::cat({at::arange(6), at::arange(5), at::arange(4), at::arange(15)}).view({2, 15});
    EXPECT_TRUE(at::equal(PositionsOf(packing.documents), positions));
    EXPECT_LT(DecoderDifference(alone, LearnDecoder(model, {{rows, {positions, packing.documents}}}, 26)), 1e-5);
    EXPECT_GT(DecoderDifference(alone, LearnDecoder(model, {{rows, {}}}, 28)), 1e-3) << "attention across documents";
  }
}

TEST(DecoderPacking, LabelsAreTheNextTokensOfTheDocument) {
  const at::Tensor tokens = at::tensor({1, 2, 3, 4, 5, 6}, at::kLong).view({1, 6});
  const at::Tensor documents = at::tensor({0, 0, 0, 1, 1, 2}, at::kLong).view({1, 6});
  const auto labels = [](const std::vector<int64_t>& values) { return at::tensor(values).view({1, 6}); };
  EXPECT_TRUE(at::equal(ShiftedLabels(tokens, {}), labels({2, 3, 4, 5, 6, -100})));
  EXPECT_TRUE(at::equal(ShiftedLabels(tokens, documents), labels({2, 3, -100, 5, -100, -100})));
}

TEST(DecoderUnits, HoldEveryParameterOnceAndRunInOrder) {
  at::manual_seed(4);
  for (const bool tied : {true, false}) {
    Decoder model(SmallDecoder(tied), 3);
    std::set<std::string> names;
    for (const auto& item : model.named_parameters()) names.insert(item.key());
    const auto units = model.Units();
    EXPECT_EQ(units.front().first, tied ? "layers.0" : "embed");
    EXPECT_EQ(units.back().first, tied ? "layers.2" : "head");
    for (const auto& [unit, parameters] : units) {
      for (const std::string& name : parameters) EXPECT_EQ(names.erase(name), 1u) << name << " in " << unit;
    }
    EXPECT_EQ(names, tied ? std::set<std::string>{"model.embed_tokens.weight"} : std::set<std::string>{});

    const at::Tensor tokens = at::randint(0, 61, {2, 7});
    const DecoderLearned plain = LearnDecoder(model, {{tokens, {}}}, 12);
    std::vector<size_t> ran;
    model.RunUnits([&](size_t unit, const auto& forward, const at::Tensor& input) {
      ran.push_back(unit);
      // Run twice, as recomputing does, and only the parameters of the unit may matter.
      const at::NoGradGuard no_grad;
      const at::Tensor first = forward(input);
      const at::AutoGradMode grad(true);
      at::Tensor second = forward(input);
      EXPECT_TRUE(at::equal(first, second));
      return second;
    });
    EXPECT_LT(DecoderDifference(plain, LearnDecoder(model, {{tokens, {}}}, 12)), 1e-6);
    std::vector<size_t> all(units.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    EXPECT_EQ(ran, all);
  }
}

}  // namespace
}  // namespace lockstep::models
