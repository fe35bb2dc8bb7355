#include "recipes/taehv.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "data/bucketed_source.h"
#include "data/random.h"
#include "engine/state.h"
#include "media/tiles.h"
#include "media/video_metrics.h"
#include "models/taehv_file.h"
#include "track/gif.h"
#include "track/score_text.h"

namespace lockstep::recipes {
namespace {

constexpr uint64_t kTeacherStream = 0x74656163686572;  // "teacher": noise of sampled latents
constexpr const char* kDraws = "seraena";              // field [N, pictures, 4]
enum Draws { kCoin, kSlot, kPick, kFresh };

at::Tensor Frames(const engine::TensorBatch& batch) { return batch["frames"].to(at::kFloat).div(255); }

}  // namespace

Status TaehvRecipe::Build(const engine::Config& config, uint64_t seed) {
  train_ = config.train;
  seed_ = seed;
  model_ = std::make_shared<models::Taehv>(shape_, seed);
  model_->SetExecution(settings_.execution);
  const bool small = shrunk_ || shape_.name == "taehv-small";
  if (settings_.start == "identity" || (settings_.start == "auto" && small)) {
    model_->StartNearIdentity();
  } else if (settings_.start != "plain") {
    model_->SetOutputBias();
  }
  if (!settings_.convert_from.empty()) {
    const auto weights = engine::ReadWeights(settings_.convert_from);
    if (!weights.ok()) return weights.status().Context("recipe.convert_from");
    models::ConversionReport report;
    LOCKSTEP_RETURN_IF_ERROR(
        models::StartFrom(*model_, *weights, &report).Context(settings_.convert_from).Context("recipe.convert_from"));
    if (ranks_ == nullptr || ranks_->is_main()) LogInfo("{}: {}", settings_.convert_from, report.Summary());
  }
  for (auto& item : model_->named_parameters()) {
    const bool encoder = item.key().starts_with("encoder.");
    if (encoder ? !trains_encoder() : !trains_decoder()) item.value().set_requires_grad(false);
  }
  if (adversarial_ <= 0) return Status::Ok();
  disc_ = std::make_shared<models::PatchDisc>(3 * settings_.seraena.frames, shape_.latent, seed + 1);
  if (config.train.reproducible) {
    disc_->DeferRunningStatistics();
  } else if (ranks_ != nullptr && ranks_->size() > 1) {
    sum_ = [ranks = ranks_](at::Tensor& values) {
      const Status summed = ranks->tensors().AllReduce(values).Wait();
      TORCH_CHECK(summed.ok(), "sum over ranks: ", summed.message());
    };
    disc_->SetSum(sum_);
  }
  return Status::Ok();
}

Status TaehvRecipe::LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights,
                                const std::string& file) {
  return model_->Load(weights).Context(file);
}

nlohmann::json TaehvRecipe::Identity() const { return models::ToJson(shape_); }

Status TaehvRecipe::Start(at::Device device) {
  const bool main = ranks_ == nullptr || ranks_->is_main();
  if (main && !cache_note_.empty()) Log(teacher_cache_ ? LogLevel::kInfo : LogLevel::kWarn, "{}", cache_note_);
  // Where every latent must come from the cache, the teacher takes no memory.
  if (loads_teacher() && !(teacher_cache_ && teacher_cache_->required())) {
    Result<std::unique_ptr<Teacher>> teacher = Teacher::Load(settings_.teacher, device);
    if (!teacher.ok()) return teacher.status();
    teacher_ = std::move(*teacher);
    LOCKSTEP_RETURN_IF_ERROR(teacher_->Probe(shape_, clips_.frames, clips_.height, clips_.width, train_.reproducible)
                                 .Context("recipe.teacher"));
    if (teacher_cache_ && teacher_cache_->sampled() != teacher_->sampled()) {
      return Status(Code::kInternal, "the feature cache has other fields than the teacher gives");
    }
    // Reading and encoding may differ in the last bit, and a choice by time is another one in every run.
    if (teacher_cache_ && settings_.teacher.cache.policy == "auto" && !train_.reproducible &&
        settings_.teacher.cache.stored == cache::Storage::kSame) {
      teacher_cache_->arbiter().Encoded(1, teacher_->seconds_per_clip());
      teacher_cache_->ChooseByCost();
    }
  }
  if (adversarial_ <= 0) return Status::Ok();
  if (train_.reproducible) {
    if (ranks_ == nullptr) return Status(Code::kInternal, "reproducible training without ranks");
    statistics_ = disc_->EmptyStatistics().to(device);
    statistics_sum_ = std::make_unique<engine::TreeSum>(train_.shards, statistics_, ranks_);
  }
  const uint64_t kept = replay_shape_.entries * replay_shape_.lanes;
  if (main && kept < settings_.seraena.replay) {
    LogInfo(
        "replay buffer: {} pictures ({}) instead of {}: {} places of the batch with equal parts, within "
        "recipe.seraena.replay_memory of {}",
        kept, FormatSize(kept * replay_shape_.entry_bytes()), settings_.seraena.replay, replay_shape_.lanes,
        FormatSize(settings_.seraena.replay_memory));
  }
  const LaneRange lanes =
      LanesOf(train_, ranks_ == nullptr ? 0 : ranks_->rank(), ranks_ == nullptr ? 1 : ranks_->size());
  replay_ = std::make_unique<Replay>(replay_shape_, lanes, device);
  return Status::Ok();
}

