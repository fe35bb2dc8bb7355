// Bytes of a rank by stage, type and offload, against the sums of docs/benchmarks.md; and what is said where they do
// not fit.
#include "engine/memory_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

using testing::HasSubstr;

constexpr uint64_t kCount = 1 << 20;

TrainConfig Adam(int stage, bool bf16, OffloadConfig offload = {}) {
  TrainConfig train;
  train.zero.stage = stage;
  train.parameters = bf16 ? at::kBFloat16 : at::kFloat;
  train.offload = offload;
  return train;
}

TEST(MemoryNeed, IsTheSumOfItsBuffers) {
  const OffloadConfig optimizer{.optimizer = true}, both{.optimizer = true, .parameters = true};
  const struct {
    TrainConfig train;
    int world;
    double device, host;  // bytes per parameter
  } rows[] = {
      {Adam(0, false), 4, 16, 0},
      {Adam(1, false), 4, 8 + 8 / 4., 0},
      {Adam(2, false), 4, 4 + 12 / 4., 0},
      {Adam(3, false), 4, 16 / 4., 0},
      {Adam(0, true), 2, 18, 0},
      {Adam(1, true), 2, 6 + 12 / 2., 0},
      {Adam(2, true), 2, 2 + 16 / 2., 0},
      {Adam(3, true), 2, 18 / 2., 0},
      {Adam(3, true), 1, 18, 0},                     // one rank has nothing to share
      {Adam(0, true, optimizer), 1, 4, 12},          // bf16 gradients of one backward
      {Adam(2, true, optimizer), 2, 2 + 6 / 2., 6},  // and what goes up
      {Adam(3, true, optimizer), 2, 6 / 2., 6},
      {Adam(3, true, both), 2, 4 / 2., 14 / 2.},
      {Adam(3, false, both), 2, 4 / 2., 12 / 2.},  // float32 parameters are the master
      {Adam(3, true, both), 1, 4, 14},
      {Adam(0, true, {.optimizer = true, .share = 0.75}), 1, 4 + 3, 12},  // a quarter is updated on the device
  };
  for (const auto& row : rows) {
    const MemoryNeed need = NeedOf(row.train, {.trained = kCount}, row.world, /*one_pass=*/true);
    const std::string what =
        fmt::format("stage {} on {}, {}, offload {} {}", row.train.zero.stage, row.world,
                    c10::toString(row.train.parameters), row.train.offload.optimizer, row.train.offload.parameters);
    EXPECT_EQ(need.device, static_cast<uint64_t>(row.device * kCount)) << what;
    EXPECT_EQ(need.host, static_cast<uint64_t>(row.host * kCount)) << what;
  }
  EXPECT_EQ(NeedOf(Adam(0, false), {.frozen_bytes = 100}, 2, true).device, 100u) << "frozen ones are whole";
  EXPECT_EQ(NeedOf(Adam(3, false), {.frozen_bytes = 100}, 2, true).device, 50u) << "or in shards";
}

TEST(MemoryNeed, WhatDoesNotFitIsSaidWithWhatWould) {
  const uint64_t gib = 1ull << 30;
  const ModelSize model{.trained = gib};  // 16 GiB of state in float32
  const struct {
    TrainConfig train;
    int world;
    MemoryThere there;
    const char *says, *advice;
  } rows[] = {
      {Adam(0, false), 4, {"GPU", 16 * gib, 0, 4}, "", ""},
      {Adam(0, false),
       4,
       {"GPU", 15 * gib, 0, 4},
       "train.zero.stage 0: parameters, gradients and optimizer's state of a rank need 16.0 GiB, GPU has 15.0 GiB",
       "train.zero.stage=1"},
      {Adam(1, false), 4, {"GPU", 5 * gib, 0, 4}, "need 10.0 GiB, GPU has 5.0 GiB", "train.zero.stage=3"},
      {Adam(0, false),
       4,
       {"GPU", 3 * gib, 64 * gib, 4},
       "GPU has 3.0 GiB",
       "train.zero.stage=3 and train.offload.optimizer=true"},
      {Adam(3, false), 4, {"GPU", 3 * gib, 64 * gib, 4}, "need 4.0 GiB", "train.offload.optimizer=true"},
      {Adam(0, false), 1, {"GPU", 15 * gib, 64 * gib, 1}, "need 16.0 GiB", "train.offload.optimizer=true"},
      {Adam(0, false), 1, {"GPU", 2 * gib, 64 * gib, 1}, "need 16.0 GiB", "use more ranks"},
      {Adam(2, false, {.optimizer = true}),
       4,
       {"GPU", 80 * gib, 11 * gib, 4},
       "train.zero.stage 2 with train.offload: the state of 4 ranks needs 12.0 GiB of host memory, 11.0 GiB are",
       "more nodes"},
      {Adam(0, false),
       2,
       {"", 0, 31 * gib, 2},
       "train.zero.stage 0: the state of 2 ranks needs 32.0 GiB of host memory, 31.0 GiB are available",
       "train.zero.stage=1"},
      {Adam(0, false), 2, {"", 0, 0, 2}, "", ""},  // not known
  };
  for (const auto& row : rows) {
    const Status status = CheckMemory(row.train, model, row.world, true, row.there);
    EXPECT_EQ(status.ok(), *row.says == '\0') << row.says;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), Code::kEnvironment);
    EXPECT_THAT(status.message(), HasSubstr(row.says));
    EXPECT_THAT(status.ToString(), HasSubstr(row.advice));
  }
}

}  // namespace
}  // namespace lockstep::engine
