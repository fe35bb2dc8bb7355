#include "data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "data/mixed_source.h"
#include "data/random.h"
#include "data/sampler.h"
#include "number_source.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Mixture::Part> Parts(const std::vector<double>& weights, uint64_t size = 10) {
  std::vector<Mixture::Part> parts;
  for (const double weight : weights) parts.push_back({size, weight});
  return parts;
}

std::vector<uint64_t> PerPeriod(const std::vector<double>& weights) {
  const Mixture mixture = *Mixture::Create(Parts(weights));
  std::vector<uint64_t> counts;
  for (size_t i = 0; i < weights.size(); ++i) counts.push_back(mixture.per_period(i));
  return counts;
}

TEST(Mixture, WeightsOfFewDecimalsAreExact) {
  EXPECT_THAT(PerPeriod({0.7, 0.3}), ElementsAre(7, 3));
  EXPECT_THAT(PerPeriod({2, 1, 1}), ElementsAre(2, 1, 1));
  EXPECT_THAT(PerPeriod({10, 30}), ElementsAre(1, 3));
  EXPECT_THAT(PerPeriod({0.125, 0.875}), ElementsAre(1, 7));
  EXPECT_THAT(PerPeriod({0.0001, 0.9999}), ElementsAre(1, 9999));
  EXPECT_THAT(PerPeriod({5}), ElementsAre(1));
}

TEST(Mixture, OtherWeightsAreRoundedToTheLongestPeriod) {
  const std::vector<double> weights = {std::acos(-1.0), std::exp(1.0), 1.0 / 3};
  const Mixture mixture = *Mixture::Create(Parts(weights));
  EXPECT_EQ(mixture.period(), Mixture::kLongestPeriod);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_NEAR(mixture.share(i), weights[i] / (weights[0] + weights[1] + weights[2]), 1.0 / Mixture::kLongestPeriod);
  }
}

TEST(Mixture, AfterAnyNumberOfDrawsEverySetHasItsShare) {
  std::vector<std::vector<double>> all = {
      {0.7, 0.3}, {1, 1}, {0.5, 0.25, 0.125, 0.125}, {1, 1, 1, 1, 1, 1, 1}, {100, 1, 1, 1}, {0.9, 0.1, 3}, {5}};
  Random random(7);
  for (int i = 0; i < 40; ++i) {
    std::vector<double> weights;
    for (int64_t n = random.Between(2, 12); n > 0; --n) weights.push_back(static_cast<double>(random.Between(1, 100)));
    all.push_back(weights);
  }
  for (const std::vector<double>& weights : all) {
    const Mixture mixture = *Mixture::Create(Parts(weights));
    const double bound = weights.size() == 1 ? 0 : 1 - 1.0 / (2 * static_cast<double>(weights.size()) - 2);
    std::vector<uint64_t> had(weights.size(), 0);
    for (uint64_t draw = 0; draw < 3 * mixture.period(); ++draw) {
      for (size_t part = 0; part < had.size(); ++part) {
        const double wanted = mixture.share(part) * static_cast<double>(draw);
        ASSERT_LE(std::abs(static_cast<double>(had[part]) - wanted), bound + 1e-9) << draw << " of part " << part;
        ASSERT_EQ(mixture.DrawsOf(part, draw), had[part]);
      }
      const Mixture::Drawn drawn = mixture.At(draw);
      ASSERT_EQ(drawn.number, had[drawn.part]++);
    }
  }
}

TEST(Mixture, ATrillionDrawsAreCountedWithoutGoingThroughThem) {
  const Mixture mixture = *Mixture::Create(Parts({0.7, 0.2, 0.1}));
  constexpr uint64_t kFar = 1'000'000'000'000;
  EXPECT_EQ(mixture.DrawsOf(0, kFar), kFar / 10 * 7);
  EXPECT_EQ(mixture.DrawsOf(2, kFar), kFar / 10);
  const Mixture::Drawn drawn = mixture.At(kFar);
  EXPECT_EQ(drawn.number, mixture.DrawsOf(drawn.part, kFar));
}

