// Tar files, LMDB, HDF5 and safetensors as sources. What Python's tarfile, lmdb and h5py wrote (make_containers.py) is
// read back byte for byte; damaged ones are refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "data/lmdb_listing.h"
#include "data/rows.h"
#include "data/sources.h"
#include "data/tar_listing.h"
#include "paths.h"
#include "pictures.h"
#include "video_file.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Golden(const std::string& name) { return SourceDir() + "/tests/data/containers/" + name; }

std::string Fnv(std::string_view bytes) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char c : bytes) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

// Reads from text as from a file.
ReadAt Of(const std::string& text) {
  return [text](uint64_t offset, size_t bytes, char* out) {
    if (offset > text.size() || bytes > text.size() - offset) return Status(Code::kEnvironment, "behind the end");
    text.copy(out, bytes, offset);
    return Status::Ok();
  };
}

// A plain tar file, as small as it can be.
std::string TarOf(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out;
  for (const auto& [name, data] : members) {
    std::string block(512, '\0');
    block.replace(0, name.size(), name);
    block.replace(124, 11, fmt::format("{:011o}", data.size()));
    block.replace(148, 8, "        ");
    block[156] = '0';
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    block.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
    out += block + data + std::string((512 - data.size() % 512) % 512, '\0');
  }
  return out + std::string(1024, '\0');
}

class ContainerTest : public testing::Test {
 protected:
  void Put(const std::string& name, const std::string& content) {
    ASSERT_TRUE(MakeDirs(std::filesystem::path(dir_ / name).parent_path()).ok());
    ASSERT_TRUE(WriteFileAtomic(dir_ / name, content, 0644, Durability::kProcess).ok());
  }
  static std::string Png(int level, int size = 8) {
    const Image image = Flat(size, size, static_cast<uint8_t>(level));
    return *EncodePng(image.rgb, size, size);
  }
  SourceConfig Config(const std::string& kind, const std::string& path, int frames) {
    return {.kind = kind, .path = path, .frames = frames, .height = 8, .width = 8};
  }
  static std::unique_ptr<Source> Open(const SourceConfig& config) {
    Result<std::unique_ptr<Source>> source = OpenSource(config);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    return source.ok() ? std::move(*source) : nullptr;
  }
  static std::string ErrorOf(const SourceConfig& config) { return OpenSource(config).status().ToString(); }
  // The level of each frame of a sample.
  std::vector<int> Levels(const Source& source, uint64_t index) {
    std::vector<uint8_t> out(source.fields()[0].bytes());
    auto* data = reinterpret_cast<std::byte*>(out.data());
    status_ = source.Read({.index = index}, {&data, 1});
    std::vector<int> levels;
    for (int64_t t = 0; status_.ok() && t < source.fields()[0].shape[0]; ++t) levels.push_back(out[t * 3 * 64]);
    return levels;
  }

  TempDir dir_ = *TempDir::Create();
  Status status_;
};

TEST_F(ContainerTest, EveryMemberThatPythonWroteIsFoundAtItsPlace) {
  const nlohmann::json expected = *ReadJsonFile(Golden("expected.json"));
  for (const std::string form : {"ustar", "gnu", "pax"}) {
    const std::string bytes = *ReadFile(Golden(form + ".tar"));
    const Result<std::vector<TarMember>> members = ListTar(Golden(form + ".tar"));
    ASSERT_TRUE(members.ok()) << members.status().ToString();
    ASSERT_EQ(members->size(), expected[form].size()) << form;
    for (size_t i = 0; i < members->size(); ++i) {
      const TarMember& member = (*members)[i];
      EXPECT_EQ(nlohmann::json({member.name, member.bytes, Fnv(bytes.substr(member.offset, member.bytes))}),
                expected[form][i])
          << form;
    }
  }
}

TEST_F(ContainerTest, EveryValueThatLmdbWroteIsFoundAtItsPlace) {
  const nlohmann::json expected = (*ReadJsonFile(Golden("expected.json")))["lmdb"];
  const std::string bytes = *ReadFile(Golden("kair.lmdb/data.mdb"));
  const Result<LmdbListing> listing = ListLmdb(Golden("kair.lmdb"));
  ASSERT_TRUE(listing.ok()) << listing.status().ToString();
  EXPECT_EQ(listing->transaction, 2);
  ASSERT_EQ(listing->values.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const LmdbValue& value = listing->values[i];
    EXPECT_EQ(nlohmann::json({value.key, value.bytes, Fnv(bytes.substr(value.offset, value.bytes))}), expected[i]);
  }
  EXPECT_EQ(ListLmdb(Golden("empty.lmdb"))->values.size(), 0);
}

