// The data of a large training: one index for all ranks, names that mean one file, sizes that are not square.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/files.h"
#include "data/file_source.h"
#include "data/sources.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

class IndexTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int v = 0; v < 6; ++v) {
      const std::string folder = dir_ / fmt::format("data/v{}", v);
      ASSERT_TRUE(MakeDirs(folder).ok());
      for (int i = 0; i < 4; ++i)
        WritePng(folder + fmt::format("/{}.png", i), Flat(24, 16, static_cast<uint8_t>(40 * v + i)));
    }
    config_ = {.kind = "annotations", .path = dir_ / "data", .frames = 3, .height = 8, .width = 16};
    config_.annotations = dir_ / "list.json";
    List(R"({"path": "v0"}, {"path": "v1", "duration": 1.5, "frames": 4}, {"path": "gone.mp4"}, {"full_path": "v2"},
            {"path": "v3"}, {"path": "v4"}, {"path": "v5"})");
  }
  void List(const std::string& entries) {
    ASSERT_TRUE(
        WriteFileAtomic(config_.annotations, R"({"list": [)" + entries + "]}", 0644, Durability::kProcess).ok());
  }
  SourceConfig Indexed() {
    Result<std::string> index = IndexSource(config_);
    EXPECT_TRUE(index.ok()) << index.status().ToString();
    SourceConfig config = config_;
    config.index = std::make_shared<const std::string>(*index);
    return config;
  }
  static std::vector<std::byte> Read(const Source& source, const Draw& draw) {
    std::vector<std::byte> out(source.fields()[0].bytes());
    std::byte* data = out.data();
    EXPECT_TRUE(source.Read(draw, {&data, 1}).ok());
    return out;
  }

  TempDir dir_ = *TempDir::Create();
  SourceConfig config_;
};

TEST_F(IndexTest, ASourceFromTheIndexIsTheSourceOfTheRankThatMadeIt) {
  const auto own = *OpenSource(config_);
  const auto indexed = *OpenSource(Indexed());
  ASSERT_EQ(indexed->size(), 6);
  EXPECT_EQ(indexed->Digest(), own->Digest());
  EXPECT_EQ(indexed->Describe(), own->Describe());
  EXPECT_THAT(indexed->Describe(), HasSubstr("1 of 7 listed files missing"));
  EXPECT_THAT(indexed->Describe(), HasSubstr("gone.mp4"));
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(indexed->Name(i), own->Name(i));
    EXPECT_EQ(indexed->Origin(i), own->Origin(i));
    const Draw draw{.seed = 3, .epoch = 1, .index = i, .augment = true};
    EXPECT_EQ(Read(*indexed, draw), Read(*own, draw));
  }
  EXPECT_EQ(SplitBySource(*indexed, 0.3, 5)->validation, SplitBySource(*own, 0.3, 5)->validation);
}

