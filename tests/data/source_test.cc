#include "data/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "number_source.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(FieldTest, KnowsItsBytes) {
  EXPECT_EQ((Field{"a", ElementType::kU8, {2, 3, 4}}).bytes(), 24);
  EXPECT_EQ((Field{"a", ElementType::kF32, {5}}).bytes(), 20);
  EXPECT_EQ((Field{"a", ElementType::kI64, {}}).bytes(), 8);
}

TEST(SubsetTest, ReadsTheSamplesAtItsIndices) {
  auto source = std::make_shared<NumberSource>(10);
  const auto subset = Subset(source, {7, 2});
  EXPECT_EQ(subset->size(), 2);
  EXPECT_EQ(subset->Name(0), "number 7");
  int64_t numbers[2];
  std::byte bytes[15];
  std::byte* out[] = {reinterpret_cast<std::byte*>(numbers), bytes};
  ASSERT_TRUE(subset->Read({.seed = 3, .epoch = 4, .index = 1}, out).ok());
  EXPECT_EQ(numbers[0], 2);
  EXPECT_EQ(numbers[1], 3040);
  EXPECT_NE(subset->Digest(), Subset(source, {2, 7})->Digest());
}

std::set<std::string> Origins(const Source& source, const std::vector<uint64_t>& indices) {
  std::set<std::string> origins;
  for (uint64_t index : indices) origins.insert(source.Origin(index));
  return origins;
}

TEST(SplitTest, NoVideoIsOnBothSidesAndNoSampleIsLost) {
  for (uint64_t size : {2, 3, 10, 57, 400}) {
    for (uint64_t per_origin : {1, 2, 7}) {
      for (double fraction : {0.001, 0.1, 0.5, 0.99}) {
        NumberSource source(size);
        source.per_origin_ = per_origin;
        Result<Split> split = SplitBySource(source, fraction, size);
        if ((size + per_origin - 1) / per_origin < 2) {
          EXPECT_FALSE(split.ok());
          continue;
        }
        ASSERT_TRUE(split.ok());
        EXPECT_FALSE(split->train.empty());
        EXPECT_FALSE(split->validation.empty());
        EXPECT_TRUE(std::ranges::is_sorted(split->train));
        const auto train = Origins(source, split->train);
        for (const std::string& origin : Origins(source, split->validation)) EXPECT_FALSE(train.contains(origin));
        std::set<uint64_t> all(split->train.begin(), split->train.end());
        all.insert(split->validation.begin(), split->validation.end());
        EXPECT_EQ(all.size(), size);
        EXPECT_EQ(split->train.size() + split->validation.size(), size);
      }
    }
  }
}

TEST(SplitTest, DependsOnSeedAndNamesOnly) {
  NumberSource source(100);
  const Split split = *SplitBySource(source, 0.2, 1);
  EXPECT_EQ(split.validation.size(), 20);
  EXPECT_EQ(SplitBySource(source, 0.2, 1)->validation, split.validation);
  EXPECT_NE(SplitBySource(source, 0.2, 2)->validation, split.validation);
  // The same names in another order: the same videos validate.
  auto shared = std::make_shared<NumberSource>(100);
  std::vector<uint64_t> reversed(100);
  for (uint64_t i = 0; i < 100; ++i) reversed[i] = 99 - i;
  const auto turned = Subset(shared, reversed);
  EXPECT_EQ(Origins(*turned, SplitBySource(*turned, 0.2, 1)->validation), Origins(source, split.validation));
}

TEST(SplitTest, RefusesWhatLeavesOneSideEmpty) {
  NumberSource one(5);
  one.per_origin_ = 5;
  EXPECT_THAT(SplitBySource(one, 0.5, 0).status().message(), HasSubstr("all 5 samples come from 'video 0'"));
  NumberSource many(5);
  for (double fraction : {0.0, 1.0, -1.0, std::nan("")}) EXPECT_FALSE(SplitBySource(many, fraction, 0).ok());
}

TEST(SplitTest, ByNamesTakesThoseAndNoOthers) {
  NumberSource source(6);
  source.per_origin_ = 2;
  const Split split = *SplitByNames(source, {"video 1"});
  EXPECT_THAT(split.validation, ElementsAre(2, 3));
  EXPECT_THAT(split.train, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(SplitByNames(source, {"vido 1"}).status().message(), HasSubstr("did you mean 'video 1'"));
  EXPECT_FALSE(SplitByNames(source, {}).ok());
  EXPECT_FALSE(SplitByNames(source, {"video 0", "video 1", "video 2"}).ok());
}

}  // namespace
}  // namespace lockstep::data