TEST_F(ContainerTest, ACutContainerIsRefusedAtEveryLength) {
  const std::string tar = TarOf({{"a.png", "12345"}, {"b.png", std::string(600, 'x')}});
  for (size_t size = 0; size <= tar.size(); ++size) {
    const Result<std::vector<TarMember>> members = ListTar(Of(tar.substr(0, size)), size, "cut.tar");
    EXPECT_EQ(members.ok(), size >= tar.size() - 512) << size;  // one block of the end mark is enough
  }
  const std::string lmdb = *ReadFile(Golden("kair.lmdb/data.mdb"));
  for (size_t size = 0; size < lmdb.size(); size += 997) {
    const Result<LmdbListing> listing = ListLmdb(Of(lmdb.substr(0, size)), size, "cut.mdb");
    if (listing.ok()) EXPECT_EQ(listing->values.size(), 240) << "only pages that hold nothing may be missing";
    EXPECT_FALSE(listing.ok() && size < lmdb.size() - 6000) << size;
  }
}

TEST_F(ContainerTest, WhatIsNoTarAndNoLmdbSaysSo) {
  const std::string tar = TarOf({{"a.png", "1"}});
  struct Case {
    std::string bytes, message;
  };
  std::string broken = tar;
  broken[1] = 'X';
  for (const Case& c : {Case{broken, "byte 0 has a wrong checksum"}, Case{"\x1f\x8b" + tar.substr(2), "compressed"},
                        Case{tar.substr(0, 300), "without an end mark"}}) {
    EXPECT_THAT(ListTar(Of(c.bytes), c.bytes.size(), "x.tar").status().ToString(), HasSubstr(c.message));
  }
  const std::string noise(9000, 'n');
  EXPECT_THAT(ListLmdb(Of(noise), noise.size(), "x").status().message(), HasSubstr("magic number"));
  EXPECT_THAT(ErrorOf(Config("lmdb", Golden("empty.lmdb"), 1)), HasSubstr("holds no keys"));
  EXPECT_THAT(ErrorOf(Config("lmdb", dir_ / "none", 1)), HasSubstr("none"));
  EXPECT_THAT(ErrorOf(Config("tar", dir_.path(), 1)), HasSubstr("looked for *.tar"));
}

TEST_F(ContainerTest, SamplesOfATarFileAreGroupedByKey) {
  Put("b.tar", TarOf({{"7.png", Png(70)}, {"7.json", "{}"}, {"8.txt", "no picture"}}));
  Put("a10.tar", TarOf({{"x/1.f2.png", Png(12)}, {"x/1.f10.png", Png(20)}, {"x/1.f1.png", Png(11)}}));
  Put("a9.tar", TarOf({{"1.png", Png(1)}, {"2.png", Png(2)}}));
  const auto source = Open(Config("tar", dir_.path(), 1));
  ASSERT_EQ(source->size(), 4);
  EXPECT_EQ(source->Origin(0), "a9.tar/1");
  EXPECT_EQ(source->Origin(2), "a10.tar/x/1");
  EXPECT_THAT(Levels(*source, 0), ElementsAre(1));
  EXPECT_THAT(Levels(*source, 2), ElementsAre(11));
  EXPECT_THAT(Levels(*source, 3), ElementsAre(70));
  EXPECT_EQ(source->Name(3), dir_ / "b.tar/7.png");
  EXPECT_THAT(source->Describe(), HasSubstr("1 sample without picture"));
  // Frames of a sample in natural order; samples with fewer are too short.
  const auto clips = Open(Config("tar", dir_ / "a10.tar", 3));
  EXPECT_THAT(Levels(*clips, 0), ElementsAre(11, 12, 20));
  EXPECT_THAT(ErrorOf(Config("tar", dir_ / "a9.tar", 3)), HasSubstr("none of the 2 videos"));
  EXPECT_THAT(Levels(*Open(Config("tar", Golden("gnu.tar"), 2)), 3), ElementsAre(22, 23));
}

