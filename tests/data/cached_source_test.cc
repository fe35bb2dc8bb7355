#include "data/cached_source.h"

#include <gtest/gtest.h>

#include <array>

#include "data/number_source.h"

namespace lockstep::data {
namespace {

struct Buffers {
  std::array<int64_t, 2> numbers{};
  std::array<uint8_t, 15> bytes{};
  Status Read(const Source& source, uint64_t index, bool augment = false) {
    std::byte* const out[] = {reinterpret_cast<std::byte*>(numbers.data()), reinterpret_cast<std::byte*>(bytes.data())};
    return source.Read({.seed = 1, .epoch = 2, .index = index, .augment = augment}, out);
  }
};
constexpr uint64_t kSample = 16 + 15;

TEST(CachedSource, ReadsASampleOnceAndGivesTheSame) {
  const auto inner = std::make_shared<NumberSource>(10);
  const auto cached = Cached(inner, 10 * kSample);
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 10; ++i) {
      Buffers got, want;
      ASSERT_TRUE(got.Read(*cached, i).ok());
      ASSERT_TRUE(want.Read(NumberSource(10), i).ok());
      EXPECT_EQ(got.numbers, want.numbers);
      EXPECT_EQ(got.bytes, want.bytes);
    }
  }
  EXPECT_EQ(inner->reads_, 10);
}

TEST(CachedSource, KeepsWhatFits) {
  const auto inner = std::make_shared<NumberSource>(10);
  const auto cached = Cached(inner, 3 * kSample + kSample / 2);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(Buffers().Read(*cached, i).ok());
  }
  EXPECT_EQ(inner->reads_, 10 + 7);
}

TEST(CachedSource, KeepsNeitherFailuresNorAugmentedDraws) {
  const auto inner = std::make_shared<NumberSource>(4);
  inner->bad_ = {1};
  const auto cached = Cached(inner, 1 << 20);
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(Buffers().Read(*cached, 1).ok());
    EXPECT_TRUE(Buffers().Read(*cached, 2, /*augment=*/true).ok());
  }
  EXPECT_EQ(inner->reads_, 4);
}

}  // namespace
}  // namespace lockstep::data
