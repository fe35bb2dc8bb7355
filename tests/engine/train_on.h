// Toy trainings on ranks that are threads: a job in, what became of it on every rank out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/ranks_fixture.h"
#include "engine/toy.h"
#include "engine/trainer.h"

namespace lockstep::engine {

struct Outcome {
  Status status;
  RunEnd end = RunEnd::kFinished;
  Position position;
  at::Tensor weights;
  double loss = 0;
};

struct Job {
  std::function<std::unique_ptr<Toy>()> make = [] { return std::make_unique<Toy>(); };
  Config config = ToyConfig();
  TrainerOptions options;
  std::function<void(Toy&, int rank)> prepare;
  std::vector<std::string> nodes;
  std::function<std::string(int rank)> run_dir_of;  // where ranks do not see one folder
};

// One outcome per rank.
inline std::vector<Outcome> TrainOn(int world, const Job& job) {
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  OnRanks(
      world,
      [&](Ranks& ranks) {
        const std::unique_ptr<Toy> toy = job.make();
        if (job.prepare) job.prepare(*toy, ranks.rank());
        TrainerOptions options = job.options;
        options.quiet = true;
        if (job.run_dir_of) options.run_dir = job.run_dir_of(ranks.rank());
        if (!options.run_dir.empty())
          options.metrics_path = fmt::format("{}/metrics/rank-{}.jsonl", options.run_dir, ranks.rank());
        Trainer trainer(job.config, toy.get(), &ranks, at::kCPU, options);
        Outcome& mine = outcomes[static_cast<size_t>(ranks.rank())];
        mine.status = trainer.Setup();
        if (!mine.status.ok()) return;
        Result<RunEnd> end = trainer.Run();
        mine.status = end.status();
        if (end.ok()) mine.end = *end;
        mine.position = trainer.position();
        mine.weights = trainer.flat().values().clone();
        mine.loss = trainer.last_loss().value_or(-1);
      },
      job.nodes);
  return outcomes;
}

inline double Difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

}  // namespace lockstep::engine
