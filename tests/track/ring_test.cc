#include "track/ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lockstep::track {
namespace {

TEST(Ring, GivesBackInOrderAndRefusesWhenFull) {
  Ring ring(4);
  ASSERT_EQ(ring.capacity(), 4u);
  for (uint32_t round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(ring.Push({round, 0.5 * i, i}));
    EXPECT_FALSE(ring.Push({9, 9, 9}));
    RingItem item;
    for (uint32_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(ring.Pop(&item));
      EXPECT_EQ(item.step, round);
      EXPECT_EQ(item.value, 0.5 * i);
      EXPECT_EQ(item.id, i);
    }
    EXPECT_FALSE(ring.Pop(&item));
  }
}

TEST(Ring, ManyProducersLoseNothingAndEachKeepsItsOrder) {
  constexpr uint32_t kProducers = 3;
  constexpr uint64_t kEach = 20000;
  Ring ring(64);
  std::vector<std::thread> producers;
  for (uint32_t id = 0; id < kProducers; ++id) {
    producers.emplace_back([&ring, id] {
      for (uint64_t step = 0; step < kEach; ++step) {
        while (!ring.Push({step, static_cast<double>(step) + id, id})) std::this_thread::yield();
      }
    });
  }
  std::vector<uint64_t> next(kProducers, 0);
  for (uint64_t taken = 0; taken < kProducers * kEach;) {
    RingItem item;
    if (!ring.Pop(&item)) {
      std::this_thread::yield();
      continue;
    }
    ++taken;
    ASSERT_LT(item.id, kProducers);
    ASSERT_EQ(item.step, next[item.id]++);
    ASSERT_EQ(item.value, static_cast<double>(item.step) + item.id);
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(ring.claimed(), kProducers * kEach);
  EXPECT_EQ(ring.taken(), kProducers * kEach);
}

}  // namespace
}  // namespace lockstep::track
