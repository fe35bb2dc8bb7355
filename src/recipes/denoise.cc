#include "recipes/denoise.h"

#include <torch/nn/modules/conv.h>

#include "media/tiles.h"
#include "media/video_metrics.h"
#include "models/weights.h"
#include "recipes/video_recipe.h"
#include "track/score_text.h"

namespace lockstep::recipes {
namespace {

struct Net : torch::nn::Module {
  explicit Net(int width) {
    in = register_module("in", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, width, 3).padding(1)));
    mid = register_module("mid", torch::nn::Conv2d(torch::nn::Conv2dOptions(width, width, 3).padding(1)));
    out = register_module("out", torch::nn::Conv2d(torch::nn::Conv2dOptions(width, 3, 3).padding(1)));
  }
  at::Tensor forward(const at::Tensor& x) {  // what it finds is the noise
    return x - out->forward(at::relu(mid->forward(at::relu(in->forward(x)))));
  }
  torch::nn::Conv2d in{nullptr}, mid{nullptr}, out{nullptr};
};

class Denoise : public VideoRecipe {
 public:
  Denoise() { bucketed_ = with_features_ = true; }  // batches of any size; fields of data.features
  std::string name() const override { return "denoise"; }
  std::string help() const override { return "takes noise off pictures: the example of docs/write-a-recipe.md"; }

  void Defaults(engine::Config* config) override {
    clips_.frames = 1;
    config->train.optimizer.lr = 1e-3;
  }
  void Declare(ConfigReader& reader) override {
    reader.Field("width", &width_, {.min = 1, .help = "channels of the hidden layers"});
    reader.Field("noise", &noise_, {.above = 0, .max = 1, .help = "its standard deviation, of a range of 1"});
  }

  Status Build(const engine::Config& /*config*/, uint64_t seed) override {
    torch::manual_seed(seed);
    net_ = std::make_shared<Net>(width_);
    return Status::Ok();
  }
  torch::nn::Module& model() override { return *net_; }
  Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) override {
    return models::LoadWeights(*net_, weights).Context(file);
  }
  nlohmann::json Identity() const override { return {{"width", width_}}; }

  engine::Loss ComputeLoss(const engine::TensorBatch& batch) override {
    const at::Tensor clean = Pictures(batch);
    const at::Tensor noisy = clean + noise_ * at::randn_like(clean);  // drawn anew for every step and sample
    return {at::mse_loss(net_->forward(noisy).to(at::kFloat), clean), static_cast<double>(batch.count()), {}};
  }
  std::vector<engine::Score> Validate(const engine::TensorBatch& batch) override {
    const at::Tensor clean = Pictures(batch);
    const at::Tensor denoised = net_->forward(Noisy(batch)).to(at::kFloat);
    return {{"psnr", media::Psnr(denoised.unsqueeze(1), clean.unsqueeze(1)).sum().item<double>()}};
  }
  std::vector<std::string> Scores() const override { return {"psnr"}; }
  std::pair<std::string, bool> Best() const override { return {"psnr", true}; }
  void Show(const engine::TensorBatch& batch, track::Sheet* sheet) override {
    const at::Tensor clean = Pictures(batch), noisy = Noisy(batch), denoised = net_->forward(noisy).to(at::kFloat);
    const at::Tensor psnr = media::Psnr(denoised.unsqueeze(1), clean.unsqueeze(1));
    sheet->columns = {"noisy", "denoised", "clean", "error"};
    sheet->map_label = track::kAbsoluteError;
    for (int64_t i = 0; i < batch.count(); ++i) {
      sheet->rows.push_back({.score = track::ScoreText("psnr", psnr[i].item<double>()),
                             .cells = {{media::ToPicture(noisy[i])},
                                       {media::ToPicture(denoised[i])},
                                       {media::ToPicture(clean[i])},
                                       {media::ErrorMap(denoised[i], clean[i])}}});
    }
  }

 private:
  static at::Tensor Pictures(const engine::TensorBatch& batch) {  // [samples, 1 frame, 3, height, width], 0..255
    return batch["frames"].select(1, 0).to(at::kFloat).div(255);
  }
  at::Tensor Noisy(const engine::TensorBatch& batch) const {
    torch::manual_seed(batch.ids.front().index);  // the same noise at every validation
    const at::Tensor clean = Pictures(batch);
    return clean + noise_ * at::randn_like(clean);
  }

  int width_ = 32;
  double noise_ = 0.1;
  std::shared_ptr<Net> net_;
};

}  // namespace

std::unique_ptr<engine::Recipe> MakeDenoise() { return std::make_unique<Denoise>(); }

}  // namespace lockstep::recipes
