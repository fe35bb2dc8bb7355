#include "media/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

namespace lockstep::media {
namespace {

using testing::ElementsAre;

TEST(Restore, WindowsLieAsKairLaysThem) {
  EXPECT_THAT(TileStarts(100, 18, 2), ElementsAre(0, 16, 32, 48, 64, 80, 82));
  EXPECT_THAT(TileStarts(34, 18, 2), ElementsAre(0, 16));
  EXPECT_THAT(TileStarts(18, 18, 2), ElementsAre(0));
  EXPECT_THAT(TileStarts(720, 224, 20), ElementsAre(0, 204, 408, 496));
}

// KAIR's way: sums and counts of everything at once. What is restored depends on the place in the tile and the window.
at::Tensor AllAtOnce(const RestoreForward& forward, const RestoreTiles& t, const at::Tensor& clip) {
  const int64_t d = clip.size(0), h = clip.size(2), w = clip.size(3), length = std::min(t.frames, d), s = t.scale;
  at::Tensor sum = at::zeros({d, 3, h * s, w * s}), count = at::zeros({d, 1, 1, 1});
  for (const int64_t begin : TileStarts(d, length, t.frame_overlap)) {
    at::Tensor window = at::zeros({length, 3, h * s, w * s}), weight = at::zeros({h * s, w * s});
    const auto rows = TileStarts(h, t.tile, t.tile_overlap), columns = TileStarts(w, t.tile, t.tile_overlap);
    for (const int64_t y : rows) {
      for (const int64_t x : columns) {
        at::Tensor part =
            forward(clip.narrow(0, begin, length).narrow(2, y, t.tile).narrow(3, x, t.tile).unsqueeze(0))[0];
        at::Tensor mask = at::ones({t.tile * s, t.tile * s});
        // Python's [:overlap // 2] and [-overlap // 2:], of the result whatever its scale
        const int64_t near = t.tile_overlap / 2, far = (t.tile_overlap + 1) / 2;
        if (y < rows.back()) mask.narrow(0, t.tile * s - far, far).zero_();
        if (x < columns.back()) mask.narrow(1, t.tile * s - far, far).zero_();
        if (y > rows.front()) mask.narrow(0, 0, near).zero_();
        if (x > columns.front()) mask.narrow(1, 0, near).zero_();
        window.narrow(2, y * s, t.tile * s).narrow(3, x * s, t.tile * s).add_(part * mask);
        weight.narrow(0, y * s, t.tile * s).narrow(1, x * s, t.tile * s).add_(mask);
      }
    }
    sum.narrow(0, begin, length).add_(window / weight);
    count.narrow(0, begin, length).add_(1);
  }
  return sum / count;
}

TEST(Restore, WindowsAndTilesAreBlendedAsKairBlendsThem) {
  at::manual_seed(1);
  const at::Tensor clip = at::rand({11, 4, 40, 56});
  for (const auto& [batch, overlap, scale] : {std::array<int64_t, 3>{1, 6, 1}, {3, 6, 1}, {2, 7, 1}, {2, 6, 2}}) {
    const RestoreForward forward = [scale](const at::Tensor& given) {
      const at::Tensor x = given.repeat_interleave(scale, 3).repeat_interleave(scale, 4);
      const at::Tensor places =
          at::arange(x.size(1) * x.size(3) * x.size(4)).view({1, x.size(1), 1, x.size(3), x.size(4)});
      return x.narrow(2, 0, 3) * 2 + places.to(at::kFloat) * 1e-3;
    };
    const RestoreTiles tiles{
        .frames = 4, .frame_overlap = 2, .tile = 24, .tile_overlap = overlap, .batch = batch, .scale = scale};
    const at::Tensor got = RestoreClip(forward, tiles, clip);
    EXPECT_LT((got - AllAtOnce(forward, tiles, clip)).abs().max().item<double>(), 1e-5) << overlap << " " << scale;
  }
}

TEST(Restore, AnyLengthAndSizeComesBackWhole) {
  for (const auto& [frames, height, width, scale] :
       {std::tuple(1, 16, 16, 1), {5, 19, 33, 1}, {7, 24, 9, 2}, {13, 41, 30, 4}}) {
    const at::Tensor clip = at::rand({frames, 3, height, width});
    for (const RestoreTiles& tiles : {RestoreTiles{.frames = 6, .tile = 16, .tile_overlap = 4, .scale = scale},
                                      RestoreTiles{.frames = 0, .tile = 0, .scale = scale}}) {
      const RestoreForward forward = [&](const at::Tensor& x) {
        EXPECT_EQ(x.size(3) % 8, 0);
        EXPECT_EQ(x.size(4) % 8, 0);
        return x.repeat_interleave(scale, 3).repeat_interleave(scale, 4);
      };
      const at::Tensor got = RestoreClip(forward, tiles, clip);
      EXPECT_LT((got - clip.repeat_interleave(scale, 2).repeat_interleave(scale, 3)).abs().max().item<double>(), 1e-6);
    }
  }
}

TEST(Restore, AWindowKnowsWhichFramesAreItsOwn) {
  for (const int64_t count : {1, 6, 7, 10, 11, 100}) {
    for (const RestoreTiles& tiles : {RestoreTiles{.frames = 6, .frame_overlap = 2},
                                      RestoreTiles{.frames = 6, .frame_overlap = 5}, RestoreTiles{.frames = 0}}) {
      const std::vector<FrameWindow> windows = FrameWindows(count, tiles);
      EXPECT_EQ(windows.back().end(), count);
      for (int64_t frame = 0; frame < count; ++frame) {
        const auto [first, last] = WindowsOver(windows, frame);
        for (size_t w = 0; w < windows.size(); ++w) {
          const bool holds = windows[w].begin <= frame && frame < windows[w].end();
          EXPECT_EQ(holds, first <= w && w < last) << count << " frames, frame " << frame << ", window " << w;
          const FrameWindow own = OwnFrames(windows, w);
          const bool is_own = own.length > 0 && own.begin <= frame && frame < own.end();
          EXPECT_EQ(is_own, holds && last - first == 1) << count << " frames, frame " << frame << ", window " << w;
        }
      }
    }
  }
}

// As KAIR's whole clips: the frames are mirrored up to a window more, none of them twice.
TEST(Restore, WholeClipsAreMirroredOnce) {
  for (const auto& [frames, expected] : {std::pair<int64_t, int64_t>{2, 4}, {4, 6}, {6, 12}, {7, 12}}) {
    int64_t seen = 0;
    const RestoreForward forward = [&](const at::Tensor& x) { return seen = x.size(1), x; };
    RestoreClip(forward, {.frames = 0, .tile = 0}, at::rand({frames, 3, 8, 8}));
    EXPECT_EQ(seen, expected) << frames;
  }
}

// Smaller and shorter than the model takes: mirrored, and cut again.
TEST(Restore, ClipsBelowTheLeastSizeArePadded) {
  const at::Tensor clip = at::rand({1, 3, 40, 24});
  for (const int64_t tile : {0, 16, 64}) {
    const RestoreTiles tiles{.frames = 6, .tile = tile, .tile_overlap = 4, .least = {3, 64, 64}};
    const RestoreForward forward = [](const at::Tensor& x) {
      EXPECT_GE(x.size(1), 3);
      EXPECT_EQ(x.size(3), 64);
      EXPECT_EQ(x.size(4), 64);
      return x;
    };
    const at::Tensor got = RestoreClip(forward, tiles, clip);
    ASSERT_EQ(got.sizes(), clip.sizes());
    EXPECT_LT((got - clip).abs().max().item<double>(), 1e-6) << tile;
  }
}

TEST(Restore, TilesThatContradictThemselvesAreRefused) {
  EXPECT_THAT((RestoreTiles{.frames = 2, .frame_overlap = 2}.Check(false).message()),
              testing::HasSubstr("recipe.test.frame_overlap"));
  EXPECT_THAT((RestoreTiles{.tile = 24, .tile_overlap = 24}.Check(true).message()),
              testing::HasSubstr("--tile-overlap"));
  EXPECT_THAT((RestoreTiles{.tile = 100}.Check(true).message()), testing::HasSubstr("multiple of 8 x 8"));
  EXPECT_TRUE(RestoreTiles{}.Check(true).ok());
}

}  // namespace
}  // namespace lockstep::media
