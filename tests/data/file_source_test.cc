#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "data/sources.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FileSourceTest : public testing::Test {
 protected:
  // A folder of flat frames; frame i has level first + i.
  void MakeFrames(const std::string& folder, int frames, int first, int width = 20, int height = 16) {
    ASSERT_TRUE(MakeDirs(dir_ / folder).ok());
    for (int i = 0; i < frames; ++i) {
      WritePng(dir_ / fmt::format("{}/frame_{}.png", folder, i), Flat(width, height, static_cast<uint8_t>(first + i)));
    }
  }
  void Put(const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteFileAtomic(dir_ / name, content, 0644, Durability::kProcess).ok());
  }
  SourceConfig Config(const std::string& kind, int frames = 3) {
    return {.kind = kind, .path = dir_.path(), .frames = frames, .height = 8, .width = 8};
  }
  // The level of each frame of a sample, or the error's message.
  std::vector<int> Levels(const Source& source, const Draw& draw) {
    std::vector<uint8_t> out(source.fields()[0].bytes());
    std::byte* data = reinterpret_cast<std::byte*>(out.data());
    status_ = source.Read(draw, {&data, 1});
    std::vector<int> levels;
    for (int64_t t = 0; status_.ok() && t < source.fields()[0].shape[0]; ++t) levels.push_back(out[t * 3 * 64]);
    return levels;
  }
  std::unique_ptr<Source> Open(const SourceConfig& config) {
    Result<std::unique_ptr<Source>> source = OpenSource(config);
    EXPECT_TRUE(source.ok()) << source.status().message();
    return std::move(*source);
  }
  std::string ErrorOf(const SourceConfig& config) {
    const Status status = OpenSource(config).status();
    EXPECT_EQ(ExitCode(status) == 0, status.ok());
    return status.ToString();
  }

  TempDir dir_ = *TempDir::Create();
  Status status_;
};

TEST_F(FileSourceTest, EveryFolderWithFramesIsAVideoAndNamesAreInNaturalOrder) {
  MakeFrames("v10", 12, 100);
  MakeFrames("v9/left", 12, 10);
  MakeFrames("v9/right", 12, 50);
  const auto source = Open(Config("frames"));
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(source->Origin(0), "v9/left");
  EXPECT_EQ(source->Origin(2), "v10");
  EXPECT_EQ(source->fields()[0].name, "frames");
  EXPECT_THAT(source->fields()[0].shape, ElementsAre(3, 3, 8, 8));
  EXPECT_THAT(Levels(*source, {.index = 2}), ElementsAre(100, 101, 102));
  // frame_10 comes after frame_9, not after frame_1.
  SourceConfig all = Config("frames", 12);
  EXPECT_THAT(Levels(*Open(all), {.index = 0}), ElementsAre(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21));
  EXPECT_THAT(source->Describe(), HasSubstr("3 videos"));
}

TEST_F(FileSourceTest, OneFolderOfFramesIsOneVideo) {
  MakeFrames("v", 6, 0);
  SourceConfig config = Config("frames");
  config.path = dir_ / "v/";
  const auto source = Open(config);
  EXPECT_EQ(source->size(), 1);
  EXPECT_EQ(source->Origin(0), "v");
  WritePng(dir_ / "stray.png", Flat(4, 4, 0));
  EXPECT_THAT(ErrorOf(Config("frames")), HasSubstr("holds 1 frame itself and 1 folder with frames below"));
}

TEST_F(FileSourceTest, StrideAndStartAreDrawnAndReproducible) {
  MakeFrames("v", 40, 0);
  SourceConfig config = Config("frames");
  config.min_stride = 2;
  config.max_stride = 4;
  const auto source = Open(config);
  EXPECT_THAT(Levels(*source, {.index = 0}), ElementsAre(0, 2, 4));
  EXPECT_EQ(Levels(*source, {.epoch = 7}), Levels(*source, {.seed = 9, .epoch = 8}));  // the same in every epoch
  // Flat frames through changed colours are no longer their numbers: a difference of frames still grows with the
  // stride.
  std::set<std::vector<int>> seen;
  for (uint64_t epoch = 0; epoch < 30; ++epoch) {
    const Draw draw{.seed = 1, .epoch = epoch, .augment = true};
    const auto levels = Levels(*source, draw);
    EXPECT_EQ(levels, Levels(*source, draw));
    seen.insert(levels);
  }
  EXPECT_GT(seen.size(), 20);
}

TEST_F(FileSourceTest, ClipsOfOneVideoAreSpreadOverIt) {
  MakeFrames("v", 21, 0);
  SourceConfig config = Config("frames", 2);
  config.clips_per_video = 4;
  const auto source = Open(config);
  ASSERT_EQ(source->size(), 4);
  EXPECT_THAT(Levels(*source, {.index = 0}), ElementsAre(0, 1));
  EXPECT_THAT(Levels(*source, {.index = 1}), ElementsAre(5, 6));
  EXPECT_THAT(Levels(*source, {.index = 3}), ElementsAre(15, 16));
  EXPECT_EQ(source->Origin(0), source->Origin(3));
  EXPECT_FALSE(SplitBySource(*source, 0.5, 0).ok());
}

