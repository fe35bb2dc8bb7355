#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "data/random.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

std::vector<uint64_t> Order(uint64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<uint64_t> order(size);
  for (uint64_t i = 0; i < size; ++i) order[i] = permutation(i);
  return order;
}

bool IsBijection(std::vector<uint64_t> order) {
  std::ranges::sort(order);
  for (uint64_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

TEST(PermutationTest, IsABijectionForEverySmallSize) {
  for (uint64_t size = 1; size <= 300; ++size) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      ASSERT_TRUE(IsBijection(Order(size, seed, seed * 3))) << size << " seed " << seed;
    }
  }
}

TEST(PermutationTest, IsABijectionAroundPowersOfTwoAndForPrimes) {
  for (uint64_t size : {1021, 1023, 1024, 1025, 4095, 4096, 4097, 7919, 65535, 65536, 65537, 104729}) {
    ASSERT_TRUE(IsBijection(Order(size, 5, 7))) << size;
  }
}

TEST(PermutationTest, TheCheckSeesARepeatedIndex) { EXPECT_FALSE(IsBijection({0, 1, 1, 3})); }

TEST(PermutationTest, ABillionSamplesAreReachedAtOnceAndDoNotCollide) {
  for (uint64_t size : {1'000'000'000ull, 1ull << 40, (1ull << 61) + 3}) {
    const Permutation permutation(size, 1, 2);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 20'000; ++i) {
      const uint64_t index = permutation(size - 1 - i * 31);
      ASSERT_LT(index, size);
      ASSERT_TRUE(seen.insert(index).second);
    }
  }
}

TEST(PermutationTest, SeedsAndEpochsGiveOtherOrders) {
  const auto order = Order(1000, 1, 1);
  EXPECT_EQ(order, Order(1000, 1, 1));
  EXPECT_NE(order, Order(1000, 2, 1));
  EXPECT_NE(order, Order(1000, 1, 2));
  EXPECT_NE(Order(1000, 1, 2), Order(1000, 2, 1));
}

// Chi-square of where index j lands over many seeds; for k cells it is about k - 1 with deviation sqrt(2(k - 1)).
double ChiSquareOfPosition(uint64_t size, uint64_t position, bool shuffled) {
  constexpr int kDraws = 20'000;
  std::vector<double> count(size);
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    ++count[shuffled ? Permutation(size, seed / 100, seed % 100)(position) : position];
  }
  const double expected = static_cast<double>(kDraws) / static_cast<double>(size);
  return std::accumulate(count.begin(), count.end(), 0.0,
                         [&](double sum, double n) { return sum + (n - expected) * (n - expected) / expected; });
}

TEST(PermutationTest, EveryPositionSeesEveryIndexEquallyOften) {
  for (uint64_t size : {2, 3, 5, 10, 17, 100}) {
    for (uint64_t position : {uint64_t{0}, size / 2, size - 1}) {
      const double freedom = static_cast<double>(size - 1);
      EXPECT_LT(ChiSquareOfPosition(size, position, true), freedom + 5 * std::sqrt(2 * freedom) + 5)
          << size << " at " << position;
    }
    EXPECT_GT(ChiSquareOfPosition(size, 0, false), 10'000);  // the measure sees an order that is none
  }
}

TEST(PermutationTest, NeighboursAreNotCorrelated) {
  constexpr uint64_t kSize = 100'000;
  const auto order = Order(kSize, 3, 0);
  double sum = 0;
  for (uint64_t i = 0; i + 1 < kSize; ++i) {
    sum += (static_cast<double>(order[i]) / kSize - 0.5) * (static_cast<double>(order[i + 1]) / kSize - 0.5);
  }
  EXPECT_LT(std::abs(sum / kSize * 12), 0.02);  // correlation; its deviation is 0.003
}

TEST(SamplerTest, TakesEverySampleOnceAnEpoch) {
  for (uint64_t size : {1, 7, 10, 64, 65}) {
    Sampler sampler = *Sampler::Create(size, {.seed = 4}, 8, LastBatch::kKeep);
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<uint64_t> indices;
      uint64_t batches = 0;
      while (sampler.state().epoch == epoch) {
        ++batches;
        for (const SampleId& id : sampler.Take()) {
          EXPECT_EQ(id.epoch, epoch);
          EXPECT_EQ(id.position, indices.size());
          indices.push_back(id.index);
        }
      }
      EXPECT_EQ(batches, sampler.batches_per_epoch());
      ASSERT_EQ(indices.size(), size);
      EXPECT_TRUE(IsBijection(indices));
    }
  }
}