TEST_F(ContainerTest, AVideoInATarFileIsReadFromItsPlace) {
  if (!HasVideo()) GTEST_SKIP() << "this build reads no video files";
  WriteVideo(dir_ / "v.mp4", {.frames = 5});
  const std::string video = *ReadFile(dir_ / "v.mp4");
  Put("shards/v.tar", TarOf({{"0.txt", "text"}, {"0.mp4", video}, {"1.mp4", video.substr(0, 40)}}));
  const auto packed = Open(Config("tar", dir_ / "shards", 3));
  const auto plain = Open(Config("videos", dir_ / "v.mp4", 3));
  ASSERT_EQ(packed->size(), 2);
  EXPECT_EQ(Levels(*packed, 0), Levels(*plain, 0));
  EXPECT_EQ(Levels(*packed, 0).size(), 3);
  Levels(*packed, 1);
  EXPECT_THAT(status_.message(), HasSubstr("v.tar/1 in "));
  Put("both/b.tar", TarOf({{"0.png", Png(1)}, {"0.mp4", video}}));
  EXPECT_THAT(ErrorOf(Config("tar", dir_ / "both", 1)), HasSubstr("a video and another picture"));
}

TEST_F(ContainerTest, BadSamplesOfATarFileAreNamed) {
  const std::string good = Png(5);
  Put("a.tar", TarOf({{"1.png", good}, {"2.png", good.substr(0, 40)}, {"3.png", ""}, {"4.png", good}}));
  const auto source = Open(Config("tar", dir_ / "a.tar", 1));
  EXPECT_THAT(Levels(*source, 0), ElementsAre(5));
  Levels(*source, 1);
  EXPECT_THAT(status_.message(), HasSubstr("a.tar/2.png' cannot be decoded: PNG"));
  Levels(*source, 2);
  EXPECT_THAT(status_.message(), HasSubstr("a.tar/3.png' cannot be decoded: it is empty"));
  Put("b.tar", TarOf({{"1.png", good}, {"1.png", good}}));
  EXPECT_THAT(ErrorOf(Config("tar", dir_ / "b.tar", 1)), HasSubstr("has '1.png' twice"));
  // Replaced by a shorter one while it is trained on: the open file is still the old one, a new reader sees the end.
  const auto other = Open(Config("tar", dir_ / "a.tar", 1));
  Put("a.tar", "short");
  Levels(*other, 3);
  EXPECT_THAT(status_.message(), HasSubstr("a.tar/4.png' lies behind the end of its file"));
}

TEST_F(ContainerTest, AnLmdbOfKairGivesClipsOrPictures) {
  const auto clips = Open(Config("lmdb", Golden("kair.lmdb"), 5));
  ASSERT_EQ(clips->size(), 12);
  EXPECT_EQ(clips->Origin(3), "003");
  EXPECT_THAT(Levels(*clips, 3), ElementsAre(60, 61, 62, 63, 64));
  const auto pictures = Open(Config("lmdb", Golden("kair.lmdb/data.mdb"), 1));
  ASSERT_EQ(pictures->size(), 240);
  EXPECT_EQ(pictures->Origin(41), "002/00000001");
  EXPECT_THAT(Levels(*pictures, 41), ElementsAre(41));
}

TEST_F(ContainerTest, TheIndexOfOneRankServesTheOthers) {
  Put("a.tar", TarOf({{"1.png", Png(1)}, {"2.png", Png(2)}}));
  for (SourceConfig config : {Config("tar", dir_ / "a.tar", 1), Config("lmdb", Golden("kair.lmdb"), 4)}) {
    const auto own = Open(config);
    config.index = std::make_shared<const std::string>(*IndexSource(config));
    const auto indexed = Open(config);
    ASSERT_EQ(indexed->size(), own->size());
    EXPECT_EQ(indexed->Digest(), own->Digest());
    for (uint64_t i = 0; i < own->size(); ++i) EXPECT_EQ(Levels(*indexed, i), Levels(*own, i));
    if (config.kind != "tar") continue;
    Put("a.tar", "other");
    EXPECT_THAT(ErrorOf(config), HasSubstr("has 5 bytes here, rank 0's reaches beyond"));
  }
}

std::vector<std::byte> ReadRow(const Rows& rows, uint64_t row) {
  std::vector<std::byte> out(rows.field().bytes());
  EXPECT_TRUE(rows.Read(row, std::nullopt, out.data()).ok());
  return out;
}