std::vector<engine::Unit> TaehvRecipe::Units() {
  std::vector<engine::Unit> units;
  for (auto& stage : model_->Stages()) units.push_back({std::move(stage.name), std::move(stage.parameters)});
  return units;
}

engine::PlanFacts TaehvRecipe::Plan() const {
  plan::TaehvSample sample{.frames = clips_.frames, .height = clips_.height, .width = clips_.width};
  sample.patch = shape_.patch;
  sample.latent = shape_.latent;
  std::copy(shape_.encoder_time.begin(), shape_.encoder_time.end(), sample.encoder_time.begin());
  std::copy(shape_.decoder_time.begin(), shape_.decoder_time.end(), sample.decoder_time.begin());
  std::copy(shape_.decoder_space.begin(), shape_.decoder_space.end(), sample.decoder_space.begin());
  std::copy(shape_.encoder_width.begin(), shape_.encoder_width.end(), sample.encoder_width.begin());
  std::copy(shape_.decoder_width.begin(), shape_.decoder_width.end(), sample.decoder_width.begin());
  sample.super = shape_.super;
  // Of several sizes the largest.
  const Result<std::vector<data::ImageSize>> sizes = data::ParseSizes(clips_.buckets);
  int64_t most = 0;
  for (const data::ImageSize& size : sizes.ok() ? *sizes : std::vector<data::ImageSize>()) {
    if (int64_t{size.height} * size.width <= most) continue;
    most = int64_t{size.height} * size.width;
    sample.height = size.height, sample.width = size.width;
  }
  engine::PlanFacts facts{.sample = sample};
  if (has_teacher()) facts.notes.emplace_back("the teacher is not counted");
  if (adversarial_ > 0) facts.notes.emplace_back("discriminator and replay buffer are not counted");
  if (shape_.super || settings_.execution == models::Execution::kReference) {
    facts.notes.emplace_back("activations: layers run as they are written; an estimate");
  }
  return facts;
}

TeacherShapes TaehvRecipe::ShapesOfTeacher() const {
  return {{clips_.frames, 3, clips_.height, clips_.width},
          {shape_.Latents(clips_.frames), shape_.latent, clips_.height / shape_.SpaceDown(),
           clips_.width / shape_.SpaceDown()}};
}

Result<engine::Sources> TaehvRecipe::Open(const engine::Config& config) {
  Result<engine::Sources> sources = VideoRecipe::Open(config);
  if (!sources.ok() || settings_.teacher.cache.root.empty() || !has_teacher()) return sources;
  return WithCache(std::move(*sources));
}

