// What is trained, in numbers: the parameters of a model by name, size and unit, and what one sample of it is, from
// which memory and work of a pass follow (pass.h). Written as JSON by the train program for `lockstep plan`, which
// links no LibTorch. Plain values, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"

namespace lockstep::plan {

struct Parameter {
  std::string name;
  int64_t numel = 0;
  int unit = -1;  // of the model, as it is gathered and recomputed; -1: none
  bool trained = true;
  int bytes = 4;  // of an element as the module is built
};

// A sequence of a decoder-only language model in Qwen2.5's layout (models/decoder.h).
struct LmSample {
  int64_t vocabulary = 0, width = 0, layers = 0, heads = 1, kv_heads = 1, mlp = 0, length = 0;
  bool tied = true, bias = true;
  bool lora = false;  // layers are composed of operators then

  int64_t HeadSize() const { return width / heads; }
  int64_t Qkv() const { return (heads + 2 * kv_heads) * HeadSize(); }
};

// A clip of TAEHV (models/taehv.h), reconstructed jointly.
struct TaehvSample {
  int64_t frames = 0, height = 0, width = 0;
  int64_t patch = 1, latent = 16;
  std::array<int64_t, 3> encoder_time{2, 2, 1}, decoder_time{1, 2, 2}, decoder_space{2, 2, 2};
  std::array<int64_t, 4> encoder_width{64, 64, 64, 64}, decoder_width{256, 128, 64, 64};
  bool super = false;  // the wide decoder, whose layers run as they are
};

// Nothing: what a pass takes is not known.
using Sample = std::variant<std::monostate, LmSample, TaehvSample>;

struct Workload {
  std::string name;
  std::vector<Parameter> parameters;  // in the order of registration
  std::vector<std::string> units;
  bool drawn_in_parts = false;  // at stage 3 no rank ever holds the whole model
  Sample sample;
  std::vector<std::string> notes;  // what the plan does not count

  int64_t trained() const;
  int64_t frozen() const;
};

// A decoder without units of another kind than its layers, its head and its embedding; for a number of parameters alone
// see LmOfSize.
Workload LmWorkload(const std::string& name, const LmSample& sample);

// A decoder with about that many parameters: layers of 12 width^2, 128 times as wide as there are layers (the shape of
// GPT-3's and Llama's tables), heads of 128. `vocabulary` and `length` as given.
LmSample LmOfSize(int64_t parameters, int64_t vocabulary, int64_t length);

nlohmann::json ToJson(const Workload& workload);
// Errors name the field.
Result<Workload> WorkloadFromJson(const nlohmann::json& from);

}  // namespace lockstep::plan
