#include "recipes/vrt.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/glob.h"
#include "data/interpolation_clips.h"
#include "data/paired_clips.h"
#include "data/random.h"
#include "data/whole_clips.h"
#include "media/load_vrt.h"
#include "media/tiles.h"
#include "media/video_metrics.h"
#include "models/vrt_file.h"
#include "models/weights.h"
#include "track/gif.h"
#include "track/score_text.h"

namespace lockstep::recipes {
namespace {

constexpr const char* kPathDraws = "path_draws";
constexpr const char* kNoise = "noise";
constexpr const char* kLevel = "noise_level";
constexpr const char* kPassthrough = "passthrough";
enum : uint64_t { kForPaths = 1, kForNoise };  // purposes of random numbers

data::Random Drawn(uint64_t seed, uint64_t step, uint64_t lane, uint64_t purpose) {
  return data::Random(data::Fold(data::Fold(data::Fold(data::Fold(0x767274, seed), step), lane), purpose));
}

using ScoreOf = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
struct ScoreRow {
  const char* name;
  ScoreOf score;
};
constexpr ScoreRow kScores[] = {
    {"psnr", media::Psnr}, {"ssim", media::Ssim}, {"psnr_y", media::PsnrY}, {"ssim_y", media::SsimY}};
constexpr const char* kInputScore = "psnr_input";  // of what is restored, before it is

// The sum over clips of the mean over frames, a few frames at a time: whole clips would take gigabytes.
double SumOf(ScoreOf score, const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kFrames = 4;
  double sum = 0;
  for (int64_t begin = 0; begin < a.size(1); begin += kFrames) {
    const int64_t count = std::min(kFrames, a.size(1) - begin);
    sum +=
        static_cast<double>(count) * score(a.narrow(1, begin, count), b.narrow(1, begin, count)).sum().item<double>();
  }
  return sum / static_cast<double>(a.size(1));
}

// Noise [1, shape...] of standard deviation 1.
at::Tensor Normal(uint64_t key, at::IntArrayRef shape) {
  return at::empty(shape, at::kFloat).normal_(0, 1, at::detail::createCPUGenerator(key)).unsqueeze(0);
}

}  // namespace

Status VrtRecipe::Build(const engine::Config& config, uint64_t seed) {
  seed_ = seed;
  model_ = std::make_shared<models::Vrt>(shape_, seed);
  if (config.checkpoint.weights.empty()) LOCKSTEP_RETURN_IF_ERROR(LoadSpyNet());
  if (settings_.lora.on()) {
    LOCKSTEP_RETURN_IF_ERROR(model_->AddLora(settings_.lora).Context("recipe.lora.targets"));
    for (auto& item : model_->named_parameters()) {
      if (std::ranges::any_of(settings_.lora_also, [&](const auto& glob) { return GlobMatches(glob, item.key()); }))
        item.value().requires_grad_(true);
    }
  }
  if (settings_.fuses()) {
    adapter_ = std::make_shared<models::FusionAdapter>(settings_.fusion, seed);
    // It enlarges smaller spikes; the data's are as large as the frames.
    for (auto& item : adapter_->named_parameters()) {
      if (item.key().starts_with("spike_upsample.")) item.value().requires_grad_(false);
    }
    model_->register_module("fusion_adapter", adapter_);
  }
  return Status::Ok();
}

Status VrtRecipe::LoadSpyNet() {
  if (settings_.spynet.empty()) return Status::Ok();
  Result<models::NamedTensors> file = models::ReadTensorFile(settings_.spynet);
  if (!file.ok()) return file.status().Context("recipe.spynet");
  return model_->spynet().Load(*file).Context("recipe.spynet");
}

Status VrtRecipe::LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) {
  Result<models::NamedTensors> given = models::UnwrapVrt(weights);
  if (!given.ok()) return given.status().Context(file);
  const auto of_spynet = [](const auto& item) { return item.first.starts_with("spynet."); };
  if (settings_.partial && std::ranges::none_of(*given, of_spynet)) LOCKSTEP_RETURN_IF_ERROR(LoadSpyNet());
  // A file without the adapter or LoRA is one of the model before they were added.
  const auto has = [&](const std::string& name) {
    return std::any_of(given->begin(), given->end(), [&](const auto& item) { return item.first == name; });
  };
  for (const auto& item : model_->named_parameters()) {
    const bool added = item.key().starts_with(kAdapter) || item.key().find(".lora_") != std::string::npos;
    if ((added || settings_.partial) && !has(item.key()))
      given->emplace_back(item.key(), item.value().detach().clone());
  }
  return models::LoadVrt(*model_, *given).Context(file);
}

