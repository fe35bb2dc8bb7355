#include "recipes/preset.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/text.h"

namespace lockstep::recipes {
namespace {

constexpr int kBaseGpus = 8;         // the machine the base configuration is written for
constexpr uint64_t kUsualMicro = 8;  // 12 frames of 480 x 720 in bf16 fit in 80 GB
constexpr uint64_t kMostGrowth = 2;  // of the global batch: further the linear rule for the learning rate is not tried
constexpr int kMostThreads = 12;

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// A fifth digit of a learning rate is noise.
double Round4(double x) {
  const double unit = std::pow(10, std::floor(std::log10(x)) - 3);
  return std::round(x / unit) * unit;
}

class Derivation {
 public:
  Derivation(const engine::Config& base, const PresetOptions& options) : base_(base), options_(options) {}

  Result<Preset> Run() {
    preset_.gpus = options_.gpus;
    if (options_.gpus < 1) return Status(Code::kUsage, fmt::format("{} GPUs: expected at least 1", options_.gpus));
    LOCKSTEP_RETURN_IF_ERROR(base_.train.reproducible ? Shards() : Batch());
    LearningRate();
    WarmUp();
    Checkpoints();
    Validation();
    Threads();
    engine::TrainConfig train = base_.train;
    train.batch = preset_.batch;
    train.micro_batch = base_.train.reproducible ? 0 : preset_.micro;
    train.shards = shards_;
    Result<engine::BatchPlan> plan = engine::PlanBatch(train, options_.gpus);
    if (!plan.ok()) return plan.status();
    preset_.passes = plan->accumulation;
    preset_.batch_text = plan->text;
    return std::move(preset_);
  }

 private:
  void Line(const std::string& key, const std::string& from, std::string to, std::string why) {
    if (options_.pinned(key)) {
      to = from;
      why = "as set on the command line";
    }
    preset_.lines.push_back({key, from, std::move(to), std::move(why)});
  }

  // Kept while every rank can have a whole pass of it; beyond, one pass for every rank, up to twice the base.
  Status Batch() {
    const auto ranks = static_cast<uint64_t>(options_.gpus);
    const uint64_t base = base_.train.batch;
    const uint64_t fits = base_.train.micro_batch == 0 ? kUsualMicro : base_.train.micro_batch;
    const uint64_t share = std::min(fits, std::max<uint64_t>(1, kMostGrowth * base / ranks));
    const uint64_t grown = share * ranks;
    preset_.batch = std::max(base, grown);
    std::string why;
    if (grown <= base) {
      why = "kept: the same training on any number of GPUs";
    } else if (grown <= kMostGrowth * base) {
      why = fmt::format("one pass of {} on every rank: largest multiple of {} up to {} x {}", share, ranks, kMostGrowth,
                        base);
    } else {
      why = fmt::format("one sample on every rank, more than {} x the base: try the learning rate first", kMostGrowth);
    }
    if (options_.pinned("train.batch")) preset_.batch = base;
    if (preset_.batch < ranks) {
      return Status(Code::kUsage, fmt::format("{} GPUs cannot share a batch of {}", ranks, preset_.batch),
                    fmt::format("set train.batch to at least {}", ranks));
    }
    Line("train.batch", std::to_string(base), std::to_string(preset_.batch), why);
    const uint64_t largest = CeilDiv(preset_.batch, ranks);
    const uint64_t passes = CeilDiv(largest, fits);
    preset_.micro = CeilDiv(largest, passes);
    if (options_.pinned("train.micro_batch")) preset_.micro = base_.train.micro_batch;
    const std::string from = std::to_string(base_.train.micro_batch);
    Line("train.micro_batch", from, std::to_string(preset_.micro),
         fmt::format("at most {} fit ({}); {} a rank in {} pass{}", fits,
                     base_.train.micro_batch == 0 ? "the usual value for 80 GB" : "the base's value", largest, passes,
                     passes == 1 ? "" : "es"));
    return Status::Ok();
  }

  // The same bits on any number of ranks: the batch stays, and the shards must suffice.
  Status Shards() {
    const auto ranks = static_cast<uint64_t>(options_.gpus);
    preset_.batch = base_.train.batch;
    Line("train.batch", std::to_string(preset_.batch), std::to_string(preset_.batch),
         "kept: train.reproducible gives the same bits on any number of ranks");
    shards_ = std::max(base_.train.shards, std::bit_ceil(ranks));
    if (options_.pinned("train.shards")) shards_ = base_.train.shards;
    if (shards_ > preset_.batch) {
      return Status(Code::kUsage,
                    fmt::format("{} GPUs need {} canonical shards, and the batch of {} fills only {}", ranks, shards_,
                                preset_.batch, std::bit_floor(preset_.batch)),
                    fmt::format("use at most {}, a larger train.batch, or train.reproducible=false",
                                Count(static_cast<int64_t>(std::bit_floor(preset_.batch)), "GPU")));
    }
    Line("train.shards", std::to_string(base_.train.shards), std::to_string(shards_),
         shards_ == base_.train.shards ? "kept: the bits depend on it"
                                       : "at least one for each rank; other bits than the base's");
    preset_.micro = CeilDiv(preset_.batch, shards_);
    return Status::Ok();
  }

