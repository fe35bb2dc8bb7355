// Who writes and who provides what: every combination of world, visible folder, ownership and size keeps the rules.
#include "record/checkpoint_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class PlanOwners { kAll, kShares, kOverlapping, kMain };
constexpr const char* kOwnerNames[] = {"all", "shares", "overlapping", "main"};

std::vector<std::vector<ElementRange>> RangesOf(PlanOwners owners, int64_t numel, int world) {
  std::vector<std::vector<ElementRange>> ranges(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    const auto cut = [&](int at) { return numel * at / world; };
    auto& mine = ranges[static_cast<size_t>(rank)];
    if (owners == PlanOwners::kShares) mine = {{cut(rank), cut(rank + 1)}};
    if (owners == PlanOwners::kOverlapping) mine = {{cut(rank), cut(std::min(world, rank + 2))}};
    if (owners == PlanOwners::kMain && rank == 0) mine = {{0, numel}};
  }
  return owners == PlanOwners::kAll ? std::vector<std::vector<ElementRange>>() : ranges;
}

std::vector<CheckpointTensor> State(PlanOwners owners, int world) {
  std::vector<CheckpointTensor> tensors;
  const auto add = [&](const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    const uint64_t bytes = *TensorBytes(dtype, shape);
    const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    tensors.push_back({name, dtype, std::move(shape), nullptr, bytes, RangesOf(owners, numel, world)});
  };
  for (const char* group : {"model", "optimizer", "ema"}) {
    for (const int size : {100, 7, 31, 64, 1}) add(fmt::format("{}/w{}", group, size), Dtype::kF32, {size, 3});
    add(fmt::format("{}/steps", group), Dtype::kI64, {});
    add(fmt::format("{}/empty", group), Dtype::kBF16, {0, 4});
  }
  return tensors;
}

bool Has(const CheckpointTensor& tensor, int rank, ElementRange elements) {
  if (tensor.ranges.empty()) return true;
  for (const ElementRange& range : tensor.ranges[static_cast<size_t>(rank)]) {
    if (range.begin <= elements.begin && elements.end <= range.end) return true;
  }
  return false;
}

TEST(CheckpointPlan, EveryCombinationKeepsTheRules) {
  int plans = 0;
  for (const int world : {1, 2, 3, 4}) {
    for (const PlanOwners owners :
         {PlanOwners::kAll, PlanOwners::kShares, PlanOwners::kOverlapping, PlanOwners::kMain}) {
      const std::vector<CheckpointTensor> tensors = State(owners, world);
      for (int seeing = 1; seeing <= world; ++seeing) {
        for (const bool large : {false, true}) {
          const std::string what = fmt::format("{} of {} ranks see it, owners: {}, {}", seeing, world,
                                               kOwnerNames[static_cast<int>(owners)], large ? "large" : "small");
          SCOPED_TRACE(what);
          PlanOptions options{.world = world, .writers = {}, .split_bytes = large ? 1u : 1u << 30, .metadata = {}};
          for (int rank = 0; rank < seeing; ++rank) options.writers.push_back(rank);
          const Result<CheckpointPlan> plan = PlanCheckpoint(tensors, options);
          ASSERT_TRUE(plan.ok()) << plan.status().message();
          ++plans;
          std::vector<std::vector<ElementRange>> stored(tensors.size());
          std::vector<uint64_t> load(static_cast<size_t>(world), 0), travelled(static_cast<size_t>(world), 0);
          for (const PlannedFile& file : plan->files) {
            EXPECT_LT(file.writer, seeing);
            EXPECT_TRUE(file.name == file.group + ".safetensors" || (large && seeing > 1)) << file.name;
            load[static_cast<size_t>(file.writer)] += file.layout.file_bytes;
            uint64_t at = file.layout.header.size();  // header and sources cover the file
            for (const FileSource& source : file.sources) {
              EXPECT_EQ(source.offset, at) << file.name;
              at += source.bytes;
              const int64_t element = DtypeBits(tensors[source.tensor].dtype) / 8;
              const ElementRange elements = {static_cast<int64_t>(source.from) / element,
                                             static_cast<int64_t>(source.from + source.bytes) / element};
              EXPECT_TRUE(Has(tensors[source.tensor], source.rank, elements)) << file.name;
              if (source.rank == file.writer) continue;
              travelled[static_cast<size_t>(source.rank)] += source.bytes;
              EXPECT_FALSE(Has(tensors[source.tensor], file.writer, elements)) << "travels though the writer has it";
            }
            EXPECT_EQ(at, file.layout.file_bytes);
            ASSERT_EQ(file.parts.size(), file.layout.tensors.size());
            for (const PlannedPart& part : file.parts) stored[part.tensor].push_back(part.elements);
          }
          for (size_t i = 0; i < tensors.size(); ++i) {
            std::sort(stored[i].begin(), stored[i].end(), [](auto& a, auto& b) { return a.begin < b.begin; });
            int64_t at = 0;
            for (const ElementRange& part : stored[i]) {
              EXPECT_EQ(part.begin, at) << tensors[i].name;
              at = part.end;
            }
            const auto element = static_cast<uint64_t>(DtypeBits(tensors[i].dtype) / 8);
            EXPECT_EQ(static_cast<uint64_t>(at) * element, tensors[i].bytes) << tensors[i].name;
            EXPECT_TRUE(large || stored[i].size() == 1) << "a small state has whole tensors";
          }
          if (large && owners == PlanOwners::kAll) {  // balanced up to one tensor, and headers
            const auto [least, most] = std::minmax_element(load.begin(), load.begin() + seeing);
            EXPECT_LE(*most - *least, 1200u + 800u);
          }
          if (large && owners != PlanOwners::kMain) {
            for (int rank = 0; rank < seeing; ++rank) EXPECT_EQ(travelled[static_cast<size_t>(rank)], 0u);
          }
          if (owners == PlanOwners::kAll)
            EXPECT_EQ(std::accumulate(travelled.begin(), travelled.end(), uint64_t{0}), 0u);
        }
      }
    }
  }
  EXPECT_EQ(plans, 80);
}

