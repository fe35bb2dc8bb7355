#include "recipes/taehv.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/recompute.h"
#include "recipes/video_metrics.h"

namespace lockstep::recipes {
namespace {

at::Tensor Frames(const engine::TensorBatch& batch) { return batch["frames"].to(at::kFloat).div(255); }

}  // namespace

void TaehvRecipe::Defaults(engine::Config* config) const {
  config->train.steps = 100000;
  config->train.batch = 128;
  config->train.optimizer.lr = 1e-4;
  config->train.optimizer.beta2 = 0.95;
  config->train.schedule.warmup = 2000;
  config->data.source.frames = 12;
  config->data.source.max_stride = 2;
  config->data.validation.every = 1000;
  config->checkpoint.every = 1000;
}

void TaehvRecipe::Declare(ConfigReader& reader) {
  std::vector<std::string> names;
  for (const models::TaehvConfig& variant : models::TaehvVariants()) names.push_back(variant.name);
  reader.Choice("model", &variant_, names, {.help = "variant of the network"});
  reader.Field("reconstruction", &reconstruction_, {.above = 0, .help = "weight of the reconstruction loss"});
  reader.Choice(
      "start", &start_, {"auto", "plain", "grey", "identity"},
      {.help = "first weights: PyTorch's, with grey output, or near identity; auto: identity for the small model"});
}

Status TaehvRecipe::Check(engine::Config* config) {
  Result<models::TaehvConfig> shape = models::FindTaehv(variant_);
  if (!shape.ok()) return shape.status();
  shape_ = *shape;
  const data::SourceConfig& source = config->data.source;
  return shape_.Check(source.frames, source.height, source.width).Context("recipe taehv");
}

void TaehvRecipe::Shrink(engine::Config* config) {
  variant_ = "taehv-small";
  const int multiple = 16;  // keeps SSIM's window and every variant's stride inside
  config->data.source.height = std::min(config->data.source.height, multiple * 2);
  config->data.source.width = std::min(config->data.source.width, multiple * 2);
}

Status TaehvRecipe::Build(const engine::Config& config, uint64_t seed) {
  model_ = std::make_shared<models::Taehv>(shape_, seed);
  const bool small = shape_.name == "taehv-small";
  if (start_ == "identity" || (start_ == "auto" && small)) {
    model_->StartNearIdentity();
  } else if (start_ != "plain") {
    model_->SetOutputBias();
  }
  if (config.train.recompute) {
    model_->SetWrap([](const models::Taehv::Stage& stage, const at::Tensor& x) { return engine::Recompute(stage, x); });
  }
  return Status::Ok();
}

Status TaehvRecipe::LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights,
                                const std::string& file) {
  return model_->Load(weights).Context(file);
}

nlohmann::json TaehvRecipe::Identity() const {
  return {{"model", shape_.name},
          {"patch", shape_.patch},
          {"latent", shape_.latent},
          {"encoder_time", shape_.encoder_time},
          {"decoder_time", shape_.decoder_time},
          {"encoder_width", shape_.encoder_width},
          {"decoder_width", shape_.decoder_width},
          {"cogvideox", shape_.cogvideox}};
}

engine::Loss TaehvRecipe::ComputeLoss(const engine::TensorBatch& batch) {
  const at::Tensor frames = Frames(batch);
  const at::Tensor loss = at::mse_loss(Reconstruct(frames), model_->Target(frames)).mul(reconstruction_);
  return {loss, static_cast<double>(batch.count()), {}};
}

std::vector<engine::Score> TaehvRecipe::Validate(const engine::TensorBatch& batch) {
  const at::Tensor frames = Frames(batch);
  const at::Tensor output = Reconstruct(frames);
  const at::Tensor target = model_->Target(frames);
  return {{"psnr", Psnr(output, target).sum().item<double>()}, {"ssim", Ssim(output, target).sum().item<double>()}};
}

// Per clip one row of input frames above one row of reconstructions.
std::optional<engine::Picture> TaehvRecipe::Show(const engine::TensorBatch& batch) {
  const at::NoGradGuard no_grad;
  const int64_t clips = std::min<int64_t>(3, batch.count());
  const at::Tensor frames = Frames(batch).narrow(0, 0, clips);
  const at::Tensor target = model_->Target(frames);
  const int64_t shown = std::min<int64_t>(6, target.size(1));
  const at::Tensor both = at::stack({target, Reconstruct(frames)}, 1).narrow(2, 0, shown);  // [clip, 2, T, C, H, W]
  const int64_t height = both.size(4);
  const int64_t width = both.size(5);
  at::Tensor sheet = both.permute({0, 1, 4, 2, 5, 3}).reshape({clips * 2 * height, shown * width, 3});
  const int64_t zoom = std::max<int64_t>(1, 128 / std::max(height, width));
  sheet = sheet.repeat_interleave(zoom, 0).repeat_interleave(zoom, 1);
  const at::Tensor bytes = sheet.clamp(0, 1).mul(255).round().to(at::kByte).to(at::kCPU).contiguous();
  engine::Picture picture;
  picture.width = static_cast<int>(bytes.size(1));
  picture.height = static_cast<int>(bytes.size(0));
  const auto* first = static_cast<const uint8_t*>(bytes.const_data_ptr());
  picture.rgb.assign(first, first + bytes.numel());
  return picture;
}

}  // namespace lockstep::recipes
