// VRT: video restoration (deblurring, super-resolution, denoising) from frames and, where the data have them, spikes;
// frame interpolation
// (docs/vrt.md). Trained on crops of short clips; validated on whole clips in overlapping windows and tiles where the
// configuration names a test set, else on clips that are never trained on.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/recipe.h"
#include "media/restore.h"
#include "models/vrt.h"
#include "models/vrt_fusion.h"
#include "recipes/paired_data.h"

namespace lockstep::recipes {

inline const std::string kAdapter = "fusion_adapter.";  // before the names of its parameters, as S-VRT has them

// The section `recipe`.
struct VrtSettings {
  std::string model = "small";  // a shape of models::VrtVariants
  std::string task = "restore";
  std::optional<int64_t> in_channels, upscale, pa_frames, deformable_groups;
  std::optional<std::array<int64_t, 3>> img_size, window;
  std::optional<std::vector<int64_t>> depths, indep_reconsts, embed_dims, heads;
  std::optional<bool> nonblind_denoising;
  std::optional<double> drop_path;
  std::string spynet;  // a file
  std::optional<bool> recompute_attention, recompute_ffn;
  std::optional<std::vector<int64_t>> keep_attention, keep_ffn;
  std::string fusion_operator = "concat", fusion_mode = "replace";
  int64_t fusion_out_channels = 3;
  models::FusionConfig fusion;
  uint64_t fusion_warmup = 0;
  // Losses of what the adapter gives, beside that of what VRT makes of it (`restored_loss`); without the latter, VRT is
  // not computed in training.
  bool restored_loss = true;
  double fused_loss = 0, passthrough = 0, passthrough_end = 0, update_penalty = 0;
  uint64_t passthrough_steps = 0;
  models::LoraConfig lora;
  std::vector<std::string> lora_also;  // globs of parameters that train beside LoRA
  std::string loss = "charbonnier";
  double loss_weight = 1, epsilon = 1e-9;
  double noise_min = 0, noise_max = 50, noise_test = 30;  // of 255
  bool partial = false;
  media::RestoreTiles test;

  void Declare(ConfigReader& reader);
  // The named shape with what the keys change. Input channels are those of `spikes` and RGB unless a key says them.
  Result<models::VrtConfig> Shape(const data::SpikeInput& spikes) const;
  bool fuses() const { return fusion_operator != "concat"; }
  bool interpolates() const { return task == "interpolate"; }
  bool fading() const { return passthrough > 0 || passthrough_end > 0; }
};

class VrtRecipe : public engine::Recipe {
 public:
  std::string name() const override { return "vrt"; }
  std::string help() const override { return "VRT: restores video (deblurring from RGB and spikes, KAIR's options)"; }

  void Defaults(engine::Config* config) override;
  void Declare(ConfigReader& reader) override { settings_.Declare(reader); }
  void DeclareData(ConfigReader& reader, engine::DataConfig* data) override;
  Status Check(engine::Config* config) override;
  void Shrink(engine::Config* config) override;

  Status Build(const engine::Config& config, uint64_t seed) override;
  torch::nn::Module& model() override { return *model_; }
  Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) override;
  Status Start(at::Device device) override;
  nlohmann::json Identity() const override;
  engine::RecipeState Save() override;
  std::vector<engine::Unit> Units() override;
  void RunUnits(engine::UnitRunner runner) override { model_->RunUnits(std::move(runner)); }

  Result<engine::Sources> Open(const engine::Config& config) override;
  Status Prepare(const engine::Pass& pass, engine::TensorBatch* batch) override;
  engine::Loss ComputeLoss(const engine::TensorBatch& batch) override;
  engine::Loss ComputeValidationLoss(const engine::TensorBatch& batch) override;
  std::vector<engine::Score> Validate(const engine::TensorBatch& batch) override;
  bool ScoresEachSample() const override { return whole_clips_; }
  std::vector<std::string> Scores() const override;
  std::pair<std::string, bool> Best() const override { return {"psnr", true}; }
  std::pair<std::string, double> PerSample() const override;
  void Show(const engine::TensorBatch& batch, track::Sheet* sheet) override;

  // The clips of data.test, whole; null where there are none.
  Result<std::shared_ptr<const data::Source>> OpenTest() const;

  VrtSettings& settings() { return settings_; }
  PairedData& data() { return data_; }

 private:
  Status LoadSpyNet();
  // Clips in [0, 1] as the model takes them: RGB, spikes, the noise level.
  struct Clips {
    at::Tensor rgb, spikes, level, target;
  };
  Clips Training(const engine::TensorBatch& batch) const;
  Clips Validating(const engine::TensorBatch& batch) const;
  static at::Tensor Fraction(const at::Tensor& field);
  // `fused`: what the adapter made of RGB and spikes, where there is one.
  at::Tensor Forward(const Clips& clips, const at::Tensor& draws, at::Tensor* fused = nullptr);
  at::Tensor Restored(const engine::TensorBatch& batch, Clips* clips);
  at::Tensor RestoredBefore(const engine::TensorBatch& batch, Clips* clips);
  // What is there without the model: the input, or for interpolation the mean of the two frames around the target.
  at::Tensor Without(const Clips& clips) const;
  at::Tensor AdapterLoss(const engine::TensorBatch& batch, const Clips& clips, const at::Tensor& fused) const;
  at::Tensor Distance(const at::Tensor& a, const at::Tensor& b) const;

  VrtSettings settings_;
  PairedData data_;
  models::VrtConfig shape_;
  uint64_t seed_ = 0;
  bool shrunk_ = false, whole_clips_ = false;
  std::shared_ptr<models::Vrt> model_;
  std::shared_ptr<models::FusionAdapter> adapter_;  // null: spikes are further input channels
  // Of the last validation batch: scores, loss and pictures are of the same restored clip.
  std::vector<data::SampleId> restored_of_;
  at::Tensor restored_;
};

}  // namespace lockstep::recipes
