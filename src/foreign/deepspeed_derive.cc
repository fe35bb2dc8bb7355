#include "foreign/deepspeed_derive.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "base/text.h"
#include "base/units.h"

namespace lockstep::foreign {
namespace {

constexpr std::string_view kZeroSection = "zero_optimization";

struct OldName {
  std::string_view old, now;
};
// Keys of zero_optimization: the same value under another name, and switches that are sections today.
constexpr OldName kOldZeroNames[] = {
    {"prefetch_bucket_size", "stage3_prefetch_bucket_size"},
    {"param_persistence_threshold", "stage3_param_persistence_threshold"},
    {"max_live_parameters", "stage3_max_live_parameters"},
    {"max_reuse_distance", "stage3_max_reuse_distance"},
};
constexpr OldName kOldSwitches[] = {{"cpu_offload", "offload_optimizer"},
                                    {"cpu_offload_param", "offload_param"},
                                    {"cpu_offload_params", "offload_param"}};

// Only the Trainer's own arguments, and what it makes of the model's hidden size.
constexpr std::string_view kResolved[] = {"train_batch_size",
                                          "train_micro_batch_size_per_gpu",
                                          "gradient_accumulation_steps",
                                          "gradient_clipping",
                                          "optimizer.params.lr",
                                          "optimizer.params.betas",
                                          "optimizer.params.eps",
                                          "optimizer.params.weight_decay",
                                          "scheduler.params.warmup_min_lr",
                                          "scheduler.params.warmup_max_lr",
                                          "scheduler.params.warmup_num_steps",
                                          "scheduler.params.total_num_steps",
                                          "fp16.enabled",
                                          "bf16.enabled",
                                          "bfloat16.enabled",
                                          "zero_optimization.reduce_bucket_size",
                                          "zero_optimization.stage3_prefetch_bucket_size",
                                          "zero_optimization.stage3_param_persistence_threshold",
                                          "zero_optimization.prefetch_bucket_size",
                                          "zero_optimization.param_persistence_threshold"};

uint64_t ElementBytes(const DeepSpeedReport& made) {
  return made.precision == "bf16" || made.precision == "fp16" ? 2 : 4;
}

// bf16, fp16 or none, by one of the blocks.
struct Block {
  bool given = false, on = false, unsure = false;
};
Block ReadBlock(const ConfigNode& root, const std::string& name, const std::string& precision,
                const DeepSpeedContext& context, DeepSpeedReport* made) {
  const std::string path = name + ".enabled";
  Block block;
  if (IsAutoAt(root, path)) {
    block.given = true;
    block.unsure = context.precision == "auto";
    block.on = context.precision == precision;
    if (block.unsure) {
      Resolve(path, "left to train.precision", "which is auto: bf16 where the GPU computes in it, else fp32", made);
    } else {
      Resolve(path, block.on ? "true" : "false", fmt::format("train.precision is {}", context.precision), made);
    }
    return block;
  }
  const std::optional<std::string> text = TextAt(root, path);
  block.given = text.has_value();
  block.on = text == "true";
  return block;
}

void DeriveScaler(const ConfigNode& root, DeepSpeedReport* made) {
  const ConfigLocation where = PlaceOf(root, "fp16");
  const double fixed = NumberAt(root, "fp16.loss_scale").value_or(0);
  if (fixed < 0) {
    made->Refuse("fp16.loss_scale", FindKey(root, "fp16.loss_scale"), "expected 0 (dynamic) or a scale above 0");
    return;
  }
  if (fixed > 0) {
    made->Set("train.scaler.initial", Scalar(fmt::format("{}", fixed)), where);
    made->Set("train.scaler.growth", Scalar("1"), where);
    made->Set("train.scaler.backoff", Scalar("1"), where);
    return;
  }
  const double power = NumberAt(root, "fp16.initial_scale_power").value_or(16);
  if (power > 127) {
    made->Refuse("fp16.initial_scale_power", FindKey(root, "fp16.initial_scale_power"),
                 "2 to this power is no float32 number: expected at most 127");
    return;
  }
  made->Set("train.scaler.initial", Scalar(fmt::format("{}", std::exp2(power))), where);
  const double window = NumberAt(root, "fp16.loss_scale_window").value_or(1000);
  made->Set("train.scaler.interval", Scalar(fmt::format("{:.0f}", window)), where);
}

// Keys of a loss scale that is not there.
void LeaveOutScaler(DeepSpeedReport* made) {
  const auto is_idle = [](const Note& note) {
    return note.key.starts_with("fp16.") && note.key != "fp16.enabled" && note.key != "fp16.type";
  };
  for (Note& note : made->mapped) {
    if (is_idle(note)) made->ignored.push_back({note.key, note.value, "", "fp16 is off", note.line});
  }
  std::erase_if(made->mapped, is_idle);
}

void DerivePrecision(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made) {
  Block fp16 = ReadBlock(root, "fp16", "fp16", context, made);
  Block bf16 = ReadBlock(root, "bf16", "bf16", context, made);
  const std::string type = TextAt(root, "fp16.type").value_or("fp16");
  if (fp16.on && type.starts_with("b")) std::swap(fp16, bf16);
  if (fp16.on && bf16.on) {
    made->Refuse("bf16.enabled", FindKey(root, "bf16.enabled"),
                 "fp16.enabled is true as well: keep one of them, bf16 where the GPU has it");
    return;
  }
  const bool autocast = TextAt(root, "torch_autocast.enabled") == "true";
  made->precision = context.precision;
  const ConfigLocation where = PlaceOf(root, bf16.on ? "bf16.enabled" : fp16.on ? "fp16.enabled" : "torch_autocast");
  if (bf16.on || fp16.on) {
    made->precision = bf16.on ? "bf16" : "fp16";
    made->bf16_parameters = bf16.on;
  } else if (autocast) {
    const std::string dtype = TextAt(root, "torch_autocast.dtype").value_or("bfloat16");
    made->precision = dtype.find("bf") != std::string::npos ? "bf16" : "fp16";
  } else if ((bf16.given || fp16.given) && !bf16.unsure && !fp16.unsure) {
    made->precision = "fp32";
  } else {
    made->derived.push_back({"precision", made->precision,
                             bf16.given || fp16.given ? "train.precision decides on the device"
                                                      : "the file says nothing: train.precision stays"});
    LeaveOutScaler(made);
    return;
  }
  made->Set("train.precision", Scalar(made->precision), where);
  if (made->bf16_parameters) made->Set("train.parameters", Scalar("bf16"), where);
  if (fp16.on) {
    DeriveScaler(root, made);
  } else {
    LeaveOutScaler(made);
  }
}

void DeriveOffload(const ConfigNode& root, DeepSpeedReport* made) {
  const std::string optimizer = "zero_optimization.offload_optimizer.device";
  const std::string parameters = "zero_optimization.offload_param.device";
  const bool has_optimizer = TextAt(root, optimizer) == "cpu", has_parameters = TextAt(root, parameters) == "cpu";
  if (has_optimizer && made->stage == 0) {
    made->Refuse(optimizer, FindKey(root, optimizer), "the optimizer is offloaded at stages 1, 2 and 3: set stage");
  }
  if (has_parameters && made->stage < 3) {
    made->Refuse(parameters, FindKey(root, parameters),
                 fmt::format("parameters are offloaded at stage 3, and the stage is {}: remove it, or set stage: 3",
                             made->stage));
  } else if (has_parameters && !has_optimizer) {
    made->Refuse(parameters, FindKey(root, parameters),
                 "parameters are offloaded together with the optimizer: add offload_optimizer: {device: cpu}");
  }
  const double ratio = NumberAt(root, "zero_optimization.offload_optimizer.ratio").value_or(1);
  if (has_optimizer && ratio > 0) {
    made->offload_optimizer = "cpu";
    made->offload_ratio = ratio;
    made->Set("train.offload.optimizer", Scalar("true"), PlaceOf(root, optimizer));
    if (ratio < 1) {
      made->Set("train.offload.share", Scalar(fmt::format("{}", ratio)),
                PlaceOf(root, "zero_optimization.offload_optimizer.ratio"));
    }
  }
  if (has_parameters) {
    made->offload_param = "cpu";
    made->Set("train.offload.parameters", Scalar("true"), PlaceOf(root, parameters));
  }
}

// A size in elements: given, or from the model's hidden size.
struct Size {
  const char* name;
  const char* to;
  double (*of_hidden)(double hidden);  // null: it has no `auto`
  bool as_bytes;
};
constexpr Size kSizes[] = {
    {"reduce_bucket_size", "train.bucket", [](double h) { return h * h; }, true},
    {"stage3_prefetch_bucket_size", "train.zero.prefetch", [](double h) { return std::floor(0.9 * h * h); }, false},
    {"stage3_param_persistence_threshold", "train.zero.persistent", [](double h) { return 10 * h; }, false},
    {"stage3_max_live_parameters", "train.zero.live", nullptr, false},
    {"stage3_max_reuse_distance", "train.zero.reuse_distance", nullptr, false},
    {"allgather_bucket_size", "", nullptr, false},
};

void DeriveBuckets(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made) {
  constexpr uint64_t kSmallest = 4096;  // of train.bucket
  for (const Size& size : kSizes) {
    const std::string path = fmt::format("{}.{}", kZeroSection, size.name);
    std::optional<double> elements = NumberAt(root, path);
    if (IsAutoAt(root, path) && size.of_hidden != nullptr) {
      if (!context.hidden_size) {
        Resolve(path, "ours", fmt::format("the model has no hidden size to derive it from: {} stays", size.to), made);
        continue;
      }
      elements = size.of_hidden(static_cast<double>(*context.hidden_size));
      Resolve(path, fmt::format("{:.0f}", *elements), fmt::format("from the hidden size {}", *context.hidden_size),
              made);
    }
    if (!elements) continue;
    DeepSpeedBucket bucket{.name = size.name, .elements = static_cast<uint64_t>(*elements), .to = size.to};
    bucket.bytes = bucket.elements * ElementBytes(*made);
    if (*size.to != '\0') {
      bucket.value = std::to_string(size.as_bytes ? std::max(kSmallest, bucket.elements * 4) : bucket.elements);
      made->Set(size.to, Scalar(bucket.value), PlaceOf(root, path));
    }
    made->derived.push_back(
        {size.name, fmt::format("{} elements", bucket.elements),
         fmt::format("{} in {}{}", FormatSize(bucket.bytes), ElementBytes(*made) == 2 ? made->precision : "float32",
                     size.as_bytes ? fmt::format("; {} as float32 gradients, which is {}",
                                                 FormatSize(bucket.elements * 4), size.to)
                                   : "")});
    made->buckets.push_back(std::move(bucket));
  }
}

void Rename(std::string_view from, std::string_view to, ConfigNode* map) {
  if (map->Find(to) != nullptr) return;
  for (ConfigEntry& entry : map->entries) {
    if (entry.key == from) entry.key = to;
  }
}

}  // namespace

bool IsAuto(const ConfigNode& value) {
  return value.kind == ConfigNode::Kind::kScalar && value.quoted && value.text == "auto";
}

bool IsResolved(const std::string& path) { return std::ranges::find(kResolved, path) != std::end(kResolved); }

std::optional<double> NumberAt(const ConfigNode& root, std::string_view path) {
  const ConfigNode* node = FindKey(root, path);
  if (node == nullptr || !node->LooksNumber()) return std::nullopt;
  double value = 0;
  const char* begin = node->text.data();
  return std::from_chars(begin, begin + node->text.size(), value).ec == std::errc() ? std::optional(value)
                                                                                    : std::nullopt;
}

std::optional<std::string> TextAt(const ConfigNode& root, std::string_view path) {
  const ConfigNode* node = FindKey(root, path);
  if (node == nullptr || node->kind != ConfigNode::Kind::kScalar || IsAuto(*node)) return std::nullopt;
  std::string lower = node->text;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

bool IsAutoAt(const ConfigNode& root, std::string_view path) {
  const ConfigNode* node = FindKey(root, path);
  return node != nullptr && IsAuto(*node);
}

ConfigLocation PlaceOf(const ConfigNode& root, std::string_view path) {
  const ConfigNode* node = FindKey(root, path);
  return node == nullptr ? ConfigLocation{root.where.source, 0, 0} : node->where;
}

void Resolve(const std::string& path, const std::string& value, const std::string& why, DeepSpeedReport* made) {
  const std::string name = path.substr(path.rfind('.') + 1);
  for (Note& note : made->mapped) {
    const bool same = note.key == path ||
                      (note.value == "auto" && ("stage3_" + note.key.substr(note.key.rfind('.') + 1)) == name) ||
                      (path == "bf16.enabled" && note.key == "bfloat16.enabled");
    if (same && note.value == "auto") note.reason = fmt::format("auto is {}: {}", value, why);
  }
}

std::string NewNameOf(std::string_view path) {
  if (path == "bfloat16" || path.starts_with("bfloat16.")) return "bf16";
  for (const auto& names : {std::span<const OldName>(kOldZeroNames), std::span<const OldName>(kOldSwitches)}) {
    for (const OldName& name : names) {
      if (path == fmt::format("{}.{}", kZeroSection, name.old)) return fmt::format("{}.{}", kZeroSection, name.now);
    }
  }
  return "";
}

int StageOf(const ConfigNode& root) { return static_cast<int>(NumberAt(root, "zero_optimization.stage").value_or(0)); }

ConfigNode WithoutOldNames(ConfigNode root) {
  Rename("bfloat16", "bf16", &root);
  for (ConfigEntry& entry : root.entries) {
    if (entry.key != kZeroSection) continue;
    ConfigNode& zero = entry.value;
    if (zero.kind == ConfigNode::Kind::kScalar) {  // the form before there were stages
      const ConfigLocation where = zero.where;
      ConfigNode stage = Scalar(zero.text == "true" ? "1" : "0");
      stage.where = where;
      zero = ConfigNode{.kind = ConfigNode::Kind::kMap, .where = where};
      zero.entries.push_back({"stage", where, std::move(stage)});
    }
    for (const OldName& name : kOldZeroNames) Rename(name.old, name.now, &zero);
    for (const OldName& name : kOldSwitches) {
      const ConfigNode* old = zero.Find(name.old);
      if (old == nullptr || old->text != "true" || zero.Find(name.now) != nullptr) continue;
      const ConfigLocation where = old->where;
      ConfigNode device = Scalar("cpu", true), section{.kind = ConfigNode::Kind::kMap, .where = where};
      device.where = where;
      section.entries.push_back({"device", where, std::move(device)});
      zero.entries.push_back({std::string(name.now), where, std::move(section)});
    }
  }
  return root;
}

void DeriveDeepSpeed(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made) {
  made->stage = StageOf(root);
  if (made->stage == 0 || TextAt(root, "zero_optimization.stage") == std::nullopt) {
    made->Set("train.zero.stage", Scalar(std::to_string(made->stage)), PlaceOf(root, kZeroSection));
  }
  DerivePrecision(root, context, made);
  DeriveBatch(root, context, made);
  DeriveOffload(root, made);
  DeriveBuckets(root, context, made);
  DeriveOptimizer(root, context, made);
  DeriveSchedule(root, context, made);
  if (IsAutoAt(root, "gradient_clipping")) {
    Resolve("gradient_clipping", fmt::format("{}", context.clip_norm), "train.clip_norm", made);
  } else if (FindKey(root, "gradient_clipping") == nullptr) {
    made->derived.push_back({"gradient_clipping", fmt::format("{}", context.clip_norm),
                             "the file has none, so train.clip_norm stays; DeepSpeed clips at 1.0 since June 2026, "
                             "and before that not at all"});
  }
  if (TextAt(root, "wandb.enabled") == "true") {
    made->Set("track.wandb", Scalar("live"), PlaceOf(root, "wandb.enabled"));
  }
  if (const auto drop = TextAt(root, "dataloader_drop_last")) {
    made->Set("data.last_batch", Scalar(drop == "true" ? "drop" : "keep"), PlaceOf(root, "dataloader_drop_last"));
  }
}

}  // namespace lockstep::foreign