TEST(SamplerTest, PaddingRepeatsTheStartOfTheSameEpoch) {
  Sampler sampler = *Sampler::Create(10, {.seed = 4}, 4, LastBatch::kPad);
  EXPECT_EQ(sampler.batches_per_epoch(), 3);
  const auto first = sampler.Take();
  sampler.Take();
  const auto last = sampler.Take();
  ASSERT_EQ(last.size(), 4);
  EXPECT_EQ(last[1].position, 9);
  EXPECT_EQ(last[2], first[0]);
  EXPECT_EQ(last[3], first[1]);
  EXPECT_EQ(sampler.state(), (SamplerState{4, 1, 0}));
}

TEST(SamplerTest, PaddingFillsABatchLargerThanTheSourceTwoTimesOver) {
  Sampler sampler = *Sampler::Create(3, {}, 8, LastBatch::kPad);
  const auto batch = sampler.Take();
  ASSERT_EQ(batch.size(), 8);
  for (size_t i = 0; i < batch.size(); ++i) EXPECT_EQ(batch[i].position, i % 3);
  EXPECT_EQ(sampler.state().epoch, 1);
}

TEST(SamplerTest, DroppingLeavesTheRestOut) {
  Sampler sampler = *Sampler::Create(10, {.seed = 1}, 4, LastBatch::kDrop);
  EXPECT_EQ(sampler.batches_per_epoch(), 2);
  sampler.Take();
  EXPECT_EQ(sampler.Take().size(), 4);
  EXPECT_EQ(sampler.state(), (SamplerState{1, 1, 0}));
}