Result<engine::Sources> TaehvRecipe::WithCache(engine::Sources sources) {
  Result<std::unique_ptr<TeacherCache>> cache = TeacherCache::Open(settings_.teacher, ShapesOfTeacher(), &cache_note_);
  if (!cache.ok()) return cache.status();
  teacher_cache_ = std::move(*cache);
  if (!teacher_cache_) return sources;
  for (const auto& [what, source] : {std::pair("training", &sources.train), {"validation", &sources.validation}}) {
    if (!*source) continue;
    const Result<std::string> coverage = teacher_cache_->Coverage(what, **source, sources.whole.get(), clips_);
    if (!coverage.ok()) return coverage.status();
    cache_note_ += (cache_note_.empty() ? "" : "\n") + *coverage;
    *source = teacher_cache_->With(*source);
  }
  return sources;
}

Status TaehvRecipe::BuildCache(const engine::Config& config, at::Device device, const cache::BuildOptions& options) {
  if (settings_.teacher.cache.root.empty() || !has_teacher()) {
    return Status(Code::kUsage,
                  "there is nothing to build: recipe.teacher.kind or recipe.teacher.cache.root is not set",
                  "name a teacher and the root of a feature cache (docs/feature-cache.md)");
  }
  Result<engine::Sources> sources = VideoRecipe::Open(config);
  if (!sources.ok()) return sources.status();
  Result<std::unique_ptr<Teacher>> teacher = Teacher::Load(settings_.teacher, device);
  if (!teacher.ok()) return teacher.status();
  LOCKSTEP_RETURN_IF_ERROR((*teacher)
                               ->Probe(shape_, clips_.frames, clips_.height, clips_.width, /*must_repeat=*/true)
                               .Context("recipe.teacher"));
  const auto description = DescribeTeacher(settings_.teacher, ShapesOfTeacher(), (*teacher)->sampled());
  if (!description.ok()) return description.status();
  const Result<cache::Folder> folder = cache::Folder::Create(settings_.teacher.cache.root, *description);
  if (!folder.ok()) return folder.status().Context("recipe.teacher.cache.root");
  cache::BuildOptions with = options;
  with.error_limit = settings_.teacher.cache.max_error;
  for (const auto& source : {sources->train, sources->validation}) {
    if (!source) continue;
    const auto built = BuildTeacherCache(*folder, source, clips_, teacher->get(), config.data.threads, with);
    if (!built.ok()) return built.status();
  }
  return Status::Ok();
}

Result<std::vector<at::Tensor>> TaehvRecipe::TeacherFeatures(engine::TensorBatch* batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& frames = (*batch)["frames"];
  if (!teacher_cache_) return teacher_->Features(Frames(*batch));
  TeacherCache::Found found = teacher_cache_->Take(batch);
  if (found.missing.empty()) return std::move(found.features);
  const TimePoint start = Now();
  if (teacher_ == nullptr) {  // not loaded where nothing may be encoded
    LOCKSTEP_RETURN_IF_ERROR(teacher_cache_->NoteLive(found.missing.size(), 0));
    return Status(Code::kInternal, "clips must be encoded, and the teacher is not loaded");
  }
  const at::Tensor which = at::tensor(found.missing, at::kLong).to(frames.device());
  Result<std::vector<at::Tensor>> live = teacher_->Features(frames.index_select(0, which).to(at::kFloat).div(255));
  if (!live.ok()) return live.status();
  // On a GPU the work is only queued now: the cost of the probe stands.
  const double seconds = frames.is_cpu() ? SecondsSince(start) : 0;
  LOCKSTEP_RETURN_IF_ERROR(teacher_cache_->NoteLive(found.missing.size(), seconds));
  for (size_t i = 0; i < live->size(); ++i) found.features[i] = found.features[i].index_copy(0, which, (*live)[i]);
  return std::move(found.features);
}

Status TaehvRecipe::AddLatents(engine::TensorBatch* batch, uint64_t step, const std::vector<uint64_t>& places) {
  if (!has_teacher() || batch->fields.contains("latents")) return Status::Ok();  // none, or they came with the sample
  if (batch->count() == 0) {
    if (teacher_cache_) teacher_cache_->Take(batch);
    std::vector<int64_t> none = {0};
    const std::vector<int64_t> one = ShapesOfTeacher().latents;
    none.insert(none.end(), one.begin(), one.end());
    batch->fields["latents"] = at::empty(none, (*batch)["frames"].options().dtype(at::kFloat));
    return Status::Ok();
  }
  std::vector<uint64_t> keys;
  const uint64_t key = data::Fold(data::Fold(data::Fold(0, seed_), kTeacherStream), step);
  for (const uint64_t place : places) keys.push_back(data::Fold(key, place));
  const Result<std::vector<at::Tensor>> features = TeacherFeatures(batch);
  if (!features.ok()) return features.status();
  const at::NoGradGuard no_grad;
  batch->fields["latents"] = Teacher::Sample(*features, keys);
  return Status::Ok();
}

