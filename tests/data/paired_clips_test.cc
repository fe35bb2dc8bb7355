#include "data/paired_clips.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <set>

#include "base/files.h"
#include "data/fault.h"
#include "data/image.h"
#include "data/lmdb_listing.h"
#include "data/lmdb_writer.h"
#include "pictures.h"
#include "spike_files.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kHeight = 24, kWidth = 40;

// A pixel says where it is: red its column, green its row, blue its frame and side.
Image Coordinates(int frame, bool target, int scale = 1) {
  Image image{kWidth * scale, kHeight * scale, {}};
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      image.rgb.push_back(static_cast<uint8_t>(x));
      image.rgb.push_back(static_cast<uint8_t>(y));
      image.rgb.push_back(static_cast<uint8_t>(2 * frame + (target ? 1 : 0)));
    }
  }
  return image;
}

bool SpikeAt(int x, int y, int frame) { return (x * 7 + y * 13 + frame * 5 + x * y) % 3 == 0; }

class PairedTest : public testing::Test {
 protected:
  void Clip(const std::string& name, int first, int frames, int scale = 1) {
    for (const char* side : {"gt", "lq"}) ASSERT_TRUE(MakeDirs(dir_ / fmt::format("{}/{}", side, name)).ok());
    ASSERT_TRUE(MakeDirs(dir_ / fmt::format("spikes/{}/spike", name)).ok());
    for (int i = first; i < first + frames; ++i) {
      WritePng(dir_ / fmt::format("gt/{}/{:06}.png", name, i), Coordinates(i, true, scale));
      WritePng(dir_ / fmt::format("lq/{}/{:06}.png", name, i), Coordinates(i, false));
      Spikes spikes{3, kHeight, kWidth, std::vector<uint8_t>(3 * kHeight * kWidth)};
      for (int p = 0; p < kHeight * kWidth; ++p) {
        spikes.bits[kHeight * kWidth + p] = SpikeAt(p % kWidth, p / kWidth, i) ? 1 : 0;
      }
      WriteSpikes(dir_ / fmt::format("spikes/{}/spike/{:06}.dat", name, i), spikes);
    }
  }
  PairedConfig Config(int frames = 3, int crop = 16) {
    PairedConfig config{.kind = "folders", .target = dir_ / "gt", .input = dir_ / "lq", .frames = frames, .crop = crop};
    config.spikes = {.use = true,
                     .path = dir_ / "spikes",
                     .sensor = {kHeight, kWidth, true},
                     .form = {.kind = SpikeKind::kRawWindow, .channels = 1}};
    return config;
  }
  std::string ErrorOf(const PairedConfig& config) { return OpenPaired(config).status().ToString(); }
  struct Sample {
    std::vector<uint8_t> input, spikes, target;
    bool operator==(const Sample&) const = default;
  };
  Sample Read(const Source& source, const Draw& draw) {
    Sample sample;
    std::vector<std::byte*> out;
    std::vector<std::vector<uint8_t>> fields;
    for (const Field& field : source.fields()) fields.emplace_back(field.bytes());
    for (auto& field : fields) out.push_back(reinterpret_cast<std::byte*>(field.data()));
    status_ = source.Read(draw, out);
    EXPECT_TRUE(status_.ok()) << status_.message();
    sample.input = fields.front();
    if (fields.size() == 3) sample.spikes = fields[1];
    sample.target = fields.back();
    return sample;
  }
  std::unique_ptr<Source> Open(const PairedConfig& config) {
    Result<std::unique_ptr<Source>> source = OpenPaired(config);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    return std::move(*source);
  }
  Status status_;
  TempDir dir_ = *TempDir::Create();
};

