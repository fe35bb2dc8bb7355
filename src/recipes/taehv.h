// TAEHV, trained jointly: encode a clip, decode its latents, compare with the clip. Validation measures PSNR and SSIM
// on clips of videos that are never trained on.
#pragma once

#include <memory>
#include <string>

#include "engine/recipe.h"
#include "models/taehv.h"

namespace lockstep::recipes {

class TaehvRecipe : public engine::Recipe {
 public:
  std::string name() const override { return "taehv"; }
  std::string help() const override { return "tiny video autoencoder: joint reconstruction training"; }

  void Defaults(engine::Config* config) const override;
  void Declare(ConfigReader& reader) override;
  Status Check(engine::Config* config) override;
  void Shrink(engine::Config* config) override;

  Status Build(const engine::Config& config, uint64_t seed) override;
  torch::nn::Module& model() override { return *model_; }
  Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) override;
  nlohmann::json Identity() const override;

  engine::Loss ComputeLoss(const engine::TensorBatch& batch) override;
  std::vector<engine::Score> Validate(const engine::TensorBatch& batch) override;
  std::vector<std::string> Scores() const override { return {"psnr", "ssim"}; }
  std::pair<std::string, bool> Best() const override { return {"psnr", true}; }
  std::optional<engine::Picture> Show(const engine::TensorBatch& batch) override;

 private:
  at::Tensor Reconstruct(const at::Tensor& frames) { return model_->Decode(model_->Encode(frames)).to(at::kFloat); }

  std::string variant_ = "taehv";
  double reconstruction_ = 1;
  std::string start_ = "auto";
  models::TaehvConfig shape_;
  std::shared_ptr<models::Taehv> model_;
};

}  // namespace lockstep::recipes