TEST_F(FileSourceTest, AShortVideoReducesTheStrideAndThenIsUnreadable) {
  MakeFrames("long", 9, 0);
  MakeFrames("short", 5, 0);
  MakeFrames("tiny", 2, 0);
  SourceConfig config = Config("frames");
  config.min_stride = config.max_stride = 4;
  const auto source = Open(config);
  EXPECT_THAT(Levels(*source, {.index = 0}), ElementsAre(0, 4, 8));
  EXPECT_THAT(Levels(*source, {.index = 1}), ElementsAre(0, 2, 4));
  Levels(*source, {.index = 2});
  EXPECT_THAT(status_.message(), HasSubstr("tiny' is too short: a clip needs 3 frames, it has 2"));
  EXPECT_THAT(source->Describe(), HasSubstr("1 of 3 too short for 3 frames"));
  EXPECT_THAT(ErrorOf(Config("frames", 10)), HasSubstr("none of the 3 videos has that many (the longest"));
}

TEST_F(FileSourceTest, FramesOfMixedSizeAreNamedWithTheirSizes) {
  MakeFrames("v", 2, 0);
  WritePng(dir_ / "v/frame_2.png", Flat(21, 16, 3));
  const auto source = Open(Config("frames"));
  Levels(*source, {});
  EXPECT_THAT(status_.message(), HasSubstr("frame_0.png' is 20x16"));
  EXPECT_THAT(status_.message(), HasSubstr("frame_2.png' is 21x16"));
}

TEST_F(FileSourceTest, AFrameThatIsDamagedOrGoneIsNamed) {
  MakeFrames("v", 3, 0);
  const auto source = Open(Config("frames"));
  Put("v/frame_1.png", ReadFile(dir_ / "v/frame_1.png")->substr(0, 60));
  Levels(*source, {});
  EXPECT_THAT(status_.message(), HasSubstr("frame_1.png' cannot be decoded"));
  ASSERT_EQ(::unlink((dir_ / "v/frame_1.png").c_str()), 0);
  Levels(*source, {});
  EXPECT_THAT(status_.message(), HasSubstr("frame_1.png"));
}

TEST_F(FileSourceTest, AugmentationIsTheSameForAllFramesOfAClip) {
  ASSERT_TRUE(MakeDirs(dir_ / "v").ok());
  for (int i = 0; i < 3; ++i) WritePng(dir_ / fmt::format("v/{}.png", i), Pattern(40, 30));
  const auto source = Open(Config("frames"));
  std::vector<uint8_t> out(source->fields()[0].bytes());
  std::byte* data = reinterpret_cast<std::byte*>(out.data());
  std::set<std::vector<uint8_t>> clips;
  for (uint64_t epoch = 0; epoch < 10; ++epoch) {
    ASSERT_TRUE(source->Read({.epoch = epoch, .augment = true}, {&data, 1}).ok());
    const std::vector<uint8_t> first(out.begin(), out.begin() + 192);
    for (int t = 1; t < 3; ++t) EXPECT_TRUE(std::equal(first.begin(), first.end(), out.begin() + t * 192)) << epoch;
    clips.insert(first);
  }
  EXPECT_EQ(clips.size(), 10);
}

TEST_F(FileSourceTest, ImagesAreClipsOfOneFrame) {
  MakeFrames("a", 2, 10);
  WritePng(dir_ / "b.png", Flat(9, 9, 77));
  Put("c.jpg", JpegOf(9, 9, JCS_RGB, Flat(9, 9, 33).rgb));
  const auto source = Open(Config("images", 1));
  ASSERT_EQ(source->size(), 4);
  EXPECT_EQ(source->Origin(0), "b.png");
  EXPECT_EQ(source->Origin(3), "a/frame_1.png");
  EXPECT_THAT(Levels(*source, {.index = 0}), ElementsAre(77));
  EXPECT_THAT(Levels(*source, {.index = 2}), ElementsAre(10));
  EXPECT_THAT(ErrorOf(Config("images", 2)), HasSubstr("kind images gives clips of one frame, but frames is 2"));
}

TEST_F(FileSourceTest, NothingUsableSaysWhatWasLookedForAndFound) {
  EXPECT_THAT(ErrorOf(Config("frames")),
              HasSubstr("looked for *.png *.jpg *.jpeg in it and 0 folders below, found no files"));
  Put("readme.txt", "x");
  Put("clip.mp4", "x");
  EXPECT_THAT(ErrorOf(Config("frames")), HasSubstr("found 2 files: 1 .mp4, 1 .txt"));
  EXPECT_THAT(ErrorOf(Config("images", 1)), HasSubstr("kind: videos reads video files"));
  EXPECT_THAT(ErrorOf(Config("frames")), HasSubstr(dir_.path()));
  SourceConfig config = Config("frames");
  config.path = dir_ / "absent";
  EXPECT_THAT(ErrorOf(config), HasSubstr("absent"));
  if (HasVideo()) {
    MakeFrames("pictures", 1, 0);
    ASSERT_EQ(::unlink((dir_ / "clip.mp4").c_str()), 0);
    EXPECT_THAT(ErrorOf(Config("videos")), HasSubstr("kind: frames reads folders"));
  }
}

