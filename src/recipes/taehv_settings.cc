// What can be configured about TAEHV, and the rules between keys.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "data/bucketed_source.h"
#include "recipes/taehv.h"

namespace lockstep::recipes {

void TaehvSettings::Declare(ConfigReader& reader) {
  reader.Field("model", &model, {.help = "variant of the network; with _super: its wide decoder"});
  reader.Choice(
      "start", &start, {"auto", "plain", "grey", "identity"},
      {.help = "first weights: PyTorch's, with grey output, or near identity; auto: identity for the small model"});
  reader.Field("convert_from", &convert_from, {.help = "weights of another variant: what fits is taken"});
  reader.Enum("execution", &execution,
              {{"fast", models::Execution::kFast}, {"reference", models::Execution::kReference}},
              {.help = "reference: upstream's operations one by one"});
  reader.Choice("mode", &mode, {"joint", "distill"},
                {.help = "decode the encoder's own latents, or learn both halves from a teacher's latents"});
  reader.Choice("train", &train, {"both", "encoder", "decoder"}, {.help = "the other half is frozen"});
  reconstruction = 1;
  encoder = adversarial = mode == "distill" ? 1 : 0;
  reader.Section("loss", [&](ConfigReader& r) {
    r.Field("reconstruction", &reconstruction, {.min = 0, .help = "weight of decoded against true frames; 0: off"});
    r.Field("encoder", &encoder, {.min = 0, .help = "weight of latents against the teacher's; 0: off"});
    r.Field("adversarial", &adversarial, {.min = 0, .help = "weight of the discriminator's correction; 0: off"});
  });
  reader.Section("teacher", [&](ConfigReader& r) { recipes::Declare(r, &teacher); });
  seraena.optimizer.lr = 3e-4;
  seraena.optimizer.beta2 = 0.99;
  reader.Section("seraena", [&](ConfigReader& r) {
    r.When(adversarial > 0, "recipe.loss.adversarial is 0", [&] {
      r.Field("frames", &seraena.frames, {.min = 1, .help = "neighbouring frames of one picture of the discriminator"});
      r.Field("replay", &seraena.replay, {.min = 1, .help = "earlier pictures it is shown again, of all ranks"});
      r.Size("replay_memory", &seraena.replay_memory,
             {.help = "for them, of all ranks; fewer are kept if it is short"});
      r.Enum("replay_type", &seraena.replay_type, {{"fp32", at::kFloat}, {"fp16", at::kHalf}},
             {.help = "how they are kept"});
      r.Field("lr", &seraena.optimizer.lr, {.above = 0, .help = "AdamW of the discriminator"});
      std::array<double, 2> betas = {seraena.optimizer.beta1, seraena.optimizer.beta2};
      r.Field("betas", &betas, {.min = 0, .max = 1});
      r.Field("epsilon", &seraena.optimizer.epsilon, {.above = 0});
      r.Field("weight_decay", &seraena.optimizer.weight_decay, {.min = 0});
      seraena.optimizer.beta1 = betas[0];
      seraena.optimizer.beta2 = betas[1];
    });
  });
}

void TaehvRecipe::Defaults(engine::Config* config) {
  config->train.steps = 100000;
  config->train.optimizer.beta2 = 0.95;
  clips_.frames = 12;
  config->data.validation.every = 1000;
  config->checkpoint.every = 1000;
  if (!distills()) {
    config->train.batch = 128;
    config->train.optimizer.lr = 1e-4;
    config->train.schedule.warmup = 2000;
    clips_.max_stride = 2;
    return;
  }
  // The author's. The average was taken every two seconds, which were eight steps.
  config->train.batch = 16;
  config->train.precision = engine::Precision::kFp16;
  config->train.optimizer.lr = 3e-4;
  config->train.schedule.kind = engine::Schedule::Kind::kConstant;
  config->train.schedule.warmup = 0;
  config->train.clip_norm = 0;
  config->train.ema.decay = 0.95;
  config->train.ema.warmup = engine::EmaConfig::Warmup::kLinear;
  config->train.ema.every = 8;
  clips_.height = clips_.width = 64;
  clips_.max_stride = 5;
}

Status TaehvRecipe::Check(engine::Config* config) {
  Result<models::TaehvConfig> shape = models::FindTaehv(settings_.model);
  if (!shape.ok()) return shape.status().Context("recipe.model");
  shape_ = *shape;
  if (shrunk_) {
    const Result<models::TaehvConfig> small = models::FindTaehv("taehv-small");
    if (!small.ok()) return small.status();
    shape_.encoder_width = small->encoder_width;
    shape_.decoder_width = small->decoder_width;
    shape_.super = false;
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckSizes());
  if (!settings_.convert_from.empty() && !config->checkpoint.weights.empty()) {
    return Status(Code::kUsage, "recipe.convert_from and checkpoint.weights both say what to begin with", "give one");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckParts());
  if (!settings_.teacher.cache.root.empty() && config->data.augment) {
    return Status(Code::kUsage,
                  "recipe.teacher.cache needs data.augment: false: latents belong to the frames they were made from, "
                  "and augmentation cuts other clips in every epoch",
                  "set data.augment: false, or leave recipe.teacher.cache.root empty");
  }
  return adversarial_ > 0 ? CheckSeraena(*config) : Status::Ok();
}

Status TaehvRecipe::CheckSizes() const {
  const Result<std::vector<data::ImageSize>> buckets = data::ParseSizes(clips_.buckets);
  if (!buckets.ok()) return buckets.status().Context("data.buckets");
  std::vector<data::ImageSize> sizes = *buckets;
  if (sizes.empty()) sizes = {{clips_.height, clips_.width}};
  for (const data::ImageSize& size : sizes) {
    LOCKSTEP_RETURN_IF_ERROR(shape_.Check(clips_.frames, size.height, size.width).Context("recipe taehv"));
  }
  if (buckets->empty() || (!has_teacher() && settings_.adversarial <= 0)) return Status::Ok();
  return Status(Code::kUsage,
                fmt::format("data.buckets: {} of one size",
                            has_teacher() ? "a teacher is asked about clips" : "the replay buffer has pictures"),
                "give data.height and data.width instead, or train without teacher and adversarial loss");
}

// A part that could move no weight of the half that is trained is left out, as if its weight were 0.
Status TaehvRecipe::CheckParts() {
  const bool decodes = trains_decoder() || !distills();
  reconstruction_ = decodes ? settings_.reconstruction : 0;
  adversarial_ = decodes ? settings_.adversarial : 0;
  encoder_ = trains_encoder() ? settings_.encoder : 0;
  if (reconstruction_ <= 0 && adversarial_ <= 0 && encoder_ <= 0) {
    return Status(Code::kUsage,
                  fmt::format("recipe.loss: no part is left that trains anything (recipe.mode: {}, recipe.train: {})",
                              settings_.mode, settings_.train),
                  trains_decoder() ? "give recipe.loss.reconstruction a weight"
                                   : "give recipe.loss.encoder a weight, and a teacher");
  }
  if (needs_latents() && !has_teacher()) {
    return Status(Code::kUsage,
                  distills() ? "recipe.mode: distill needs a teacher" : "recipe.loss.encoder needs a teacher",
                  "set recipe.teacher.kind: torchscript and recipe.teacher.path; docs/taehv.md shows how to "
                  "make one");
  }
  return Status::Ok();
}

Status TaehvRecipe::CheckSeraena(const engine::Config& config) {
  const data::SourceConfig& source = clips_;
  const TaehvSettings::Seraena& seraena = settings_.seraena;
  padded_ = std::max<int64_t>(source.frames, shape_.FramesOut(source.frames));
  if (padded_ % seraena.frames != 0) {
    return Status(
        Code::kUsage,
        fmt::format("recipe.seraena.frames: {} frames cannot be cut into pictures of {}", padded_, seraena.frames),
        "choose data.frames as a multiple of recipe.seraena.frames");
  }
  groups_ = padded_ / seraena.frames;
  if (config.data.last_batch == data::LastBatch::kKeep) {
    return Status(Code::kUsage,
                  "data.last_batch: keep makes a smaller batch at the end of an epoch, and the replay buffer "
                  "belongs to places in a batch of train.batch",
                  "use data.last_batch: drop or pad");
  }
  replay_shape_.lanes = config.train.batch;
  replay_shape_.image = {3 * int64_t{seraena.frames}, source.height, source.width};
  replay_shape_.context = {shape_.latent, source.height / shape_.SpaceDown(), source.width / shape_.SpaceDown()};
  replay_shape_.type = seraena.replay_type;
  const uint64_t fit = seraena.replay_memory / replay_shape_.entry_bytes();
  replay_shape_.entries = std::min(seraena.replay, fit) / config.train.batch;
  const uint64_t needed = config.train.batch * static_cast<uint64_t>(groups_);
  if (replay_shape_.entries >= static_cast<uint64_t>(groups_)) return Status::Ok();
  if (seraena.replay < needed) {
    return Status(Code::kUsage, fmt::format("recipe.seraena.replay: {} is less than the {} pictures of one batch",
                                            seraena.replay, needed));
  }
  return Status(Code::kUsage,
                fmt::format("recipe.seraena.replay_memory: {} hold {} pictures, one batch makes {}",
                            FormatSize(seraena.replay_memory), fit, needed),
                fmt::format("at least {} are needed; replay_type: fp16 halves it",
                            FormatSize(needed * replay_shape_.entry_bytes())));
}

void TaehvRecipe::Shrink(engine::Config* config) {
  VideoRecipe::Shrink(config);
  shrunk_ = true;
  settings_.seraena.replay = std::min<uint64_t>(settings_.seraena.replay, 512);
  if (has_teacher()) return;  // its latents, or the sizes it was traced with, are of clips like these
  const int multiple = 16;    // keeps SSIM's window and every variant's stride inside
  clips_.height = std::min(clips_.height, multiple * 2);
  clips_.width = std::min(clips_.width, multiple * 2);
}

}  // namespace lockstep::recipes
