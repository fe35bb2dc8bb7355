// Enumerates small models, bucket sizes and numbers of ranks: what the arithmetic promises holds for all of them.
#include "plan/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

std::vector<Layout::Size> Sizes(const std::vector<int64_t>& numels) {
  std::vector<Layout::Size> sizes;
  for (const int64_t numel : numels) sizes.push_back({fmt::format("p{}", sizes.size()), numel});
  return sizes;
}

const std::vector<std::vector<int64_t>> kModels = {{1}, {16}, {100, 3, 5000, 1, 1, 64}, {7, 7, 7, 7, 7, 7}, {4096, 1}};

TEST(Layout, ParametersLieInOrderAlignedAndWithoutOverlap) {
  for (const auto& model : kModels) {
    for (const int shares : {1, 2, 3, 8}) {
      const Layout layout(Sizes(model), {.bucket_bytes = 300, .first_bucket_bytes = 16, .shares = shares});
      int64_t end = 0, count = 0;
      for (const Layout::Parameter& parameter : layout.parameters()) {
        EXPECT_GE(parameter.offset, end);
        EXPECT_EQ(parameter.offset % 16, 0);
        const FlatRange& bucket = layout.buckets()[parameter.bucket];
        EXPECT_TRUE(bucket.begin <= parameter.offset && parameter.offset + parameter.numel <= bucket.end);
        end = parameter.offset + parameter.numel;
        count += parameter.numel;
      }
      EXPECT_EQ(layout.count(), count);
      int64_t at = 0;
      for (const FlatRange& bucket : layout.buckets()) {
        EXPECT_EQ(bucket.begin, at) << "buckets are the buffer, without gaps";
        EXPECT_EQ(bucket.size() % (shares * 16), 0);
        at = bucket.end;
      }
      EXPECT_EQ(layout.numel(), at);
    }
  }
}

TEST(Layout, ABucketIsClosedOnceItHoldsItsCap) {
  const Layout layout(Sizes({64, 64, 64, 64, 1024, 16}), {.bucket_bytes = 512, .first_bucket_bytes = 128});
  const std::vector<FlatRange> expected = {{0, 64}, {64, 192}, {192, 1280}, {1280, 1296}};
  EXPECT_EQ(layout.buckets(), expected);
}

TEST(Layout, SharesOfAllRanksAreTheBufferOnce) {
  for (const auto& model : kModels) {
    for (const int ranks : {1, 2, 3, 8}) {
      const Layout layout(Sizes(model), {.bucket_bytes = 300, .first_bucket_bytes = 16, .shares = ranks});
      for (const Stage stage : {Stage::kReplicated, Stage::kOptimizer, Stage::kGradients, Stage::kParameters}) {
        for (const Buffer buffer : {Buffer::kParameters, Buffer::kGradients, Buffer::kOptimizer}) {
          std::vector<int> owners(static_cast<size_t>(layout.numel()), 0);
          int64_t sizes = -1;
          for (int rank = 0; rank < ranks; ++rank) {
            const std::vector<FlatRange> kept = layout.Kept(stage, buffer, rank);
            EXPECT_TRUE(sizes < 0 || TotalSize(kept) == sizes) << "all ranks keep as much";
            sizes = TotalSize(kept);
            for (const FlatRange& range : kept) {
              for (int64_t i = range.begin; i < range.end; ++i) ++owners[static_cast<size_t>(i)];
            }
          }
          const int expected = IsSharded(stage, buffer) ? 1 : ranks;
          for (const int owner : owners) ASSERT_EQ(owner, expected);
        }
      }
    }
  }
}

TEST(Layout, StagesShardMoreAndMore) {
  const struct {
    Stage stage;
    bool optimizer, gradients, parameters;
  } rows[] = {{Stage::kReplicated, false, false, false},
              {Stage::kOptimizer, true, false, false},
              {Stage::kGradients, true, true, false},
              {Stage::kParameters, true, true, true}};
  for (const auto& row : rows) {
    EXPECT_EQ(IsSharded(row.stage, Buffer::kOptimizer), row.optimizer);
    EXPECT_EQ(IsSharded(row.stage, Buffer::kGradients), row.gradients);
    EXPECT_EQ(IsSharded(row.stage, Buffer::kParameters), row.parameters);
  }
}

TEST(Segments, CoverEveryElementOfEveryParameterOnceOverAllRanks) {
  for (const auto& model : kModels) {
    for (const int ranks : {1, 2, 3, 8}) {
      const Layout layout(Sizes(model), {.bucket_bytes = 300, .first_bucket_bytes = 16, .shares = ranks});
      std::vector<int64_t> seen(model.size(), 0);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<FlatRange> kept = layout.Kept(Stage::kOptimizer, Buffer::kOptimizer, rank);
        int64_t end = 0;
        for (const Segment& segment : SegmentsOf(layout, kept)) {
          const Layout::Parameter& parameter = layout.parameters()[segment.parameter];
          EXPECT_GE(segment.begin, end);
          EXPECT_LT(segment.begin, segment.end);
          EXPECT_GE(segment.flat, parameter.offset);
          EXPECT_LE(segment.flat + segment.end - segment.begin, parameter.offset + parameter.numel);
          end = segment.end;
          seen[segment.parameter] += segment.end - segment.begin;
        }
        EXPECT_LE(end, TotalSize(kept));
      }
      EXPECT_EQ(seen, model);
    }
  }
}

TEST(Segments, OfTheWholeBufferAreTheParameters) {
  const Layout layout(Sizes({100, 3, 50}), {});
  const std::vector<Segment> segments = SegmentsOf(layout, layout.Kept(Stage::kReplicated, Buffer::kOptimizer, 0));
  const std::vector<Segment> expected = {{0, 0, 100, 0}, {1, 112, 115, 112}, {2, 128, 178, 128}};
  EXPECT_EQ(segments, expected);
}

}  // namespace
}  // namespace lockstep::plan
