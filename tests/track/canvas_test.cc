#include "track/canvas.h"

#include <gtest/gtest.h>

#include <cmath>

#include "track/pixels.h"

namespace lockstep::track {
namespace {

const Cairo& TheCairo() {
  static const Result<const Cairo*> cairo = LoadCairo();
  EXPECT_TRUE(cairo.ok()) << cairo.status().ToString();
  return **cairo;
}

TEST(LoadCairo, SaysWhatIsMissingAndWhatToDo) {
  const struct {
    const char *library, *message;
  } cases[] = {{"/nowhere/libcairo.so.2", "/nowhere/libcairo.so.2 cannot be loaded"},
               {"libm.so.6", "libm.so.6 lacks the function cairo_"}};
  for (const auto& c : cases) {
    const Result<const Cairo*> cairo = LoadCairo(c.library);
    ASSERT_FALSE(cairo.ok());
    EXPECT_EQ(cairo.status().code(), Code::kEnvironment);
    EXPECT_EQ(cairo.status().message().find(c.message), 0u) << cairo.status().message();
    EXPECT_NE(cairo.status().hint().find("apt-get install libcairo2"), std::string::npos);
  }
}

TEST(Canvas, TextLeavesInkWhereItStands) {
  Canvas canvas(TheCairo(), 400, 100);
  canvas.Text({10, 50}, "left", {.size = 20});
  canvas.Text({390, 50}, "right", {.size = 20, .align = Align::kRight});
  const Result<Picture> picture = canvas.Finish();
  ASSERT_TRUE(picture.ok());
  EXPECT_GT(DarkPixels(*picture, {10, 30, 60, 26}), 60);
  EXPECT_GT(DarkPixels(*picture, {330, 30, 61, 26}), 60);
  EXPECT_EQ(DarkPixels(*picture, {120, 0, 180, 100}), 0);
  EXPECT_EQ(DarkPixels(*picture, {0, 60, 400, 40}), 0);
}

TEST(Canvas, LettersAreTheFontsOwnNotUpperCase) {
  const auto ink = [](const char* text) {
    Canvas canvas(TheCairo(), 60, 60);
    canvas.Text({10, 45}, text, {.size = 40});
    return canvas.Finish()->rgb;
  };
  EXPECT_NE(ink("e"), ink("E"));
  EXPECT_NE(ink("·"), ink("…"));
  EXPECT_EQ(ink("e"), ink("e"));
}

TEST(Canvas, TextThatIsNoUtf8DoesNotStopTheDrawing) {
  Canvas canvas(TheCairo(), 200, 100);
  canvas.Text({10, 40}, "a\xff\x80\n\x1b[0m", {.size = 16});
  canvas.Fill({0, 60, 200, 40}, Colour::Hex(0x204060));
  const Result<Picture> picture = canvas.Finish();
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_EQ(At(*picture, 100, 80), (Rgb{0x20, 0x40, 0x60}));
}

TEST(Canvas, LongTextGetsAnEllipsisBetweenCharacters) {
  const Canvas canvas(TheCairo(), 10, 10);
  EXPECT_EQ(canvas.Fit("short", 13, 200), "short");
  const std::string name = "наименование/клипа/дорога-" + std::string(300, 'x') + ".mp4";
  for (const bool keep_end : {false, true}) {
    const std::string fit = canvas.Fit(name, 13, 120, keep_end);
    EXPECT_LE(canvas.TextWidth(fit, 13), 120);
    EXPECT_GT(canvas.TextWidth(fit, 13), 90);
    EXPECT_EQ(keep_end ? fit.find("…") : fit.rfind("…") + 3, keep_end ? 0 : fit.size());
    if (keep_end) {
      EXPECT_TRUE(fit.ends_with(".mp4"));
    } else {
      EXPECT_TRUE(fit.starts_with("наим"));
    }
  }
  EXPECT_EQ(canvas.Fit("наименование", 13, 0), "…");
}

TEST(Canvas, WholeFactorsKeepPixelsSharp) {
  const Picture two{2, 1, {255, 0, 0, 0, 0, 255}};
  Canvas canvas(TheCairo(), 64, 32);
  canvas.Image({0, 0, 64, 32}, two);
  const Result<Picture> picture = canvas.Finish();
  ASSERT_TRUE(picture.ok());
  for (int x = 0; x < 64; ++x) {
    EXPECT_EQ(At(*picture, x, 0), x < 32 ? (Rgb{255, 0, 0}) : (Rgb{0, 0, 255})) << x;
    EXPECT_EQ(At(*picture, x, 31), At(*picture, x, 0));
  }
}

TEST(Canvas, ReducedPicturesAreAveraged) {
  Picture board{200, 200, {}};
  for (int i = 0; i < 200 * 200; ++i) board.rgb.insert(board.rgb.end(), 3, (i + i / 200) % 2 == 0 ? 255 : 0);
  Canvas canvas(TheCairo(), 50, 50);
  canvas.Image({0, 0, 50, 50}, board);
  const Result<Picture> picture = canvas.Finish();
  ASSERT_TRUE(picture.ok());
  EXPECT_NEAR(At(*picture, 25, 25)[0], 127, 12);
}

TEST(Canvas, PointsThatAreNotFiniteInterruptALine) {
  Canvas canvas(TheCairo(), 300, 40);
  const Point line[] = {{10, 20}, {100, 20}, {150, std::nan("")}, {200, 20}, {INFINITY, 20}, {250, 20}, {290, 20}};
  canvas.Line(line, {.colour = kInk, .width = 4});
  const Result<Picture> picture = canvas.Finish();
  ASSERT_TRUE(picture.ok());
  const auto inked = [&](int x) { return IsDark(At(*picture, x, 20)); };
  EXPECT_TRUE(inked(50) && inked(200) && inked(270));  // a lone point is a dot
  EXPECT_FALSE(inked(150) || inked(220));
}

TEST(Canvas, ASizeCairoRefusesIsAnError) {
  Canvas canvas(TheCairo(), 100000, 10);
  canvas.Text({0, 5}, "too wide");
  const Result<Picture> picture = canvas.Finish();
  ASSERT_FALSE(picture.ok());
  EXPECT_NE(picture.status().message().find("100000 x 10"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::track
