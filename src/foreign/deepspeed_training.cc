// Batch sizes, optimizer and schedule of a DeepSpeed configuration.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/text.h"
#include "foreign/deepspeed_derive.h"

namespace lockstep::foreign {
namespace {

constexpr const char* kGlobal = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";

std::optional<uint64_t> WholeAt(const ConfigNode& root, std::string_view path) {
  const std::optional<double> number = NumberAt(root, path);
  return number ? std::optional(static_cast<uint64_t>(*number)) : std::nullopt;
}

std::string Text(double number) { return fmt::format("{}", number); }

// A number of the optimizer's or schedule's: the file's, `auto` (ours stays), or DeepSpeed's default.
void SetNumber(const ConfigNode& root, const std::string& path, const char* to, double fallback, const char* section,
               DeepSpeedReport* made) {
  if (IsAutoAt(root, path)) return;
  const std::optional<double> given = NumberAt(root, path);
  made->Set(to, Scalar(Text(given.value_or(fallback))), given ? PlaceOf(root, path) : PlaceOf(root, section));
  if (!given) {
    made->derived.push_back({path, Text(fallback), fmt::format("DeepSpeed's default, which the file leaves: {}", to)});
  }
}

// What DeepSpeed hands to a type of optimizer or schedule that has no such argument ends the run there, and would be
// read past here.
void RefuseForeignParams(const ConfigNode& root, const std::string& section, std::span<const std::string_view> own,
                         DeepSpeedReport* made) {
  const ConfigNode* params = FindKey(root, section + ".params");
  if (params == nullptr) return;
  for (const ConfigEntry& entry : params->entries) {
    if (std::ranges::find(own, entry.key) != own.end()) continue;
    const std::string path = fmt::format("{}.params.{}", section, entry.key);
    for (auto list :
         {&DeepSpeedReport::honoured, &DeepSpeedReport::mapped, &DeepSpeedReport::ignored, &DeepSpeedReport::refused}) {
      std::erase_if(made->*list, [&](const Note& note) { return note.key == path; });
    }
    const ConfigNode* type = FindKey(root, section + ".type");
    made->Refuse(path, &entry.value, fmt::format("{} has no such parameter: remove it", type->text));
  }
}

constexpr std::string_view kAdamParams[] = {"lr",
                                            "betas",
                                            "eps",
                                            "weight_decay",
                                            "adam_w_mode",
                                            "bias_correction",
                                            "amsgrad",
                                            "maximize",
                                            "torch_adam",
                                            "foreach",
                                            "fused",
                                            "capturable",
                                            "differentiable",
                                            "max_grad_norm",
                                            "set_grad_none",
                                            "fp32_optimizer_states",
                                            "amsgrad_fused"};
constexpr std::string_view kSgdParams[] = {"lr",       "momentum", "weight_decay", "nesterov",       "dampening",
                                           "maximize", "foreach",  "fused",        "differentiable", "max_grad_norm"};
constexpr std::string_view kOurOptimizers[] = {"adam", "adamw", "cpuadam", "deepspeedcpuadam", "fusedadam", "sgd"};

}  // namespace

// As DeepSpeed completes and checks them. `auto` is what the trainer has: its global batch stays where it can.
void DeriveBatch(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made) {
  const auto ranks = static_cast<uint64_t>(std::max(1, context.ranks));
  const uint64_t own = context.batch.value_or(std::max<uint64_t>(1, context.micro_batch) * ranks);
  const std::optional<uint64_t> global = WholeAt(root, kGlobal);
  std::optional<uint64_t> micro = WholeAt(root, kMicro), accumulation = WholeAt(root, kAccumulation);
  const bool open = IsAutoAt(root, kGlobal) || IsAutoAt(root, kMicro) || IsAutoAt(root, kAccumulation);
  const bool given = global || micro || accumulation;
  // Whole numbers up to 2^53 are read; beyond that a product is no number of samples.
  const double product = static_cast<double>(micro.value_or(1)) * static_cast<double>(accumulation.value_or(1)) *
                         static_cast<double>(ranks);
  if (product >= 0x1p53) {
    const char* at = micro ? kMicro : kAccumulation;
    made->Refuse(at, FindKey(root, at),
                 fmt::format("{} of a rank x {} x {} are more than can be counted",
                             Count(static_cast<int64_t>(micro.value_or(1)), "sample"),
                             Count(static_cast<int64_t>(accumulation.value_or(1)), "pass", "passes"),
                             Count(static_cast<int64_t>(ranks), "rank")));
    return;
  }
  uint64_t total = global.value_or(own);
  if (!micro && context.micro_batch > 0 && (open || !given) && !(global && accumulation)) micro = context.micro_batch;
  if (!given) {  // the trainer's own; its ranks may have unequal shares
    const uint64_t share = (total + ranks - 1) / ranks;
    micro = micro ? std::min(*micro, share) : share;
    accumulation = (share + *micro - 1) / *micro;
  } else if (!global && micro && (accumulation || !open)) {
    accumulation = accumulation.value_or(1);
    total = *micro * *accumulation * ranks;
  } else if (micro) {
    accumulation = accumulation.value_or(std::max<uint64_t>(1, total / *micro / ranks));
  } else {
    accumulation = accumulation.value_or(1);
    micro = total / ranks / *accumulation;
  }
  made->ranks = static_cast<int>(ranks);
  made->micro_batch = *micro;
  made->accumulation = *accumulation;
  made->global_batch = total;
  const std::string& from = context.whose;
  for (const auto& [path, value] : {std::pair{kGlobal, total}, {kMicro, *micro}, {kAccumulation, *accumulation}}) {
    Resolve(path, std::to_string(value), given ? "completed from the others, or " + from : from, made);
  }
  if (given && (*micro == 0 || *micro * *accumulation * ranks != total)) {
    const char* at = global ? kGlobal : micro ? kMicro : kAccumulation;
    made->Refuse(FindKey(root, at) == nullptr ? kAccumulation : at,
                 FindKey(root, FindKey(root, at) == nullptr ? kAccumulation : at),
                 fmt::format("{} of a rank x {} x {} = {}, and the global batch is {}{}",
                             Count(static_cast<int64_t>(*micro), "sample"),
                             Count(static_cast<int64_t>(*accumulation), "pass", "passes"), Count(made->ranks, "rank"),
                             *micro * *accumulation * ranks, total, global ? "" : fmt::format(" ({})", from)));
    return;
  }
  made->derived.push_back(
      {"global batch", std::to_string(total),
       fmt::format("{} of a rank x {} x {}", Count(static_cast<int64_t>(*micro), "sample"),
                   Count(static_cast<int64_t>(*accumulation), "pass", "passes"), Count(made->ranks, "rank"))});
  if (!given) {
    if (!open) made->derived.back().reason += "; the file has none of the three: " + from;
    return;
  }
  made->Set("train.batch", Scalar(std::to_string(total)), PlaceOf(root, global ? kGlobal : kMicro));
  made->Set("train.micro_batch", Scalar(std::to_string(*micro)), PlaceOf(root, kMicro));
}

void DeriveOptimizer(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made) {
  const ConfigNode* block = FindKey(root, "optimizer");
  if (block == nullptr || block->kind != ConfigNode::Kind::kMap) return;
  const std::optional<std::string> type = TextAt(root, "optimizer.type");
  if (!type) {
    made->Refuse("optimizer", block, "it has no type");
    return;
  }
  const bool sgd = *type == "sgd";
  if (std::ranges::find(kOurOptimizers, *type) != std::end(kOurOptimizers)) {
    RefuseForeignParams(root, "optimizer", sgd ? std::span<const std::string_view>(kSgdParams) : kAdamParams, made);
  }
  const bool decoupled = *type == "adamw" || TextAt(root, "optimizer.params.adam_w_mode") != "false";
  made->Set("train.optimizer.kind",
            Scalar(sgd         ? "sgd"
                   : decoupled ? "adamw"
                               : "adam"),
            PlaceOf(root, "optimizer.type"));
  const std::string params = "optimizer.params.";
  const bool torch = TextAt(root, params + "torch_adam") == "true" && decoupled;
  SetNumber(root, params + "lr", "train.optimizer.lr", 1e-3, "optimizer", made);
  SetNumber(root, params + "weight_decay", "train.optimizer.weight_decay", torch ? 0.01 : 0, "optimizer", made);
  Resolve(params + "lr", Text(context.lr), "train.optimizer.lr", made);
  Resolve(params + "weight_decay", Text(context.weight_decay), "train.optimizer.weight_decay", made);
  Resolve(params + "eps", Text(context.epsilon), "train.optimizer.epsilon", made);
  Resolve(params + "betas", fmt::format("[{}, {}]", context.betas[0], context.betas[1]), "train.optimizer.betas", made);
  if (sgd) {
    SetNumber(root, params + "momentum", "train.optimizer.momentum", 0, "optimizer", made);
    if (const auto nesterov = TextAt(root, params + "nesterov")) {
      made->Set("train.optimizer.nesterov", Scalar(*nesterov), PlaceOf(root, params + "nesterov"));
    }
    return;
  }
  SetNumber(root, params + "eps", "train.optimizer.epsilon", 1e-8, "optimizer", made);
  if (IsAutoAt(root, params + "betas")) return;
  const ConfigNode* betas = FindKey(root, params + "betas");
  ConfigNode defaults{.kind = ConfigNode::Kind::kList};
  defaults.items = {Scalar("0.9"), Scalar("0.999")};
  made->Set("train.optimizer.betas", betas == nullptr ? defaults : *betas,
            PlaceOf(root, betas == nullptr ? "optimizer" : params + "betas"));
  if (betas == nullptr) {
    made->derived.push_back(
        {params + "betas", "[0.9, 0.999]", "DeepSpeed's default, which the file leaves: train.optimizer.betas"});
  }
}

void DeriveSchedule(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made) {
  const ConfigNode* block = FindKey(root, "scheduler");
  if (block == nullptr || block->kind != ConfigNode::Kind::kMap) return;
  struct Row {
    const char* type;
    const char* kind;
    bool ends;     // it needs total_num_steps
    double peak;   // default of warmup_max_lr; 0: the optimizer's rate
    double floor;  // default of the factor at the end
    std::span<const std::string_view> params;
  };
  static constexpr std::string_view kDecay[] = {"total_num_steps",  "warmup_min_lr", "warmup_max_lr",
                                                "warmup_num_steps", "warmup_type",   "last_batch_iteration"};
  static constexpr std::string_view kCosine[] = {"total_num_steps", "warmup_min_ratio", "warmup_num_steps",
                                                 "cos_min_ratio",   "warmup_type",      "last_batch_iteration"};
  constexpr Row kRows[] = {{"warmuplr", "constant", false, 0, 0, std::span(kDecay).subspan(1)},
                           {"warmupdecaylr", "linear", true, 0.001, 0, kDecay},
                           {"warmupcosinelr", "cosine", true, 0, 0.0001, kCosine}};
  const std::string type = TextAt(root, "scheduler.type").value_or("");
  const Row* row = std::ranges::find(kRows, type, &Row::type);
  if (row == std::end(kRows)) {
    if (type.empty()) made->Refuse("scheduler", block, "it has no type");
    return;
  }
  RefuseForeignParams(root, "scheduler", row->params, made);
  const std::string params = "scheduler.params.";
  const ConfigLocation where = PlaceOf(root, "scheduler.type");
  made->Set("train.schedule.kind", Scalar(row->kind), where);
  if (!IsAutoAt(root, params + "warmup_num_steps") || context.warmup > 0) {
    made->Set("train.schedule.warmup_shape", Scalar(TextAt(root, params + "warmup_type").value_or("log")), where);
  }
  Resolve(params + "warmup_min_lr", "0", "the Trainer's own", made);
  Resolve(params + "warmup_max_lr", Text(context.lr), "train.optimizer.lr", made);
  Resolve(params + "warmup_num_steps", std::to_string(context.warmup), "train.schedule.warmup", made);
  Resolve(params + "total_num_steps", context.steps ? std::to_string(*context.steps) : "train.steps",
          "the steps of the run", made);
  if (!IsAutoAt(root, params + "warmup_num_steps")) {
    const std::optional<uint64_t> warmup = WholeAt(root, params + "warmup_num_steps");
    const uint64_t fallback = std::min<uint64_t>(1000, context.steps.value_or(1000));
    made->Set("train.schedule.warmup", Scalar(std::to_string(warmup.value_or(fallback))),
              warmup ? PlaceOf(root, params + "warmup_num_steps") : where);
  }
  const std::optional<double> peak = NumberAt(root, params + "warmup_max_lr");
  const bool own_peak = IsAutoAt(root, params + "warmup_max_lr");
  if (peak || (row->peak > 0 && !own_peak)) {
    made->Set("train.optimizer.lr", Scalar(Text(peak.value_or(row->peak))),
              PlaceOf(root, peak ? params + "warmup_max_lr" : "scheduler.type"));
  }
  if (!row->ends) return;
  const std::optional<uint64_t> total = WholeAt(root, params + "total_num_steps");
  if (total) {
    made->Set("train.schedule.length", Scalar(std::to_string(*total)), PlaceOf(root, params + "total_num_steps"));
  } else if (!IsAutoAt(root, params + "total_num_steps")) {
    made->Refuse("scheduler.type", FindKey(root, "scheduler.type"),
                 "it needs params.total_num_steps: a number of steps, or \"auto\" for those of the run");
  }
  made->Set("train.schedule.floor", Scalar(Text(NumberAt(root, params + "cos_min_ratio").value_or(row->floor))), where);
}

}  // namespace lockstep::foreign
