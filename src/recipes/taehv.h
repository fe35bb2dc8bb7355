// TAEHV, trained in one of two ways, alone or with a teacher, with or without a discriminator (docs/taehv.md):
//
//   joint     encode a clip, decode what came out, compare with the clip; the encoder may also follow a teacher
//   distill   the encoder learns the teacher's latents, the decoder learns to decode the teacher's latents
//
// Loss = reconstruction + encoder + adversarial, each with its weight; a weight of 0 leaves its part and what it needs
// out. Validation measures PSNR and SSIM on clips of videos that are never trained on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/recipe.h"
#include "engine/tree_sum.h"
#include "models/seraena.h"
#include "models/taehv.h"
#include "recipes/replay.h"
#include "recipes/teacher.h"
#include "recipes/teacher_cache.h"
#include "recipes/video_recipe.h"

namespace lockstep::recipes {

// The section `recipe`.
struct TaehvSettings {
  std::string model = "taehv";
  std::string start = "auto";
  std::string convert_from;  // weights of another variant to begin with
  models::Execution execution = models::Execution::kFast;
  std::string mode = "joint";
  std::string train = "both";
  double reconstruction = 1, encoder = 0, adversarial = 0;
  TeacherConfig teacher;

  struct Seraena {
    int frames = 3;  // of one picture the discriminator sees
    uint64_t replay = 16384;
    uint64_t replay_memory = uint64_t{4} << 30;  // of all ranks together
    at::ScalarType replay_type = at::kFloat;
    engine::OptimizerConfig optimizer;
  } seraena;

  void Declare(ConfigReader& reader);
};

class TaehvRecipe : public VideoRecipe {
 public:
  TaehvRecipe() { bucketed_ = true; }
  std::string name() const override { return "taehv"; }
  std::string help() const override { return "tiny video autoencoder: joint or with a teacher, also adversarial"; }

  void Defaults(engine::Config* config) override;
  void Declare(ConfigReader& reader) override { settings_.Declare(reader); }
  Status Check(engine::Config* config) override;
  void Shrink(engine::Config* config) override;

  void Join(engine::Ranks* ranks) override {
    VideoRecipe::Join(ranks);
    ranks_ = ranks;
  }
  Status Build(const engine::Config& config, uint64_t seed) override;
  torch::nn::Module& model() override { return *model_; }
  Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) override;
  nlohmann::json Identity() const override;
  engine::PlanFacts Plan() const override;
  std::vector<engine::Unit> Units() override;
  void RunUnits(engine::UnitRunner runner) override { model_->SetWrap(std::move(runner)); }
  Status Start(at::Device device) override;
  Result<engine::Sources> Open(const engine::Config& config) override;
  Status BuildCache(const engine::Config& config, at::Device device, const cache::BuildOptions& options) override;

  Status Prepare(const engine::Pass& pass, engine::TensorBatch* batch) override;
  std::optional<engine::Discriminator> discriminator() override;
  engine::Loss ComputeDiscriminatorLoss(const engine::Pass& pass, const engine::TensorBatch& batch) override;
  engine::Loss ComputeLoss(const engine::TensorBatch& batch) override;
  std::vector<std::string> Parts() const override;
  std::vector<std::pair<std::string, double>> Metrics() override;

  Status PrepareValidation(engine::TensorBatch* batch) override;
  engine::Loss ComputeValidationLoss(const engine::TensorBatch& batch) override;
  std::vector<engine::Score> Validate(const engine::TensorBatch& batch) override;
  std::vector<std::string> Scores() const override;
  std::pair<std::string, bool> Best() const override { return {"psnr", true}; }
  void Show(const engine::TensorBatch& batch, track::Sheet* sheet) override;

  Status Gather() override;
  engine::RecipeState Save() override;
  Status Restore(const engine::RecipeState& state) override;

  TaehvSettings& settings() { return settings_; }
  models::PatchDisc* disc() { return disc_.get(); }

 private:
  // What a loss looks at; undefined where no part needs it.
  struct Outputs {
    at::Tensor encoded, decoded;
  };

  bool distills() const { return settings_.mode == "distill"; }
  bool trains_encoder() const { return settings_.train != "decoder"; }
  bool trains_decoder() const { return settings_.train != "encoder"; }
  bool has_teacher() const { return settings_.teacher.kind != "none"; }
  bool loads_teacher() const { return settings_.teacher.kind == "torchscript" || settings_.teacher.kind == "program"; }
  bool needs_latents() const { return encoder_ > 0 || (distills() && (reconstruction_ > 0 || adversarial_ > 0)); }

  Status CheckParts();
  Status CheckSizes() const;
  Status CheckSeraena(const engine::Config& config);
  TeacherShapes ShapesOfTeacher() const;
  // With the fields of the cache in every sample.
  Result<engine::Sources> WithCache(engine::Sources sources);
  Status AddLatents(engine::TensorBatch* batch, uint64_t step, const std::vector<uint64_t>& places);
  // Features of the batch: from the cache, the rest from the teacher.
  Result<std::vector<at::Tensor>> TeacherFeatures(engine::TensorBatch* batch);
  Outputs Run(const engine::TensorBatch& batch);
  at::Tensor Reconstruct(const engine::TensorBatch& batch);
  at::Tensor ToPictures(const at::Tensor& frames) const;
  at::Tensor ToFrames(const at::Tensor& pictures, int64_t clips) const;
  at::Tensor ContextOf(const at::Tensor& latents) const;

  TaehvSettings settings_;
  double reconstruction_ = 0, encoder_ = 0, adversarial_ = 0;  // weights in force
  bool shrunk_ = false;
  models::TaehvConfig shape_;
  engine::TrainConfig train_;
  uint64_t seed_ = 0;
  engine::Ranks* ranks_ = nullptr;

  std::shared_ptr<models::Taehv> model_;
  std::unique_ptr<Teacher> teacher_;
  std::string cache_note_;                       // for the start of a training
  std::unique_ptr<TeacherCache> teacher_cache_;  // with recipe.teacher.cache.root, where it has this teacher's latents
  std::shared_ptr<models::PatchDisc> disc_;
  models::SumOverRanks sum_;
  ReplayShape replay_shape_;
  std::unique_ptr<Replay> replay_;
  int64_t padded_ = 0, groups_ = 0;  // frames a clip is filled up to for the discriminator; pictures made of it
  at::Tensor statistics_;
  std::unique_ptr<engine::TreeSum> statistics_sum_;  // with `reproducible`
  std::optional<Outputs> kept_;                      // from the discriminator's pass, where a step has one
};

}  // namespace lockstep::recipes
