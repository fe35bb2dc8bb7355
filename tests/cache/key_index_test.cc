#include "cache/key_index.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "cache/build.h"
#include "cache/upkeep.h"
#include "small_cache.h"

namespace lockstep::cache {
namespace {

struct Indexed : testing::Test {
  Result<TempDir> dir = TempDir::Create();
  Folder folder = *Folder::Create(dir->path(), SmallDescription());
  std::string path = folder.path() + "/index.safetensors";
  std::vector<std::string> units;  // files

  void SetUp() override {
    for (uint64_t i = 0; i < 4; ++i) units.push_back(WriteUnit(folder, i, i * 5, 5));
    KeyIndex index;
    ASSERT_TRUE(index.Refresh(folder).ok());
    EXPECT_EQ(index.unsaved(), 4u);
    ASSERT_TRUE(index.Save(folder).ok());
  }
  // Units that a start has to open.
  uint64_t Opened() {
    KeyIndex index;
    EXPECT_TRUE(index.Refresh(folder).ok());
    return index.unsaved();
  }
  // Of numbers [0, count): how many records a new reader hands out, all of them right.
  int Hits(uint64_t count) {
    const auto reader = Reader::Open(folder);
    std::vector<uint64_t> numbers;
    for (uint64_t i = 0; i < count; ++i) numbers.push_back(i);
    const std::vector<Got> got = ReadNumbers(**reader, numbers);
    int hits = 0;
    for (uint64_t i = 0; i < count; ++i) {
      hits += got[i].outcome == Outcome::kHit ? 1 : 0;
      EXPECT_TRUE(got[i].outcome != Outcome::kHit || IsRecord(got[i], i)) << i;
    }
    return hits;
  }
};

TEST_F(Indexed, AStartOpensOnlyUnitsThatItDoesNotKnow) {
  EXPECT_EQ(Opened(), 0u);
  EXPECT_EQ(Hits(20), 20);
  WriteUnit(folder, 4, 20, 5);
  EXPECT_EQ(Opened(), 1u);
  EXPECT_EQ(Hits(25), 25);
  ASSERT_EQ(::unlink(units[1].c_str()), 0);
  KeyIndex index;
  ASSERT_TRUE(index.Refresh(folder).ok());
  EXPECT_EQ(index.records(), 20u);
  EXPECT_EQ(Hits(25), 20);
}

TEST_F(Indexed, ASummaryOpensOnlyUnitsThatItDoesNotKnow) {
  ASSERT_EQ(::truncate(units[2].c_str(), 10), 0);  // cannot be opened any more
  const Result<Summary> summary = Summarise(folder);
  EXPECT_EQ(summary->units, 4u);
  EXPECT_EQ(summary->records, 20u);
  EXPECT_TRUE(summary->damaged.empty()) << "it was opened";
  EXPECT_EQ(Summarise(folder, /*every_unit=*/true)->damaged.size(), 1u);
  ASSERT_TRUE(ForgetIndex(folder).ok());
  const Result<Summary> without = Summarise(folder);
  EXPECT_EQ(without->units, 3u);
  EXPECT_EQ(without->damaged.size(), 1u);
}

TEST_F(Indexed, EveryFlippedBitIsFoundAndTheUnitsAreReadInstead) {
  const auto bytes = std::filesystem::file_size(path);
  for (uint64_t bit = 0; bit < bytes * 8; bit += 37) {
    FlipBit(path, bit);
    KeyIndex index;
    ASSERT_TRUE(index.Refresh(folder).ok());
    // In the header's blanks it may stand: everything that counts is under the checksum.
    ASSERT_TRUE(index.unsaved() == 4 || index.unsaved() == 0) << bit;
    ASSERT_EQ(index.records(), 20u) << bit;
    FlipBit(path, bit);
  }
  for (const uint64_t size : {uint64_t{0}, uint64_t{7}, bytes / 2, bytes - 1}) {
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size)), 0);
    EXPECT_EQ(Opened(), 4u);
    EXPECT_EQ(Hits(20), 20);
  }
}

// A unit with the name of another, as a build after a removal makes it, and by chance with its inode.
TEST_F(Indexed, AReplacedUnitIsRightAndTheIndexIsNot) {
  const std::string other = WriteUnit(folder, 9, 15, 5);
  const std::string bytes = *ReadFile(other);
  ASSERT_EQ(::unlink(other.c_str()), 0);
  WriteUnit(folder, 8, 5, 5);
  ASSERT_EQ(Opened(), 1u);
  // In place: the inode stays. Unit 1 had the records 5 to 9 and now has 15 to 19; unit 8 has 5 to 9.
  std::ofstream(units[1], std::ios::binary | std::ios::trunc) << bytes;
  ASSERT_EQ(::unlink(units[3].c_str()), 0);
  EXPECT_EQ(Hits(10), 10) << "unit 1 was opened for the records it had, and gave the index away";
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(Hits(20), 20);
}

TEST_F(Indexed, AnIndexOfAnotherNamespaceIsNotRead) {
  Description description = SmallDescription();
  description.preprocessing["mean"] = 0.25;
  const Folder other = *Folder::Create(dir->path(), description);
  std::filesystem::copy_file(path, other.path() + "/index.safetensors");
  KeyIndex index;
  ASSERT_TRUE(index.Refresh(other).ok());
  EXPECT_EQ(index.records(), 0u);
}

TEST_F(Indexed, RepairRemovesItAndBuildsWriteIt) {
  ASSERT_TRUE(Quarantine(folder, {std::filesystem::path(units[0]).stem()}).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(Build(folder, {"numbers", 30, 10}, Numbers(folder), {}).ok());
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(Opened(), 0u);
  EXPECT_EQ(Hits(30), 30);
}

TEST_F(Indexed, AReaderThatHadToOpenManyWritesIt) {
  ASSERT_TRUE(ForgetIndex(folder).ok());
  ASSERT_TRUE(Reader::Open(folder).ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "4 units are few";
  ASSERT_TRUE(Reader::Open(folder, {.save_after = 4}).ok());
  EXPECT_EQ(Opened(), 0u);
}

// LOCKSTEP_UNITS=100000: how long a start takes without and with the stored index.
TEST(KeyIndexBench, Start) {
  const char* asked = std::getenv("LOCKSTEP_UNITS");
  const uint64_t count = asked == nullptr ? 8 : std::strtoull(asked, nullptr, 10);
  const Result<TempDir> dir = TempDir::Create();
  const Folder folder = *Folder::Create(dir->path(), SmallDescription());
  for (uint64_t i = 0; i < count; ++i) WriteUnit(folder, i, i * 2, 2);
  for (const char* what : {"without", "with"}) {
    const TimePoint start = Now();
    KeyIndex index;
    ASSERT_TRUE(index.Refresh(folder).ok());
    const double seconds = SecondsSince(start);
    EXPECT_EQ(index.records(), 2 * count);
    EXPECT_EQ(index.unsaved(), std::string(what) == "with" ? 0 : count);
    if (asked != nullptr) printf("%lu units, start %s the stored index: %.3f s\n", count, what, seconds);
    ASSERT_TRUE(index.Save(folder).ok());
  }
}

}  // namespace
}  // namespace lockstep::cache