TEST_F(PairedTest, EveryFrameBeginsASampleAndAllFieldsShowTheSamePlace) {
  Clip("a", 47, 6);
  Clip("b", 1, 4);
  const auto source = Open(Config());
  EXPECT_EQ(source->size(), 10U);
  EXPECT_EQ(source->Name(0), "a/000047");
  EXPECT_EQ(source->Name(6), "b/000001");
  EXPECT_EQ(source->Origin(9), "b");
  EXPECT_THAT(source->fields()[1].shape, ElementsAre(3, 1, 16, 16));
  std::set<std::vector<uint8_t>> seen;
  std::set<int> turns;
  for (uint64_t epoch = 0; epoch < 6; ++epoch) {
    for (uint64_t i = 0; i < 10; ++i) {
      const Sample s = Read(*source, {.seed = 3, .epoch = epoch, .index = i, .augment = true});
      seen.insert(s.input);
      for (int t = 0; t < 3; ++t) {
        for (int p = 0; p < 256; ++p) {
          const auto at = [&](const std::vector<uint8_t>& field, int c) { return field[(t * 3 + c) * 256 + p]; };
          const int x = at(s.input, 0), y = at(s.input, 1), frame = at(s.input, 2) / 2;
          ASSERT_EQ(at(s.target, 0), x);
          ASSERT_EQ(at(s.target, 1), y);
          ASSERT_EQ(at(s.target, 2), 2 * frame + 1);
          ASSERT_EQ(s.spikes[t * 256 + p], SpikeAt(x, y, frame) ? 255 : 0) << x << " " << y << " " << frame;
          ASSERT_EQ(at(s.input, 2), s.input[2 * 256] + 2 * t);  // frames follow each other
          ASSERT_EQ(at(s.input, 0), s.input[p]);                // the same crop and turn in all frames
        }
      }
      turns.insert((s.input[1] > s.input[0]) + 2 * (s.input[256 + 16] > s.input[256]) +
                   4 * (s.input[16] != s.input[0]));
    }
  }
  EXPECT_GE(seen.size(), 55U);  // hardly any two samples are equal
  EXPECT_GE(turns.size(), 4U);
}

TEST_F(PairedTest, WithoutAugmentationACentreCropAndTheLastPossibleStart) {
  Clip("a", 0, 5);
  const auto source = Open(Config());
  const Sample s = Read(*source, {.epoch = 7, .index = 4});
  EXPECT_EQ(s, Read(*source, {.epoch = 8, .index = 4}));
  EXPECT_EQ(s.input[0], 12);           // left
  EXPECT_EQ(s.input[256], 4);          // top
  EXPECT_EQ(s.input[2 * 256], 2 * 2);  // frames 2, 3, 4
}

TEST_F(PairedTest, TheLastFrameFollowsAgainInAllFields) {
  Clip("a", 0, 5);
  PairedConfig config = Config();
  const std::unique_ptr<Source> plain = Open(config);
  config.repeat_last = 2;
  config.random_reverse = true;
  const std::unique_ptr<Source> longer = Open(config);
  EXPECT_NE(longer->Digest(), plain->Digest());
  const Sample s = Read(*longer, {.epoch = 1, .index = 1, .augment = true});
  for (const std::vector<uint8_t>* field : {&s.input, &s.spikes, &s.target}) {
    const size_t frame = field->size() / 5;
    const auto at = [&](size_t i) { return std::vector(field->begin() + i * frame, field->begin() + (i + 1) * frame); };
    EXPECT_NE(at(1), at(2));
    EXPECT_EQ(at(2), at(3));
    EXPECT_EQ(at(2), at(4));
  }
}

TEST_F(PairedTest, IntervalsAndReversal) {
  Clip("a", 0, 9);
  PairedConfig config = Config();
  config.spikes.use = false;
  config.intervals = {1, 2};
  config.random_reverse = true;
  const auto source = Open(config);
  EXPECT_EQ(source->fields().size(), 2U);
  std::set<int> steps;
  for (uint64_t i = 0; i < 9; ++i) {
    for (uint64_t epoch = 0; epoch < 8; ++epoch) {
      const Sample s = Read(*source, {.epoch = epoch, .index = i, .augment = true});
      const int first = s.input[2 * 256] / 2, second = s.input[5 * 256] / 2, third = s.input[8 * 256] / 2;
      EXPECT_EQ(third - second, second - first);
      steps.insert(second - first);
    }
  }
  EXPECT_THAT(steps, ElementsAre(-2, -1, 1, 2));
}

