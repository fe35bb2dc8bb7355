// A small language model trained on ranks that are threads: what was asked in, what became of it out.
#pragma once

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "engine/ranks_fixture.h"
#include "engine/trainer.h"
#include "models/weights.h"
#include "recipes/lm.h"

namespace lockstep::recipes {

struct LmJob {
  std::function<void(LmRecipe&, engine::Config&)> set = [](LmRecipe&, engine::Config&) {};
  engine::TrainerOptions options;
};

struct LmOutcome {
  Status status;
  std::map<std::string, at::Tensor> weights;          // as this rank has them
  std::map<std::string, at::Tensor> trained;          // rank 0: whole, flat, from the parts of all ranks
  std::map<std::string, std::vector<double>> series;  // rank 0
};

// Short and long documents: sequences have very unequal numbers of labels.
inline const std::string& UnequalDocuments() {
  static const TempDir folder = *TempDir::Create();
  static const std::string path = [] {
    std::ofstream out(folder / "documents.jsonl");
    for (int i = 0; i < 160; ++i) {
      const int size = i % 20 < 12 ? 1 + i % 3 : 40 + i;
      std::string text;
      for (int k = 0; k < size; ++k) text += static_cast<char>('a' + (i * 7 + k * k) % 26);
      out << nlohmann::json{{"text", text}}.dump() << "\n";
    }
    return folder / "documents.jsonl";
  }();
  return path;
}

inline Status ConfigureLm(const LmJob& job, LmRecipe& recipe, engine::Config* config) {
  LmSettings& settings = recipe.settings();
  settings.width = 32;
  settings.layers = 2;
  settings.heads = 4;
  settings.kv_heads = 2;
  settings.mlp = 64;
  recipe.Defaults(config);
  recipe.corpus().path = UnequalDocuments();
  recipe.length() = 16;
  config->train.batch = 6;
  config->train.steps = config->train.schedule.steps = 4;
  config->train.schedule.warmup = 0;
  config->train.optimizer.kind = engine::OptimizerConfig::Kind::kSgd;
  config->train.optimizer.lr = 0.5;
  config->train.precision = engine::Precision::kFp32;
  config->data.threads = 0;
  config->track.tensorboard = false;
  config->checkpoint.every = config->data.validation.every = 0;
  job.set(recipe, *config);
  return recipe.Check(config);
}

inline std::vector<LmOutcome> TrainLm(int world, const LmJob& job) {
  std::vector<LmOutcome> outcomes(static_cast<size_t>(world));
  const TempDir scratch = *TempDir::Create();
  std::mutex mutex;
  engine::OnRanks(world, [&](engine::Ranks& ranks) {
    at::set_num_threads(1);
    LmOutcome& mine = outcomes[static_cast<size_t>(ranks.rank())];
    LmRecipe recipe;
    engine::Config config;
    mine.status = ConfigureLm(job, recipe, &config);
    if (!mine.status.ok()) return;
    engine::TrainerOptions options = job.options;
    options.quiet = true;
    options.metrics_path = fmt::format("{}/rank-{}.jsonl", scratch.path(), ranks.rank());
    engine::Trainer trainer(config, &recipe, &ranks, at::kCPU, options);
    mine.status = trainer.Setup();
    if (!mine.status.ok()) return;
    mine.status = trainer.Run().status();
    for (const auto& [name, tensor] : models::StateDict(recipe.model())) mine.weights[name] = tensor.detach().clone();
    const std::lock_guard lock(mutex);
    const engine::OwnedParameters& own = trainer.flat().owned();
    for (const engine::Segment& segment : own.segments) {
      const engine::FlatParameter& parameter = trainer.flat().parameters()[segment.parameter];
      at::Tensor& whole = outcomes[0].trained[parameter.name];
      if (!whole.defined()) whole = at::full({parameter.numel}, std::nan(""));
      whole.narrow(0, segment.flat - parameter.offset, segment.end - segment.begin)
          .copy_(own.Values(segment.begin, segment.end - segment.begin, segment.flat));
    }
  });
  const Result<std::string> text = ReadFile(scratch / "rank-0.jsonl");
  if (!text.ok()) return outcomes;
  for (const nlohmann::json& line : ParseJsonLines(*text).lines) {
    for (const auto& [name, value] : line["scalars"].items()) {
      if (value.is_number()) outcomes[0].series[name].push_back(value.get<double>());
    }
  }
  return outcomes;
}

inline double LmApart(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  double largest = !a.empty() && a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, tensor] : a) largest = std::max(largest, (tensor - b.at(name)).abs().max().item<double>());
  return largest;
}

}  // namespace lockstep::recipes