std::vector<std::pair<std::string, double>> TaehvRecipe::Metrics() {
  return teacher_cache_ ? teacher_cache_->Metrics() : std::vector<std::pair<std::string, double>>();
}

Status TaehvRecipe::Prepare(const engine::Pass& pass, engine::TensorBatch* batch) {
  if (needs_latents()) LOCKSTEP_RETURN_IF_ERROR(AddLatents(batch, pass.step, batch->lanes));
  if (adversarial_ <= 0) return Status::Ok();
  // Half of the fakes a batch shows are new and half are replayed: the first half of its places, as upstream does.
  const int64_t new_ones = static_cast<int64_t>(train_.batch) * groups_ / 2;
  const at::Device device = (*batch)["frames"].device();
  at::Tensor draws =
      at::empty({batch->count(), groups_, 4}, at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda()));
  auto* out = draws.data_ptr<int64_t>();
  for (const uint64_t lane : batch->lanes) {
    const Result<ReplayDraw> draw = replay_->Draw(seed_, pass.step, lane, groups_);
    if (!draw.ok()) return draw.status();
    for (int64_t i = 0; i < groups_; ++i, out += 4) {
      const auto at = static_cast<size_t>(i);
      out[kCoin] = draw->coin[at];
      out[kSlot] = draw->slot[at];
      out[kPick] = draw->pick[at];
      out[kFresh] = static_cast<int64_t>(lane) * groups_ + i < new_ones ? 1 : 0;
    }
  }
  batch->fields[kDraws] = draws.to(device, /*non_blocking=*/true);
  return Status::Ok();
}

std::optional<engine::Discriminator> TaehvRecipe::discriminator() {
  if (!disc_) return std::nullopt;
  return engine::Discriminator{"seraena", disc_.get(), settings_.seraena.optimizer};
}

// What the decoder is fed: the teacher's latents, or the encoder's own.
TaehvRecipe::Outputs TaehvRecipe::Run(const engine::TensorBatch& batch) {
  Outputs out;
  if (!distills()) {
    const at::AutoGradMode gradient(at::GradMode::is_enabled() && trains_encoder());
    out.encoded = model_->Encode(Frames(batch));
  }
  out.decoded = model_->Decode(distills() ? batch["latents"] : out.encoded).to(at::kFloat);
  return out;
}

// Clips [N, T, 3, H, W], filled up to `padded_` frames by repeating from the start, cut into groups of neighbouring
// frames: [N * pictures, 3 * frames, H, W].
at::Tensor TaehvRecipe::ToPictures(const at::Tensor& frames) const {
  std::vector<at::Tensor> pieces = {frames};
  for (int64_t missing = padded_ - frames.size(1); missing > 0;) {
    const int64_t some = std::min(missing, frames.size(1));
    pieces.push_back(frames.narrow(1, 0, some));
    missing -= some;
  }
  const at::Tensor whole = pieces.size() == 1 ? frames : at::cat(pieces, 1);
  return whole.reshape({frames.size(0) * groups_, 3 * settings_.seraena.frames, frames.size(3), frames.size(4)});
}

at::Tensor TaehvRecipe::ToFrames(const at::Tensor& pictures, int64_t clips) const {
  return pictures.reshape({clips, padded_, 3, pictures.size(2), pictures.size(3)})
      .narrow(1, 0, shape_.FramesOut(clips_.frames));
}

// No latent belongs to one group of frames: each group gets the mean over time.
at::Tensor TaehvRecipe::ContextOf(const at::Tensor& latents) const {
  const at::Tensor mean = latents.detach().to(at::kFloat).mean(1, /*keepdim=*/true);
  return mean.expand({-1, groups_, -1, -1, -1}).flatten(0, 1);
}

