// Video files written and read back frame by frame, and files as they come from cameras, broken downloads and editors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "data/random.h"
#include "data/sources.h"
#include "data/video.h"
#include "data/video_reader.h"
#include "data/video_writer.h"

#ifdef LOCKSTEP_FFMPEG
#include "video_file.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Film {
  std::vector<std::vector<uint8_t>> frames;
  std::vector<double> seconds;
  int width = 0, height = 0;
  VideoInfo info;
  std::vector<std::string> notes;
  Status status;
  // The middle pixel's green, as the number of a frame of WriteVideo.
  std::vector<int> Numbers() const {
    std::vector<int> numbers;
    for (const auto& frame : frames) numbers.push_back(FrameOfGrey(frame[(height / 2 * width + width / 2) * 3 + 1]));
    return numbers;
  }
};

Film ReadAll(const std::string& path) {
  Film film;
  auto video = VideoReader::Open(path);
  film.status = video.status();
  if (!video.ok()) return film;
  film.info = (*video)->info();
  VideoFrame frame;
  for (;;) {
    Result<bool> more = (*video)->Next(&frame);
    film.status = more.status();
    if (!more.ok() || !*more) break;
    film.width = frame.width;
    film.height = frame.height;
    film.seconds.push_back(frame.seconds);
    std::vector<uint8_t> rgb;
    for (int y = 0; y < frame.height; ++y) {
      rgb.insert(rgb.end(), frame.rgb + y * frame.stride, frame.rgb + y * frame.stride + frame.width * 3);
    }
    film.frames.push_back(std::move(rgb));
  }
  film.notes = (*video)->Notes();
  return film;
}

// A soft pattern that moves; smooth, so that half-size chroma costs little.
std::vector<uint8_t> FramePattern(int width, int height, int number) {
  std::vector<uint8_t> rgb(static_cast<size_t>(width) * height * 3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      uint8_t* pixel = rgb.data() + (y * width + x) * 3;
      pixel[0] = static_cast<uint8_t>(128 + 80 * std::sin((x + 2 * number) * 0.1));
      pixel[1] = static_cast<uint8_t>(128 + 80 * std::sin((y + number) * 0.08));
      pixel[2] = static_cast<uint8_t>(128 + 60 * std::cos((x + y) * 0.05));
    }
  }
  return rgb;
}

double PsnrOf(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.size()) / std::max(sum, 1e-9));
}

class VideoStreamTest : public testing::Test {
 protected:
  Status WritePattern(const std::string& name, const VideoWriterOptions& options, int frames,
                      const std::vector<double>& seconds = {}) {
    auto writer = VideoWriter::Create(dir_ / name, options);
    if (!writer.ok()) return writer.status();
    for (int i = 0; i < frames; ++i) {
      const auto rgb = FramePattern(options.width, options.height, i);
      const auto at = seconds.empty() ? std::nullopt : std::optional<double>(seconds[i]);
      LOCKSTEP_RETURN_IF_ERROR((*writer)->Write(rgb.data(), static_cast<size_t>(options.width) * 3, at));
    }
    return (*writer)->Finish();
  }
  std::string Make(const std::string& name, const VideoSpec& spec) {
    EXPECT_EQ(WriteVideo(dir_ / name, spec), "");
    return dir_ / name;
  }
  std::string Store(const std::string& name, const std::string& bytes) {
    EXPECT_TRUE(WriteFileAtomic(dir_ / name, bytes, 0644, Durability::kProcess).ok());
    return dir_ / name;
  }
  std::vector<std::string> Names() { return *ListDir(dir_.path()); }
  TempDir dir_ = *TempDir::Create();
};

