// Trainings of TAEHV on ranks that are threads, with clips and latents from memory: a job in, what became of it out.
#pragma once

#include <torch/script.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "engine/ranks_fixture.h"
#include "engine/trainer.h"
#include "recipes/taehv.h"

namespace lockstep::recipes {

// Frames [clips, T, 3, H, W] in 0..255, latents [clips, t, c, h, w] or undefined.
class ClipsInMemory : public data::Source {
 public:
  ClipsInMemory(const at::Tensor& frames, const at::Tensor& latents)
      : frames_(frames.to(at::kByte).contiguous()), latents_(latents) {
    fields_.push_back({"frames", data::ElementType::kU8, frames_.sizes().slice(1).vec()});
    if (!latents_.defined()) return;
    latents_ = latents_.contiguous();
    fields_.push_back({"latents", data::ElementType::kF32, latents_.sizes().slice(1).vec()});
  }
  const std::vector<data::Field>& fields() const override { return fields_; }
  uint64_t size() const override { return static_cast<uint64_t>(frames_.size(0)); }
  std::string Name(uint64_t index) const override { return "clip " + std::to_string(index); }
  Status Read(const data::Draw& draw, std::span<std::byte* const> out) const override {
    if (draw.index == unreadable) return Status(Code::kEnvironment, "is damaged");
    const auto at = static_cast<int64_t>(draw.index);
    std::memcpy(out[0], frames_[at].const_data_ptr(), fields_[0].bytes());
    if (latents_.defined()) std::memcpy(out[1], latents_[at].const_data_ptr(), fields_[1].bytes());
    return Status::Ok();
  }
  std::string Describe() const override { return "clips in memory"; }
  std::string Digest() const override { return "clips-in-memory"; }
  uint64_t unreadable = ~uint64_t{0};

 private:
  at::Tensor frames_, latents_;
  std::vector<data::Field> fields_;
};

// Clips of coloured noise, the same everywhere.
inline at::Tensor SomeClips(int64_t clips, int64_t frames = 12, int64_t side = 16) {
  const at::Tensor at = at::arange(clips * frames * 3 * side * side, at::kDouble).view({clips, frames, 3, side, side});
  return (at.mul(0.37).sin() * at.mul(0.011).cos()).mul(120).add(127).round();
}

// Latents that are means of pixels: [N, T / 4, 16, H / 8, W / 8] for the sizes of taehv-small.
inline void WriteTeacher(const std::string& path, const std::string& result = "y") {
  torch::jit::Module module("Teacher");
  module.define(R"(
def forward(self, x):
    n, t, c, h, w = x.shape
    y = torch.avg_pool2d(x.flatten(0, 1), 8)
    y = y.reshape(n, t // 4, 12, h // 8, w // 8)
    y = torch.cat([y, y[:, :, :4]], 2)
    return )" + result +
                "\n");
  module.save(path);
}

class TaehvInMemory : public TaehvRecipe {
 public:
  Result<engine::Sources> Open(const engine::Config& config) override {
    if (source) return engine::Sources{source, nullptr};
    return TaehvRecipe::Open(config);
  }
  Status Restore(const engine::RecipeState& state) override {
    return forgets ? Status::Ok() : TaehvRecipe::Restore(state);
  }
  std::shared_ptr<const data::Source> source;
  bool forgets = false;
};

struct TaehvJob {
  engine::Config config;
  data::SourceConfig clips;
  std::shared_ptr<const data::Source> source;
  std::function<void(TaehvSettings&)> set;
  bool forgets = false;  // its own state when it resumes
  engine::TrainerOptions options;

  TaehvJob() {
    config.train.batch = 4;
    config.train.steps = 6;
    config.train.optimizer.lr = 3e-4;
    config.train.optimizer.epsilon = 1e-4;
    config.train.clip_norm = 0;
    config.train.schedule.kind = engine::Schedule::Kind::kConstant;
    config.data.threads = 0;
    config.data.shuffle = config.data.augment = false;
    clips.frames = 12;
    clips.height = clips.width = 16;
    config.data.validation.fraction = 0;
    config.track.tensorboard = false;
    source = std::make_shared<ClipsInMemory>(SomeClips(8), at::Tensor());
  }
};

struct TaehvOutcome {
  Status status;
  std::map<std::string, std::vector<double>> series;  // of metric lines, by step
  std::map<std::string, at::Tensor> model, disc;      // state dicts
};

inline std::map<std::string, at::Tensor> Weights(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> all;
  for (const auto& [name, tensor] : models::StateDict(module)) all[name] = tensor.detach().clone();
  return all;
}

// One outcome per rank; series on rank 0.
inline std::vector<TaehvOutcome> TrainTaehv(int world, const TaehvJob& job) {
  std::vector<TaehvOutcome> outcomes(static_cast<size_t>(world));
  const Result<TempDir> scratch = TempDir::Create();
  engine::OnRanks(world, [&](engine::Ranks& ranks) {
    at::set_num_threads(1);
    TaehvOutcome& mine = outcomes[static_cast<size_t>(ranks.rank())];
    TaehvInMemory recipe;
    recipe.source = job.source;
    recipe.clips() = job.clips;
    recipe.forgets = job.forgets;
    recipe.settings().model = "taehv-small";
    recipe.settings().seraena.optimizer.lr = 3e-4;
    recipe.settings().seraena.optimizer.beta2 = 0.99;
    recipe.settings().seraena.optimizer.epsilon = 1e-4;
    if (job.set) job.set(recipe.settings());
    engine::Config config = job.config;
    mine.status = recipe.Check(&config);
    if (!mine.status.ok()) return;
    engine::TrainerOptions options = job.options;
    options.quiet = true;
    options.metrics_path = fmt::format("{}/rank-{}.jsonl", scratch->path(), ranks.rank());
    engine::Trainer trainer(config, &recipe, &ranks, at::kCPU, options);
    mine.status = trainer.Setup();
    if (!mine.status.ok()) return;
    mine.status = trainer.Run().status();
    mine.model = Weights(recipe.model());
    if (recipe.disc() != nullptr) mine.disc = Weights(*recipe.disc());
  });
  const Result<std::string> text = ReadFile(scratch->path() + "/rank-0.jsonl");
  if (!text.ok()) return outcomes;
  for (const nlohmann::json& line : ParseJsonLines(*text).lines) {
    for (const auto& [name, value] : line["scalars"].items()) {
      if (value.is_number()) outcomes[0].series[name].push_back(value.get<double>());
    }
  }
  return outcomes;
}

// Largest difference of two state dicts, relative to each tensor's largest value.
inline double Apart(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, tensor] : a) {
    const at::Tensor x = tensor.to(at::kDouble), y = b.at(name).to(at::kDouble);
    largest = std::max(largest, (x - y).abs().max().item<double>() / std::max(1e-6, x.abs().max().item<double>()));
  }
  return largest;
}

}  // namespace lockstep::recipes
