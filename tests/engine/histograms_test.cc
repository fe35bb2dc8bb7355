// Histograms of parameters: every element counts, however many there are and whatever their size.
#include "engine/histograms.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <limits>
#include <numeric>

#include "ranks_fixture.h"

namespace lockstep::engine {
namespace {

struct OneTensor : torch::nn::Module {
  explicit OneTensor(const at::Tensor& values) { register_parameter("weight", values.clone()); }
};

std::vector<track::HistogramData> WeightsOn(int world, const at::Tensor& values) {
  std::vector<track::HistogramData> found(static_cast<size_t>(world));
  OnRanks(world, [&](Ranks& ranks) {
    OneTensor net(values);
    FlatParameters::Options options;
    options.layout.shares = world;
    options.stage = world == 1 ? Stage::kReplicated : Stage::kOptimizer;
    options.share = ranks.rank();
    const Result<FlatParameters> flat = FlatParameters::Create(net, [](int64_t n) { return at::zeros({n}); }, options);
    ASSERT_TRUE(flat.ok()) << flat.status().ToString();
    const Result<ParameterHistograms> histograms = HistogramsOf(*flat, 1, &ranks);
    ASSERT_TRUE(histograms.ok()) << histograms.status().ToString();
    ASSERT_EQ((*histograms)[0].first, "weights/weight");
    found[static_cast<size_t>(ranks.rank())] = (*histograms)[0].second;
  });
  return found;
}

double Sum(const std::vector<double>& counts) { return std::accumulate(counts.begin(), counts.end(), 0.0); }

// at::histc counts in float32, which stands still at 2^24.
TEST(Histograms, MoreElementsThanAFloatCanCount) {
  at::Tensor values = at::full({20'000'000}, 0.5);
  values[0] = 0;
  values[1] = 1;
  EXPECT_EQ(Sum(WeightsOn(1, values)[0].counts), 20e6);
}

TEST(Histograms, WhatIsNotFiniteOrTooLargeForABucketIsLeftOut) {
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor values = at::tensor({-3e38f, 3e38f, inf, -inf, std::nanf(""), -1e30f, 0.f, 2e30f});
  const track::HistogramData data = WeightsOn(1, values)[0];
  EXPECT_EQ(Sum(data.counts), 3);
  EXPECT_FLOAT_EQ(static_cast<float>(data.edges.front()), -1e30f);
  EXPECT_FLOAT_EQ(static_cast<float>(data.edges.back()), 2e30f);
}

TEST(Histograms, SharesOfSeveralRanksAddUpToTheWhole) {
  const at::Tensor values = at::linspace(-1, 2, 999);
  const track::HistogramData whole = WeightsOn(1, values)[0];
  for (const track::HistogramData& part : WeightsOn(3, values)) {
    EXPECT_EQ(part.edges, whole.edges);
    EXPECT_EQ(part.counts, whole.counts);
  }
}

}  // namespace
}  // namespace lockstep::engine