nlohmann::json VrtRecipe::Identity() const {
  nlohmann::json shape = models::ToJson(shape_);
  for (const char* key : {"name", "img_size", "use_checkpoint_attn", "use_checkpoint_ffn", "no_checkpoint_attn_blocks",
                          "no_checkpoint_ffn_blocks", "drop_path_rate"}) {
    shape.erase(key);  // the same parameters, trained in another way
  }
  if (settings_.interpolates()) shape["img_size"] = shape_.LeastClip();  // its frames are the width of a layer
  nlohmann::json identity = {{"config", shape}};
  if (settings_.fuses()) identity["fusion"] = media::FusionToJson(settings_.fusion);
  if (settings_.lora.on()) identity["lora"] = settings_.lora.ToJson();
  return identity;
}

std::vector<engine::Unit> VrtRecipe::Units() {
  const bool chosen = shape_.use_checkpoint_attn || shape_.use_checkpoint_ffn;
  std::vector<engine::Unit> units;
  for (const models::vrt::Unit& unit : model_->Units()) {
    units.push_back({unit.name, unit.parameters, /*keep=*/chosen && !unit.recompute});
  }
  return units;
}

Result<std::shared_ptr<const data::Source>> VrtRecipe::OpenTest() const {
  const std::optional<data::PairedConfig> test = data_.Test();
  if (!whole_clips_ || !test) return std::shared_ptr<const data::Source>();
  Result<data::PairedSet> clips = data::PairedSet::Open(*test);
  if (!clips.ok()) return clips.status().Context("data.test");
  auto set = std::make_shared<const data::PairedSet>(std::move(*clips));
  return std::shared_ptr<const data::Source>(settings_.interpolates() ? data::MakeInterpolationClips(std::move(set))
                                                                      : data::MakeWholeClips(std::move(set)));
}

Result<engine::Sources> VrtRecipe::Open(const engine::Config& config) {
  Result<std::unique_ptr<data::Source>> train = data::OpenPaired(data_.train);
  if (!train.ok()) return train.status().Context("data");
  Result<std::shared_ptr<const data::Source>> test = OpenTest();
  if (!test.ok()) return test.status();
  if (*test == nullptr) return engine::HoldOut(std::move(*train), config);
  return engine::Sources{std::move(*train), std::move(*test)};
}

// Numbers of (seed, step, place in the batch): the same on any number of ranks.
Status VrtRecipe::Prepare(const engine::Pass& pass, engine::TensorBatch* batch) {
  restored_ = at::Tensor();  // of the last validation
  const at::Tensor& target = (*batch)["target"];
  const auto options = at::TensorOptions().dtype(at::kFloat).pinned_memory(target.is_cuda());
  at::Tensor draws = at::empty({batch->count(), model_->Draws()}, options);
  auto* out = draws.data_ptr<float>();
  for (const uint64_t lane : batch->lanes) {
    data::Random random = Drawn(seed_, pass.step, lane, kForPaths);
    for (int64_t i = 0; i < model_->Draws(); ++i) *out++ = static_cast<float>(random.Next() >> 40) * 0x1p-24F;
  }
  batch->fields[kPathDraws] = draws.to(target.device(), /*non_blocking=*/true);
  if (settings_.fuses() && settings_.fading()) {
    const auto last = static_cast<double>(std::max<uint64_t>(settings_.passthrough_steps, 2) - 1);
    const double done = std::min(1.0, static_cast<double>(pass.since) / last);
    const double weight = settings_.passthrough + (settings_.passthrough_end - settings_.passthrough) * done;
    batch->fields[kPassthrough] =
        at::full({batch->count()}, weight, options).to(target.device(), /*non_blocking=*/true);
  }
  if (settings_.task != "denoise" || batch->count() == 0) return Status::Ok();
  std::vector<at::Tensor> noise;
  at::Tensor levels = at::empty({batch->count()}, options);
  for (size_t i = 0; i < batch->lanes.size(); ++i) {
    data::Random random = Drawn(seed_, pass.step, batch->lanes[i], kForNoise);
    levels[static_cast<int64_t>(i)] = random.Uniform(settings_.noise_min, settings_.noise_max) / 255;
    noise.push_back(Normal(random.Next(), target.sizes().slice(1)));
  }
  batch->fields[kNoise] = at::cat(noise).to(target.device());
  batch->fields[kLevel] = levels.to(target.device(), /*non_blocking=*/true);
  return Status::Ok();
}

at::Tensor VrtRecipe::Fraction(const at::Tensor& field) {
  return field.scalar_type() == at::kByte ? field.to(at::kFloat).div(255) : field;
}

