#include "media/tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::media {
namespace {

TEST(ToPicture, IsRowsOfRoundedPixels) {
  at::Tensor frame = at::zeros({3, 2, 4});
  frame[0][0][1] = 1;
  frame[1][1][3] = 0.5;
  frame[2][0][0] = 7;  // clamped
  frame[2][1][0] = std::numeric_limits<float>::quiet_NaN();
  const track::Picture picture = ToPicture(frame);
  ASSERT_EQ(picture.width, 4);
  ASSERT_EQ(picture.height, 2);
  EXPECT_EQ(picture.rgb, (std::vector<uint8_t>{0, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0,   0,  //
                                               0, 0, 0,   0,   0, 0, 0, 0, 0, 0, 128, 0}));
}

TEST(ErrorMap, IsTheMeanOverChannelsInLevels) {
  const at::Tensor target = at::full({3, 2, 2}, 0.2);
  at::Tensor output = target.clone();
  output[0][1][0] += 30.0 / 255;
  output[1][0][1] = std::numeric_limits<float>::quiet_NaN();
  const track::NumberMap map = ErrorMap(output, target);
  EXPECT_EQ(map.values[0], 0);
  EXPECT_TRUE(std::isnan(map.values[1]));
  EXPECT_FLOAT_EQ(map.values[2], 10);
}

TEST(ShowFrame, ReducesLargeFramesAndKeepsTheirMeanError) {
  const at::Tensor target = at::zeros({3, 600, 960}), output = at::full({3, 600, 960}, 51.0 / 255);
  const ShownFrame frame = ShowFrame(3, output, target);
  EXPECT_EQ(frame.output.width, 480);
  EXPECT_EQ(frame.output.height, 300);
  EXPECT_EQ(frame.error.width, 480);
  EXPECT_NEAR(frame.error.values[480 * 150 + 240], 51, 0.01);
  EXPECT_EQ(frame.output.rgb[1000], 51);
}

TEST(ClipRow, HasTheFramesOfEachColumnSideBySide) {
  const at::Tensor frame = at::zeros({3, 2, 2});
  track::SheetRow row = ClipRow({ShowFrame(0, frame, frame), ShowFrame(11, frame, frame)});
  EXPECT_EQ(row.detail, "frames 0 and 11");
  ASSERT_EQ(row.cells.size(), kClipColumns.size());
  for (const auto& cell : row.cells) EXPECT_EQ(cell.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<track::NumberMap>(row.cells[2][0]));
  EXPECT_EQ(ClipRow({ShowFrame(4, frame, frame)}).detail, "frame 4");
}

}  // namespace
}  // namespace lockstep::media
