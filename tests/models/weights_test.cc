// Strict loading: nothing is loaded unless everything fits, and the message says what does not.
#include "models/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "models/state_copy.h"
#include "models/taehv.h"
#include "models/taehv_file.h"

namespace lockstep::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Thin nets with the structure of a variant: the rules look at shapes, not at sizes.
TaehvConfig Thin(const std::string& variant) {
  TaehvConfig config = *FindTaehv(variant);
  config.encoder_width = {4, 4, 4, 4};
  config.decoder_width = {4, 4, 4, 4};
  return config;
}

bool Equal(const torch::nn::Module& module, const NamedTensors& weights) {
  NamedTensors own = StateDict(module);
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].first != weights[i].first || !at::equal(own[i].second, weights[i].second)) return false;
  }
  return own.size() == weights.size();
}

TEST(Weights, AFittingFileReplacesEveryTensor) {
  Taehv from(Thin("taehv"), 1), to(Thin("taehv"), 2);
  NamedTensors weights = CopyOf(from);
  EXPECT_FALSE(Equal(to, weights));
  ASSERT_TRUE(to.Load(weights).ok());
  EXPECT_TRUE(Equal(to, weights));
  for (const auto& item : to.named_parameters()) EXPECT_TRUE(item.value().requires_grad());
}

TEST(Weights, HalfPrecisionIsWidenedIntegersAreRefused) {
  Taehv from(Thin("taehv"), 1), to(Thin("taehv"), 2);
  NamedTensors weights = CopyOf(from);
  for (auto& [name, tensor] : weights) tensor = tensor.to(at::kHalf);
  ASSERT_TRUE(to.Load(weights).ok());
  EXPECT_EQ(StateDict(to)[0].second.scalar_type(), at::kFloat);
  weights[0].second = weights[0].second.to(at::kLong);
  EXPECT_THAT(to.Load(weights).message(), HasSubstr("encoder.0.weight holds Long, expected Float"));
}

TEST(Weights, WhatDoesNotFitIsNamedAndNothingIsLoaded) {
  Taehv model(Thin("taehv"), 1);
  NamedTensors before = CopyOf(model), weights = CopyOf(Taehv(Thin("taehv"), 2));
  weights[0].first = "encoder.0.wait";
  weights[3].second = at::zeros({1, 2});
  weights.push_back(weights[5]);
  Status status = model.Load(weights);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kUsage);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr("1 missing: encoder.0.weight"), HasSubstr("1 unexpected: encoder.0.wait"),
            HasSubstr("1 given twice: " + weights[5].first), HasSubstr(weights[3].first + " is [1, 2], expected [")));
  EXPECT_TRUE(Equal(model, before));
}

TEST(Weights, ManyProblemsAreCountedAndEightAreShown) {
  Taehv model(Thin("taehv"), 1);
  NamedTensors weights = CopyOf(model);
  size_t all = weights.size();
  weights.resize(2);
  EXPECT_THAT(model.Load(weights).message(), AllOf(HasSubstr(fmt::format("{} missing: ", all - 2)),
                                                   HasSubstr(fmt::format("and {} more", all - 2 - 8))));
}

TEST(Weights, AFileOfAnotherVariantNamesTheVariantThatFits) {
  Taehv model(*FindTaehv("taehv"), 1);
  EXPECT_THAT(
      model.Load(CopyOf(Taehv(*FindTaehv("taehv1_5"), 1))).ToString(),
      AllOf(HasSubstr("decoder.22.weight is [12, 64, 3, 3], expected [3, 64, 3, 3]"),
            HasSubstr("patch 2, 32 latent channels"), HasSubstr("variant (recipe.model, --variant) is taehv1_5")));
  Status small = model.Load(CopyOf(Taehv(*FindTaehv("taehv-small"), 1)));
  EXPECT_THAT(small.hint(), HasSubstr("variant (recipe.model, --variant) is taehv-small"));
  // Several variants share shapes; the file cannot tell which it is.
  Status ambiguous = Taehv(*FindTaehv("taew2_2"), 1).Load(CopyOf(model));
  EXPECT_THAT(ambiguous.hint(), HasSubstr("is taehv or taew2_1 or taeos1_3 or taecvx"));
}

TEST(Weights, AFileOfAnotherModelIsNotGivenAVariant) {
  Taehv model(Thin("taehv"), 1);
  EXPECT_THAT(model.Load({{"fc.weight", at::zeros({3, 3})}}).hint(),
              AllOf(HasSubstr("not a TAEHV weight file"), Not(HasSubstr("recipe.model"))));
  Status wide = Taehv(*FindTaehv("taew2_2"), 1).Load(CopyOf(Taehv(*FindTaehv("taew2_2_super"), 1)));
  EXPECT_THAT(wide.hint(), AllOf(HasSubstr("_super decoder width 512"),
                                 HasSubstr("variant (recipe.model, --variant) is taew2_2_super")));
}

TEST(Weights, AnIncompleteFileOfTheRightVariantIsNotSentToAnother) {
  Taehv model(Thin("taehv"), 1);
  NamedTensors weights = CopyOf(model);
  weights.pop_back();
  EXPECT_THAT(model.Load(weights).hint(), AllOf(HasSubstr("not complete"), Not(HasSubstr("--variant"))));
}

TEST(Weights, ValuesThatAreNoNumbersAreRefusedByName) {
  Taehv model(Thin("taehv"), 1);
  NamedTensors weights = CopyOf(model);
  weights[3].second.view(-1)[0] = std::nan("");
  EXPECT_THAT(model.Load(weights).message(), HasSubstr(weights[3].first + " has values that are not finite"));
  EXPECT_THAT(StartFrom(model, weights).message(), HasSubstr(weights[3].first + " has values that are not finite"));
  for (const auto& [name, own] : StateDict(model)) EXPECT_TRUE(own.isfinite().all().item<bool>()) << "nothing is taken";
}

TEST(Weights, AFileWithWeightsAndTheirAverageIsAskedWhichIsMeant) {
  Taehv model(Thin("taehv"), 1);
  NamedTensors both;
  for (const auto& [name, tensor] : CopyOf(model)) {
    both.emplace_back("model." + name, tensor);
    both.emplace_back("ema.module." + name, tensor);
  }
  EXPECT_THAT(model.Load(both).hint(), HasSubstr("2 models: 'model', 'ema.module'"));
  EXPECT_THAT(RecognizeTaehv(both, "last.pth", {}).status().message(), HasSubstr("last.pth: it holds 2 models"));
}

TEST(Weights, AShorterTGrowKeepsTheLastRows) {
  TaehvConfig preview = Thin("taehv");
  preview.decoder_time = {1, 2, 1};
  Taehv full(Thin("taehv"), 1), shorter(preview, 2);
  ASSERT_TRUE(shorter.Load(CopyOf(full)).ok());
  at::Tensor rows = full.named_parameters()["decoder.19.conv.weight"];
  ASSERT_EQ(rows.size(0), 8);
  EXPECT_TRUE(at::equal(shorter.named_parameters()["decoder.19.conv.weight"], rows.narrow(0, 4, 4)));
  EXPECT_FALSE(full.Load(CopyOf(shorter)).ok());  // rows cannot be invented
}

TEST(Weights, BuffersAreLoadedToo) {
  torch::nn::BatchNorm2d from(3), to(3);
  from->running_mean.fill_(2);
  ASSERT_TRUE(LoadWeights(*to, CopyOf(*from)).ok());
  EXPECT_EQ(to->running_mean[0].item<float>(), 2);
}

}  // namespace
}  // namespace lockstep::models