TEST(Mixture, RefusesWhatCannotBeMixed) {
  const std::vector<std::pair<std::vector<Mixture::Part>, std::string>> rows = {
      {{}, "0 data sets"},
      {{{10, 1}, {0, 1}}, "set 1 of the mixture has no samples"},
      {{{10, 1}, {10, 0}}, "weight 0 of set 1"},
      {{{10, -1}}, "weight -1 of set 0"},
      {{{10, NAN}}, "weight nan of set 0"},
      {{{10, 1e9}, {10, 1}}, "less than 1/65536"},
      {std::vector<Mixture::Part>(1001, {1, 1}), "1001 data sets"},
  };
  for (const auto& [parts, message] : rows) {
    EXPECT_THAT(Mixture::Create(parts).status().message(), HasSubstr(message));
  }
}

// Sizes 5, 12 and 40, of which 50 %, 30 % and 20 % are drawn.
std::shared_ptr<const Mixture> Three() {
  return std::make_shared<const Mixture>(*Mixture::Create({{5, 0.5}, {12, 0.3}, {40, 0.2}}));
}
size_t SetOf(uint64_t index) { return index < 5 ? 0 : index < 17 ? 1 : 2; }

TEST(MixedSampler, NoSampleOfASetComesAgainBeforeTheOthersOfTheSet) {
  for (const bool shuffle : {true, false}) {
    Sampler sampler = *Sampler::CreateMixed(Three(), {.seed = 3}, 7, shuffle);
    std::map<std::pair<size_t, uint64_t>, std::set<uint64_t>> seen;  // by set and its epoch
    for (int batch = 0; batch < 200; ++batch) {
      const std::vector<SampleId> ids = sampler.Take();
      ASSERT_EQ(ids.size(), 7u);
      for (const SampleId& id : ids) {
        ASSERT_LT(id.index, 57u);
        ASSERT_TRUE((seen[{SetOf(id.index), id.epoch}].insert(id.index).second)) << id.index << " in " << id.epoch;
      }
    }
    const uint64_t sizes[] = {5, 12, 40};
    const uint64_t draws[] = {700, 420, 280};
    for (size_t set = 0; set < 3; ++set) {
      for (uint64_t epoch = 0; epoch < draws[set] / sizes[set]; ++epoch) {
        EXPECT_EQ((seen[{set, epoch}].size()), sizes[set]) << "set " << set << " epoch " << epoch;
      }
    }
  }
}

TEST(MixedSampler, AfterEveryBatchEverySetHasHadItsShare) {
  const auto mixture = Three();
  Sampler sampler = *Sampler::CreateMixed(mixture, {.seed = 3}, 6);
  std::vector<double> had(3, 0);
  for (int batch = 1; batch <= 300; ++batch) {
    for (const SampleId& id : sampler.Take()) ++had[SetOf(id.index)];
    for (size_t set = 0; set < 3; ++set) EXPECT_LT(std::abs(had[set] - mixture->share(set) * 6 * batch), 1);
  }
}

TEST(MixedSampler, ResumesAnywhereWithTheSameOrder) {
  Sampler whole = *Sampler::CreateMixed(Three(), {.seed = 9}, 8);
  std::vector<std::vector<SampleId>> batches;
  std::vector<SamplerState> states;
  for (int i = 0; i < 60; ++i) {
    states.push_back(whole.state());
    batches.push_back(whole.Take());
  }
  const Sampler from_start = *Sampler::CreateMixed(Three(), {.seed = 9}, 8);
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(Sampler::CreateMixed(Three(), states[i], 8)->Take(), batches[i]);
    EXPECT_EQ(from_start.Peek(i), batches[i]);
  }
  // Another global batch: other batches of the same draws.
  Sampler twice = *Sampler::CreateMixed(Three(), states[20], 16);
  std::set<uint64_t> draws, expected;
  for (const SampleId& id : twice.Take()) draws.insert(id.index + 1000 * id.position);
  for (size_t i : {20, 21}) {
    for (const SampleId& id : batches[i]) expected.insert(id.index + 1000 * id.position);
  }
  EXPECT_EQ(draws, expected);
  EXPECT_EQ(Sampler::CreateMixed(Three(), {9, 0, 1'000'000'000'000}, 8)->Take().size(), 8u);
}