TEST_F(VideoStreamTest, WhatIsWrittenIsReadBackInEveryContainer) {
  for (const char* name : {"a.mp4", "a.mkv", "a.mov", "a.webm", "a.avi", "a.ts"}) {
    VideoWriterOptions options{.width = 96, .height = 64, .rate = {30000, 1001}};
    options.crf = std::string(name) == "a.avi" ? 2 : 8;
    const Status written = WritePattern(name, options, 12);
    ASSERT_TRUE(written.ok()) << name << ": " << written.message();
    const Film film = ReadAll(dir_ / name);
    ASSERT_TRUE(film.status.ok()) << film.status.message();
    ASSERT_EQ(film.frames.size(), 12) << name;
    EXPECT_EQ(film.width, 96);
    EXPECT_EQ(film.height, 64);
    EXPECT_NEAR(film.info.rate.value(), 30000.0 / 1001, 0.01) << name;
    EXPECT_THAT(film.notes, IsEmpty()) << name;
    for (int i = 0; i < 12; ++i) {
      EXPECT_GT(PsnrOf(film.frames[i], FramePattern(96, 64, i)), 36) << name << " frame " << i;
      EXPECT_NEAR(film.seconds[i], i * 1001 / 30000.0, 0.001) << name;
    }
    EXPECT_LT(PsnrOf(film.frames[0], FramePattern(96, 64, 11)), 25) << "the frames do differ";
  }
}

// Of any run and rank; Matroska draws random numbers for a file unless told not to.
TEST_F(VideoStreamTest, TheSameFramesAreTheSameBytes) {
  for (const char* ending : {".mp4", ".mkv", ".mov", ".webm", ".avi", ".ts"}) {
    for (const char* name : {"one", "two"})
      ASSERT_TRUE(WritePattern(name + std::string(ending), {.width = 32, .height = 32}, 3).ok());
    EXPECT_EQ(*ReadFile(dir_ / ("one" + std::string(ending))), *ReadFile(dir_ / ("two" + std::string(ending))))
        << ending;
  }
}

TEST_F(VideoStreamTest, TheRateIsKeptAsAFractionWhereTheContainerHasOne) {
  for (const Ratio rate : {Ratio{24, 1}, Ratio{25, 1}, Ratio{24000, 1001}, Ratio{60000, 1001}, Ratio{15, 2}}) {
    ASSERT_TRUE(WritePattern("r.mp4", {.width = 32, .height = 32, .rate = rate, .overwrite = true}, 9).ok());
    const Film film = ReadAll(dir_ / "r.mp4");
    EXPECT_EQ(film.info.rate.num * int64_t{rate.den}, film.info.rate.den * int64_t{rate.num})
        << film.info.rate.num << "/" << film.info.rate.den;
  }
}