TEST(SamplerTest, WithoutShufflingTheOrderIsThatOfTheSource) {
  Sampler sampler = *Sampler::Create(5, {.seed = 9}, 3, LastBatch::kKeep, /*shuffle=*/false);
  std::vector<uint64_t> indices;
  for (int i = 0; i < 2; ++i) {
    for (const SampleId& id : sampler.Take()) indices.push_back(id.index);
  }
  EXPECT_THAT(indices, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(SamplerTest, PeekingAheadGivesWhatTakingWillGive) {
  for (LastBatch last_batch : {LastBatch::kDrop, LastBatch::kPad, LastBatch::kKeep}) {
    Sampler sampler = *Sampler::Create(23, {.seed = 2, .epoch = 5, .position = 6}, 5, last_batch);
    const Sampler start = sampler;
    for (uint64_t ahead = 0; ahead < 40; ++ahead) {
      ASSERT_EQ(start.After(ahead), sampler.state());
      ASSERT_EQ(start.Peek(ahead), sampler.Take());
    }
  }
}

TEST(SamplerTest, ThreeIntegersAreTheWholeState) {
  Sampler sampler = *Sampler::Create(100, {.seed = 2}, 7, LastBatch::kKeep);
  for (int i = 0; i < 20; ++i) sampler.Take();
  Sampler resumed = *Sampler::Create(100, sampler.state(), 7, LastBatch::kKeep);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(resumed.Take(), sampler.Take());
}

TEST(SamplerTest, AChangedBatchInTheMiddleOfAnEpochStillGivesEverySampleOnce) {
  Random random(77);
  for (int round = 0; round < 50; ++round) {
    const uint64_t size = 1 + random.Below(200);
    SamplerState state{.seed = static_cast<uint64_t>(round)};
    std::vector<uint64_t> indices;
    while (state.epoch == 0) {
      Sampler sampler = *Sampler::Create(size, state, 1 + random.Below(17), LastBatch::kKeep);
      for (const SampleId& id : sampler.Take()) indices.push_back(id.index);
      state = sampler.state();
    }
    ASSERT_EQ(indices.size(), size);
    ASSERT_TRUE(IsBijection(indices));
  }
}

TEST(SamplerTest, ResumesAtSampleOneBillion) {
  Sampler sampler =
      *Sampler::Create(3'000'000'000, {.seed = 1, .epoch = 9, .position = 1'000'000'000}, 4, LastBatch::kDrop);
  const auto batch = sampler.Peek(400'000'000);
  EXPECT_EQ(batch[0].epoch, 9);
  EXPECT_EQ(batch[0].position, 2'600'000'000);
  EXPECT_EQ(sampler.Peek(500'000'000)[0].epoch, 10);
}

TEST(SamplerTest, RefusesWhatCannotWork) {
  EXPECT_THAT(Sampler::Create(3, {}, 4, LastBatch::kDrop).status().message(), HasSubstr("3 samples do not fill"));
  EXPECT_THAT(Sampler::Create(1, {}, 4, LastBatch::kDrop).status().message(), HasSubstr("1 sample does not fill"));
  EXPECT_FALSE(Sampler::Create(0, {}, 4, LastBatch::kKeep).ok());
  EXPECT_FALSE(Sampler::Create(3, {}, 0, LastBatch::kKeep).ok());
  EXPECT_THAT(Sampler::Create(3, {.position = 4}, 1, LastBatch::kKeep).status().message(), HasSubstr("other data"));
  EXPECT_TRUE(Sampler::Create(4, {}, 4, LastBatch::kDrop).ok());
  EXPECT_EQ(Sampler::Create(3, {.position = 3}, 1, LastBatch::kKeep)->state().epoch, 1);
}

// Which bucket a sample is of, by sizes that lie one after the other.
size_t BucketAt(const std::vector<uint64_t>& sizes, uint64_t index) {
  size_t bucket = 0;
  for (; index >= sizes[bucket]; ++bucket) index -= sizes[bucket];
  return bucket;
}

TEST(BucketedSamplerTest, EveryBatchIsOfOneBucketAndAnEpochHasEverySample) {
  const std::vector<uint64_t> sizes = {23, 8, 40};
  struct Row {
    LastBatch last_batch;
    uint64_t batches, samples;  // of an epoch with batches of 8
  };
  for (const Row& row : {Row{LastBatch::kKeep, 9, 71}, {LastBatch::kPad, 9, 72}, {LastBatch::kDrop, 8, 64}}) {
    Sampler sampler = *Sampler::CreateBucketed(sizes, {.seed = 3}, 8, row.last_batch);
    EXPECT_EQ(sampler.batches_per_epoch(), row.batches);
    std::vector<std::vector<uint64_t>> epochs;
    std::vector<size_t> turns;  // buckets of the first epoch, in the order of its batches
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<uint64_t> all;
      while (sampler.state().epoch == epoch) {
        const auto batch = sampler.Take();
        const size_t bucket = BucketAt(sizes, batch.front().index);
        if (epoch == 0) turns.push_back(bucket);
        for (const SampleId& id : batch) {
          EXPECT_EQ(BucketAt(sizes, id.index), bucket);
          all.push_back(id.index);
        }
      }
      EXPECT_EQ(all.size(), row.samples);
      const std::set<uint64_t> different(all.begin(), all.end());
      EXPECT_EQ(different.size(), std::min<uint64_t>(row.samples, 71));
      epochs.push_back(all);
    }
    EXPECT_NE(epochs[0], epochs[1]);
    EXPECT_FALSE(std::ranges::is_sorted(turns)) << "buckets come in turns, not one after the other";
  }
}

TEST(BucketedSamplerTest, PeekingAndResumingGiveWhatTakingGives) {
  const std::vector<uint64_t> sizes = {13, 5, 9};
  for (LastBatch last_batch : {LastBatch::kDrop, LastBatch::kPad, LastBatch::kKeep}) {
    Sampler sampler = *Sampler::CreateBucketed(sizes, {.seed = 2, .epoch = 5, .position = 8}, 4, last_batch);
    const Sampler start = sampler;
    for (uint64_t ahead = 0; ahead < 40; ++ahead) {
      ASSERT_EQ(start.After(ahead), sampler.state());
      Sampler resumed = *Sampler::CreateBucketed(sizes, sampler.state(), 4, last_batch);
      const auto batch = sampler.Take();
      ASSERT_EQ(start.Peek(ahead), batch);
      ASSERT_EQ(resumed.Take(), batch);
    }
  }
}

TEST(BucketedSamplerTest, ResumesAtSampleOneBillion) {
  const std::vector<uint64_t> sizes = {1'000'000'000, 2'000'000'000};
  Sampler sampler =
      *Sampler::CreateBucketed(sizes, {.seed = 1, .epoch = 9, .position = 1'000'000'000}, 4, LastBatch::kDrop);
  EXPECT_EQ(sampler.Peek(400'000'000)[0].position, 2'600'000'000);
  EXPECT_EQ(sampler.Peek(500'000'000)[0].epoch, 10);
}

TEST(BucketedSamplerTest, WithoutShufflingBucketsComeOneAfterTheOther) {
  Sampler sampler = *Sampler::CreateBucketed({3, 2}, {}, 2, LastBatch::kKeep, /*shuffle=*/false);
  std::vector<uint64_t> indices;
  for (int i = 0; i < 3; ++i) {
    for (const SampleId& id : sampler.Take()) indices.push_back(id.index);
  }
  EXPECT_THAT(indices, testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(sampler.state().epoch, 1);
}

TEST(BucketedSamplerTest, RefusesWhatCannotWork) {
  EXPECT_THAT(Sampler::CreateBucketed({9, 3}, {}, 4, LastBatch::kDrop).status().message(),
              HasSubstr("bucket 1 of 2 has 3 samples, which fill no global batch of 4"));
  EXPECT_TRUE(Sampler::CreateBucketed({9, 3}, {}, 4, LastBatch::kPad).ok());
  EXPECT_FALSE(Sampler::CreateBucketed({9, 3}, {}, 0, LastBatch::kPad).ok());
  EXPECT_THAT(Sampler::CreateBucketed({9, 4}, {.position = 6}, 4, LastBatch::kKeep).status().message(),
              HasSubstr("other data or another batch"));
  EXPECT_EQ(Sampler::CreateBucketed({9, 4}, {.position = 16}, 4, LastBatch::kKeep)->state().epoch, 1);
}

TEST(ShareOfTest, SharesAreBalancedContiguousAndComplete) {
  for (size_t size = 0; size < 20; ++size) {
    std::vector<SampleId> batch(size);
    for (size_t i = 0; i < size; ++i) batch[i].index = i;
    for (uint64_t world = 1; world < 9; ++world) {
      std::vector<SampleId> joined;
      size_t before = size;
      for (uint64_t rank = 0; rank < world; ++rank) {
        const auto share = ShareOf(batch, rank, world);
        EXPECT_LE(share.size(), before);
        EXPECT_GE(share.size() + 1, (size + world - 1) / world);
        before = share.size();
        joined.insert(joined.end(), share.begin(), share.end());
      }
      EXPECT_EQ(joined, batch);
    }
  }
  EXPECT_TRUE(ShareOf({}, 3, 2).empty());
}

TEST(RandomTest, IsAFunctionOfItsKey) {
  Random a(1, 2, 3, Purpose::kCrop);
  Random b(1, 2, 3, Purpose::kCrop);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(a.Next(), b.Next());
  std::set<uint64_t> firsts;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    for (uint64_t epoch = 0; epoch < 5; ++epoch) {
      for (uint64_t index = 0; index < 5; ++index) {
        firsts.insert(Random(seed, epoch, index, Purpose::kCrop).Next());
        firsts.insert(Random(seed, epoch, index, Purpose::kFlip).Next());
      }
    }
  }
  EXPECT_EQ(firsts.size(), 250);
}

TEST(RandomTest, IsUniform) {
  Random random(5);
  std::vector<double> count(7);
  double sum = 0;
  for (int i = 0; i < 70'000; ++i) {
    ++count[random.Below(7)];
    sum += random.Uniform(2, 4);
  }
  for (double n : count) EXPECT_NEAR(n, 10'000, 500);
  EXPECT_NEAR(sum / 70'000, 3, 0.02);
  EXPECT_EQ(random.Below(0), 0);
  EXPECT_EQ(random.Between(-3, -3), -3);
}

}  // namespace
}  // namespace lockstep::data
