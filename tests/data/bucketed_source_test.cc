// Samples of several shapes: which bucket a picture belongs to, and batches of one shape each.
#include "data/bucketed_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "data/cached_source.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "data/sources.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(BucketsTest, APictureIsOfTheBucketWithTheNearestAspectRatio) {
  const std::vector<ImageSize> buckets = {{64, 64}, {48, 96}, {96, 48}, {128, 128}};
  struct Row {
    ImageSize picture;
    size_t bucket;
  };
  for (const Row& row : std::vector<Row>{{{500, 500}, 3},  // fills both squares: the larger one
                                         {{100, 100}, 0},  // fills only the small one
                                         {{10, 10}, 0},    // fills none: the smallest
                                         {{480, 640}, 3},  // 4:3 is nearer to 1 than to 2
                                         {{400, 640}, 1},  // 1.6 is nearer to 2 (factors 1.6 and 1.25)
                                         {{640, 400}, 2},
                                         {{1080, 1920}, 1},
                                         {{1, 1000}, 1},
                                         {{0, 0}, 0}}) {  // cannot be read
    EXPECT_EQ(ChooseBucket(buckets, row.picture), row.bucket) << row.picture.height << "x" << row.picture.width;
  }
}

TEST(BucketsTest, SizesAreHeightAndWidth) {
  EXPECT_THAT(*ParseSizes({"64x96", "8x8192"}), ElementsAre(ImageSize{64, 96}, ImageSize{8, 8192}));
  for (const char* wrong : {"64", "x64", "64x", "64X64", "7x64", "64x8193", "-8x64", "64x64x64", "64x 64"}) {
    EXPECT_THAT(ParseSizes({wrong}).status().message(), HasSubstr("expected HEIGHTxWIDTH")) << wrong;
  }
  EXPECT_THAT(ParseSizes({"8x8", "8x8"}).status().message(), HasSubstr("twice"));
}

class BucketFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 12; ++i) {
      const bool wide = i % 3 == 0;
      const Image image = Flat(wide ? 64 : 40, wide ? 32 : 40, static_cast<uint8_t>(20 * i));
      if (i % 2 == 0) {
        WritePng(dir_ / fmt::format("{}.png", i), image);
      } else {
        ASSERT_TRUE(
            WriteFileAtomic(dir_ / fmt::format("{}.jpg", i), JpegOf(image.width, image.height, JCS_RGB, image.rgb))
                .ok());
      }
    }
  }
  TempDir dir_ = *TempDir::Create();
  SourceConfig config_{.kind = "images", .path = dir_.path(), .frames = 1, .buckets = {"16x16", "16x32"}};
};

TEST_F(BucketFilesTest, PicturesOfOneShapeLieTogether) {
  const auto source = OpenSource(config_);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_THAT(BucketSizes(**source), ElementsAre(8, 4));
  EXPECT_THAT((*source)->FieldsOf(0)[0].shape, ElementsAre(1, 3, 16, 16));
  EXPECT_THAT((*source)->FieldsOf(11)[0].shape, ElementsAre(1, 3, 16, 32));
  EXPECT_THAT((*source)->Describe(), HasSubstr("12 samples in 2 buckets: 8 of 16x16, 4 of 16x32"));
  // Another choice of sizes is another data set.
  SourceConfig other = config_;
  other.buckets = {"16x16", "16x24"};
  EXPECT_NE((*OpenSource(other))->Digest(), (*source)->Digest());
  // Ranks with rank 0's index see the same.
  SourceConfig indexed = config_;
  indexed.index = std::make_shared<const std::string>(*IndexSource(config_));
  EXPECT_EQ((*OpenSource(indexed))->Digest(), (*source)->Digest());
  // An index that was made without sizes gets them once.
  SourceConfig plain = config_;
  plain.buckets.clear();
  EXPECT_EQ(*IndexForBuckets(*IndexSource(plain), config_), *indexed.index);
  EXPECT_EQ(*IndexForBuckets(*indexed.index, config_), *indexed.index);
}

TEST_F(BucketFilesTest, ADamagedPictureIsAnUnreadableSample) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "12.png", "no picture").ok());
  const auto source = OpenSource(config_);
  EXPECT_THAT(BucketSizes(**source), ElementsAre(9, 4));
  std::vector<std::byte> out((*source)->FieldsOf(8)[0].bytes());
  std::byte* data = out.data();
  EXPECT_FALSE((*source)->Read({.index = 8}, {&data, 1}).ok());
}

TEST_F(BucketFilesTest, BatchesHaveTheShapeOfTheirBucketOnAnyNumberOfThreads) {
  const std::shared_ptr<const Source> source = *OpenSource(config_);
  const Sampler sampler = *Sampler::CreateBucketed(BucketSizes(*source), {.seed = 5}, 3, LastBatch::kKeep);
  const auto plan = [&](uint64_t n) { return sampler.Peek(n); };
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {0, 1, 4}) {
    const std::shared_ptr<const Source> read =
        threads == 4 ? std::shared_ptr<const Source>(Cached(source, 1 << 20)) : source;
    Loader loader(read, plan, 0, 20, {.threads = threads, .prefetch = 3, .memory = 1 << 14});
    for (uint64_t n = 0; n < 20; ++n) {
      const Result<Batch> batch = loader.Next();
      ASSERT_TRUE(batch.ok()) << batch.status().ToString();
      ASSERT_EQ(batch->ids, sampler.Peek(n));
      const Field& field = *batch->fields[0].field;
      ASSERT_EQ(field.shape, source->FieldsOf(batch->ids[0].index)[0].shape);
      std::vector<std::byte> bytes(batch->fields[0].data, batch->fields[0].data + batch->count() * field.bytes());
      if (threads == 0) first.push_back(bytes);
      ASSERT_EQ(bytes, first[n]);
    }
    EXPECT_LE(loader.stats().buffer_bytes, size_t{1} << 14);
  }
}

TEST_F(BucketFilesTest, ABatchOfTwoShapesIsAnError) {
  Loader loader(*OpenSource(config_), [](uint64_t) { return std::vector<SampleId>{{0, 0, 7}, {0, 1, 8}}; }, 0, 1, {});
  EXPECT_THAT(loader.Next().status().message(), HasSubstr("a batch of two shapes was planned: samples 7 and 8"));
}

TEST(BucketsTest, GeneratedClipsTakeSizesInTurn) {
  auto opened = OpenSource({.kind = "clips", .frames = 2, .buckets = {"16x16", "8x24", "24x8"}, .clips = 10});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const std::shared_ptr<const Source> source = std::move(*opened);
  EXPECT_THAT(BucketSizes(*source), ElementsAre(4, 3, 3));
  EXPECT_EQ(source->Name(5), "clip 4");
  EXPECT_FALSE(OpenSource({.kind = "clips", .buckets = {"16x16", "8x24"}, .clips = 1}).ok());
  EXPECT_THAT(BucketSizes(*Subset(source, {1, 3, 4, 9})), ElementsAre(2, 1, 1)) << "a part keeps its buckets";
}

TEST(BucketsTest, RowsHaveOneSize) {
  EXPECT_THAT(OpenSource({.kind = "safetensors", .path = "/x", .buckets = {"16x16"}}).status().message(),
              HasSubstr("kind safetensors has no buckets"));
}

}  // namespace
}  // namespace lockstep::data
