// Videos of varying rate: a clip in the middle is found by key frames, which are looked for once.
#include "data/key_frames.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/files.h"
#include "data/sources.h"
#include "data/video.h"
#ifdef LOCKSTEP_FFMPEG
#include "video_file.h"
#endif

namespace lockstep::data {
namespace {

using testing::ElementsAre;

TEST(KeyFramesTest, TextIsReadBackAndDamagedTextIsNot) {
  KeyFrames keys;
  keys.stamp = {1000, -5};
  keys.first = -2;
  keys.runs = {{3, 4}, {1, 2}};
  keys.keys = {{0, -4, 100}, {4, 10, -1}};
  const std::string text = WriteKeyFrames(keys);
  const std::optional<KeyFrames> read = ReadKeyFrames(text);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(WriteKeyFrames(*read), text);
  EXPECT_EQ(read->frames(), 7);
  const int64_t times[] = {-2, 1, 4, 7, 10, 11, 12};
  for (uint64_t i = 0; i < 7; ++i) EXPECT_EQ(read->TimeOf(i), times[i]);
  EXPECT_EQ(read->Before(3).frame, 0);
  EXPECT_EQ(read->Before(4).frame, 4);
  for (size_t bytes = 0; bytes + 1 < text.size(); ++bytes) EXPECT_FALSE(ReadKeyFrames(text.substr(0, bytes))) << bytes;
}

#ifdef LOCKSTEP_FFMPEG

class KeyFrameFileTest : public testing::Test {
 protected:
  std::string Make(const std::string& name, const VideoSpec& spec) {
    EXPECT_EQ(WriteVideo(dir_ / name, spec), "");
    return dir_ / name;
  }
  static std::vector<int> ReadClip(const std::string& path, const Pace& pace, KeyFrameCache* keys) {
    std::vector<int> frames(static_cast<size_t>(pace.frames), -1);
    const Status status = ReadVideoClip(
        VideoPart{path, path}, pace, nullptr,
        [&](const VideoFrame& frame) {
          frames[static_cast<size_t>(frame.number)] = FrameOfGrey(frame.rgb[0]);
          return Status::Ok();
        },
        keys);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return frames;
  }
  static void Touch(const std::string& path) {
    const timespec later[2] = {{2000000000, 0}, {2000000000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), later, 0), 0);
  }
  TempDir dir_ = *TempDir::Create();
};

TEST_F(KeyFrameFileTest, GivesTheFramesThatDecodingFromTheStartGives) {
  for (const char* name : {"a.mkv", "a.mp4"}) {
    for (const int b_frames : {0, 2}) {
      const std::string path = Make(name, {.frames = 40, .gop = 8, .b_frames = b_frames, .uneven = true});
      KeyFrameCache keys;
      for (double position = 0; position < 1; position += 0.04) {
        const Pace pace{3, 2, position};
        EXPECT_EQ(ReadClip(path, pace, &keys), ReadClip(path, pace, nullptr))
            << name << " " << b_frames << " " << position;
      }
      EXPECT_EQ(keys.scans(), 1) << "the file is gone through once";
    }
  }
}

TEST_F(KeyFrameFileTest, AFileThatWasOpenedBeforeGivesTheSameFrames) {
  for (const char* name : {"a.mp4", "a.mov", "a.mkv"}) {
    for (const int b_frames : {0, 2}) {
      const std::string path = Make(name, {.frames = 40, .gop = 8, .b_frames = b_frames});
      KeyFrameCache keys;
      for (double position = 0; position < 1; position += 0.04) {
        const Pace pace{3, 2, position};
        EXPECT_EQ(ReadClip(path, pace, &keys), ReadClip(path, pace, nullptr)) << name << " " << b_frames;
      }
      const uint64_t restored = keys.streams().restored();
      EXPECT_EQ(restored > 20, !path.ends_with(".mkv")) << name << " " << restored;
      Touch(path);
      ReadClip(path, {3, 2, 0.5}, &keys);
      EXPECT_EQ(keys.streams().restored(), restored) << "a changed file is looked at again";
    }
  }
}

TEST_F(KeyFrameFileTest, FindsEveryFrameFromTheKeyFrameBefore) {
  for (const char* name : {"a.mkv", "a.mp4", "a.ts"}) {
    const std::string path = Make(name, {.frames = 30, .gop = 7, .uneven = true});
    const Result<KeyFrames> found = FindKeyFrames({path, path}, nullptr);
    ASSERT_TRUE(found.ok()) << name << found.status().ToString();
    EXPECT_EQ(found->frames(), 30) << name;
    EXPECT_THAT(found->keys, testing::SizeIs(5)) << name;
    for (uint64_t start = 0; start < 30; ++start) {
      const auto video = VideoReader::Open(path);
      const uint64_t count = std::min<uint64_t>(4, 30 - start);
      ASSERT_TRUE((*video)->Seek(start, count, *found)) << name << " " << start;
      VideoFrame frame;
      for (uint64_t i = 0; i < count; ++i) {
        ASSERT_TRUE(*(*video)->Next(&frame)) << name << " " << start << "+" << i;
        EXPECT_EQ(FrameOfGrey(frame.rgb[0]), static_cast<int>(start + i)) << name;
      }
    }
  }
}

TEST_F(KeyFrameFileTest, WhatAnIndexHasIsUsedWhileTheFileIsTheSame) {
  const std::string path = Make("a.mkv", {.frames = 30, .uneven = true});
  const VideoPart part{path, path};
  const std::string text = WriteKeyFrames(*FindKeyFrames(part, nullptr));
  KeyFrameCache known;
  known.Store(part, text);
  ASSERT_NE(known.Find(part, nullptr), nullptr);
  EXPECT_EQ(known.scans(), 0);
  Touch(path);
  EXPECT_EQ(known.Find(part, nullptr)->stamp, StampOf(path));
  EXPECT_EQ(known.scans(), 1) << "a changed file is looked at again";
  KeyFrameCache stale;
  stale.Store(part, text);
  EXPECT_EQ(stale.Find(part, nullptr)->stamp, StampOf(path));
  EXPECT_EQ(stale.scans(), 1) << "nor is the index trusted";
}

TEST_F(KeyFrameFileTest, AnIndexWithKeyFramesGivesTheSameClips) {
  Make("a.mkv", {.frames = 30, .uneven = true});
  ASSERT_TRUE(WriteFileAtomic(dir_ / "b.mkv", "no video").ok());
  SourceConfig config{
      .kind = "videos", .path = dir_.path(), .frames = 4, .height = 16, .width = 16, .clips_per_video = 5};
  const auto plain = *OpenSource(config);
  const std::string index = *IndexSource(config, {.key_frames = true});
  EXPECT_GT(index.size(), IndexSource(config)->size());
  config.index = std::make_shared<const std::string>(index);
  const auto indexed = *OpenSource(config);
  EXPECT_EQ(indexed->Digest(), plain->Digest());
  for (uint64_t i = 0; i < 5; ++i) {
    std::vector<std::byte> a(plain->fields()[0].bytes()), b(a.size());
    std::byte* to_a = a.data();
    std::byte* to_b = b.data();
    ASSERT_TRUE(plain->Read({.index = i}, {&to_a, 1}).ok());
    ASSERT_TRUE(indexed->Read({.index = i}, {&to_b, 1}).ok());
    EXPECT_EQ(a, b);
  }
}

#endif

}  // namespace
}  // namespace lockstep::data