VrtRecipe::Clips VrtRecipe::Training(const engine::TensorBatch& batch) const {
  Clips clips{.rgb = {}, .spikes = {}, .level = {}, .target = Fraction(batch["target"])};
  if (batch.fields.contains(kNoise)) {
    clips.level = batch[kLevel];
    clips.rgb = clips.target + batch[kNoise] * clips.level.view({-1, 1, 1, 1, 1});
  } else {
    clips.rgb = Fraction(batch["input"]);
  }
  if (batch.fields.contains("spikes")) clips.spikes = Fraction(batch["spikes"]);
  return clips;
}

VrtRecipe::Clips VrtRecipe::Validating(const engine::TensorBatch& batch) const {
  if (settings_.task != "denoise") return Training(batch);
  engine::TensorBatch noisy = batch;
  std::vector<at::Tensor> noise;  // the same at every validation
  for (const data::SampleId& id : batch.ids) {
    noise.push_back(Normal(data::Fold(seed_, id.index), batch["target"].sizes().slice(1)));
  }
  noisy.fields[kNoise] = at::cat(noise).to(batch["target"].device());
  noisy.fields[kLevel] = at::full({batch.count()}, settings_.noise_test / 255, noisy.fields[kNoise].options());
  return Training(noisy);
}

Status VrtRecipe::Start(at::Device device) {
  // Gradients of warped frames are added up in an order that varies, unless the run is to be deterministic: trying out
  // cuDNN's algorithms costs no exactness here, and the flow network's convolutions take half of the time.
  if (device.is_cuda() && !at::globalContext().deterministicAlgorithms()) {
    at::globalContext().setDeterministicCuDNN(false);
    at::globalContext().setBenchmarkCuDNN(true);
  }
  return Status::Ok();
}

at::Tensor VrtRecipe::Forward(const Clips& clips, const at::Tensor& draws, at::Tensor* fused) {
  at::Tensor x = clips.rgb;
  if (adapter_) {
    x = adapter_->Forward(clips.rgb, clips.spikes);
    if (fused != nullptr) *fused = x;
  } else if (clips.spikes.defined()) {
    x = at::cat({x, clips.spikes}, 2);
  }
  if (shape_.nonblind_denoising) {
    const at::Tensor level = clips.level.view({-1, 1, 1, 1, 1});
    x = at::cat({x, level.expand({x.size(0), x.size(1), 1, x.size(3), x.size(4)})}, 2);
  }
  if (!adapter_) return model_->Forward(x, draws).to(at::kFloat);
  return adapter_->Reduce(model_->Forward(x, draws, adapter_->Base(clips.rgb))).to(at::kFloat);
}

at::Tensor VrtRecipe::Distance(const at::Tensor& a, const at::Tensor& b) const {
  const at::Tensor difference = a.to(at::kFloat) - b.to(at::kFloat);
  if (settings_.loss == "l1") return difference.abs().mean();
  if (settings_.loss == "l2") return difference.square().mean();
  return difference.square().add(settings_.epsilon).sqrt().mean();
}

// S-VRT's losses of the adapter: near the target, near the input while that has a weight, and little change.
at::Tensor VrtRecipe::AdapterLoss(const engine::TensorBatch& batch, const Clips& clips, const at::Tensor& fused) const {
  const at::Tensor mine = adapter_->Middle(fused);
  at::Tensor loss = at::zeros({}, mine.options().dtype(at::kFloat));
  if (settings_.fused_loss > 0) loss = loss + settings_.fused_loss * Distance(mine, clips.target);
  if (batch.fields.contains(kPassthrough)) loss = loss + batch[kPassthrough].mean() * Distance(mine, clips.rgb);
  if (settings_.update_penalty > 0) {
    loss = loss + settings_.update_penalty * (mine.to(at::kFloat) - clips.rgb).abs().mean();
  }
  return loss;
}

engine::Loss VrtRecipe::ComputeLoss(const engine::TensorBatch& batch) {
  const Clips clips = Training(batch);
  const auto weight = static_cast<double>(batch.count());
  if (adapter_ && !settings_.restored_loss) {
    return {AdapterLoss(batch, clips, adapter_->Forward(clips.rgb, clips.spikes)), weight, {}};
  }
  at::Tensor fused;
  const at::Tensor restored =
      Forward(clips, batch.fields.contains(kPathDraws) ? batch[kPathDraws] : at::Tensor(), &fused);
  at::Tensor loss = Distance(restored, clips.target) * settings_.loss_weight;
  if (fused.defined()) loss = loss + AdapterLoss(batch, clips, fused);
  return {loss, weight, {}};
}

