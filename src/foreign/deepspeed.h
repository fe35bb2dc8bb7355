// DeepSpeed's configuration (a file of HJSON) and accelerate's (YAML) as ours. The table of keys is
// deepspeed_keys.cc; what becomes of a key: translation.h. `auto` is resolved as Hugging Face's Trainer resolves it,
// from the values of the trainer, which here is the recipe's own configuration. Pure functions of the text, any thread.
//
//   DeepSpeedContext context{.ranks = 8};
//   Result<DeepSpeedReport> report = ReadDeepSpeed("ds.json", context);
//   if (!report.ok()) return report.status();               // no such file, no HJSON, unknown keys
//   LOCKSTEP_RETURN_IF_ERROR(report->Check());               // what is refused
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "foreign/translation.h"

namespace lockstep::foreign {

// What `auto` stands for. The defaults are those of Hugging Face's TrainingArguments, for files without a recipe.
struct DeepSpeedContext {
  int ranks = 0;                   // 0: as accelerate's file says, else 1
  std::optional<uint64_t> batch;   // train.batch, over all ranks; unset: micro_batch x ranks
  uint64_t micro_batch = 8;        // train.micro_batch, of one rank; 0: its whole share
  std::string precision = "fp32";  // train.precision: fp32, bf16, fp16, or auto: what the device has
  double clip_norm = 1.0;
  double lr = 5e-5, weight_decay = 0, epsilon = 1e-8;
  std::array<double, 2> betas = {0.9, 0.999};
  uint64_t warmup = 0;
  std::optional<uint64_t> steps;                                 // train.steps
  std::optional<uint64_t> hidden_size;                           // of the model: auto bucket sizes follow from it
  std::string whose = "the defaults of Hugging Face's Trainer";  // batch sizes, for messages
};

// A size that the file says or has resolved, in elements, as DeepSpeed counts them.
struct DeepSpeedBucket {
  std::string name;  // "reduce_bucket_size"
  uint64_t elements = 0;
  uint64_t bytes = 0;     // of these elements in the type that is sent
  std::string to, value;  // our key and its value
};

struct DeepSpeedReport : Translation {
  int stage = 0;
  std::string precision = "fp32";  // fp32, bf16, fp16, or auto: what the device has
  bool bf16_parameters = false;    // the model's parameters are bf16, with a float32 master (train.parameters)
  int ranks = 1;
  uint64_t micro_batch = 0, accumulation = 1, global_batch = 0;
  std::string offload_optimizer = "none", offload_param = "none";  // none or cpu
  double offload_ratio = 1;                                        // of the optimizer's state
  std::vector<DeepSpeedBucket> buckets;
  std::vector<std::string> ignored_by_accelerate;  // keys that accelerate itself does not hand on

  // stage, precision, ..., buckets[] and the lists, as members of `document`.
  void AddTo(nlohmann::ordered_json* document) const;
  // These and config, one JSON document.
  std::string Json() const;
};

Result<DeepSpeedReport> ReadDeepSpeed(const std::string& path, const DeepSpeedContext& context);
Result<DeepSpeedReport> TranslateDeepSpeed(std::string_view text, const std::string& file,
                                           const DeepSpeedContext& context);

// accelerate's YAML. What accelerate itself does not hand on to DeepSpeed is ignored here as well, and listed. A
// deepspeed_config_file in it is followed: by its path, or beside the YAML file.
Result<DeepSpeedReport> ReadAccelerate(const std::string& path, const DeepSpeedContext& given);

// The table of DeepSpeed's keys and that of accelerate's.
const std::vector<KeyRow>& DeepSpeedKeys();
const std::vector<KeyRow>& AccelerateKeys();
// docs/deepspeed.md: its tables, made of these.
std::string DeepSpeedPage();

}  // namespace lockstep::foreign
