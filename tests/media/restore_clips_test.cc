#include "media/restore_clips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"
#include "data/image.h"
#include "data/sources.h"

namespace lockstep::media {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RestoreClips : public testing::Test {
 protected:
  RestoreClips() : folder_(*TempDir::Create()) {}

  std::string Path(const std::string& name) const { return folder_ / name; }
  void Picture(const std::string& name, int width = 8, int height = 6) {
    const std::vector<uint8_t> rgb(static_cast<size_t>(width) * height * 3, 100);
    ASSERT_TRUE(WriteFileAtomic(Path(name), *data::EncodePng(rgb, width, height)).ok());
  }
  void Clip(const std::string& name, const std::vector<std::string>& frames) {
    ASSERT_TRUE(MakeDirs(Path(name)).ok());
    for (const std::string& frame : frames) Picture(name + "/" + frame);
  }
  // A sensor of 8 x 4, `steps` steps.
  void Spikes(const std::string& name, size_t steps = 60) {
    ASSERT_TRUE(MakeDirs(Path(name.substr(0, name.find_last_of('/')))).ok());
    ASSERT_TRUE(WriteFileAtomic(Path(name), std::string(steps * 4, '\x11')).ok());
  }
  MediaOptions Asked(const std::string& input, const std::string& output) const {
    MediaOptions options;
    options.command = "restore";
    options.input = Path(input);
    options.output = Path(output);
    options.restore.sensor_height = 4;
    options.restore.sensor_width = 8;
    return options;
  }
  std::string Refused(const MediaOptions& options, int64_t channels = 0) const {
    const auto found = FindRestoreClips(options, channels);
    return found.ok() ? "" : found.status().ToString();
  }

  TempDir folder_;
};

TEST_F(RestoreClips, AFolderOfFramesIsOneClipAndKeepsItsNames) {
  Clip("blur", {"000047.png", "000048.png", "000049.png"});
  const auto found = FindRestoreClips(Asked("blur/", "sharp/"), 0);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), 1);
  const FoundClip& clip = found->front();
  EXPECT_EQ(clip.output, Path("sharp"));
  EXPECT_EQ(clip.shape.count, 3);
  EXPECT_EQ(clip.shape.width, 8);
  EXPECT_EQ(clip.written, Written::kFolder);
  EXPECT_EQ(clip.FrameName(1), "000048.png");
  // Another file, another identity.
  Picture("blur/000049.png", 8, 6);
  EXPECT_NE(FindRestoreClips(Asked("blur", "sharp"), 0)->front().identity, clip.identity);
}

TEST_F(RestoreClips, AFolderOfClipsGoesToTheSameNames) {
  Clip("clips/one", {"1.png", "2.png"});
  Clip("clips/two", {"1.png"});
  ASSERT_TRUE(WriteFileAtomic(Path("clips/notes.txt"), "x").ok());
  Spikes("spikes/one/spike/1.dat"), Spikes("spikes/one/spike/2.dat"), Spikes("spikes/two/1.dat");
  MediaOptions options = Asked("clips", "sharp");
  options.restore.spikes = Path("spikes");
  const auto found = FindRestoreClips(options, 1);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), 2);
  EXPECT_EQ((*found)[0].output, Path("sharp/one"));
  EXPECT_EQ((*found)[1].output, Path("sharp/two"));
  EXPECT_THAT((*found)[0].spikes, ElementsAre(Path("spikes/one/spike/1.dat"), Path("spikes/one/spike/2.dat")));
  EXPECT_THAT(Refused(Asked("clips", "sharp.mp4")), HasSubstr("give a folder as OUTPUT"));
}