TEST_F(PairedTest, SuperResolution) {
  Clip("a", 0, 3, 4);
  PairedConfig config = Config(3, 64);
  config.scale = 4;
  const auto source = Open(config);
  EXPECT_THAT(source->fields()[0].shape, ElementsAre(3, 3, 16, 16));
  EXPECT_THAT(source->fields()[2].shape, ElementsAre(3, 3, 64, 64));
  const Sample s = Read(*source, {.index = 0, .augment = true});
  for (int p = 0; p < 256; ++p) {
    const int at = (p / 16 * 4) * 64 + p % 16 * 4;
    // Any corner of a box of 4 x 4, whichever way it was turned.
    EXPECT_EQ(s.target[at] / 4, s.input[p]);
    EXPECT_EQ(s.target[64 * 64 + at] / 4, s.input[256 + p]);
  }
}

TEST_F(PairedTest, MetaInfoFiles) {
  // The shape is not looked at, whatever it is; a list with 22 clips has 2,103 frames.
  std::string text;
  int total = 0;
  for (int i = 0; i < 22; ++i) {
    const int frames = i == 21 ? 2103 - total : 75 + i;
    total += frames;
    text += fmt::format("GOPR{:04} {} {} {}\n", i, frames,
                        i % 3 == 0   ? "0"
                        : i % 3 == 1 ? "(720,1280,3)"
                                     : "(720, 1280, 3)",
                        i * 100 + 1);
  }
  Result<std::vector<MetaLine>> lines = ParseMetaInfo(text, "meta.txt");
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  EXPECT_EQ(lines->size(), 22U);
  int64_t sum = 0;
  for (const MetaLine& line : *lines) sum += line.frames;
  EXPECT_EQ(sum, 2103);
  EXPECT_EQ((*lines)[2].first, 201);
  EXPECT_EQ((*ParseMetaInfo("00001/0001 7 (256,448,3)\r\n", "vimeo"))[0].first, -1);
  EXPECT_EQ((*ParseMetaInfo("000 100 (720,1280,3) 00000000\n", "reds"))[0].first, 0);
  const auto tabs = ParseMetaInfo(
      "\xef\xbb\xbf"  // of editors on Windows
      "a\t6\t(72,80,3)\t2\r\n",
      "meta.txt");
  ASSERT_TRUE(tabs.ok()) << tabs.status().message();
  EXPECT_EQ(tabs->front().clip, "a");
  EXPECT_EQ(tabs->front().first, 2);
  const auto blanks = ParseMetaInfo("my 2 clip (b) 6 (72, 80, 3) 12\n", "meta.txt");
  ASSERT_TRUE(blanks.ok()) << blanks.status().message();
  EXPECT_EQ(blanks->front().clip, "my 2 clip (b)");
  EXPECT_EQ(blanks->front().frames, 6);
  EXPECT_EQ(blanks->front().first, 12);
  EXPECT_THAT(ParseMetaInfo("a 5 0 1\nb five 0 1\n", "m.txt").status().message(), HasSubstr("m.txt:2: 'b five 0 1'"));
  EXPECT_FALSE(ParseMetaInfo("\n", "m.txt").ok());
}

TEST_F(PairedTest, AListChoosesClipsAndFrames) {
  Clip("a", 10, 6);
  Clip("b", 0, 6);
  ASSERT_TRUE(WriteFileAtomic(dir_ / "meta.txt", "a 4 0 11\n").ok());
  PairedConfig config = Config();
  config.meta_info = dir_ / "meta.txt";
  const auto source = Open(config);
  EXPECT_EQ(source->size(), 4U);
  EXPECT_EQ(source->Name(0), "a/000011");
}

TEST_F(PairedTest, PartitionsOfReds) {
  for (const char* clip : {"000", "001", "011", "240"}) Clip(clip, 0, 3);
  PairedConfig config = Config();
  config.partition = "REDS4";
  EXPECT_EQ(Open(config)->size(), 6U);
  config.validation = true;
  EXPECT_EQ(Open(config)->Origin(3), "011");
  config.partition = "official";
  EXPECT_EQ(Open(config)->Origin(0), "240");
  config.partition = "REDS5";
  EXPECT_THAT(ErrorOf(config), HasSubstr("did you mean 'REDS4'"));
}

