// Generation with a cache is generation without, and tokens are drawn from the distribution that was asked for.
#include <gtest/gtest.h>

#include "models/decoder.h"
#include "models/sampling.h"

namespace lockstep::models {
namespace {

TEST(DecoderCache, GivesTheLogitsOfTheWholeSequenceHoweverItIsFed) {
  at::manual_seed(1);
  Decoder model({.vocabulary = 61, .width = 32, .layers = 2, .mlp = 48, .rope_theta = 100}, 3);
  const at::Tensor tokens = at::randint(0, 61, {3, 12});
  const at::NoGradGuard no_grad;
  const at::Tensor expected = model.Logits(model.Hidden(tokens, {}));
  for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{12}, {5, 7}, {1, 1, 3, 1, 6}, {11, 1}}) {
    auto cache = model.NewCache(3, 12);
    const void* memory = cache->keys[1].data_ptr();
    int64_t at = 0;
    for (const int64_t piece : pieces) {
      const at::Tensor logits = model.Next(tokens.narrow(1, at, piece), cache.get());
      at += piece;
      EXPECT_TRUE(at::allclose(logits, expected.select(1, at - 1), 1e-4, 1e-5)) << at << " of " << pieces.size();
    }
    EXPECT_EQ(cache->length, 12);
    EXPECT_EQ(cache->keys[1].data_ptr(), memory);
    EXPECT_THROW(model.Next(tokens.narrow(1, 0, 1), cache.get()), c10::Error) << "no room";
    cache->length = 4;  // forget the rest
    EXPECT_TRUE(at::allclose(model.Next(tokens.narrow(1, 4, 2), cache.get()), expected.select(1, 5), 1e-4, 1e-5));
  }
}

TEST(Sampling, KeepsTheTokensThatWereAskedFor) {
  const at::Tensor logits = at::tensor({0.5f, 0.25f, 0.125f, 0.125f}).log().unsqueeze(0);
  struct Row {
    SamplingOptions options;
    std::vector<float> probabilities;
  };
  const Row rows[] = {
      {{}, {0.5f, 0.25f, 0.125f, 0.125f}},
      {{.temperature = 0}, {1, 0, 0, 0}},
      {{.temperature = 0.5}, {0.25f / 0.34375f, 0.0625f / 0.34375f, 0.015625f / 0.34375f, 0.015625f / 0.34375f}},
      {{.top_k = 1}, {1, 0, 0, 0}},
      {{.top_k = 2}, {2.f / 3, 1.f / 3, 0, 0}},
      {{.top_k = 3}, {0.5f, 0.25f, 0.125f, 0.125f}},  // the fourth is as probable as the third
      {{.top_k = 9}, {0.5f, 0.25f, 0.125f, 0.125f}},
      {{.top_p = 0.1}, {1, 0, 0, 0}},
      {{.top_p = 0.6}, {2.f / 3, 1.f / 3, 0, 0}},
      {{.top_k = 2, .top_p = 0.6}, {1, 0, 0, 0}},  // p is of what top-k left
  };
  for (const Row& row : rows) {
    const at::Tensor found = SamplingProbabilities(logits, row.options);
    EXPECT_TRUE(at::allclose(found, at::tensor(row.probabilities).unsqueeze(0), 1e-5, 1e-6)) << found;
    EXPECT_TRUE(row.options.Check().ok());
  }
  for (const SamplingOptions& wrong :
       {SamplingOptions{.temperature = -1}, {.top_k = -1}, {.top_p = 0}, {.top_p = 1.5}}) {
    EXPECT_FALSE(wrong.Check().ok());
  }
}

TEST(Sampling, DrawsBySeedWithTheRightFrequencies) {
  const at::Tensor logits = at::tensor({0.1f, 0.0f, 0.6f, 0.3f}).log().expand({20000, 4});
  const auto draw = [&](uint64_t seed) { return Sampler({}, seed).Next(logits); };
  const at::Tensor tokens = draw(5);
  EXPECT_TRUE(at::equal(tokens, draw(5)));
  EXPECT_FALSE(at::equal(tokens, draw(6)));
  const at::Tensor share = at::bincount(tokens, {}, 4).to(at::kFloat) / 20000;
  EXPECT_TRUE(at::allclose(share, at::tensor({0.1f, 0.0f, 0.6f, 0.3f}), 0, 0.02)) << share;
  EXPECT_EQ(share[1].item<float>(), 0) << "a token without probability";
  EXPECT_EQ(Sampler({.temperature = 0}, 1).Next(logits.narrow(0, 0, 1)).item<int64_t>(), 2);
}

}  // namespace
}  // namespace lockstep::models