engine::Loss TaehvRecipe::ComputeDiscriminatorLoss(const engine::Pass& pass, const engine::TensorBatch& batch) {
  const int64_t clips = batch.count();
  at::Tensor real, fake, context;
  kept_.reset();
  if (clips > 0) {
    Outputs out;
    {
      const at::AutoGradMode gradient(pass.count == 1);
      out = Run(batch);
    }
    real = ToPictures(model_->Target(Frames(batch)));
    fake = ToPictures(out.decoded.detach());
    context = ContextOf(distills() ? batch["latents"] : out.encoded);
    if (pass.count == 1) kept_ = std::move(out);
  } else {
    const auto options = batch["frames"].options().dtype(at::kFloat);
    real = fake = at::empty({0, 3 * settings_.seraena.frames, clips_.height, clips_.width}, options);
    context = at::empty({0, replay_shape_.context[0], replay_shape_.context[1], replay_shape_.context[2]}, options);
  }
  const at::Tensor draws = batch[kDraws].flatten(0, 1);
  replay_->Put(draws.select(1, kSlot), fake, context);
  auto [shown, shown_context] = replay_->Get(draws.select(1, kPick));
  const at::Tensor fresh = draws.select(1, kFresh).to(at::kBool).view({-1, 1, 1, 1});
  shown = at::where(fresh, fake, shown);
  shown_context = at::where(fresh, context, shown_context);

  engine::Loss loss{{}, static_cast<double>(clips), {}};
  if (clips > 0 || !train_.reproducible) {
    loss.mean = models::DiscriminatorLoss(*disc_, real, shown, context, shown_context, draws.select(1, kCoin));
  }
  if (!statistics_sum_) return loss;
  // Each canonical shard is one pass: their statistics are added over the same tree as the gradients.
  const at::NoGradGuard no_grad;
  if (pass.index == 0) statistics_sum_->Begin();
  statistics_.copy_(disc_->PassStatistics(clips * groups_));
  statistics_sum_->AddLeaf();
  if (pass.index + 1 < pass.count) return loss;
  const Status summed = statistics_sum_->Finish();
  TORCH_CHECK(summed.ok(), "sum over ranks: ", summed.message());
  disc_->AbsorbStatistics(statistics_);
  return loss;
}

engine::Loss TaehvRecipe::ComputeLoss(const engine::TensorBatch& batch) {
  const int64_t clips = batch.count();
  if (clips == 0) {
    if (sum_) models::PopulationStd(at::zeros({0}, batch["frames"].options().dtype(at::kFloat)), sum_);
    return {};
  }
  const at::Tensor frames = Frames(batch);
  Outputs out;
  if (kept_) {
    out = std::move(*kept_);
    kept_.reset();
  } else if (reconstruction_ > 0 || adversarial_ > 0) {
    out = Run(batch);
  }
  if (encoder_ > 0 && !out.encoded.defined()) out.encoded = model_->Encode(frames);

  engine::Loss loss{{}, static_cast<double>(clips), {}};
  const auto add = [&loss](double weight, const at::Tensor& part) {
    loss.parts.push_back(part.detach());
    const at::Tensor weighted = weight == 1 ? part : part.mul(weight);
    loss.mean = loss.mean.defined() ? loss.mean + weighted : weighted;
  };
  const at::Tensor target = out.decoded.defined() ? model_->Target(frames) : at::Tensor();
  if (reconstruction_ > 0) add(reconstruction_, at::mse_loss(out.decoded, target));
  if (encoder_ > 0) add(encoder_, at::mse_loss(out.encoded.to(at::kFloat), batch["latents"]));
  if (adversarial_ > 0) {
    const at::Tensor fake = ToPictures(out.decoded.detach());
    const at::Tensor context = ContextOf(distills() ? batch["latents"] : out.encoded);
    const at::Tensor correction = models::Correction(*disc_, ToPictures(target), fake, context, sum_);
    add(adversarial_, at::mse_loss(out.decoded, ToFrames(fake + correction, clips)));
  }
  return loss;
}

