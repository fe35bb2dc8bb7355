#include "cli/train/foreign_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "recipes/lm.h"

namespace lockstep::cli {
namespace {

bool SameValue(const ConfigNode& a, const ConfigNode& b) {
  const std::string left = foreign::ValueText(a), right = foreign::ValueText(b);
  double x = 0, y = 0;
  const bool numbers = std::from_chars(left.data(), left.data() + left.size(), x).ptr == left.data() + left.size() &&
                       std::from_chars(right.data(), right.data() + right.size(), y).ptr == right.data() + right.size();
  return left == right || (numbers && !left.empty() && !right.empty() && x == y);
}

// Leaves of `theirs` that `ours` has with another value.
void CollectConflicts(const ConfigNode& ours, const ConfigNode& theirs, const std::string& path,
                      std::vector<std::string>* conflicts) {
  for (const ConfigEntry& entry : theirs.entries) {
    const ConfigNode* own = ours.Find(entry.key);
    const std::string key = path.empty() ? entry.key : path + "." + entry.key;
    if (own == nullptr) continue;
    if (entry.value.kind == ConfigNode::Kind::kMap) {
      CollectConflicts(*own, entry.value, key, conflicts);
    } else if (!SameValue(*own, entry.value)) {
      conflicts->push_back(fmt::format("{}: {} is {}, and {} says {}", own->where.ToString(), key,
                                       foreign::ValueText(*own), entry.value.where.ToString(),
                                       foreign::ValueText(entry.value)));
    }
  }
}

}  // namespace

bool HasForeign(const ConfigFiles& files) { return !files.deepspeed.empty() || !files.accelerate.empty(); }

foreign::DeepSpeedContext ContextOf(const Settings& own, int ranks) {
  const engine::TrainConfig& train = own.config.train;
  foreign::DeepSpeedContext context;
  context.ranks = ranks;
  context.whose = "the recipe's train.batch and train.micro_batch";
  context.batch = train.batch;
  context.micro_batch = train.micro_batch;
  context.precision = engine::PrecisionName(train.precision);
  context.clip_norm = train.clip_norm;
  context.lr = train.optimizer.lr;
  context.weight_decay = train.optimizer.weight_decay;
  context.epsilon = train.optimizer.epsilon;
  context.betas = {train.optimizer.beta1, train.optimizer.beta2};
  context.warmup = train.schedule.warmup;
  context.steps = train.steps;
  if (auto* lm = dynamic_cast<recipes::LmRecipe*>(own.recipe.get())) {
    if (const auto shape = lm->settings().Shape(); shape.ok()) {
      context.hidden_size = static_cast<uint64_t>(shape->width);
    }
  }
  return context;
}

Result<foreign::DeepSpeedReport> ReadForeign(const ConfigFiles& files, const foreign::DeepSpeedContext& context) {
  if (!files.deepspeed.empty() && !files.accelerate.empty()) {
    return Status(Code::kUsage, "--deepspeed and --accelerate: expected one of them",
                  "a deepspeed_config_file in accelerate's file is followed");
  }
  return files.deepspeed.empty() ? foreign::ReadAccelerate(files.accelerate, context)
                                 : foreign::ReadDeepSpeed(files.deepspeed, context);
}

Status CheckAgreement(const ConfigTree& config, const foreign::DeepSpeedReport& report) {
  std::vector<std::string> conflicts;
  CollectConflicts(config.root(), report.settings, "", &conflicts);
  if (conflicts.empty()) return Status::Ok();
  return Status(Code::kUsage, fmt::format("two files disagree:\n{}", fmt::join(conflicts, "\n")),
                "say it in one of them, or \"auto\" in DeepSpeed's, which takes the value of --config");
}

void TakeEffective(const engine::TrainConfig& train, foreign::DeepSpeedReport* report) {
  report->stage = train.zero.stage;
  report->precision = engine::PrecisionName(train.precision);
  report->bf16_parameters = train.parameters == at::kBFloat16;
  report->offload_optimizer = train.offload.optimizer ? "cpu" : "none";
  report->offload_param = train.offload.parameters ? "cpu" : "none";
  report->offload_ratio = train.offload.share;
  report->global_batch = train.batch;
  const Result<engine::BatchPlan> plan = engine::PlanBatch(train, std::max(1, report->ranks));
  if (!plan.ok()) return;
  report->accumulation = plan->accumulation;
  report->micro_batch = train.micro_batch == 0 ? plan->largest_share : std::min(train.micro_batch, plan->largest_share);
}

}  // namespace lockstep::cli