TEST_F(IndexTest, MakingItSaysHowFarItIs) {
  std::vector<uint64_t> done;
  config_.index_progress = [&](uint64_t some, uint64_t all) {
    EXPECT_EQ(all, 6U);
    done.push_back(some);
  };
  ASSERT_TRUE(IndexSource(config_).ok());
  EXPECT_EQ(done, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(IndexTest, TheOtherRanksReadNoListAndLookAtAFewFilesOnly) {
  constexpr int kVideos = 300;
  std::string entries;
  for (int v = 0; v < kVideos; ++v) {
    ASSERT_TRUE(MakeDirs(dir_ / fmt::format("data/many/{}", v)).ok());
    WritePng(dir_ / fmt::format("data/many/{}/0.png", v), Flat(8, 8, 1));
    entries += fmt::format("{}{{\"path\": \"many/{}/0.png\"}}", v == 0 ? "" : ",", v);
  }
  List(entries);
  config_.frames = 1;
  const SourceConfig indexed = Indexed();
  std::filesystem::remove(config_.annotations);
  EXPECT_FALSE(OpenSource(config_).ok());
  EXPECT_EQ((*OpenSource(indexed))->size(), kVideos);
  int looked_at = 0;
  std::string error;
  for (int v = 0; v < kVideos; ++v) {
    const std::string folder = dir_ / fmt::format("data/many/{}", v);
    std::filesystem::rename(folder, folder + ".away");
    const Status status = OpenSource(indexed).status();
    if (!status.ok()) error = status.message();
    looked_at += status.ok() ? 0 : 1;
    std::filesystem::rename(folder + ".away", folder);
  }
  EXPECT_EQ(looked_at, 64);
  EXPECT_THAT(error, HasSubstr("/0.png' is listed by rank 0 but cannot be read here"));
}

// The ranks of a node look at every file together, each at its part.
TEST_F(IndexTest, AllFilesAreComparedWhereThatIsAskedFor) {
  constexpr int kVideos = 200;
  std::string entries;
  for (int v = 0; v < kVideos; ++v) {
    WritePng(dir_ / fmt::format("data/{}.png", v), Flat(8, 8, 1));
    entries += fmt::format("{}{{\"path\": \"{}.png\"}}", v == 0 ? "" : ",", v);
  }
  List(entries);
  config_.frames = 1;
  for (const char* kind : {"images", "annotations"}) {
    config_.kind = kind;
    config_.check = {.all = true};
    SourceConfig indexed = Indexed();
    const auto seen_by = [&](uint64_t part, uint64_t parts) {
      indexed.check = {.all = true, .part = part, .parts = parts};
      return OpenSource(indexed).status().message();
    };
    EXPECT_EQ(seen_by(0, 1), "");
    for (const int v : {0, 7, 100, 133, 199}) {
      const std::string path = dir_ / fmt::format("data/{}.png", v);
      WritePng(path, Pattern(20, 20));  // another copy of the data on another node
      EXPECT_THAT(seen_by(0, 1), HasSubstr(path));
      int noticed = 0;
      for (uint64_t part = 0; part < 3; ++part) noticed += seen_by(part, 3).empty() ? 0 : 1;
      EXPECT_EQ(noticed, 1) << kind << " " << v;
      WritePng(path, Flat(8, 8, 1));
    }
    EXPECT_EQ(seen_by(0, 1), "");
  }
}

TEST_F(IndexTest, ADamagedIndexOrOneOfAnotherRootIsRefused) {
  SourceConfig config = Indexed();
  const std::string good = *config.index;
  for (size_t size = 0; size < good.size(); ++size) {
    config.index = std::make_shared<const std::string>(good.substr(0, size));
    EXPECT_FALSE(OpenSource(config).ok()) << size;
  }
  config.index = std::make_shared<const std::string>(good + "x");
  EXPECT_FALSE(OpenSource(config).ok());
  config.index = std::make_shared<const std::string>(good);
  EXPECT_TRUE(OpenSource(config).ok());
  config.path = dir_ / "elsewhere";
  EXPECT_THAT(OpenSource(config).status().message(), HasSubstr("elsewhere' here"));
}

TEST_F(IndexTest, FoldersAreListedAndMeasuredByOneRankOnly) {
  config_.kind = "frames";
  const auto own = *OpenSource(config_);
  const SourceConfig indexed = Indexed();
  EXPECT_EQ((*OpenSource(indexed))->Digest(), own->Digest());
  EXPECT_EQ((*OpenSource(indexed))->size(), 6);
  // Another copy of the data on another node.
  WritePng(dir_ / "data/v0/0.png", Pattern(40, 40));
  EXPECT_THAT(OpenSource(indexed).status().message(), HasSubstr("bytes here and"));
  EXPECT_NE((*OpenSource(config_))->Digest(), own->Digest());
  std::filesystem::remove(dir_ / "data/v0/0.png");
  EXPECT_THAT(OpenSource(indexed).status().message(), HasSubstr("cannot be read here"));
  EXPECT_EQ(*IndexSource({}), "");
  config_.kind = "annotations";
  config_.annotations = dir_ / "absent.json";
  EXPECT_FALSE(IndexSource(config_).ok());
}

TEST_F(IndexTest, AnIndexIsKeptInAFile) {
  const std::string index = *IndexSource(config_), file = dir_ / "videos.index";
  ASSERT_TRUE(WriteIndexFile(file, index).ok());
  EXPECT_EQ(*ReadIndexFile(file), index);
  const std::string whole = *ReadFile(file);
  for (const std::string& damaged : {whole.substr(0, whole.size() - 1), whole.substr(1), "x" + whole.substr(1),
                                     whole.substr(0, 40) + "x" + whole.substr(41), std::string()}) {
    ASSERT_TRUE(WriteFileAtomic(file, damaged, 0644, Durability::kProcess).ok());
    EXPECT_THAT(ReadIndexFile(file).status().ToString(), HasSubstr("lockstep data index"));
  }
}

TEST_F(IndexTest, AVideoListedUnderSeveralNamesStaysOnOneSideOfTheSplit) {
  List(R"({"path": "v0"}, {"path": "v1"}, {"path": "./v0"}, {"path": "v1/../v0"}, {"path": "v2/"}, {"path": "v2"},
          {"full_path": ")" +
       (dir_ / "data/v1") + R"("})");
  const auto source = *OpenSource(config_);
  ASSERT_EQ(source->size(), 7);
  EXPECT_EQ(source->Origin(2), "v0");
  EXPECT_EQ(source->Origin(3), "v0");
  EXPECT_EQ(source->Origin(5), source->Origin(4));
  EXPECT_EQ(source->Origin(6), "v1");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Split split = *SplitBySource(*source, 0.4, seed);
    std::set<std::vector<std::byte>> trained;
    for (uint64_t i : split.train) trained.insert(Read(*source, {.index = i}));
    for (uint64_t i : split.validation) EXPECT_FALSE(trained.contains(Read(*source, {.index = i}))) << seed;
  }
}

TEST_F(IndexTest, AWidthIsAWidthAndAHeightAHeight) {
  // Left half dark, right half bright, 90 x 40: a 3:2 target takes the middle 60 x 40, unsquashed.
  ASSERT_TRUE(MakeDirs(dir_ / "data/wide").ok());
  Image picture{90, 40, {}};
  for (int y = 0; y < 40; ++y) {
    for (int x = 0; x < 90; ++x)
      for (int c = 0; c < 3; ++c) picture.rgb.push_back(x < 45 ? 20 : 220);
  }
  for (int i = 0; i < 3; ++i) WritePng(dir_ / fmt::format("data/wide/{}.png", i), picture);
  List(R"({"path": "wide"})");
  config_.height = 20;
  config_.width = 30;
  const auto source = *OpenSource(config_);
  EXPECT_EQ(source->fields()[0].shape, (std::vector<int64_t>{3, 3, 20, 30}));
  const std::vector<std::byte> clip = Read(*source, {});
  for (int y = 0; y < 20; ++y) {
    EXPECT_EQ(std::to_integer<int>(clip[y * 30 + 0]), 20);
    EXPECT_EQ(std::to_integer<int>(clip[y * 30 + 13]), 20);
    EXPECT_EQ(std::to_integer<int>(clip[y * 30 + 16]), 220);
    EXPECT_EQ(std::to_integer<int>(clip[y * 30 + 29]), 220);
  }
}

}  // namespace
}  // namespace lockstep::data