TEST(CheckpointPlan, FilesAreNamedByGroupAndNumber) {
  const auto names = [](const std::vector<CheckpointTensor>& tensors, const PlanOptions& options) {
    std::vector<std::string> found;
    const Result<CheckpointPlan> plan = PlanCheckpoint(tensors, options);
    for (const PlannedFile& file : plan->files) {
      found.push_back(fmt::format("{} by {}", file.name, file.writer));
    }
    return found;
  };
  std::vector<CheckpointTensor> tensors = {{"model/a", Dtype::kF32, {100}, nullptr, 400},
                                           {"model/b", Dtype::kF32, {90}, nullptr, 360},
                                           {"recipe/c", Dtype::kF32, {1}, nullptr, 4}};
  EXPECT_THAT(names(tensors, {.world = 2, .writers = {0, 1}, .split_bytes = 1000, .metadata = {}}),
              ElementsAre("model.safetensors by 0", "recipe.safetensors by 1"));
  EXPECT_THAT(names(tensors, {.world = 2, .writers = {0, 1}, .split_bytes = 764, .metadata = {}}),
              ElementsAre("model-00001-of-00002.safetensors by 0", "model-00002-of-00002.safetensors by 1",
                          "recipe.safetensors by 1"));
  EXPECT_THAT(names(tensors, {.world = 1, .writers = {0}, .split_bytes = 1, .metadata = {}}),
              ElementsAre("model.safetensors by 0", "recipe.safetensors by 0"));
  // What one rank alone has is written by it where it can.
  tensors[2].ranges = {{}, {{0, 1}}, {}};
  tensors[0].ranges = {{}, {}, {{0, 100}}};
  EXPECT_THAT(names(tensors, {.world = 3, .writers = {0, 1, 2}, .split_bytes = 1000, .metadata = {}}),
              ElementsAre("model.safetensors by 2", "recipe.safetensors by 1"));
}

TEST(CheckpointPlan, PartsOfATensorHaveKeysOfTheirOwn) {
  std::vector<CheckpointTensor> tensors = {{"model/a", Dtype::kF32, {10, 10}, nullptr, 400, {{{0, 30}}, {{30, 100}}}}};
  const auto plan = PlanCheckpoint(tensors, {.world = 2, .writers = {0, 1}, .split_bytes = 1, .metadata = {}});
  ASSERT_EQ(plan->files.size(), 2u);
  EXPECT_EQ(plan->files[0].layout.tensors[0].name, "a[0:30]");
  EXPECT_EQ(plan->files[1].layout.tensors[0].name, "a[30:100]");
  EXPECT_THAT(plan->files[1].layout.tensors[0].shape, ElementsAre(70));
}

TEST(CheckpointPlan, AnElementThatNobodyHasIsAnError) {
  const auto error = [](std::vector<std::vector<ElementRange>> ranges) {
    return PlanCheckpoint({{"model/a", Dtype::kF32, {10}, nullptr, 40, std::move(ranges)}},
                          {.world = 2, .writers = {0}, .split_bytes = 1, .metadata = {}})
        .status()
        .message();
  };
  EXPECT_EQ(error({{{0, 5}}, {{5, 10}}}), "");
  EXPECT_EQ(error({{{0, 3}, {3, 5}}, {{4, 10}}}), "");
  EXPECT_THAT(error({{{0, 5}}, {{6, 10}}}), HasSubstr("no rank has its element 5"));
  EXPECT_THAT(error({{{1, 5}}, {{5, 10}}}), HasSubstr("no rank has its element 0"));
  EXPECT_THAT(error({{{0, 5}}, {{5, 9}}}), HasSubstr("no rank has its element 9"));
  EXPECT_THAT(error({{{0, 5}}, {}}), HasSubstr("no rank has its element 5"));
  EXPECT_THAT(error({{{0, 10}}}), HasSubstr("another number of ranks"));
  EXPECT_THAT(error({{{5, 10}, {0, 5}}, {}}), HasSubstr("not ascending"));
}

}  // namespace
}  // namespace lockstep::record