TEST(MixedSampler, SeedsSetsAndNewBeginningsHaveOrdersOfTheirOwn) {
  const auto two = std::make_shared<const Mixture>(*Mixture::Create({{50, 1}, {50, 1}}));
  const auto orders = [&](SamplerState state) {
    Sampler sampler = *Sampler::CreateMixed(two, state, 100);
    std::vector<std::pair<uint64_t, uint64_t>> by_draw;
    for (const SampleId& id : sampler.Take()) by_draw.emplace_back(id.position, id.index);
    std::ranges::sort(by_draw);
    std::vector<uint64_t> first, second;
    for (const auto& [draw, index] : by_draw) (index < 50 ? first : second).push_back(index % 50);
    return std::pair(first, second);
  };
  const auto [first, second] = orders({.seed = 1});
  EXPECT_NE(first, second);
  EXPECT_NE(orders({.seed = 2}).first, first);
  EXPECT_NE(orders({.seed = 1, .epoch = 1}).first, first);
}

// With a share of 1/2 each and two ranks, neither rank has only one of the sets.
TEST(MixedSampler, RanksGetSamplesOfAllSets) {
  const auto two = std::make_shared<const Mixture>(*Mixture::Create({{50, 1}, {50, 1}}));
  Sampler sampler = *Sampler::CreateMixed(two, {.seed = 1}, 2);
  std::set<std::pair<uint64_t, bool>> seen;
  for (int i = 0; i < 30; ++i) {
    const std::vector<SampleId> batch = sampler.Take();
    for (uint64_t rank : {0, 1}) seen.insert({rank, ShareOf(batch, rank, 2).front().index < 50});
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(MixedSource, HasTheSamplesOfAllSetsOneAfterTheOther) {
  const auto first = std::make_shared<NumberSource>(5);
  const auto second = std::make_shared<NumberSource>(12);
  const auto mixture = std::make_shared<const Mixture>(*Mixture::Create({{5, 1}, {12, 3}}));
  const auto mixed = *MixedSource::Create({first, second}, mixture);
  EXPECT_EQ(mixed->size(), 17u);
  EXPECT_EQ(mixed->Name(4), "number 4");
  EXPECT_EQ(mixed->Name(5), "number 0");
  EXPECT_EQ(mixed->Origin(4), "0/video 4");
  EXPECT_EQ(mixed->Origin(5), "1/video 0");
  EXPECT_EQ(mixed->Describe(), "25 % numbers + 75 % numbers");
  int64_t numbers[2] = {-1, -1};
  std::byte bytes[15];
  std::byte* const out[] = {reinterpret_cast<std::byte*>(numbers), bytes};
  ASSERT_TRUE(mixed->Read({.seed = 1, .index = 16}, out).ok());
  EXPECT_EQ(numbers[0], 11);
  EXPECT_EQ(first->reads_, 0);
}

TEST(MixedSource, ItsDigestChangesWithTheWeights) {
  const auto digest = [](double weight) {
    const auto set = std::make_shared<NumberSource>(5);
    const auto mixture = std::make_shared<const Mixture>(*Mixture::Create({{5, 1}, {5, weight}}));
    return (*MixedSource::Create({set, set}, mixture))->Digest();
  };
  EXPECT_EQ(digest(1), digest(1));
  EXPECT_NE(digest(1), digest(2));
}

class OtherForm final : public Source {
 public:
  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return 1; }
  std::string Name(uint64_t) const override { return ""; }
  std::string Describe() const override { return ""; }
  std::string Digest() const override { return ""; }
  Status Read(const Draw&, std::span<std::byte* const>) const override { return Status::Ok(); }

 private:
  std::vector<Field> fields_{{"numbers", ElementType::kI64, {3}}};
};

TEST(MixedSource, RefusesSetsOfDifferentForm) {
  const Status status =
      MixedSource::Create({std::make_shared<NumberSource>(5), std::make_shared<OtherForm>()}, nullptr).status();
  EXPECT_THAT(status.message(), HasSubstr("numbers i64 [2], bytes u8 [3, 5], of set 1 numbers i64 [3]"));
}

TEST(MixedSource, IndexesOfAnyBytesAreJoinedAndSplit) {
  const std::vector<std::string> indexes = {"", std::string("7\n\0\xff", 4), "", "12\nab"};
  const std::string joined = JoinIndexes(indexes);
  EXPECT_EQ(*SplitIndexes(joined), indexes);
  EXPECT_FALSE(SplitIndexes(joined.substr(0, joined.size() - 1)).ok());
  EXPECT_FALSE(SplitIndexes("x").ok());
}

}  // namespace
}  // namespace lockstep::data