TEST_F(ContainerTest, RowsOfHdf5AreWhatH5pyWrote) {
  const auto frames = OpenHdf5Rows(Golden("rows.h5"), "frames");
  ASSERT_TRUE(frames.ok()) << frames.status().ToString();
  EXPECT_EQ((*frames)->size(), 5);
  EXPECT_EQ(DescribeField((*frames)->field()), "U8 [4, 6, 8, 3]");
  const std::vector<std::byte> row = ReadRow(**frames, 3);
  for (size_t i = 0; i < row.size(); ++i) ASSERT_EQ(std::to_integer<size_t>(row[i]), (3 * row.size() + i) % 251);
  std::vector<std::byte> slice(row.size() / 4);
  ASSERT_TRUE((*frames)->Read(3, 2, slice.data()).ok());
  EXPECT_TRUE(std::equal(slice.begin(), slice.end(), row.begin() + static_cast<std::ptrdiff_t>(2 * slice.size())));

  const auto sample = OpenRowSource("hdf5", Golden("rows.h5"), {"action", "pose"});
  ASSERT_TRUE(sample.ok()) << sample.status().ToString();
  int64_t action = 0;
  float pose[3] = {};
  std::byte* out[] = {reinterpret_cast<std::byte*>(&action), reinterpret_cast<std::byte*>(pose)};
  ASSERT_TRUE((*sample)->Read({.index = 1}, out).ok());
  EXPECT_EQ(action, -1);
  EXPECT_FLOAT_EQ(pose[2], 5.0F / 14);
}

TEST_F(ContainerTest, ArraysThatAreNoRowsAreRefused) {
  struct Case {
    const char *name, *message;
  };
  for (const Case& c : {Case{"none", "has no data set 'none'"}, Case{"wide", "64-bit floats"},
                        Case{"names", "values of another class"}, Case{"scalar", "no dimension"}}) {
    EXPECT_THAT(OpenHdf5Rows(Golden("rows.h5"), c.name).status().message(), HasSubstr(c.message));
  }
  EXPECT_THAT(OpenHdf5Rows(Golden("gnu.tar"), "a").status().message(), HasSubstr("cannot be opened as HDF5"));
  SourceConfig config = Config("hdf5", Golden("rows.h5"), 2);
  config.field = "action";
  EXPECT_THAT(ErrorOf(config), HasSubstr("are I64 []; expected U8 pictures"));
  config.field = "frames";
  config.frames = 5;
  EXPECT_THAT(ErrorOf(config), HasSubstr("clips need 5 frames"));
}

// The same pictures as HDF5 in both layouts, as safetensors and as PNG give the same clips.
TEST_F(ContainerTest, RowsArePicturesLikeAllOthers) {
  const auto rows = *OpenHdf5Rows(Golden("rows.h5"), "frames");
  std::vector<std::byte> all;
  for (uint64_t i = 0; i < 5; ++i) {
    const std::vector<std::byte> row = ReadRow(*rows, i);
    all.insert(all.end(), row.begin(), row.end());
    ASSERT_TRUE(MakeDirs(dir_ / fmt::format("png/{}", i)).ok());
    for (size_t t = 0; t < 4; ++t) {
      Image image{8, 6, {}};
      for (size_t k = 0; k < 144; ++k) image.rgb.push_back(std::to_integer<uint8_t>(row[t * 144 + k]));
      WritePng(dir_ / fmt::format("png/{}/{}.png", i, t), image);
    }
  }
  // Two files of one folder: rows count on.
  ASSERT_TRUE(MakeDirs(dir_ / "st").ok());
  const size_t row_bytes = all.size() / 5;
  for (const auto& [file, first, count] : {std::tuple{"part-2", 0, 2}, std::tuple{"part-10", 2, 3}}) {
    auto writer = SafetensorsWriter::Create(dir_ / fmt::format("st/{}.safetensors", file),
                                            {{"frames", Dtype::kU8, {count, 4, 6, 8, 3}}});
    ASSERT_TRUE(writer.ok() && writer->Write("frames", all.data() + first * row_bytes, count * row_bytes).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  SourceConfig config{.kind = "frames", .path = dir_ / "png", .frames = 2, .height = 4, .width = 5, .max_stride = 3};
  const auto reference = Open(config);
  for (const auto& [kind, path, field] :
       {std::tuple<const char*, std::string, const char*>{"hdf5", Golden("rows.h5"), "frames"},
        {"hdf5", Golden("rows.h5"), "inside/planes"},
        {"safetensors", dir_ / "st", "frames"}}) {
    config.kind = kind, config.path = path, config.field = field;
    const auto source = Open(config);
    ASSERT_EQ(source->size(), 5) << kind;
    for (const uint64_t i : {0, 1, 4}) {
      std::vector<std::byte> a(source->fields()[0].bytes()), b(a.size());
      std::byte *to_a = a.data(), *to_b = b.data();
      const Draw draw{.seed = 4, .epoch = 2, .index = i, .augment = true};
      ASSERT_TRUE(source->Read(draw, {&to_a, 1}).ok() && reference->Read(draw, {&to_b, 1}).ok());
      EXPECT_EQ(a, b) << kind << " " << field << " " << i;
    }
  }
}

}  // namespace
}  // namespace lockstep::data
