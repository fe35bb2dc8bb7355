// How a workload is trained, as far as memory and time depend on it: the keys of `train` in plain numbers. The engine
// makes one from its configuration (engine/planned.h). Plain values, any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace lockstep::plan {

enum class Offload { kNone, kOptimizer, kParameters };

struct Setting {
  int stage = 0;
  Offload offload = Offload::kNone;
  double offload_share = 1;  // of the optimizer's state that the host updates
  bool recompute = false;

  int ranks = 1;
  uint64_t batch = 1;        // global
  uint64_t micro_batch = 0;  // 0: a rank's whole share
  int parameter_bytes = 4;   // of what the model computes with
  int compute_bytes = 2;     // of matrix products: 2 for bf16 and fp16, 4 for fp32
  int travel_bytes = 4;      // of offloaded gradients
  int optimizer_slots = 2;   // AdamW and Adam 2, SGD with momentum 1, without 0
  bool ema = false;
  bool exchange_once = false, reproducible = false;
  uint64_t shards = 8;  // with reproducible
  uint64_t bucket = 25u << 20, first_bucket = 1u << 20;
  int64_t prefetch = 50'000'000, reuse_distance = 0, live = 1'000'000'000, persistent = 100'000;
  bool gpu = true;
  int compute_capability = 90;  // of the GPU, times ten

  // What has an effect: one rank shares nothing, a CPU has nothing to offload.
  bool offloads() const { return gpu && offload != Offload::kNone; }
  bool offloads_parameters() const { return gpu && offload == Offload::kParameters && stage == 3; }
  int effective_stage() const { return ranks > 1 || offloads_parameters() ? stage : 0; }
  int64_t share() const {  // samples of the rank that has most
    return static_cast<int64_t>((batch + static_cast<uint64_t>(ranks) - 1) / static_cast<uint64_t>(ranks));
  }
  int64_t passes() const {
    if (reproducible) return (static_cast<int64_t>(shards) + ranks - 1) / ranks;
    const auto micro = static_cast<int64_t>(micro_batch);
    return micro == 0 ? 1 : std::max<int64_t>(1, (share() + micro - 1) / micro);
  }
  int64_t pass_samples() const { return std::max<int64_t>(1, (share() + passes() - 1) / passes()); }
  bool whole_gradients() const { return effective_stage() < 2 || exchange_once || reproducible; }
  // What a single backward on one rank computed in the parameters' type stays in it on its way to the host.
  int gradient_bytes() const {
    const bool narrow = offloads() && passes() == 1 && effective_stage() == 0 && ranks == 1 && !reproducible;
    return narrow ? parameter_bytes : 4;
  }
  // Whether autograd adds gradients to the buffer itself.
  bool gradient_views() const { return whole_gradients() && gradient_bytes() == parameter_bytes; }
};

nlohmann::json ToJson(const Setting& setting);
Result<Setting> SettingFromJson(const nlohmann::json& from);

}  // namespace lockstep::plan