TEST_F(PairedTest, SpikesThatCannotBeLookedIntoAreNotMissing) {
  Clip("a", 0, 4);
  PairedConfig config = Config();
  config.spikes.path = dir_ / "circle";
  ASSERT_EQ(::symlink("circle", config.spikes.path.c_str()), 0);
  EXPECT_THAT(ErrorOf(config), HasSubstr("spikes: cannot read folder '" + config.spikes.path + "/a/spike': ELOOP"));
  config.spikes.path = dir_ / "spikes";
  ASSERT_TRUE(RemoveAll(dir_ / "spikes/a/spike/000000.dat").ok());
  ASSERT_EQ(::symlink("000000.dat", (dir_ / "spikes/a/spike/000000.dat").c_str()), 0);
  EXPECT_THAT(ErrorOf(config), HasSubstr("spikes: cannot open '"));
}

TEST_F(PairedTest, AMissingSpikeFileIsANamedBadSample) {
  Clip("a", 0, 4);
  ASSERT_TRUE(RemoveAll(dir_ / "spikes/a/spike/000002.dat").ok());
  const auto source = Open(Config());
  std::vector<std::vector<std::byte>> buffers;
  std::vector<std::byte*> out;
  for (const Field& field : source->fields()) buffers.emplace_back(field.bytes());
  for (auto& buffer : buffers) out.push_back(buffer.data());
  const Status status = source->Read({.index = 1}, out);
  EXPECT_THAT(status.message(), HasSubstr("spikes/a/spike/000002.dat"));
  EXPECT_STREQ(FaultOf(status), "vanished");
}

TEST_F(PairedTest, PrecomputedArrays) {
  Clip("a", 0, 3);
  PairedConfig config = Config();
  config.spikes.precomputed = true;
  EXPECT_THAT(ErrorOf(config), HasSubstr("1 of 1 clip without spikes: no folder '" + dir_.path()));
  const Sample expected = Read(*Open(Config()), {.index = 0, .augment = true});
  ASSERT_TRUE(MakeDirs(dir_ / "spikes/a/raw_window_l1").ok());
  for (int i = 0; i < 3; ++i) {
    const SpikeFile file = *SpikeFile::Open(dir_ / fmt::format("spikes/a/spike/{:06}.dat", i), config.spikes.sensor);
    const std::string npy = *RenderToNpy(file, config.spikes.form);
    ASSERT_TRUE(WriteFileAtomic(dir_ / fmt::format("spikes/a/raw_window_l1/{:06}.npy", i), npy).ok());
  }
  EXPECT_EQ(Read(*Open(config), {.index = 0, .augment = true}), expected);
}

