#include "data/prepare_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "base/files.h"
#include "data/lmdb_writer.h"
#include "data/paired_clips.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A small generated data set in GoPro's folders.
class PrepareTest : public testing::Test {
 protected:
  void SetUp() override {
    const GeneratedTree tree{.path = dir_.path(), .clips = 3, .frames = 2, .height = 32, .width = 48, .divisor = 2};
    for (const uint64_t part : {0, 1}) {  // as two ranks
      const Status status = WriteGeneratedTree(tree, {.part = part, .parts = 2}, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  PairedConfig Config(const std::string& split = "train") {
    PairedConfig config{.kind = "folders",
                        .target = dir_ / ("GOPRO_Large/" + split + "_GT"),
                        .input = dir_ / ("GOPRO_Large/" + split + "_GT_blurred"),
                        .meta_info = dir_ / ("meta_info_GoPro_" + split + "_GT.txt"),
                        .frames = 1,
                        .crop = 16};
    config.spikes = {.use = true, .path = dir_ / ("GOPRO_Large_spike_seq/" + split), .sensor = {16, 24, true}};
    return config;
  }
  TempDir dir_ = *TempDir::Create();
};

TEST_F(PrepareTest, GeneratedScenesAreADataSet) {
  const Result<PairedSet> set = PairedSet::Open(Config());
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->clips().size(), 3U);
  EXPECT_EQ(PairedSet::Open(Config("test"))->clips().size(), 1U);
  EXPECT_EQ(MetaInfoOf(*set), *ReadFile(dir_ / "meta_info_GoPro_train_GT.txt"));
  EXPECT_THAT(*ReadFile(dir_ / "GOPRO_Large_spike_seq/config.yaml"), HasSubstr("spike_h: 16\nspike_w: 24\n"));
  const SpikeAlignment found = AlignSpikes(*set, {});
  EXPECT_EQ(found.files, 6U);
  EXPECT_EQ(found.least_steps, 88);
  EXPECT_TRUE(found.missing.empty() && found.wrong.empty());
}

TEST_F(PrepareTest, WhatIsMissingOrOfAnotherSizeIsNamed) {
  ASSERT_TRUE(RemoveAll(dir_ / "GOPRO_Large_spike_seq/train/scene_0001/spike/000002.dat").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ / "GOPRO_Large_spike_seq/train/scene_0002/spike/000002.dat", "abc").ok());
  const SpikeAlignment found = AlignSpikes(*PairedSet::Open(Config()), {});
  EXPECT_THAT(found.missing, ElementsAre("scene_0001/000002"));
  ASSERT_EQ(found.wrong.size(), 1U);
  EXPECT_THAT(found.wrong[0], HasSubstr("no whole number of steps of 16 x 24"));
}

TEST_F(PrepareTest, ArtefactsAreSharedByRanksAndKept) {
  const PairedSet set = *PairedSet::Open(Config());
  const SpikeForm form{.channels = 2};
  const std::string root = dir_ / "arrays";
  uint64_t made = 0, kept = 0;
  const auto count = [&](uint64_t done, uint64_t old, uint64_t all) {
    EXPECT_LE(done, all);
    made = done - old;
    kept = old;
  };
  for (const uint64_t part : {0, 1, 2, 3}) {
    ASSERT_TRUE(WriteArtefacts(set, form, root, {.part = part, .parts = 4, .threads = 2}, count).ok());
  }
  ASSERT_TRUE(RemoveAll(root + "/scene_0002/tfp_b2_hw20/000001.npy").ok());
  ASSERT_TRUE(WriteArtefacts(set, form, root, {.threads = 2}, count).ok());
  EXPECT_EQ(made, 1U);
  EXPECT_EQ(kept, 5U);
  // Spikes that were replaced since make their array again.
  const std::string spikes = Config().spikes.path + "/scene_0002/spike/000001.dat";
  std::filesystem::last_write_time(spikes, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  ASSERT_TRUE(WriteArtefacts(set, form, root, {.threads = 2}, count).ok());
  EXPECT_EQ(made, 1U);
  // A source that reads them gives the same samples.
  PairedConfig config = Config();
  config.spikes.form = form;
  const auto direct = *OpenPaired(config);
  config.spikes.precomputed = true;
  config.spikes.precomputed_path = root;
  const auto arrays = *OpenPaired(config);
  std::vector<std::byte> a[3], b[3];
  std::vector<std::byte*> to_a, to_b;
  for (int i = 0; i < 3; ++i) {
    for (auto* side : {&a[i], &b[i]}) side->resize(direct->fields()[i].bytes());
    to_a.push_back(a[i].data());
    to_b.push_back(b[i].data());
  }
  const Draw draw{.seed = 4, .index = 3, .augment = true};
  ASSERT_TRUE(direct->Read(draw, to_a).ok() && arrays->Read(draw, to_b).ok());
  EXPECT_EQ(a[1], b[1]);
}

TEST_F(PrepareTest, AnLmdbIsWrittenOnce) {
  const PairedSet set = *PairedSet::Open(Config());
  const std::string path = dir_ / "GOPRO_Large/train_GT.lmdb";
  uint64_t kept = 0;
  const auto count = [&](uint64_t, uint64_t old, uint64_t) { kept = old; };
  ASSERT_TRUE(WriteFramesToLmdb(set, true, path, false, count).ok());
  EXPECT_EQ(kept, 0U);
  ASSERT_TRUE(WriteFramesToLmdb(set, true, path, false, count).ok());
  EXPECT_EQ(kept, 6U);
  EXPECT_THAT(*ReadFile(path + "/meta_info.txt"), testing::StartsWith("scene_0000/000001.png (32,48,3) 1\n"));
  // A frame that is another one since is not in it.
  const std::string frame = dir_ / "GOPRO_Large/train_GT/scene_0001/000002.png";
  ASSERT_TRUE(WriteFileAtomic(frame, *ReadFile(dir_ / "GOPRO_Large/train_GT/scene_0001/000001.png") + "more").ok());
  EXPECT_THAT(WriteFramesToLmdb(set, true, path, false, count).message(), HasSubstr("holds other frames"));
  ASSERT_TRUE(WriteFramesToLmdb(set, true, path, true, count).ok());
  ASSERT_TRUE(WriteFramesToLmdb(set, true, path, false, count).ok());
  EXPECT_EQ(kept, 6U);
}

TEST_F(PrepareTest, ADamagedFrameIsNotCopiedIntoAnLmdb) {
  const std::string frame = dir_ / "GOPRO_Large/train_GT/scene_0001/000002.png";
  std::string bytes = *ReadFile(frame);
  bytes[bytes.size() * 3 / 4] ^= 1;  // its header and first rows are as they were
  ASSERT_TRUE(WriteFileAtomic(frame, bytes).ok());
  const std::string path = dir_ / "GOPRO_Large/train_GT.lmdb";
  const Status status = WriteFramesToLmdb(*PairedSet::Open(Config()), true, path, false, nullptr);
  EXPECT_THAT(status.ToString(), testing::AllOf(HasSubstr(frame), HasSubstr("copy the frame again")));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_F(PrepareTest, WhatAKilledProcessLeftOfAnLmdbIsUsedAgain) {
  const PairedSet set = *PairedSet::Open(Config());
  const std::string path = dir_ / "GOPRO_Large/train_GT.lmdb";
  ASSERT_TRUE(MakeDirs(path + ".part").ok());
  ASSERT_TRUE(WriteFileAtomic(path + ".part/data.mdb", std::string(100000, 'x')).ok());
  ASSERT_TRUE(WriteFramesToLmdb(set, true, path, false, nullptr).ok());
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  ASSERT_TRUE(WriteFramesToLmdb(set, true, path, false, nullptr).ok());  // readable, and the same frames
  // Two at once do not write one file.
  const Result<LmdbWriter> one = LmdbWriter::Create(dir_ / "x.lmdb", false);
  const Result<LmdbWriter> two = LmdbWriter::Create(dir_ / "x.lmdb", false);
  EXPECT_TRUE(one.ok());
  EXPECT_THAT(two.status().message(), HasSubstr("another process writes"));
}

TEST_F(PrepareTest, ScenesOfOtherSettingsAreNotMixed) {
  const GeneratedTree tree{.path = dir_.path(), .clips = 4, .frames = 2, .height = 32, .width = 48, .divisor = 2};
  const Status status = WriteGeneratedTree(tree, {}, nullptr);
  EXPECT_THAT(status.message(), HasSubstr("3 clips by seed 0, 2 frames of 48x32, sensor 1/2, asked for 4 clips"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "GOPRO_Large/train_GT/scene_0003"));
}

}  // namespace
}  // namespace lockstep::data
