#include "track/painter.h"

#include <gtest/gtest.h>

#include <future>
#include <new>
#include <vector>

#include "track/curve.h"
#include "track/sheet.h"

namespace lockstep::track {
namespace {

TEST(Painter, DrawsInOrderAndWaitsAtTheEnd) {
  std::vector<int> drawn;
  Painter painter;
  for (int i = 0; i < 5; ++i) {
    painter.Add("p", [&drawn, i] {
      drawn.push_back(i);
      return Status::Ok();
    });
  }
  painter.Finish();
  EXPECT_EQ(drawn, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(painter.missing(), 0u);
}

TEST(Painter, CountsWhatFailsAndGoesOn) {
  bool after = false;
  Painter painter;
  painter.Add("full.png", [] { return Status(Code::kEnvironment, "no space left"); });
  painter.Add("thrown.png", []() -> Status { throw std::bad_alloc(); });
  painter.Add("good.png", [&after] {
    after = true;
    return Status::Ok();
  });
  painter.Finish();
  EXPECT_TRUE(after);
  EXPECT_EQ(painter.missing(), 2u);
  painter.Miss();
  EXPECT_EQ(painter.missing(), 3u);
}

TEST(Painter, NeverWaitsWhenPicturesComeTooFast) {
  std::promise<void> started, go;
  size_t drawn = 0;
  Painter painter;
  painter.Add("slow.png", [&] {
    started.set_value();
    go.get_future().wait();
    return Status::Ok();
  });
  started.get_future().wait();
  for (size_t i = 0; i < Painter::kMostWaiting + 3; ++i) {
    painter.Add("p", [&drawn] {
      ++drawn;
      return Status::Ok();
    });
  }
  EXPECT_EQ(painter.missing(), 3u);  // and this thread came here while the painter stood still
  go.set_value();
  painter.Finish();
  EXPECT_EQ(drawn, Painter::kMostWaiting);
}

TEST(Painter, DrawsWhileAnotherThreadDraws) {
  const Result<const Cairo*> cairo = LoadCairo();
  ASSERT_TRUE(cairo.ok()) << cairo.status().ToString();
  const Curve curve{.title = "night-1", .panels = {{.label = "loss", .series = {{.points = {{0, 1}, {1, 0.5}}}}}}};
  const Sheet sheet{
      .title = "night-1", .columns = {"error"}, .rows = {{.title = "clip", .cells = {{NumberMap{2, 1, {0, 1}}}}}}};
  Painter painter;
  std::vector<uint8_t> there;
  for (int i = 0; i < 4; ++i) {
    painter.Add("both", [&] {
      const Result<Picture> picture = DrawCurve(**cairo, curve);
      if (picture.ok()) there = picture->rgb;
      return DrawSheet(**cairo, sheet).status();
    });
  }
  const Result<Picture> here = DrawCurve(**cairo, curve);
  const Result<Picture> tiles = DrawSheet(**cairo, sheet);
  painter.Finish();
  ASSERT_TRUE(here.ok() && tiles.ok());
  EXPECT_EQ(painter.missing(), 0u);
  EXPECT_EQ(here->rgb, there);
}

}  // namespace
}  // namespace lockstep::track