TEST_F(VideoStreamTest, LosslessIsLossless) {
  VideoWriterOptions options{.width = 33, .height = 17, .codec = "ffv1", .pixels = "bgr0"};
  const Status written = WritePattern("l.mkv", options, 4);
  ASSERT_TRUE(written.ok()) << written.message();
  const Film film = ReadAll(dir_ / "l.mkv");
  ASSERT_EQ(film.frames.size(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(film.frames[i], FramePattern(33, 17, i));
}

// Only a part of each frame is converted, and a jump decodes only what other frames refer to: the same pixels.
TEST_F(VideoStreamTest, AWindowAndAJumpGiveThePixelsOfTheWholeVideo) {
  const std::string path = dir_ / "a.mp4";
  ASSERT_TRUE(WritePattern("a.mp4", {.width = 322, .height = 246}, 40).ok());
  const Film whole = ReadAll(path);
  ASSERT_EQ(whole.frames.size(), 40u);
  for (const Window window : {Window{150, 90, 100, 60}, {0, 0, 1, 1}, {201, 133, 121, 113}, {37, 0, 64, 246}}) {
    for (const uint64_t start : {0, 1, 7, 22, 39}) {
      auto video = VideoReader::Open(path, {.window = [&](int, int) { return window; }});
      ASSERT_TRUE(video.ok());
      const uint64_t count = std::min<uint64_t>(5, 40 - start);
      ASSERT_TRUE((*video)->Seek(start, count));
      VideoFrame frame;
      for (uint64_t i = 0; i < count; ++i) {
        const Result<bool> more = (*video)->Next(&frame);
        ASSERT_TRUE(more.ok() && *more) << "frame " << start << "+" << i;
        for (int y = window.y; y < window.y + window.height; ++y) {
          const uint8_t* row = whole.frames[start + i].data() + (static_cast<size_t>(y) * whole.width + window.x) * 3;
          ASSERT_EQ(std::memcmp(frame.rgb + y * frame.stride + static_cast<size_t>(window.x) * 3, row,
                                static_cast<size_t>(window.width) * 3),
                    0)
              << "frame " << start << "+" << i << ", row " << y << ", window at " << window.x << ", " << window.y;
        }
      }
    }
  }
}

TEST_F(VideoStreamTest, OddSizesGetTheirLastRowAndColumnTwiceUnlessTheChromaIsWhole) {
  ASSERT_TRUE(WritePattern("o.mp4", {.width = 33, .height = 17, .crf = 1}, 3).ok());
  Film film = ReadAll(dir_ / "o.mp4");
  EXPECT_EQ(film.width, 34);
  EXPECT_EQ(film.height, 18);
  const uint8_t* row = film.frames[0].data();
  for (int c = 0; c < 3; ++c) EXPECT_NEAR(row[33 * 3 + c], row[32 * 3 + c], 4);
  ASSERT_TRUE(WritePattern("o.mkv", {.width = 33, .height = 17, .pixels = "yuv444p"}, 3).ok());
  film = ReadAll(dir_ / "o.mkv");
  EXPECT_EQ(film.width, 33);
  EXPECT_EQ(film.height, 17);
}

TEST_F(VideoStreamTest, AVariableFrameRateKeepsItsTimes) {
  const std::vector<double> times = {0, 0.04, 0.08, 0.3, 0.34, 1.0, 1.7, 1.74};
  for (const char* name : {"v.mp4", "v.mkv", "v.mov"}) {
    ASSERT_TRUE(WritePattern(name, {.width = 48, .height = 32}, 8, times).ok());
    const Film film = ReadAll(dir_ / name);
    ASSERT_EQ(film.seconds.size(), 8) << film.status.message();
    for (int i = 0; i < 8; ++i) EXPECT_NEAR(film.seconds[i], times[i], 0.001) << name << " frame " << i;
  }
}

TEST_F(VideoStreamTest, RoundedTimesOfAConstantRateStayConstant) {
  std::vector<double> times;  // as Matroska stores 30000/1001: whole milliseconds
  for (int i = 0; i < 30; ++i) times.push_back(std::round(i * 1001 / 30.0) / 1000);
  ASSERT_TRUE(WritePattern("m.mp4", {.width = 32, .height = 32, .rate = {30000, 1001}}, 30, times).ok());
  const Film film = ReadAll(dir_ / "m.mp4");
  EXPECT_EQ(film.info.rate.num, 30000);
  EXPECT_EQ(film.info.rate.den, 1001);
  for (int i = 0; i < 30; ++i) EXPECT_NEAR(film.seconds[i], i * 1001 / 30000.0, 1e-6);
}

TEST_F(VideoStreamTest, ClipsOfAVariableFrameRateHaveEqualStridesInFrames) {
  // Frame i is a flat grey i; the times jump. Every clip that training could draw is a sequence of neighbours.
  auto writer = VideoWriter::Create(dir_ / "vfr.mp4", {.width = 32, .height = 32, .crf = 4});
  ASSERT_TRUE(writer.ok());
  double time = 0;
  for (int i = 0; i < 40; ++i) {
    const std::vector<uint8_t> rgb(32 * 32 * 3, static_cast<uint8_t>((GreyOf(i) - 16) * 255 / 219));
    ASSERT_TRUE((*writer)->Write(rgb.data(), 32 * 3, time).ok());
    time += i % 7 == 3 ? 0.5 : i % 2 == 0 ? 0.02 : 0.1;
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  ASSERT_EQ(ReadAll(dir_ / "vfr.mp4").frames.size(), 40);
  Random random(5);
  for (int round = 0; round < 40; ++round) {
    const Pace pace{5, static_cast<int>(random.Between(1, 6)), random.Uniform()};
    std::vector<int> numbers(5, -1);
    const Status status = ReadVideoClip(dir_ / "vfr.mp4", pace, nullptr, [&](const VideoFrame& frame) {
      numbers[frame.number] = FrameOfGrey(frame.rgb[16 * frame.stride + 16 * 3 + 1]);
      return Status::Ok();
    });
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 1; i < 5; ++i) EXPECT_EQ(numbers[i] - numbers[i - 1], pace.stride) << "where " << pace.where;
    EXPECT_GE(numbers[0], 0);
    EXPECT_LT(numbers[4], 40);
  }
}

TEST_F(VideoStreamTest, AFileOfThreeFramesHasThreeFrames) {
  const std::string path = Make("three.mp4", {.frames = 3});
  EXPECT_THAT(ReadAll(path).Numbers(), ElementsAre(0, 1, 2));
  const Status status = ReadVideoClip(path, {12, 1, 0}, nullptr, [](const VideoFrame&) { return Status::Ok(); });
  EXPECT_THAT(status.message(), HasSubstr("three.mp4' is too short: a clip needs 12 frames, the video has 3"));
}

TEST_F(VideoStreamTest, WhatComesBeforeTheFirstKeyFrameIsLeftOutAndSaid) {
  for (const char* name : {"k.mkv", "k.avi", "k.ts"}) {
    // Key frames are 0, 5, 10, ...; the file begins with frame 2.
    const std::string path = Make(name, {.frames = 12, .gop = 5, .skip_packets = 2});
    const Film film = ReadAll(path);
    ASSERT_TRUE(film.status.ok()) << name << film.status.message();
    EXPECT_THAT(film.Numbers(), ElementsAre(5, 6, 7, 8, 9, 10, 11)) << name;
    ASSERT_FALSE(film.notes.empty()) << name;
    EXPECT_THAT(film.notes[0], HasSubstr("begins without a key frame: 3 of its frames cannot be decoded"));
    std::vector<int> numbers;
    const Status status = ReadVideoClip(path, {4, 2, 0}, nullptr, [&](const VideoFrame& frame) {
      numbers.push_back(FrameOfGrey(frame.rgb[24 * frame.stride + 32 * 3 + 1]));
      return Status::Ok();
    });
    ASSERT_TRUE(status.ok()) << name << status.message();
    EXPECT_EQ(numbers.back() - numbers[numbers.size() - 2], 2) << name;
    EXPECT_GE(numbers[numbers.size() - 4], 5) << name;
  }
}

TEST_F(VideoStreamTest, AFileWithoutAnyKeyFrameIsNamed) {
  const std::string path = Make("none.avi", {.frames = 8, .gop = 100, .skip_packets = 1});
  const Film film = ReadAll(path);
  EXPECT_THAT(film.status.message(), HasSubstr("none.avi' cannot be decoded: it has no key frame to begin with"));
  const Status clip = ReadVideoClip(path, {2, 1, 0}, nullptr, [](const VideoFrame&) { return Status::Ok(); });
  EXPECT_THAT(clip.message(), HasSubstr("none.avi"));
}

TEST_F(VideoStreamTest, ASizeThatChangesIsNamedWithPlaceAndSizes) {
  Make("a.ts", {.frames = 6, .width = 64, .height = 48});
  Make("b.ts", {.frames = 6, .width = 96, .height = 64});
  const std::string path = Store("ab.ts", *ReadFile(dir_ / "a.ts") + *ReadFile(dir_ / "b.ts"));
  const Film film = ReadAll(path);
  EXPECT_EQ(film.frames.size(), 6);
  EXPECT_THAT(film.status.message(), HasSubstr("frames of mixed size: 64x48, then 96x64 after 6 frames"));
  const Status clip = ReadVideoClip(path, {10, 1, 0}, nullptr, [](const VideoFrame&) { return Status::Ok(); });
  EXPECT_THAT(clip.message(), HasSubstr("ab.ts"));
}

TEST_F(VideoStreamTest, AFileThatWasCutEndsWhereItsDataEndAndSaysSo) {
  for (const auto& [name, flags] : {std::pair{"c.mkv", ""}, {"c.avi", ""}, {"c.mp4", "faststart"}}) {
    const std::string path = Make(name, {.frames = 40, .width = 256, .height = 192, .movflags = flags});
    std::string bytes = *ReadFile(path);
    bytes.resize(bytes.size() * 6 / 10);
    Store(name, bytes);
    const Film film = ReadAll(path);
    ASSERT_TRUE(film.status.ok()) << name << film.status.message();
    EXPECT_GT(film.frames.size(), 10) << name;
    EXPECT_LT(film.frames.size(), 38) << name;
    const std::vector<int> numbers = film.Numbers();
    for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i) << name;
    ASSERT_EQ(film.notes.size(), 1) << name;
    const bool seconds = std::string(name) == "c.mkv";  // Matroska promises no number of frames
    EXPECT_THAT(film.notes[0], HasSubstr(seconds ? " s more than it has" : "promises 40 frames and ends after"))
        << name;
  }
}

TEST_F(VideoStreamTest, AFrameThatWasCutInTheMiddleIsTheEndAndNotDamage) {
  ASSERT_TRUE(WritePattern("c.mpg", {.width = 64, .height = 48, .codec = "mpeg2video"}, 30).ok());
  const std::string whole = *ReadFile(dir_ / "c.mpg");
  int noted = 0;
  for (int part = 30; part < 100; part += 3) {
    const Film film = ReadAll(Store("c.mpg", whole.substr(0, whole.size() * part / 100)));
    ASSERT_TRUE(film.status.ok()) << part << "%: " << film.status.message();
    EXPECT_GT(film.frames.size(), 0);
    EXPECT_LT(film.frames.size(), 31);
    if (!film.notes.empty()) ++noted;
    for (const std::string& note : film.notes) EXPECT_THAT(note, HasSubstr("it ends in the middle of a frame"));
  }
  EXPECT_GT(noted, 0);
}

TEST_F(VideoStreamTest, ACutMp4WithItsIndexAtTheEndIsNamed) {
  const std::string path = Make("moov.mp4", {.frames = 20});
  std::string bytes = *ReadFile(path);
  bytes.resize(bytes.size() / 2);
  Store("moov.mp4", bytes);
  EXPECT_THAT(ReadAll(path).status.message(), HasSubstr("moov.mp4' cannot be decoded: its index"));
}

TEST_F(VideoStreamTest, DamageNeverGivesMoreFramesThanThereAreNorAnUnnamedError) {
  ASSERT_TRUE(WritePattern("h.mp4", {.width = 64, .height = 48}, 24).ok());
  const std::string good = *ReadFile(dir_ / "h.mp4");
  Random random(11);
  int errors = 0;
  for (int round = 0; round < 60; ++round) {
    std::string damaged = good;
    for (uint64_t i = 0; i <= random.Below(30); ++i)
      damaged[random.Below(good.size())] = static_cast<char>(random.Next());
    const Film film = ReadAll(Store("h.mp4", damaged));
    EXPECT_LE(film.frames.size(), 24 * 4);
    if (film.status.ok()) continue;
    ++errors;
    EXPECT_THAT(film.status.message(), HasSubstr("h.mp4"));
  }
  EXPECT_GT(errors, 0);
}

TEST_F(VideoStreamTest, WhatHasNoPicturesIsNamed) {
  EXPECT_THAT(ReadAll(Store("empty.mp4", "")).status.message(), HasSubstr("empty.mp4' cannot be decoded"));
  EXPECT_THAT(ReadAll(Store("text.mp4", "dear diary")).status.message(), HasSubstr("text.mp4' cannot be decoded"));
  const std::string wav = std::string("RIFF") + std::string("\x24\x10\0\0", 4) + "WAVEfmt " +
                          std::string("\x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0", 20) + "data" +
                          std::string("\0\x10\0\0", 4) + std::string(4096, 'a');
  EXPECT_THAT(ReadAll(Store("sound.wav", wav)).status.message(),
              HasSubstr("sound.wav' cannot be decoded: it has no video"));
}

TEST_F(VideoStreamTest, QuarterTurnsAndMirrorsAreDone) {
  const int mirrored[] = {1, 0, 3, 2};
  for (int way = 0; way < 8; ++way) {
    const int turns = way % 4;
    const bool mirror = way >= 4;
    const Film film = ReadAll(Make(
        "t.mp4", {.frames = 2, .width = 64, .height = 32, .turn = turns * 90, .mirror = mirror, .mark_corner = true}));
    ASSERT_EQ(film.frames.size(), 2) << film.status.message();
    EXPECT_EQ(film.width, turns % 2 == 0 ? 64 : 32);
    EXPECT_EQ(film.height, turns % 2 == 0 ? 32 : 64);
    std::vector<int> white;  // corners, clockwise from the top left: 0, 1, 2, 3
    const int x[] = {4, film.width - 5, film.width - 5, 4};
    const int y[] = {4, 4, film.height - 5, film.height - 5};
    for (int corner = 0; corner < 4; ++corner) {
      if (film.frames[0][(y[corner] * film.width + x[corner]) * 3] > 200) white.push_back(corner);
    }
    EXPECT_THAT(white, ElementsAre(mirror ? mirrored[turns] : turns)) << turns << " turns, mirrored: " << mirror;
  }
}

TEST_F(VideoStreamTest, AWriterThatDoesNotFinishLeavesNothing) {
  {
    auto writer = VideoWriter::Create(dir_ / "x.mp4", {.width = 32, .height = 32});
    ASSERT_TRUE(writer.ok());
    const auto rgb = FramePattern(32, 32, 0);
    ASSERT_TRUE((*writer)->Write(rgb.data(), 96).ok());
    EXPECT_FALSE(std::filesystem::exists(dir_ / "x.mp4"));
    EXPECT_EQ(Names().size(), 1) << "a temporary name while it is written";
  }
  EXPECT_THAT(Names(), IsEmpty());
  {
    auto writer = VideoWriter::Create(dir_ / "x.mp4", {.width = 32, .height = 32});
    EXPECT_THAT((*writer)->Finish().message(), HasSubstr("not one frame"));
  }
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(VideoStreamTest, WhatCannotBeWrittenIsSaidBeforeTheFirstFrame) {
  const auto error = [&](const std::string& path, const VideoWriterOptions& options) {
    auto writer = VideoWriter::Create(path, options);
    return writer.ok() ? "" : writer.status().ToString();
  };
  EXPECT_THAT(error(dir_ / "a.xyz", {.width = 8, .height = 8}), HasSubstr("names no video container"));
  EXPECT_THAT(error(dir_ / "a.mp4", {.width = 8, .height = 8, .codec = "nonsense"}),
              HasSubstr("no video encoder 'nonsense'"));
  EXPECT_THAT(error(dir_ / "a.webm", {.width = 8, .height = 8, .codec = "libx264"}),
              HasSubstr("webm files do not hold libx264"));
  EXPECT_THAT(error(dir_ / "a.mp4", {.width = 8, .height = 8, .pixels = "teal"}),
              HasSubstr("does not take pixels 'teal'"));
  EXPECT_THAT(error(dir_ / "a.mkv", {.width = 8, .height = 8, .codec = "ffv1", .crf = 20}),
              HasSubstr("ffv1 has no --crf"));
  EXPECT_THAT(error("/nowhere/at/all/a.mp4", {.width = 8, .height = 8}), HasSubstr("No such file"));
  EXPECT_THAT(Names(), IsEmpty());
  Store("there.mp4", "x");
  EXPECT_THAT(error(dir_ / "there.mp4", {.width = 8, .height = 8}), HasSubstr("there.mp4' exists"));
  EXPECT_EQ(*ReadFile(dir_ / "there.mp4"), "x");
  // The options alone, whatever is there.
  EXPECT_TRUE(VideoWriter::Check("/nowhere/at/all/a.mp4", {.width = 8, .height = 8}).ok());
  EXPECT_THAT(VideoWriter::Check("/nowhere/a.webm", {.width = 8, .height = 8, .codec = "libx264"}).message(),
              HasSubstr("webm files do not hold libx264"));
}

}  // namespace
}  // namespace lockstep::data

#endif