TEST_F(FileSourceTest, RefusesSettingsThatCannotWork) {
  MakeFrames("v", 3, 0);
  SourceConfig config = Config("frames");
  config.kind = "frame";
  EXPECT_THAT(ErrorOf(config), HasSubstr("did you mean 'frames'"));
  config = Config("frames", 0);
  EXPECT_THAT(ErrorOf(config), HasSubstr("frames of the data is 0"));
  config = Config("frames");
  config.height = -4;
  EXPECT_THAT(ErrorOf(config), HasSubstr("height of the data is -4"));
  config = Config("frames");
  config.min_stride = 3;
  config.max_stride = 2;
  EXPECT_THAT(ErrorOf(config), HasSubstr("max_stride of the data is 2; expected 3 to"));
  config = Config("frames");
  config.path = "";
  EXPECT_THAT(ErrorOf(config), HasSubstr("needs the path"));
  config = Config("frames");
  config.clips_per_video = 0;
  EXPECT_THAT(ErrorOf(config), HasSubstr("clips_per_video"));
}

TEST_F(FileSourceTest, NamesChooseVideosAndTheirOrder) {
  for (const char* name : {"a", "b", "c"}) MakeFrames(name, 3, name[0]);
  SourceConfig config = Config("frames");
  config.names = {"c", "a"};
  const auto source = Open(config);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(Levels(*source, {.index = 0})[0], 'c');
  config.names = {"aa"};
  EXPECT_THAT(ErrorOf(config), HasSubstr("the data has no video 'aa'"));
}

TEST_F(FileSourceTest, TheDigestFollowsNamesAndSizesNotThePlace) {
  MakeFrames("x/v", 3, 0);
  MakeFrames("y/v", 3, 0);
  SourceConfig config = Config("frames");
  config.path = dir_ / "x";
  const std::string digest = Open(config)->Digest();
  EXPECT_THAT(digest, testing::MatchesRegex("xxh64:[0-9a-f]+"));
  config.path = dir_ / "y";
  EXPECT_EQ(Open(config)->Digest(), digest);
  WritePng(dir_ / "y/v/frame_3.png", Flat(20, 16, 4));
  EXPECT_NE(Open(config)->Digest(), digest);
}

TEST_F(FileSourceTest, AnAnnotationFileListsFoldersOfFramesBelowTheRoot) {
  MakeFrames("data/v1", 3, 10);
  MakeFrames("data/v2", 3, 20);
  Put("list.json", R"({"total": 4, "list": [{"path": "v2", "caption": "x"}, {"path": "gone.mp4"}, {"path": "v1/"},
      {"full_path": ")" +
                       (dir_ / "data/v1") + R"("}, {"path": "nowhere/x.mp4"}]})");
  SourceConfig config = Config("annotations");
  config.path = dir_ / "data";
  config.annotations = dir_ / "list.json";
  const auto source = Open(config);
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(source->Origin(0), "v2");
  EXPECT_EQ(Levels(*source, {.index = 0})[0], 20);
  EXPECT_EQ(Levels(*source, {.index = 1})[0], 10);
  EXPECT_EQ(Levels(*source, {.index = 2})[0], 10);
  EXPECT_THAT(source->Describe(), HasSubstr("2 of 5 listed files missing"));
  EXPECT_THAT(source->Describe(), HasSubstr("data/gone.mp4"));
  // A file that comes back changes the digest: ranks that see different files notice.
  const std::string digest = source->Digest();
  MakeFrames("data/nowhere/x.mp4", 3, 0);
  EXPECT_NE(Open(config)->Digest(), digest);
}

TEST_F(FileSourceTest, AnAnnotationFileMayListImages) {
  WritePng(dir_ / "a.png", Flat(9, 9, 5));
  Put("list.json", R"({"list": [{"path": "a.png"}]})");
  SourceConfig config = Config("annotations", 1);
  config.annotations = dir_ / "list.json";
  EXPECT_THAT(Levels(*Open(config), {}), ElementsAre(5));
}

TEST_F(FileSourceTest, AnnotationMistakesAreErrors) {
  SourceConfig config = Config("annotations");
  EXPECT_THAT(ErrorOf(config), HasSubstr("needs the annotation file"));
  config.annotations = dir_ / "absent.json";
  EXPECT_THAT(ErrorOf(config), HasSubstr("absent.json"));
  config.annotations = dir_ / "list.json";
  Put("list.json", R"({"list": [{"path": "a.mp4"}, {"path": "b.mp4"}]})");
  EXPECT_THAT(ErrorOf(config), HasSubstr("none of the 2 files it lists exists below"));
  ASSERT_TRUE(MakeDirs(dir_ / "a.mp4").ok());
  EXPECT_THAT(ErrorOf(config), HasSubstr("is a folder without frames"));
}

}  // namespace
}  // namespace lockstep::data