// Whole clips in windows and tiles; clips as long and large as those of the training in one piece.
at::Tensor VrtRecipe::Restored(const engine::TensorBatch& batch, Clips* clips) {
  *clips = Validating(batch);
  if (!whole_clips_) return Forward(*clips, {});
  std::vector<at::Tensor> restored;
  for (int64_t i = 0; i < batch.count(); ++i) {
    const Clips one{.rgb = clips->rgb.narrow(0, i, 1),
                    .spikes = clips->spikes.defined() ? clips->spikes.narrow(0, i, 1) : at::Tensor(),
                    .level = clips->level.defined() ? clips->level.narrow(0, i, 1) : at::Tensor(),
                    .target = {}};
    const at::Tensor input = one.spikes.defined() ? at::cat({one.rgb, one.spikes}, 2) : one.rgb;
    const media::RestoreForward forward = [&](const at::Tensor& part) {
      Clips tile{.rgb = part.narrow(2, 0, 3), .spikes = {}, .level = one.level, .target = {}};
      if (part.size(2) > 3) tile.spikes = part.narrow(2, 3, part.size(2) - 3);
      return Forward(tile, {});
    };
    const auto restore = settings_.interpolates() ? media::RestoreFrames : media::RestoreClip;
    restored.push_back(restore(forward, settings_.test, input[0]).unsqueeze(0));
  }
  return at::cat(restored);
}

engine::Loss VrtRecipe::ComputeValidationLoss(const engine::TensorBatch& batch) {
  Clips clips;
  restored_ = Restored(batch, &clips);
  restored_of_ = batch.ids;
  return {Distance(restored_, clips.target) * settings_.loss_weight, static_cast<double>(batch.count()), {}};
}

// Loss, scores and picture are asked for one after the other: the clips are restored once.
at::Tensor VrtRecipe::RestoredBefore(const engine::TensorBatch& batch, Clips* clips) {
  if (!restored_.defined() || restored_of_ != batch.ids) return Restored(batch, clips);
  *clips = Validating(batch);
  return restored_;
}

at::Tensor VrtRecipe::Without(const Clips& clips) const {
  if (!settings_.interpolates()) return clips.rgb;
  return clips.rgb.narrow(1, clips.rgb.size(1) / 2 - 1, 2).mean(1, /*keepdim=*/true);
}

std::vector<engine::Score> VrtRecipe::Validate(const engine::TensorBatch& batch) {
  Clips clips;
  const at::Tensor restored = RestoredBefore(batch, &clips);
  std::vector<engine::Score> scores;
  for (const ScoreRow& row : kScores) scores.push_back({row.name, SumOf(row.score, restored, clips.target)});
  if (shape_.upscale == 1) scores.push_back({kInputScore, SumOf(media::Psnr, Without(clips), clips.target)});
  return scores;
}

std::vector<std::string> VrtRecipe::Scores() const {
  std::vector<std::string> names;
  for (const ScoreRow& row : kScores) names.emplace_back(row.name);
  if (shape_.upscale == 1) names.emplace_back(kInputScore);
  return names;
}

std::pair<std::string, double> VrtRecipe::PerSample() const {
  return {"frames", static_cast<double>(data_.train.SampleFrames())};
}

void VrtRecipe::Show(const engine::TensorBatch& batch, track::Sheet* sheet) {
  Clips clips;
  const at::Tensor restored = RestoredBefore(batch, &clips);
  const int64_t middle = restored.size(1) / 2;
  const at::Tensor psnr = media::Psnr(restored, clips.target), without = Without(clips);
  sheet->columns = {"input"};
  if (clips.spikes.defined()) sheet->columns.push_back("spikes");
  for (const char* column : {"restored", "target", "error"}) sheet->columns.push_back(column);
  sheet->map_label = track::kAbsoluteError;
  for (int64_t i = 0; i < batch.count(); ++i) {
    track::SheetRow row{.score = track::ScoreText("psnr", psnr[i].item<double>()),
                        .cells = {{media::ToPicture(without[i][middle])}}};
    if (clips.spikes.defined()) {
      const at::Tensor spikes = clips.spikes[i][middle].narrow(0, clips.spikes.size(2) / 2, 1);
      row.cells.push_back({media::ToPicture(spikes.expand({3, -1, -1}))});
    }
    const at::Tensor mine = restored[i][middle], target = clips.target[i][middle];
    row.cells.push_back({media::ToPicture(mine)});
    row.cells.push_back({media::ToPicture(target)});
    row.cells.push_back({media::ErrorMap(mine, target)});
    for (int64_t t = 0; sheet->rows.empty() && t < restored.size(1); ++t) {
      row.clip.push_back(track::SideBySide(
          {media::ToPicture(without[i][t]), media::ToPicture(restored[i][t]), media::ToPicture(clips.target[i][t])}));
    }
    sheet->rows.push_back(std::move(row));
  }
}

}  // namespace lockstep::recipes
