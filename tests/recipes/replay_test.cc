#include "recipes/replay.h"

#include <torch/types.h>

#include <set>

#include "engine/ranks_fixture.h"

namespace lockstep::recipes {
namespace {

ReplayShape Shape(uint64_t lanes, uint64_t entries) {
  ReplayShape shape;
  shape.lanes = lanes;
  shape.entries = entries;
  shape.image = {1, 2, 2};
  shape.context = {1, 1, 1};
  return shape;
}

TEST(ReplayLanes, AreTheSharesOfTheRanks) {
  engine::TrainConfig train;
  train.batch = 7;
  std::vector<uint64_t> firsts, counts;
  for (int rank = 0; rank < 3; ++rank) {
    firsts.push_back(LanesOf(train, rank, 3).first);
    counts.push_back(LanesOf(train, rank, 3).count);
  }
  EXPECT_EQ(firsts, (std::vector<uint64_t>{0, 3, 5}));
  EXPECT_EQ(counts, (std::vector<uint64_t>{3, 2, 2}));
  train.reproducible = true;
  train.shards = 4;  // of 2, 2, 2 and 1 samples; two shards on the first rank
  EXPECT_EQ(LanesOf(train, 0, 3).count, 4u);
  EXPECT_EQ(LanesOf(train, 2, 3).first, 6u);
  EXPECT_EQ(LanesOf(train, 2, 3).count, 1u);
}

TEST(ReplayDraws, FillALaneInOrderAndThenOverwriteDifferentSlots) {
  Replay replay(Shape(2, 5), {0, 2}, at::kCPU);
  std::vector<int64_t> slots;
  for (uint64_t step = 0; step < 2; ++step) {
    const ReplayDraw draw = *replay.Draw(1, step, 1, 2);
    slots.insert(slots.end(), draw.slot.begin(), draw.slot.end());
    for (const int64_t pick : draw.pick) EXPECT_LT(pick, 5 + 2 * static_cast<int64_t>(step + 1)) << "only filled ones";
  }
  EXPECT_EQ(slots, (std::vector<int64_t>{5, 6, 7, 8})) << "lane 1 begins behind lane 0";
  std::set<int64_t> later;
  for (uint64_t step = 2; step < 60; ++step) {
    const ReplayDraw draw = *replay.Draw(1, step, 1, 4);
    EXPECT_EQ(std::set(draw.slot.begin(), draw.slot.end()).size(), 4u) << "a slot twice in one step is a race";
    later.insert(draw.slot.begin(), draw.slot.end());
  }
  EXPECT_EQ(later, (std::set<int64_t>{5, 6, 7, 8, 9}));
  EXPECT_EQ(replay.filled(0), 0u);
}

TEST(ReplayDraws, DependOnSeedStepAndLaneAlone) {
  const auto coins = [](uint64_t seed, uint64_t step, uint64_t lane, LaneRange mine) {
    Replay replay(Shape(4, 64), mine, at::kCPU);
    return replay.Draw(seed, step, lane, 32)->coin;
  };
  const auto usual = coins(1, 2, 3, {0, 4});
  EXPECT_EQ(usual, coins(1, 2, 3, {2, 2})) << "whoever holds the lane";
  EXPECT_NE(usual, coins(2, 2, 3, {0, 4}));
  EXPECT_NE(usual, coins(1, 3, 3, {0, 4}));
  EXPECT_NE(usual, coins(1, 2, 2, {0, 4}));
}

TEST(ReplayDraws, RefuseALaneOfAnotherRank) {
  Replay replay(Shape(4, 8), {0, 2}, at::kCPU);
  EXPECT_FALSE(replay.Draw(1, 0, 2, 1).ok());
}

TEST(ReplayBuffer, GivesBackWhatWasPutAndNeverWhatIsNoNumber) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
    ReplayShape shape = Shape(1, 8);
    shape.type = type;
    Replay replay(shape, {0, 1}, at::kCPU);
    at::Tensor images = at::tensor({0.25F, 0.5F, 1.0F, 0.0F, 1.0F, 2.0F, 3.0F, 4.0F}).view({2, 1, 2, 2});
    images[1][0][0][0] = std::nanf("");
    replay.Put(at::tensor({3, 1}, at::kLong), images, at::ones({2, 1, 1, 1}));
    const auto [back, context] = replay.Get(at::tensor({1, 3, 0}, at::kLong));
    EXPECT_EQ(back.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(back[1], images[0]));
    EXPECT_EQ(back[0][0][0][0].item<float>(), 0);
    EXPECT_EQ(context.sum().item<float>(), 2);
  }
}

// Lane l holds pictures of value 10 l + 1, 10 l + 2, ...
void Fill(Replay& replay, LaneRange lanes, int64_t pictures) {
  for (uint64_t lane = lanes.first; lane < lanes.first + lanes.count; ++lane) {
    const ReplayDraw draw = *replay.Draw(5, 0, lane, pictures);
    const at::Tensor value = at::arange(1, pictures + 1, at::kFloat) + 10.0 * static_cast<double>(lane);
    replay.Put(at::tensor(draw.slot), value.view({-1, 1, 1, 1}).expand({-1, 1, 2, 2}), value.view({-1, 1, 1, 1}));
  }
}

TEST(ReplayBuffer, MovesToAnyNumberOfRanksByLanes) {
  engine::TrainConfig train;
  train.batch = 5;
  const ReplayShape shape = Shape(5, 3);
  engine::RecipeState state;
  engine::OnRanks(3, [&](engine::Ranks& ranks) {
    const LaneRange mine = LanesOf(train, ranks.rank(), 3);
    Replay replay(shape, mine, at::kCPU);
    Fill(replay, mine, 2);
    ASSERT_TRUE(replay.Gather(train, &ranks).ok());
    if (ranks.is_main()) replay.Save(&state);
  });
  const at::Tensor first = state.tensors[0].second.select(4, 0).select(3, 0).select(2, 0);  // [lane, entry]
  EXPECT_TRUE(
      at::equal(first, at::tensor({1, 2, 0, 11, 12, 0, 21, 22, 0, 31, 32, 0, 41, 42, 0}).view({5, 3}).to(at::kFloat)));
  engine::OnRanks(2, [&](engine::Ranks& ranks) {
    const LaneRange mine = LanesOf(train, ranks.rank(), 2);
    Replay replay(shape, mine, at::kCPU);
    ASSERT_TRUE(replay.Restore(state).ok());
    for (uint64_t lane = mine.first; lane < mine.first + mine.count; ++lane) {
      EXPECT_EQ(replay.filled(lane), 2u);
      const auto [image, context] = replay.Get(at::tensor({static_cast<int64_t>((lane - mine.first) * 3 + 1)}));
      EXPECT_EQ(image.mean().item<float>(), 10.0F * static_cast<float>(lane) + 2);
      EXPECT_EQ(context.item<float>(), 10.0F * static_cast<float>(lane) + 2);
    }
  });
}

TEST(ReplayBuffer, RefusesAStateThatIsNone) {
  Replay replay(Shape(2, 3), {0, 2}, at::kCPU);
  EXPECT_FALSE(replay.Restore({}).ok());
  engine::RecipeState state;
  replay.Save(&state);
  state.tensors[2].second.fill_(4);
  EXPECT_NE(replay.Restore(state).message().find("at most 3"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::recipes