TEST_F(PairedTest, ClearErrorsBeforeTheFirstStep) {
  Clip("a", 0, 4);
  struct Case {
    std::string words;
    std::function<void(PairedConfig*)> change;
  };
  const auto put = [&](const std::string& name, const Image& image) { WritePng(dir_ / name, image); };
  const std::vector<Case> cases = {
      {"a crop of 32 pixels is larger than the frames of clip 'a', which are 40x24", [](auto* c) { c->crop = 32; }},
      {"no whole number of steps of 250 x 400", [](auto* c) { c->spikes.sensor = {250, 400, true}; }},
      {"spikes/config.yaml says that the sensor has 24 x 40 pixels, not 40 x 24",
       [&](auto* c) {
         ASSERT_TRUE(WriteFileAtomic(dir_ / "spikes/config.yaml", "spike_h: 24\nspike_w: 40\n").ok());
         c->spikes.sensor = {40, 24, true};
       }},
      {"clip 'a' is too short: 9 frames at interval 1 need 9, it has 4", [](auto* c) { c->frames = 9; }},
      {"expected a multiple of scale 3", [](auto* c) { c->scale = 3; }},
      {"expected 2 times the input", [](auto* c) { c->scale = 2; }},
      {"cannot be transposed", [](auto* c) { c->crop = 0; }},
      {"the last frame again 1 times: frames of interpolation",
       [](auto* c) {
         c->spikes.use = false;
         c->interpolate = true;
         c->frames = 2;
         c->repeat_last = 1;
       }},
      {"no folder of spikes", [](auto* c) { c->spikes.path = ""; }},
      {"no folder '", [&](auto* c) { c->spikes.path = dir_ / "gt"; }},
      {"No such file", [&](auto* c) { c->target = dir_ / "nothing"; }},
      {"is too short: tfp_b1_hw20 needs 41 steps", [](auto* c) { c->spikes.form = {}; }},
      {"frames of clip 'tiny' that validates are 20x10: SSIM needs 11x11",
       [&](auto* c) {
         for (const char* side : {"tiny/gt", "tiny/lq"}) {
           ASSERT_TRUE(MakeDirs(dir_ / side + std::string("/tiny")).ok());
           put(side + std::string("/tiny/1.png"), Flat(20, 10, 1));
         }
         c->target = dir_ / "tiny/gt", c->input = dir_ / "tiny/lq";
         c->spikes.use = c->rotate = false;
         c->validation = true;
         c->crop = 0, c->frames = 1;
       }},
      {"'b five 0 1': expected",
       [&](auto* c) {
         ASSERT_TRUE(WriteFileAtomic(dir_ / "meta.txt", "b five 0 1\n").ok());
         c->meta_info = dir_ / "meta.txt";
       }},
      {"'a 0 0 0': expected",
       [&](auto* c) {
         ASSERT_TRUE(WriteFileAtomic(dir_ / "meta.txt", "a 0 0 0\n").ok());
         c->meta_info = dir_ / "meta.txt";
       }},
      {"clip 'a' has no frame 4 below",
       [&](auto* c) {
         ASSERT_TRUE(WriteFileAtomic(dir_ / "meta.txt", "a 5 0 0\n").ok());
         c->meta_info = dir_ / "meta.txt";
       }},
      // These damage the files, one after another.
      {"1 of 4 frames without spikes: no file",
       [&](auto* c) {
         c->spikes.all = true;
         ASSERT_TRUE(RemoveAll(dir_ / "spikes/a/spike/000002.dat").ok());
       }},
      {"000001.dat' has 7 bytes, no whole number of steps of 24 x 40",
       [&](auto* c) {
         c->spikes.all = true;
         ASSERT_TRUE(WriteFileAtomic(dir_ / "spikes/a/spike/000001.dat", "spikes!").ok());
       }},
      {"frames of mixed size in clip 'a'", [&](auto*) { put("lq/a/000002.png", Flat(8, 8, 1)); }},
      {"'000002.jpg' is 8x8",
       [&](auto*) {
         ASSERT_TRUE(RemoveAll(dir_ / "lq/a/000002.png").ok());
         const std::string jpeg = JpegOf(8, 8, JCS_RGB, Flat(8, 8, 1).rgb);
         ASSERT_TRUE(WriteFileAtomic(dir_ / "lq/a/000002.jpg", jpeg).ok());
       }},
      {"the name of a frame ends in its number", [&](auto*) { put("gt/a/cover.png", Flat(8, 8, 1)); }},
      {"clip 'a' has no frame 2 below",
       [&](auto*) {
         ASSERT_TRUE(RemoveAll(dir_ / "gt/a/cover.png").ok());
         ASSERT_TRUE(RemoveAll(dir_ / "lq/a/000002.jpg").ok());
       }},
      {"clip 'a': cannot read folder", [&](auto*) { ASSERT_TRUE(RemoveAll(dir_ / "lq/a").ok()); }},
  };
  for (const Case& one : cases) {
    PairedConfig config = Config();
    one.change(&config);
    EXPECT_THAT(ErrorOf(config), AllOf(HasSubstr(one.words), HasSubstr("\n  do: "))) << one.words;
  }
}

