#include "cache/unit.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <random>

#include "base/safetensors.h"
#include "cache/block_reader.h"
#include "small_cache.h"

namespace lockstep::cache {
namespace {

TEST(CacheUnit, IsPlainSafetensorsWithAlignedColumns) {
  SmallCache small(Storage::kF8);
  const std::string path = WriteUnit(small.folder, 0, 0, 3);
  const Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  for (const char* name : {"tokens", "tokens.scale", "pooled"}) {
    ASSERT_NE(file->Find(name), nullptr) << name;
    EXPECT_EQ(file->Find(name)->offset % kBlock, 0u);
    EXPECT_EQ(file->Find(name)->shape[0], 3);
  }
  EXPECT_EQ(file->Find("tokens.scale")->shape, (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(file->Find("tokens")->dtype, Dtype::kF8E4M3);
}

TEST(CacheUnit, TheFirstOneStays) {
  SmallCache small;
  WriteUnit(small.folder, 0, 0, 2);
  UnitBuilder other(small.folder.description().Columns(), 1);
  const Plan plan{"test", 1000, 2};
  const std::string path = small.folder.UnitPath(plan.UnitName(0));
  const Result<bool> published = other.Publish(path, {{"namespace", small.folder.id()}});
  ASSERT_TRUE(published.ok());
  EXPECT_FALSE(*published);
  EXPECT_EQ(ListDir(small.folder.path() + "/units")->size(), 1u);
}

TEST(CacheUnit, NothingIsPublishedWhereItCannotBeWritten) {
  SmallCache small;
  UnitBuilder unit(small.folder.description().Columns(), 1);
  AddRecord(small.folder, 1, &unit);
  const Result<bool> published = unit.Publish(small.folder.path() + "/missing/u.safetensors", {});
  EXPECT_FALSE(published.ok());
  EXPECT_NE(published.status().message().find("missing"), std::string::npos);
}

// Columns are written in whole blocks, and memory grows beyond the rows that were announced.
TEST(CacheUnit, EndsWithItsLastRowAndHasZerosBetweenColumns) {
  for (const uint64_t rows : {1, 3, 40, 5000}) {
    SmallCache small(Storage::kInt8);
    UnitBuilder unit(small.folder.description().Columns(), 2);
    for (uint64_t i = 0; i < rows; ++i) AddRecord(small.folder, i, &unit);
    const std::string path = small.folder.UnitPath("u");
    ASSERT_TRUE(unit.Publish(path, {{"namespace", small.folder.id()}}).ok());
    const Result<SafetensorsFile> file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    const TensorInfo& last = *file->Find("pooled");
    EXPECT_EQ(file->file_bytes(), last.offset + last.bytes) << rows;
    const auto opened = UnitFile::Open(path, small.folder.id(), small.folder.description().Columns());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    EXPECT_TRUE((*opened)->Verify().ok()) << (*opened)->Verify().ToString();
    EXPECT_EQ((*opened)->rows(), rows);
  }
}

TEST(CacheUnit, BelongsToItsNamespaceAndColumns) {
  SmallCache small;
  const std::string path = WriteUnit(small.folder, 0, 0, 2);
  const std::vector<Column> columns = small.folder.description().Columns();
  EXPECT_TRUE(UnitFile::Open(path, small.folder.id(), columns).ok());
  EXPECT_NE(UnitFile::Open(path, std::string(32, 'f'), columns).status().message().find("belongs to the namespace"),
            std::string::npos);
  std::vector<Column> fewer = columns;
  fewer.pop_back();
  EXPECT_NE(UnitFile::Open(path, small.folder.id(), fewer).status().message().find("columns"), std::string::npos);
}

// Every way of reading, through the page cache and past it.
TEST(CacheReader, GivesExactlyWhatWasWritten) {
  SmallCache small;
  for (uint64_t unit = 0; unit < 3; ++unit) WriteUnit(small.folder, unit, unit * 10, 10);
  for (const bool uring : {true, false}) {
    for (const bool direct : {true, false}) {
      const auto reader = Reader::Open(small.folder, {.direct = direct, .uring = uring, .open_units = 2});
      ASSERT_TRUE(reader.ok());
      EXPECT_EQ((*reader)->records(), 30u);
      const std::vector<Got> got = ReadNumbers(**reader, {29, 0, 17, 500, 3, 29});
      for (const size_t i : {0, 1, 2, 4, 5}) {
        EXPECT_TRUE(IsRecord(got[i], std::vector<uint64_t>{29, 0, 17, 500, 3, 29}[i]))
            << (*reader)->Describe() << got[i].why;
      }
      EXPECT_EQ(got[3].outcome, Outcome::kMiss);
      EXPECT_EQ((*reader)->stats().hits, 5u);
      EXPECT_EQ((*reader)->stats().misses, 1u);
    }
  }
}

// Rows of 512 bytes: read straight to where they are wanted, if that begins at a multiple of it too.
TEST(CacheReader, ReadsInPlaceWhatTheFileSystemAllows) {
  Description description = SmallDescription();
  description.fields = {{"tokens", Dtype::kF32, Storage::kSame, {128}, false}};
  const Result<TempDir> dir = TempDir::Create();
  const Folder folder = *Folder::Create(dir->path(), description);
  WriteUnit(folder, 0, 0, 20);
  const auto reader = Reader::Open(folder);
  for (const size_t shift : {0, 4, 512}) {
    BlockMemory memory;
    std::byte* at = memory.Grow(4 * kBlock) + shift;
    std::vector<Request> batch(12);
    for (size_t i = 0; i < batch.size(); ++i) {
      batch[i].key.key = KeyOfNumber(folder, 19 - i);
      batch[i].fields = {at + i * 512};
    }
    (*reader)->Read(batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      EXPECT_EQ(batch[i].outcome, Outcome::kHit) << batch[i].why;
      EXPECT_EQ(std::memcmp(at + i * 512, Values(19 - i, 0, 128).data(), 512), 0) << shift << " " << i;
    }
  }
}

TEST(CacheReader, FindsUnitsPublishedSince) {
  SmallCache small;
  const auto reader = Reader::Open(small.folder);
  EXPECT_EQ(ReadNumbers(**reader, {4})[0].outcome, Outcome::kMiss);
  WriteUnit(small.folder, 0, 0, 10);
  ASSERT_TRUE((*reader)->Refresh().ok());
  EXPECT_TRUE(IsRecord(ReadNumbers(**reader, {4})[0], 4));
  EXPECT_TRUE((*reader)->Has(KeyOfNumber(small.folder, 4)));
  EXPECT_FALSE((*reader)->Has(KeyOfNumber(small.folder, 10)));
}

TEST(CacheReader, ReadsOnlyTheFieldsThatAreWanted) {
  SmallCache small;
  WriteUnit(small.folder, 0, 0, 4);
  const auto reader = Reader::Open(small.folder);
  std::vector<float> pooled(5);
  std::vector<Request> one(1);
  one[0].key.key = KeyOfNumber(small.folder, 2);
  one[0].fields = {nullptr, reinterpret_cast<std::byte*>(pooled.data())};
  (*reader)->Read(one);
  EXPECT_EQ(one[0].outcome, Outcome::kHit);
  EXPECT_EQ(pooled, Values(2, 1, 5));
  EXPECT_LE((*reader)->stats().bytes, 3u * 5 * 4);  // with the rows before it in its block
}

// Any bit anywhere in the file: verification finds it, and no reader gets other values than were written.
TEST(CacheReader, DeliversNoWrongTensorAfterAnyBitFlip) {
  SmallCache small;
  const std::string path = WriteUnit(small.folder, 0, 0, 8);
  const std::string whole = *ReadFile(path);
  std::mt19937_64 random(7);
  int damaged = 0, undetected = 0, wrong = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bit = random() % (whole.size() * 8);
    FlipBit(path, bit);
    const auto unit = UnitFile::Open(path, small.folder.id(), small.folder.description().Columns());
    undetected += unit.ok() && (*unit)->Verify().ok() ? 1 : 0;
    const auto reader = Reader::Open(small.folder, {.direct = i % 20 == 0, .uring = i % 2 == 0});
    const std::vector<uint64_t> numbers = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<Got> got = ReadNumbers(**reader, numbers);
    for (const uint64_t number : numbers) {
      if (got[number].outcome != Outcome::kHit) ++damaged;
      if (got[number].outcome == Outcome::kHit && !IsRecord(got[number], number)) ++wrong;
    }
    FlipBit(path, bit);
  }
  EXPECT_EQ(undetected, 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(damaged, 500);
}

TEST(CacheReader, ATruncatedOrVanishedUnitIsNoHit) {
  SmallCache small;
  const std::string path = WriteUnit(small.folder, 0, 0, 8);
  const auto reader = Reader::Open(small.folder);
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(ReadFile(path)->size() - 5000)), 0);
  EXPECT_EQ(ReadNumbers(**reader, {7})[0].outcome, Outcome::kDamaged);
  ASSERT_TRUE(RemoveAll(path).ok());
  const auto later = Reader::Open(small.folder);
  EXPECT_EQ(ReadNumbers(**later, {7})[0].outcome, Outcome::kMiss);
}

// A stale index, or a file put in place of another: the key in the row decides.
TEST(CacheReader, AnotherUnitUnderTheSameNameIsNoStaleHit) {
  SmallCache small;
  const std::string path = WriteUnit(small.folder, 0, 0, 4);
  const auto reader = Reader::Open(small.folder);
  ASSERT_TRUE(RemoveAll(path).ok());
  WriteUnit(small.folder, 0, 100, 4);
  EXPECT_NE(ReadNumbers(**reader, {1})[0].outcome, Outcome::kHit);
}

TEST(CacheReader, BringsItemsIntoTheOrderAskedFor) {
  const Result<TempDir> dir = TempDir::Create();
  Description description = SmallDescription(Storage::kSame, Context::kReferenceSet);
  description.fields = {{"frames", Dtype::kF32, Storage::kSame, {3, 2}, true}};
  const Folder folder = *Folder::Create(dir->path(), description);
  const auto items = [](std::vector<uint64_t> numbers) {
    std::vector<ItemDigest> made;
    for (const uint64_t number : numbers) made.push_back(Item(number));
    return made;
  };
  // Features of frame f are (f, 10 f), stored in the canonical order.
  const RecordKey first = *KeyOf(folder.id(), description.context, items({5, 6, 7}));
  UnitBuilder unit(description.Columns(), 1);
  auto* out = reinterpret_cast<float*>(unit.Add(first.key)[0]);
  for (size_t i = 0; i < 3; ++i) {
    out[first.order[i] * 2] = 5 + static_cast<float>(i);
    out[first.order[i] * 2 + 1] = 50 + 10 * static_cast<float>(i);
  }
  ASSERT_TRUE(unit.Publish(folder.UnitPath("u"), {{"namespace", folder.id()}}).ok());
  const auto reader = Reader::Open(folder);
  for (const std::vector<uint64_t>& numbers : {std::vector<uint64_t>{5, 6, 7}, {5, 7, 6}}) {
    std::vector<float> got(6);
    std::vector<Request> one(1);
    one[0].key = *KeyOf(folder.id(), description.context, items(numbers));
    one[0].fields = {reinterpret_cast<std::byte*>(got.data())};
    (*reader)->Read(one);
    ASSERT_EQ(one[0].outcome, Outcome::kHit);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(got[2 * i], static_cast<float>(numbers[i]));
  }
}

TEST(CacheReader, IoUringSaysWhyItIsNotThere) {
  // Allowed or not, one of the two is there, and the fallback reads alike (above).
  const auto ring = MakeUringReader(8);
  if (!ring.ok()) EXPECT_NE(ring.status().message().find("io_uring"), std::string::npos);
  EXPECT_NE(MakeBlockReader(8), nullptr);
}

}  // namespace
}  // namespace lockstep::cache