  double Growth() const { return static_cast<double>(preset_.batch) / static_cast<double>(base_.train.batch); }

  void LearningRate() {
    const double lr = base_.train.optimizer.lr;
    const double to = Growth() == 1 ? lr : Round4(lr * Growth());
    Line("train.optimizer.lr", fmt::format("{:g}", lr), fmt::format("{:g}", to),
         Growth() == 1 ? "kept with the batch"
                       : fmt::format("linear in the batch: {:g} x {} / {}", lr, preset_.batch, base_.train.batch));
  }

  void WarmUp() {
    const uint64_t warmup = base_.train.schedule.warmup;
    const auto to = static_cast<uint64_t>(std::lround(static_cast<double>(warmup) / Growth()));
    Line("train.schedule.warmup", std::to_string(warmup), std::to_string(to),
         fmt::format("the same {} samples", warmup * base_.train.batch));
    const uint64_t steps = base_.train.steps;
    Line("train.steps", std::to_string(steps), std::to_string(steps),
         Growth() == 1 ? "kept"
                       : fmt::format("kept: {:.3g} x the samples; {} would see as many as the base", Growth(),
                                     Count(std::lround(static_cast<double>(steps) / Growth()), "step")));
  }

  // Failures come in proportion to the machines; the interval that loses least then falls with the root of their
  // number.
  void Checkpoints() {
    const uint64_t every = base_.checkpoint.every;
    uint64_t to = every;
    if (every > 0 && options_.gpus > kBaseGpus) {
      const uint64_t unit = std::max<uint64_t>(1, every / 8);
      const double wanted = static_cast<double>(every) * std::sqrt(static_cast<double>(kBaseGpus) / options_.gpus);
      to = std::max<uint64_t>(unit, static_cast<uint64_t>(wanted) / unit * unit);
    }
    Line("checkpoint.every", std::to_string(every), std::to_string(to),
         to == every ? "kept"
                     : fmt::format("with the root of the GPUs: {} x sqrt({} / {})", every, kBaseGpus, options_.gpus));
  }

  void Validation() {
    const std::string every = std::to_string(base_.data.validation.every);
    Line("data.validation.every", every, every, "kept: all ranks validate together, so none waits for one");
  }

  void Threads() {
    const std::string from = std::to_string(base_.data.threads);
    if (options_.cores <= 0) return Line("data.threads", from, from, "kept: --cores says how many a node has");
    const int local = options_.gpus_per_node > 0 ? options_.gpus_per_node : std::min(options_.gpus, kBaseGpus);
    const int to = std::clamp(options_.cores / std::max(1, local) - 1, 1, kMostThreads);
    Line("data.threads", from, std::to_string(to),
         fmt::format("{} / {} of a node - 1, from 1 to {}", Count(options_.cores, "core"), Count(local, "rank"),
                     kMostThreads));
  }

  const engine::Config& base_;
  const PresetOptions& options_;
  Preset preset_;
  uint64_t shards_ = 8;
};

}  // namespace

std::vector<std::string> Preset::Assignments() const {
  std::vector<std::string> assignments;
  for (const PresetLine& line : lines) assignments.push_back(line.key + "=" + line.to);
  return assignments;
}

std::string Preset::Table(const std::string& prefix, const std::string& origin) const {
  size_t key = 3, old = 4, now = 2;
  for (const PresetLine& line : lines) {
    key = std::max(key, line.key.size());
    old = std::max(old, line.from.size());
    now = std::max(now, line.to.size());
  }
  std::string text =
      fmt::format("{}for {}, derived from {} (written for {} GPUs)\n", prefix, Count(gpus, "GPU"), origin, kBaseGpus);
  text += fmt::format("{}  {:<{}}  {:>{}}  {:>{}}  {}\n", prefix, "key", key, "from", old, "to", now, "why");
  for (const PresetLine& line : lines) {
    text +=
        fmt::format("{}  {:<{}}  {:>{}}  {:>{}}  {}\n", prefix, line.key, key, line.from, old, line.to, now, line.why);
  }
  return text + fmt::format("{}effective batch: {}\n", prefix, batch_text);
}

Result<Preset> DerivePreset(const engine::Config& base, const PresetOptions& options) {
  return Derivation(base, options).Run();
}

}  // namespace lockstep::recipes