std::vector<std::string> TaehvRecipe::Parts() const {
  std::vector<std::string> names;
  if (reconstruction_ > 0) names.emplace_back("loss/reconstruction");
  if (encoder_ > 0) names.emplace_back("loss/encoder");
  if (adversarial_ > 0) names.emplace_back("loss/adversarial");
  return names;
}

Status TaehvRecipe::PrepareValidation(engine::TensorBatch* batch) {
  std::vector<uint64_t> places;
  for (const data::SampleId& id : batch->ids) places.push_back(id.index);
  return AddLatents(batch, ~uint64_t{0}, places);  // the same noise at every validation
}

// As the decoder is trained; but where the encoder learns too, both together are what is wanted.
at::Tensor TaehvRecipe::Reconstruct(const engine::TensorBatch& batch) {
  const bool from_teacher = distills() && !trains_encoder();
  return model_->Decode(from_teacher ? batch["latents"] : model_->Encode(Frames(batch))).to(at::kFloat);
}

// Without the adversarial part, whose value says nothing from one step to the next.
engine::Loss TaehvRecipe::ComputeValidationLoss(const engine::TensorBatch& batch) {
  const at::Tensor frames = Frames(batch);
  at::Tensor sum = at::zeros({}, frames.options());
  if (reconstruction_ > 0 || encoder_ <= 0) {
    const double weight = reconstruction_ > 0 ? reconstruction_ : 1;
    sum = sum + at::mse_loss(Run(batch).decoded, model_->Target(frames)).mul(weight);
  }
  if (encoder_ > 0) sum = sum + at::mse_loss(model_->Encode(frames).to(at::kFloat), batch["latents"]).mul(encoder_);
  return {sum, static_cast<double>(batch.count()), {}};
}

std::vector<engine::Score> TaehvRecipe::Validate(const engine::TensorBatch& batch) {
  const at::Tensor output = Reconstruct(batch);
  const at::Tensor target = model_->Target(Frames(batch));
  std::vector<engine::Score> scores = {{"psnr", media::Psnr(output, target).sum().item<double>()},
                                       {"ssim", media::Ssim(output, target).sum().item<double>()}};
  if (has_teacher()) {
    const at::Tensor error = at::mse_loss(model_->Encode(Frames(batch)).to(at::kFloat), batch["latents"]);
    scores.push_back({"latent_mse", error.item<double>() * static_cast<double>(batch.count())});
  }
  return scores;
}

std::vector<std::string> TaehvRecipe::Scores() const {
  std::vector<std::string> names = {"psnr", "ssim"};
  if (has_teacher()) names.emplace_back("latent_mse");
  return names;
}

// The first and the last frame of each clip.
void TaehvRecipe::Show(const engine::TensorBatch& batch, track::Sheet* sheet) {
  const at::Tensor target = model_->Target(Frames(batch)), output = Reconstruct(batch);
  const at::Tensor psnr = media::Psnr(output, target), ssim = media::Ssim(output, target);
  sheet->columns = media::kClipColumns;
  sheet->map_label = track::kAbsoluteError;
  for (int64_t n = 0; n < batch.count(); ++n) {
    std::vector<media::ShownFrame> frames = {media::ShowFrame(0, output[n][0], target[n][0])};
    const int64_t last = target.size(1) - 1;
    if (last > 0) frames.push_back(media::ShowFrame(last, output[n][last], target[n][last]));
    track::SheetRow row = media::ClipRow(std::move(frames));
    row.score =
        track::ScoreText("psnr", psnr[n].item<double>()) + "   " + track::ScoreText("ssim", ssim[n].item<double>());
    for (int64_t t = 0; sheet->rows.empty() && t <= last; ++t) {
      row.clip.push_back(track::SideBySide({media::ToPicture(target[n][t]), media::ToPicture(output[n][t])}));
    }
    sheet->rows.push_back(std::move(row));
  }
}

Status TaehvRecipe::Gather() { return replay_ ? replay_->Gather(train_, ranks_) : Status::Ok(); }

engine::RecipeState TaehvRecipe::Save() {
  engine::RecipeState state;
  if (replay_) replay_->Save(&state);
  return state;
}

Status TaehvRecipe::Restore(const engine::RecipeState& state) {
  return replay_ ? replay_->Restore(state) : Status::Ok();
}

}  // namespace lockstep::recipes