// An LMDB written here is listed and read as the folders are; tests/integration reads one with Python's lmdb.
TEST_F(PairedTest, LmdbOfBothSides) {
  Clip("a", 3, 30);
  Clip("b 1 (c)", 0, 12);
  PairedConfig config = Config();
  config.target += "/";  // as a shell completes it
  const auto folders = Open(config);
  const PairedSet set = *PairedSet::Open(config);
  for (const bool target : {true, false}) {
    Result<LmdbWriter> lmdb = LmdbWriter::Create(dir_ / (target ? "gt.lmdb" : "lq.lmdb"), false);
    ASSERT_TRUE(lmdb.ok()) << lmdb.status().message();
    for (const PairedClip& clip : set.clips()) {
      for (int64_t i = 0; i < clip.frames(); ++i) {
        const std::string key = clip.name + "/" + clip.stems[i];
        const std::string png = *ReadFile(dir_ / fmt::format("{}/{}.png", target ? "gt" : "lq", key));
        ASSERT_TRUE(lmdb->Put(key, png, fmt::format("{}.png (24,40,3) 1", key)).ok());
      }
    }
    ASSERT_TRUE(lmdb->Finish().ok());
  }
  EXPECT_THAT(*ReadFile(dir_ / "gt.lmdb/meta_info.txt"), testing::StartsWith("a/000003.png (24,40,3) 1\n"));
  config.kind = "lmdb";
  const auto packed = Open(config);  // "gt" finds "gt.lmdb", since no data.mdb is in "gt"
  ASSERT_EQ(packed->size(), 42U);
  for (const uint64_t index : {0, 17, 29, 30, 41}) {
    const Draw draw{.seed = 1, .epoch = 2, .index = index, .augment = true};
    EXPECT_EQ(Read(*packed, draw), Read(*folders, draw));
    EXPECT_EQ(packed->Name(index), folders->Name(index));
  }
  config.partition = "REDS4";  // of the clips of the LMDB: there is no list
  EXPECT_EQ(Open(config)->size(), 42U);
  config.validation = true;
  EXPECT_THAT(ErrorOf(config), HasSubstr("no clip is left of 2 clips"));
  config.partition = "";
  config.validation = false;
  {
    LmdbWriter junk = *LmdbWriter::Create(dir_ / "junk.lmdb", false);
    ASSERT_TRUE(junk.Put("a/000003", "no picture", "a/000003.png (24,40,3) 1").ok());
    ASSERT_TRUE(junk.Finish().ok());
  }
  PairedConfig damaged = config;  // which of the two it is
  damaged.input = dir_ / "junk.lmdb";
  ASSERT_TRUE(WriteFileAtomic(dir_ / "meta.txt", "a 1 0 3\n").ok());
  damaged.meta_info = dir_ / "meta.txt";
  damaged.frames = 1;
  EXPECT_THAT(ErrorOf(damaged), AllOf(HasSubstr("'a/000003 in "), HasSubstr("junk.lmdb/data.mdb' cannot be decoded")));
  EXPECT_THAT(LmdbWriter::Create(dir_ / "gt.lmdb", false).status().message(), HasSubstr("is there already"));
  EXPECT_FALSE(LmdbWriter::Create(dir_ / "gt", true).ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "gt.lmdb/meta_info.txt", "a/000003.png (24,40,3) 1\n").ok());
  EXPECT_THAT(ErrorOf(config), HasSubstr("which its meta_info.txt does not list"));
  ASSERT_TRUE(RemoveAll(dir_ / "gt.lmdb/meta_info.txt").ok());
  EXPECT_THAT(ErrorOf(config), HasSubstr("has no meta_info.txt"));
}

// Many keys: branches of two levels, keys of any length.
TEST_F(PairedTest, ALargeLmdb) {
  {
    LmdbWriter lmdb = *LmdbWriter::Create(dir_ / "many.lmdb", false);
    for (int i = 20000; i-- > 0;) {
      const std::string key = fmt::format("clip{}/{:0{}}", i % 7, i, 8 + i % 90);
      ASSERT_TRUE(lmdb.Put(key, std::string(i % 9000 == 5 ? 9000 : i % 5, 'x'), key).ok());
    }
    EXPECT_FALSE(lmdb.Put(std::string(512, 'k'), "", "").ok());
    ASSERT_TRUE(lmdb.Finish().ok());
  }
  const Result<LmdbListing> listing = ListLmdb(dir_ / "many.lmdb");
  ASSERT_TRUE(listing.ok()) << listing.status().message();
  EXPECT_EQ(listing->values.size(), 20000U);
  EXPECT_TRUE(std::ranges::is_sorted(listing->values, {}, &LmdbValue::key));
  {
    LmdbWriter lmdb = *LmdbWriter::Create(dir_ / "many.lmdb", true);
    ASSERT_TRUE(lmdb.Put("a", "1", "").ok() && lmdb.Put("a", "2", "").ok());
    EXPECT_THAT(lmdb.Finish().message(), HasSubstr("'a' was given twice"));
  }
  EXPECT_EQ(ListLmdb(dir_ / "many.lmdb")->values.size(), 20000U);  // nothing was replaced
}

}  // namespace
}  // namespace lockstep::data
