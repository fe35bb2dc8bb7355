#include "data/video.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/random.h"
#include "data/sources.h"

#ifdef LOCKSTEP_FFMPEG
#include "video_file.h"
#endif

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

#ifndef LOCKSTEP_FFMPEG

TEST(VideoTest, ABuildWithoutFfmpegSaysSo) {
  const Status status = OpenSource({.kind = "videos", .path = "/"}).status();
  EXPECT_THAT(status.message(), HasSubstr("reads no video files"));
  EXPECT_FALSE(HasVideo());
}

#else

// The frames of a clip as numbers of frames of the video, or the error.
struct Clip {
  std::vector<int> frames;
  Status status;
};

Clip ReadClip(const std::string& path, const Pace& pace, const std::atomic<bool>* cancelled = nullptr) {
  Clip clip;
  clip.frames.resize(pace.frames, -1);
  clip.status = ReadVideoClip(path, pace, cancelled, [&](const VideoFrame& frame) {
    const uint8_t* middle = frame.rgb + frame.height / 2 * frame.stride + static_cast<size_t>(frame.width / 2) * 3;
    clip.frames[frame.number] = FrameOfGrey(middle[1]);
    return Status::Ok();
  });
  return clip;
}

class VideoTest : public testing::Test {
 protected:
  std::string Make(const std::string& name, const VideoSpec& spec) {
    EXPECT_EQ(WriteVideo(dir_ / name, spec), "");
    return dir_ / name;
  }
  // The same file without its tail.
  std::string Cut(const std::string& path, double keep) {
    std::string bytes = *ReadFile(path);
    bytes.resize(static_cast<size_t>(static_cast<double>(bytes.size()) * keep));
    EXPECT_TRUE(WriteFileAtomic(path, bytes, 0644, Durability::kProcess).ok());
    return path;
  }
  TempDir dir_ = *TempDir::Create();
};

TEST_F(VideoTest, GivesTheFramesOfTheClipExactly) {
  for (const char* name : {"a.mp4", "a.mkv", "a.avi"}) {
    const std::string path = Make(name, {.frames = 30});
    EXPECT_THAT(ReadClip(path, {4, 1, 0}).frames, ElementsAre(0, 1, 2, 3)) << name;
    EXPECT_THAT(ReadClip(path, {4, 3, 0}).frames, ElementsAre(0, 3, 6, 9)) << name;
    // 21 possible starts at stride 3: the middle one is frame 10.
    EXPECT_THAT(ReadClip(path, {4, 3, 0.5}).frames, ElementsAre(10, 13, 16, 19)) << name;
    EXPECT_THAT(ReadClip(path, {4, 3, 0.9999}).frames, ElementsAre(20, 23, 26, 29)) << name;
    for (int start = 0; start < 30; ++start) {
      EXPECT_THAT(ReadClip(path, {1, 1, (start + 0.5) / 30}).frames, ElementsAre(start)) << name;
    }
  }
}

TEST_F(VideoTest, FramesThatAreStoredOutOfOrderComeInOrder) {
  const std::string path = Make("b.mp4", {.frames = 24, .gop = 12, .b_frames = 2});
  EXPECT_THAT(ReadClip(path, {6, 2, 0.5}).frames, ElementsAre(7, 9, 11, 13, 15, 17));
  EXPECT_THAT(ReadClip(path, {24, 1, 0}).frames, testing::SizeIs(24));
  EXPECT_EQ(ReadClip(path, {24, 1, 0}).frames.back(), 23);
}

