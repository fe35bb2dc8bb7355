#include "media/interpolate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::media {
namespace {

using testing::ElementsAre;

TEST(Interpolate, FramesOfAWindowAreThoseAroundIt) {
  EXPECT_EQ(InterpolatedCount(4), 7);
  EXPECT_EQ(InterpolatedCount(1), 1);
  EXPECT_EQ(InterpolatedCount(0), 0);
  EXPECT_THAT(InterpolatedTimes({0, 1, 4}), ElementsAre(0, 0.5, 1, 2.5, 4));
  EXPECT_EQ(FramesAround({0, 4}, 4, 10), (FrameWindow{0, 4}));
  EXPECT_EQ(FramesAround({8, 4}, 4, 10), (FrameWindow{3, 5}));
  EXPECT_EQ(FramesAround({16, 3}, 4, 10), (FrameWindow{7, 3}));
}

// The model sees which frames it gets: frame i is i / 16 everywhere. Any division into windows gives the same.
TEST(Interpolate, TheRateIsDoubledAndTheEndsAreRepeated) {
  for (const int64_t count : {1, 2, 5, 6}) {
    at::Tensor clip = at::arange(count, at::kFloat).div(16).view({-1, 1, 1, 1}).expand({count, 3, 20, 12}).contiguous();
    for (const int64_t frames : {0, 2, 3, 18}) {
      const RestoreTiles tiles{.frames = frames, .tile = 16, .tile_overlap = 4, .least = {4, 16, 16}, .between = 4};
      std::vector<std::vector<int>> seen;
      const RestoreForward forward = [&](const at::Tensor& x) {
        EXPECT_EQ(x.size(1), 4);
        std::vector<int> numbers;
        for (int64_t i = 0; i < 4; ++i) numbers.push_back(static_cast<int>(x[0][i][0][0][0].item<float>() * 16));
        if (seen.empty() || seen.back() != numbers) seen.push_back(numbers);
        return (x.narrow(1, 1, 1) + x.narrow(1, 2, 1)) / 2;
      };
      at::Tensor out = at::empty({0, 3, 20, 12});
      for (const FrameWindow& window : FrameWindows(InterpolatedCount(count), tiles)) {
        const FrameWindow around = FramesAround(window, 4, count);
        out = at::cat(
            {out, InterpolateWindow(forward, tiles, window, count, clip.narrow(0, around.begin, around.length))});
      }
      const at::Tensor expected = at::arange(InterpolatedCount(count), at::kFloat).div(32).view({-1, 1, 1, 1});
      ASSERT_EQ(out.size(0), expected.size(0));
      EXPECT_LT((out - expected).abs().max().item<double>(), 1e-6) << count << " " << frames;
      if (count == 5) {
        EXPECT_THAT(seen, ElementsAre(ElementsAre(0, 0, 1, 2), ElementsAre(0, 1, 2, 3), ElementsAre(1, 2, 3, 4),
                                      ElementsAre(2, 3, 4, 4)));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::media