TEST_F(RestoreClips, WhatIsWrongWithFramesIsSaidBeforeAnythingIsWritten) {
  Clip("gap", {"000001.png", "000002.png", "000004.png", "000005.png"});
  EXPECT_THAT(Refused(Asked("gap", "sharp")),
              HasSubstr("missing between '000002.png' and '000004.png': expected number 3"));
  MediaOptions gaps = Asked("gap", "sharp");
  gaps.restore.allow_gaps = true;
  EXPECT_EQ(Refused(gaps), "");
  Clip("mixed", {"1.png", "2.png"});
  Picture("mixed/3.png", 9, 6);
  EXPECT_THAT(Refused(Asked("mixed", "sharp")),
              HasSubstr("mixed size in '" + Path("mixed") + "': '1.png' is 8x6, '3.png' is 9x6"));
  Clip("deep/a/blur", {"1.png"});
  EXPECT_THAT(Refused(Asked("deep", "sharp")), HasSubstr("has no frames"));
  Clip("ok", {"1.png"});
  EXPECT_THAT(Refused(Asked("ok", "ok/sharp")), HasSubstr("inside INPUT"));
  EXPECT_THAT(Refused(Asked("ok", "ok/")), HasSubstr("OUTPUT is INPUT"));
  EXPECT_THAT(Refused(Asked("ok", "sharp.txt")), HasSubstr("its ending"));
  EXPECT_THAT(Refused(Asked("none", "sharp")), HasSubstr("No such file"));
}

// Files beside the result have longer names, and are written when it has been computed.
TEST_F(RestoreClips, NamesThatLeaveNoRoomForFilesBesideThem) {
  const std::string longest(220, 'n');
  Clip("ok", {"1.png"});
  EXPECT_EQ(Refused(Asked("ok", longest)), "");
  EXPECT_THAT(Refused(Asked("ok", longest + "n/")), HasSubstr("has 221 bytes: expected at most 220"));
  Clip("clips/" + longest + "n", {"1.png"});
  EXPECT_THAT(Refused(Asked("clips", "sharp")), HasSubstr("that of a clip among others is its name in INPUT"));
}

TEST_F(RestoreClips, WhatAVideoCannotHoldIsSaidBeforeAnythingIsComputed) {
  if (!data::HasVideo()) return;  // then no video is written at all
  Clip("ok", {"1.png"});
  MediaOptions options = Asked("ok", "sharp.webm");
  EXPECT_EQ(Refused(options), "");
  options.out.codec = "h264";
  EXPECT_THAT(Refused(options), HasSubstr("sharp.webm': webm files do not hold libx264"));
  options.out.codec = "nonsense";
  EXPECT_THAT(Refused(options), HasSubstr("no video encoder 'nonsense'"));
}

TEST_F(RestoreClips, EveryThirdFrameAndTimesAreNoGaps) {
  EXPECT_TRUE(CheckFrameNumbers("x", {"000001.png", "000004.png", "000007.png"}).ok());
  EXPECT_TRUE(CheckFrameNumbers("x", {"1700000000123.png", "1700000000150.png", "1700000000199.png"}).ok());
  EXPECT_TRUE(CheckFrameNumbers("x", {"first.png", "second.png"}).ok());
  EXPECT_FALSE(CheckFrameNumbers("x", {"im1.png", "im3.png", "im4.png"}).ok());
  for (const auto& twice : {std::vector<std::string>{"1.jpg", "1.png", "2.png"}, {"01.png", "1.png"}}) {
    EXPECT_THAT(CheckFrameNumbers("x", twice).message(), HasSubstr("have one number"));
  }
}

TEST_F(RestoreClips, SpikesBelongToFramesByNumberAndFitTheSensor) {
  Clip("blur", {"000003.png", "000004.png"});
  Spikes("spike/000003.dat"), Spikes("spike/000005.dat");
  MediaOptions options = Asked("blur", "sharp");
  options.restore.spikes = Path("spike");
  EXPECT_THAT(Refused(options, 1), HasSubstr("frame '000004.png' of '" + Path("blur") + "' has no spike file"));
  Spikes("spike/000004.dat");
  EXPECT_EQ(Refused(options, 1), "");
  EXPECT_THAT(FindRestoreClips(options, 1)->front().spikes,
              ElementsAre(Path("spike/000003.dat"), Path("spike/000004.dat")));
  options.restore.sensor_height = 360;
  EXPECT_THAT(Refused(options, 1), HasSubstr("bytes"));
  options.restore.sensor_height = 4;
  Spikes("spike/000004.dat", 8);
  EXPECT_THAT(Refused(options, 1), HasSubstr("000004.dat"));  // too short for TFP
  options.restore.spikes = Path("blur");
  EXPECT_THAT(Refused(options, 1), HasSubstr("no .dat files"));
}

}  // namespace
}  // namespace lockstep::media
