#include "engine/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/text.h"

namespace lockstep::engine {
namespace {

void DeclareOptimizer(ConfigReader& r, OptimizerConfig* o) {
  r.Enum("kind", &o->kind,
         {{"adamw", OptimizerConfig::Kind::kAdamW},
          {"adam", OptimizerConfig::Kind::kAdam},
          {"sgd", OptimizerConfig::Kind::kSgd}});
  r.Field("lr", &o->lr, {.above = 0, .help = "learning rate before the schedule"});
  std::array<double, 2> betas = {o->beta1, o->beta2};
  r.Field("weight_decay", &o->weight_decay,
          {.min = 0, .help = "decoupled (adamw) or added to the gradient (adam, sgd)"});
  const bool sgd = o->kind == OptimizerConfig::Kind::kSgd;
  r.When(sgd, "only sgd has it", [&] {
    r.Field("momentum", &o->momentum, {.min = 0, .max = 1});
    r.Field("nesterov", &o->nesterov);
    if (o->nesterov && o->momentum == 0) r.Fail("nesterov", "needs train.optimizer.momentum > 0");
  });
  r.When(!sgd, "sgd has none", [&] {
    r.Field("betas", &betas, {.min = 0, .max = 1, .help = "decay of the first and second moment"});
    r.Field("epsilon", &o->epsilon, {.above = 0});
  });
  o->beta1 = betas[0];
  o->beta2 = betas[1];
}

// A warm-up chosen without regard to the length of this run (the default, or the file's where the command line gives
// the steps) is at most a tenth of it; one that was chosen for this run and does not fit is a mistake.
void DeclareWarmup(ConfigReader& r, Schedule* s, uint64_t steps, ConfigReader::Origin steps_from) {
  using Origin = ConfigReader::Origin;
  const Origin from = r.OriginOf("warmup");
  if (from == Origin::kDefault) s->warmup = std::min(s->warmup, steps / 10);
  r.Field("warmup", &s->warmup,
          {.help = "optimizer steps, whatever the number of ranks; at most a tenth of train.steps unless set"});
  if (s->warmup <= steps) return;
  if (from < steps_from) {
    s->warmup = steps / 10;
    r.Amend("warmup", s->warmup);
    return;
  }
  r.Fail("warmup", fmt::format("the warm-up alone has {}, but train.steps is {}; set it to {}, for instance",
                               Count(static_cast<int64_t>(s->warmup), "step"), steps, steps / 10));
}

void DeclareSchedule(ConfigReader& r, Schedule* s, uint64_t steps, ConfigReader::Origin steps_from) {
  using Kind = Schedule::Kind;
  r.Enum("kind", &s->kind,
         {{"constant", Kind::kConstant},
          {"linear", Kind::kLinear},
          {"cosine", Kind::kCosine},
          {"cosine_restarts", Kind::kCosineRestarts},
          {"multistep", Kind::kMultistep},
          {"polynomial", Kind::kPolynomial}});
  DeclareWarmup(r, s, steps, steps_from);
  r.When(s->warmup > 0, "there is no warm-up", [&] {
    r.Enum("warmup_shape", &s->warmup_shape,
           {{"linear", Schedule::WarmupShape::kLinear}, {"log", Schedule::WarmupShape::kLog}},
           {.help = "of the factor over the steps of the warm-up; log rises at once, as in DeepSpeed"});
  });
  const auto only = [&](std::string_view key, bool used, const char* why, auto* value, const ConfigRule& rule) {
    r.When(used, why, [&] { r.Field(key, value, rule); });
  };
  only("length", s->kind != Kind::kConstant && s->kind != Kind::kMultistep, "this schedule has no end", &s->length,
       {.help = "steps from the start of the schedule to its end; 0: train.steps"});
  only("floor", s->kind != Kind::kConstant && s->kind != Kind::kMultistep, "this schedule has no end value", &s->floor,
       {.min = 0, .max = 1, .help = "factor at the end"});
  only("cycles", s->kind == Kind::kCosineRestarts, "only cosine_restarts has cycles", &s->cycles, {.min = 1});
  only("power", s->kind == Kind::kPolynomial, "only polynomial has a power", &s->power, {.above = 0});
  only("milestones", s->kind == Kind::kMultistep, "only multistep has milestones", &s->milestones,
       {.help = "steps at which the rate is multiplied by gamma"});
  only("gamma", s->kind == Kind::kMultistep, "only multistep has it", &s->gamma, {.above = 0});
}

void DeclareZero(ConfigReader& r, TrainConfig* t) {
  r.Enum("parameters", &t->parameters, {{"fp32", at::kFloat}, {"bf16", at::kBFloat16}},
         {.help = "what the model computes with; bf16 follows a float32 master that the optimizer updates"});
  const bool fits = t->precision == Precision::kBf16 || t->precision == Precision::kAuto;
  if (t->parameters == at::kBFloat16 && !fits) {
    r.Fail("parameters", fmt::format("bf16 parameters are computed with in bf16, but train.precision is {}",
                                     PrecisionName(t->precision)));
  }
  if (t->parameters == at::kBFloat16) t->precision = Precision::kBf16;
  r.Section("zero", [&](ConfigReader& z) {
    z.Field("stage", &t->zero.stage,
            {.min = 0,
             .max = 3,
             .help = "sharded between ranks: 1 the optimizer's state, 2 gradients too, 3 parameters too"});
    z.When(t->zero.stage >= 2, "stages 0 and 1 exchange once", [&] {
      z.Field("exchange_once", &t->zero.exchange_once,
              {.help = "add up the passes of a step on each rank first: a whole gradient buffer, less traffic"});
    });
    z.When(t->zero.stage == 3, "only stage 3 gathers parameters", [&] {
      z.Field("prefetch", &t->zero.prefetch, {.min = 0, .help = "elements gathered ahead of the unit that computes"});
      z.Field("reuse_distance", &t->zero.reuse_distance,
              {.min = 0, .help = "a unit that is used again within so many elements is not released"});
      z.Field("live", &t->zero.live,
              {.min = 0, .help = "elements that are whole at once, beyond the unit that computes"});
      z.Field("persistent", &t->zero.persistent, {.min = 0, .help = "smaller parameters stay whole on every rank"});
    });
  });
}

void DeclareOffload(ConfigReader& r, OffloadConfig* o, const TrainConfig& t) {
  r.Field("optimizer", &o->optimizer,
          {.help = "the float32 master and the optimizer's state lie in host memory, and are updated there"});
  r.When(o->optimizer, "only an offloaded optimizer moves gradients", [&] {
    r.Enum("gradients", &o->gradients, {{"exact", at::kFloat}, {"bf16", at::kBFloat16}},
           {.help = "how they travel to the host: as they were added up, or rounded to bf16 (other bits)"});
  });
  const char* needs = "it needs train.zero.stage: 3 and train.offload.optimizer: true";
  r.When(o->optimizer && t.zero.stage == 3, needs, [&] {
    r.Field("parameters", &o->parameters,
            {.help = "a rank's shard of the parameters lies in host memory; its units are copied up before they are "
                     "gathered"});
  });
  const bool on_device =
      o->optimizer && !o->parameters && t.ema.decay == 0 && t.optimizer.kind != OptimizerConfig::Kind::kSgd;
  r.When(on_device, "it needs train.offload.optimizer: true, AdamW or Adam, no EMA, and parameters on the device", [&] {
    r.Field("share", &o->share,
            {.above = 0,
             .max = 1,
             .help = "of the state, updated on the host; the rest is updated on the device, and lies there too"});
  });
}

void DeclareTrain(ConfigReader& r, TrainConfig* t) {
  r.Field("steps", &t->steps, {.min = 1, .help = "optimizer steps of the whole run"});
  r.Field("batch", &t->batch, {.min = 1, .help = "samples per optimizer step, over all ranks"});
  r.Field("micro_batch", &t->micro_batch, {.help = "samples of one rank in one pass; 0: its whole share"});
  r.Choice("device", &t->device, {"auto", "cpu", "cuda"});
  r.Enum(
      "precision", &t->precision,
      {{"auto", Precision::kAuto}, {"fp32", Precision::kFp32}, {"bf16", Precision::kBf16}, {"fp16", Precision::kFp16}},
      {.help =
           "of the forward pass; weights stay fp32. auto: bf16 on GPUs that have it, else fp32; resumed: as before"});
  r.Field(
      "threads", &t->threads,
      {.min = 0, .help = "CPU threads of a rank; 0: OMP_NUM_THREADS, else its part of the cores; 1 with reproducible"});
  r.Section("optimizer", [&](ConfigReader& s) { DeclareOptimizer(s, &t->optimizer); });
  r.Section("schedule", [&](ConfigReader& s) { DeclareSchedule(s, &t->schedule, t->steps, r.OriginOf("steps")); });
  t->schedule.steps = t->schedule.length > 0 ? t->schedule.length : t->steps;
  r.Field("clip_norm", &t->clip_norm, {.min = 0, .help = "largest gradient norm; 0: no clipping", .was = "clip"});
  r.List<GroupRule>("groups", &t->groups, [](ConfigReader& g, GroupRule* rule) {
    g.Field("match", &rule->match, {.required = true, .help = "glob over parameter names; the first match wins"});
    g.Field("lr_scale", &rule->lr_scale, {.min = 0});
    g.Field("weight_decay", &rule->weight_decay, {.min = 0});
    g.Field("freeze", &rule->freeze, {.help = "never trained"});
    g.Field("freeze_until", &rule->freeze_until, {.help = "trained from this step on"});
  });
  r.Section("ema", [&](ConfigReader& s) {
    s.Field("decay", &t->ema.decay, {.min = 0, .max = 1, .help = "0: no average is kept"});
    if (t->ema.decay >= 1) s.Fail("decay", "expected less than 1: an average that never moves");
    s.Enum("warmup", &t->ema.warmup,
           {{"none", EmaConfig::Warmup::kNone},
            {"inverse", EmaConfig::Warmup::kInverse},
            {"linear", EmaConfig::Warmup::kLinear}},
           {.help = "a smaller decay at update n = 0, 1, ...: (1 + n) / (10 + n), or n / 10"});
    s.Field("every", &t->ema.every, {.min = 1, .help = "steps between updates"});
  });
  r.Section("scaler", [&](ConfigReader& s) {
    s.When(t->precision == Precision::kFp16, "only fp16 scales the loss", [&] {
      s.Field("initial", &t->scaler.initial, {.above = 0});
      s.Field("growth", &t->scaler.growth, {.min = 1});
      s.Field("backoff", &t->scaler.backoff, {.above = 0, .max = 1});
      s.Field("interval", &t->scaler.interval, {.min = 1});
    });
  });
  DeclareZero(r, t);
  r.Section("offload", [&](ConfigReader& s) { DeclareOffload(s, &t->offload, *t); });
  r.Field("recompute", &t->recompute, {.help = "activation checkpointing: less memory, one more forward pass"});
  r.Field("reproducible", &t->reproducible, {.help = "the same bits on any number of ranks"});
  r.Field("deterministic", &t->deterministic,
          {.help = "on a GPU: only kernels that repeat their bits (attention has faster ones that do not)"});
  r.When(t->reproducible, "only with reproducible: true", [&] {
    r.Field("shards", &t->shards,
            {.min = 1, .help = "canonical parts of the global batch; a power of two, at least the ranks"});
  });
  if (t->reproducible) {
    if (!std::has_single_bit(t->shards)) r.Fail("shards", fmt::format("expected a power of two, found {}", t->shards));
    if (t->shards > t->batch)
      r.Fail("shards", fmt::format("{} shards of a batch of {} leave some empty", t->shards, t->batch));
    if (t->micro_batch != 0)
      r.Fail("micro_batch", "with reproducible the canonical shards are the micro-batches: set train.shards");
  }
  r.When(!t->reproducible, "with reproducible, gradients are summed after the last backward", [&] {
    r.Field("find_unused", &t->find_unused, {.help = "some parameters may get no gradient"});
    r.Field("static_graph", &t->static_graph, {.help = "every step uses the same parameters"});
    r.Size("bucket", &t->bucket, {.min = 4096, .help = "gradients exchanged at once"});
    r.Size("first_bucket", &t->first_bucket, {.min = 4096});
  });
  r.Choice("graph", &t->graph, {"auto", "off", "require"},
           {.help = "on a GPU, a step is captured once as CUDA graphs and replayed"});
  r.Field("broadcast_buffers", &t->broadcast_buffers,
          {.help = "rank 0's buffers (batch norm) go to all before each step"});
  r.Field("bad_steps", &t->bad_steps,
          {.min = 1, .help = "steps in a row with a non-finite gradient before the run stops"});
  r.Choice("on_oom", &t->on_oom, {"stop", "skip"},
           {.help = "out of memory in a step: all ranks stop, or all leave it out"});
}

void DeclareData(ConfigReader& r, DataConfig* d, const std::function<void(ConfigReader&)>& of_recipe) {
  if (of_recipe) of_recipe(r);
  r.When(!d->mixed, "of the sets of data.mix each has its own epochs, and every batch is full", [&] {
    r.Enum("last_batch", &d->last_batch,
           {{"drop", data::LastBatch::kDrop}, {"pad", data::LastBatch::kPad}, {"keep", data::LastBatch::kKeep}},
           {.help = "the last, smaller batch of an epoch", .was = "tail"});
  });
  r.Field("shuffle", &d->shuffle);
  r.Field("threads", &d->threads, {.min = 0, .help = "decoder threads of a rank; 0: in the training thread"});
  r.When(d->threads > 0, "data.threads is 0: the training thread decodes", [&] {
    r.Field("cores", &d->cores,
            {.min = 0,
             .help = "that decoder threads of a rank may keep busy: their number follows measured times, from "
                     "data.threads on; 0: always data.threads"});
  });
  r.Field("prefetch", &d->prefetch, {.min = 1, .help = "batches prepared ahead"});
  r.Size("memory", &d->memory,
         {.help = "of the batches of a rank: fewer are prepared ahead where they would take more; 0: no bound"});
  r.When(d->threads > 0, "data.threads is 0: the training thread reads by itself, and cannot leave a read that hangs",
         [&] {
           r.Field("timeout", &d->timeout,
                   {.min = 0, .help = "of reading one sample, which is then unreadable: below comm.timeout; 0: none"});
         });
  r.When(!d->augment, "augmentation draws every clip anew: with augment: false it can be kept", [&] {
    r.Size("cache", &d->cache, {.help = "memory of a rank for samples that were read once; 0: none is kept"});
  });
  r.Field("bad_samples", &d->bad_samples,
          {.min = 0, .help = "unreadable samples the run may leave out, each counted once; below 1: a share of all"});
  if (d->bad_samples >= 1 && d->bad_samples != std::floor(d->bad_samples)) {
    r.Fail("bad_samples", fmt::format("is {}: expected a count, or a share below 1", d->bad_samples));
  }
  r.Choice("on_change", &d->on_change, {"stop", "new_epoch"}, {.help = "resuming with other data than before"});
  r.Section("validation", [&](ConfigReader& v) {
    v.Field("every", &d->validation.every, {.help = "steps between validations; 0: only at the end"});
    v.Field("fraction", &d->validation.fraction,
            {.min = 0, .max = 0.9, .help = "of the data, never trained on; 0: no validation"});
    v.Field("batch", &d->validation.batch, {.help = "samples of one rank in one pass; 0: as in training"});
    v.Field("samples", &d->validation.samples, {.help = "at most; 0: all"});
    v.Field("best", &d->validation.best, {.help = "metric that names the best checkpoint; empty: the recipe's choice"});
    v.Field("patience", &d->validation.patience,
            {.help = "validations without a better one before the run stops; 0: never"});
  });
}

}  // namespace

void DeclareConfig(ConfigReader& reader, Config* c, const std::function<void(ConfigReader&)>& data) {
  reader.Section("run", [&](ConfigReader& r) {
    r.Field("seed", &c->run.seed, {.help = "of weights, order and augmentation"});
    r.Field("max_time", &c->run.max_time, {.above = 0, .help = "save and stop after this long (exit code 75)"});
  });
  reader.Section("train", [&](ConfigReader& r) { DeclareTrain(r, &c->train); });
  reader.Section("data", [&](ConfigReader& r) { DeclareData(r, &c->data, data); });
  reader.Section("comm", [&](ConfigReader& r) {
    r.Enum("backend", &c->comm.backend,
           {{"auto", comm::Backend::kAuto}, {"nccl", comm::Backend::kNccl}, {"host", comm::Backend::kHost}},
           {.help = "host also lets several ranks share one GPU"});
    r.Field("timeout", &c->comm.timeout, {.above = 0, .help = "deadline of every collective"});
  });
  reader.Section("checkpoint", [&](ConfigReader& r) {
    r.Field("every", &c->checkpoint.every, {.help = "steps; 0: only at the end and when stopped"});
    r.Field("every_time", &c->checkpoint.every_time, {.above = 0, .help = "and after this much time"});
    r.Field("keep_last", &c->checkpoint.keep.last, {.min = 1});
    r.Field("keep_every", &c->checkpoint.keep.every, {.help = "multiples of this step stay for good; 0: none"});
    r.Field("keep_best", &c->checkpoint.keep.best);
    r.Size("staging", &c->checkpoint.staging,
           {.min = 8 << 20, .help = "memory of a rank through which its part of a checkpoint is written, at most"});
    r.Field("weights", &c->checkpoint.weights,
            {.help = "to start from: a file (safetensors, torch.save), or a run or checkpoint by path or name"});
  });
  reader.Section("track", [&](ConfigReader& r) {
    r.Field("tensorboard", &c->track.tensorboard);
    r.Field("csv", &c->track.csv, {.help = "write metrics.csv too"});
    r.Enum("wandb", &c->track.wandb,
           {{"off", WandbMode::kOff}, {"offline", WandbMode::kOffline}, {"live", WandbMode::kLive}},
           {.help = "offline writes files for `wandb sync`; live starts that beside them, with a key from the "
                    "environment or netrc"});
    r.Field("wandb_project", &c->track.wandb_project, {.help = "empty: the variable WANDB_PROJECT, else the recipe"});
    r.Field("wandb_entity", &c->track.wandb_entity,
            {.help = "user or team; empty: WANDB_ENTITY, else the default of the key"});
    r.Field("histograms", &c->track.histograms,
            {.help = "steps between histograms of weights and gradients (TensorBoard, W&B); 0: none"});
    r.Field("every", &c->track.every, {.min = 1, .help = "steps between metric lines"});
    r.Field("samples", &c->track.samples, {.help = "write which samples each step used (samples/rank-<r>.jsonl)"});
    r.Section("profile", [&](ConfigReader& s) {
      s.Field("start", &c->track.profile.start, {.help = "steps before the first that is traced"});
      s.Field("steps", &c->track.profile.steps,
              {.help = "steps to trace (profile/rank-<r>.json, opened by Perfetto); 0: none"});
    });
  });
}

StrategyConfig StrategyOf(const TrainConfig& train) {
  StrategyConfig strategy;
  strategy.zero = train.zero;
  strategy.parameters = train.parameters;
  strategy.reproducible = train.reproducible;
  strategy.shards = train.shards;
  strategy.bucket_bytes = train.bucket;
  strategy.first_bucket_bytes = train.first_bucket;
  strategy.find_unused = train.find_unused;
  strategy.static_graph = train.static_graph;
  return strategy;
}

Result<BatchPlan> PlanBatch(const TrainConfig& train, int world) {
  const auto ranks = static_cast<uint64_t>(world);
  if (ranks > train.batch) {
    return Status(
        Code::kUsage,
        fmt::format("train.batch is {}, but there are {} ranks: some would have no sample", train.batch, world),
        fmt::format("use at most {}, or train.batch={}", Count(static_cast<int64_t>(train.batch), "rank"), ranks));
  }
  BatchPlan plan;
  plan.largest_share = (train.batch + ranks - 1) / ranks;
  plan.even = train.batch % ranks == 0;
  if (train.reproducible) {
    if (ranks > train.shards) {
      return Status(Code::kUsage, fmt::format("train.shards is {}, but there are {} ranks", train.shards, world),
                    fmt::format("use at most {}, or train.shards={} (which changes the bits of the result)",
                                Count(static_cast<int64_t>(train.shards), "rank"), std::bit_ceil(ranks)));
    }
    plan.accumulation = (train.shards + ranks - 1) / ranks;
    plan.text = fmt::format("{} in {} over {}", Count(static_cast<int64_t>(train.batch), "sample"),
                            Count(static_cast<int64_t>(train.shards), "canonical shard"), Count(world, "rank"));
    return plan;
  }
  const uint64_t micro = train.micro_batch == 0 ? plan.largest_share : std::min(train.micro_batch, plan.largest_share);
  plan.accumulation = (plan.largest_share + micro - 1) / micro;
  const uint64_t passes = plan.accumulation;
  if (plan.even && plan.largest_share % passes == 0) {
    const uint64_t each = plan.largest_share / passes;
    plan.text = fmt::format("{} sample{} x {} rank{} x {} pass{} = {}", each, each == 1 ? "" : "s", world,
                            world == 1 ? "" : "s", passes, passes == 1 ? "" : "es", train.batch);
  } else {
    plan.text =
        fmt::format("{} samples over {} rank{}, {} or {} each, in {} pass{}", train.batch, world, world == 1 ? "" : "s",
                    train.batch / ranks, plan.largest_share, passes, passes == 1 ? "" : "es");
  }
  return plan;
}

}  // namespace lockstep::engine