TEST_F(VideoTest, AStrideThatDoesNotFitIsReduced) {
  const std::string path = Make("s.mp4", {.frames = 10});
  EXPECT_THAT(ReadClip(path, {4, 5, 0}).frames, ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(ReadClip(path, {10, 5, 0.7}).frames, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(ReadClip(path, {11, 1, 0}).status.message(), HasSubstr("a clip needs 11 frames, the video has 10"));
}

TEST_F(VideoTest, AVideoThatEndsEarlyGivesWhatIsThereAndNeverItsStartAgain) {
  for (const auto& [name, flags] : {std::pair{"c.mkv", ""}, {"c.avi", ""}, {"c.mp4", "faststart"}}) {
    const std::string path = Cut(Make(name, {.frames = 40, .width = 256, .height = 192, .movflags = flags}), 0.6);
    const Clip whole = ReadClip(path, {5, 1, 0});
    ASSERT_TRUE(whole.status.ok()) << whole.status.message();
    EXPECT_THAT(whole.frames, ElementsAre(0, 1, 2, 3, 4));
    // Near the promised end: what comes is from the part that exists, in order.
    const Clip late = ReadClip(path, {5, 2, 0.99});
    ASSERT_TRUE(late.status.ok()) << late.status.message();
    EXPECT_GT(late.frames.front(), 4) << name;
    EXPECT_LT(late.frames.back(), 39) << name;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(late.frames[i + 1], late.frames[i] + 2) << name;
    EXPECT_EQ(ReadClip(path, {5, 2, 0.99}).frames, late.frames);
    const Status status = ReadClip(path, {38, 1, 0}).status;
    EXPECT_THAT(status.message(),
                HasSubstr(std::string(name) + "' is too short: a clip needs 38 frames, the video has "));
    EXPECT_THAT(status.message(), HasSubstr("it promises 40 and ends early"));
  }
}

TEST_F(VideoTest, WhatIsNoVideoIsAnErrorWithItsName) {
  EXPECT_THAT(ReadClip(dir_ / "absent.mp4", {1, 1, 0}).status.message(), HasSubstr("absent.mp4"));
  ASSERT_TRUE(WriteFileAtomic(dir_ / "text.mp4", "no video at all", 0644, Durability::kProcess).ok());
  EXPECT_THAT(ReadClip(dir_ / "text.mp4", {1, 1, 0}).status.message(), HasSubstr("text.mp4' cannot be decoded"));
  ASSERT_TRUE(WriteFileAtomic(dir_ / "empty.mp4", "", 0644, Durability::kProcess).ok());
  EXPECT_FALSE(ReadClip(dir_ / "empty.mp4", {1, 1, 0}).status.ok());
  // A playlist must not make the decoder open anything else.
  ASSERT_TRUE(WriteFileAtomic(dir_ / "list.mp4", "#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n", 0644,
                              Durability::kProcess)
                  .ok());
  EXPECT_FALSE(ReadClip(dir_ / "list.mp4", {1, 1, 0}).status.ok());
}

TEST_F(VideoTest, DamagedFilesAreSurvived) {
  const std::string path = Make("d.avi", {.frames = 12});
  const std::string good = *ReadFile(path);
  Random random(6);
  for (int round = 0; round < 60; ++round) {
    std::string damaged = good;
    for (uint64_t i = 0; i <= random.Below(40); ++i)
      damaged[random.Below(good.size())] = static_cast<char>(random.Next());
    if (round % 3 == 0) damaged.resize(random.Below(good.size()));
    ASSERT_TRUE(WriteFileAtomic(path, damaged, 0644, Durability::kProcess).ok());
    const Clip clip = ReadClip(path, {4, 2, 0.3});
    if (!clip.status.ok()) {
      EXPECT_THAT(clip.status.message(), HasSubstr("d.avi"));
    }
  }
}

TEST_F(VideoTest, ReadingStopsWhenItIsCancelled) {
  const std::string path = Make("e.mp4", {.frames = 30});
  const std::atomic<bool> cancelled = true;
  EXPECT_FALSE(ReadClip(path, {30, 1, 0}, &cancelled).status.ok());
}

TEST_F(VideoTest, AFolderOfVideosIsASource) {
  Make("v10.mp4", {.frames = 20});
  Make("v9.mkv", {.frames = 20, .width = 96, .height = 48});
  ASSERT_TRUE(WriteFileAtomic(dir_ / "notes.txt", "x", 0644, Durability::kProcess).ok());
  Result<std::unique_ptr<Source> > source =
      OpenSource({.kind = "videos", .path = dir_.path(), .frames = 3, .height = 16, .width = 32, .clips_per_video = 2});
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ((*source)->size(), 4);
  EXPECT_EQ((*source)->Origin(0), "v9.mkv");
  EXPECT_EQ((*source)->Origin(1), "v9.mkv");
  EXPECT_THAT((*source)->Name(3), HasSubstr("v10.mp4 clip 1"));
  std::vector<uint8_t> out((*source)->fields()[0].bytes());
  std::byte* data = reinterpret_cast<std::byte*>(out.data());
  for (uint64_t index = 0; index < 4; ++index) {
    ASSERT_TRUE((*source)->Read({.index = index}, {&data, 1}).ok());
    const int first = index % 2 == 0 ? 0 : 9;  // 18 possible starts, the second clip at half of them
    for (int t = 0; t < 3; ++t) EXPECT_EQ(FrameOfGrey(out[t * 3 * 16 * 32 + 100]), first + t) << index;
  }
}

TEST_F(VideoTest, OneFileIsASourceToo) {
  const std::string path = Make("one.mp4", {.frames = 5});
  EXPECT_EQ((*OpenSource({.kind = "videos", .path = path, .frames = 2}))->size(), 1);
}

#endif

}  // namespace
}  // namespace lockstep::data
