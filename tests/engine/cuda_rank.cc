// One rank of the tests in tests/gpu: trains every named case on the GPU and leaves the weights it ended with.
//   cuda_rank BACKEND FOLDER CASE...     (rank and world size from the environment, as for any rank)
// writes FOLDER/CASE.bin, float32, and prints one JSON line per case.
#include <fmt/format.h>
#include <torch/types.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "base/json.h"
#include "comm/torch/tensor_comm.h"
#include "engine/chain.h"
#include "engine/ranks.h"
#include "engine/toy.h"
#include "engine/toy_adversary.h"
#include "engine/trainer.h"

namespace lockstep::engine {
namespace {

// A layer that only some samples use: a rank whose share has none of them has a parameter without a gradient.
class Branching : public Toy {
 public:
  Status Build(const Config& config, uint64_t seed) override {
    LOCKSTEP_RETURN_IF_ERROR(Toy::Build(config, seed));
    extra = net->register_module("extra", torch::nn::Linear(4, 2));
    const at::NoGradGuard no_grad;
    for (auto& parameter : extra->parameters()) parameter.fill_(0.1);
    return Status::Ok();
  }
  Loss ComputeLoss(const TensorBatch& batch) override {
    const at::Tensor x = batch["x"];
    at::Tensor out = net->second->forward(at::tanh(net->first->forward(x)));
    const at::Tensor chosen = (x.select(1, 0) > 0.6).unsqueeze(1);
    if (chosen.any().item<bool>()) out = out + at::where(chosen, extra->forward(x), 0.0);
    return {at::mse_loss(out, batch["y"]), static_cast<double>(batch.count()), {}};
  }
  torch::nn::Linear extra{nullptr};
};

struct Case {
  Config config = ToyConfig();
  std::function<std::unique_ptr<Toy>()> make = [] { return std::make_unique<Toy>(); };
  uint64_t stop_at = 0;  // stopped here, saved, and resumed by a second trainer
  bool by_checkpoint = false;
};

Case Changed(const std::function<void(Case&)>& change) {
  Case one;
  one.config.train.steps = one.config.train.schedule.steps = 20;
  one.config.train.ema.decay = 0.9;
  one.config.train.graph = "off";
  one.config.train.bucket = one.config.train.first_bucket = 64;  // several buckets also in a network this small
  change(one);
  return one;
}

// Sharded cases are compared by the model in their last checkpoint, which no layout shows in.
Case Sharded(int stage, const std::function<void(Case&)>& change) {
  return Changed([&](Case& c) {
    c.make = [] { return std::make_unique<Chain>(); };
    c.config.train.clip_norm = 0.05;
    c.config.train.bucket = c.config.train.first_bucket = 1024;
    c.config.train.zero.persistent = 30;
    c.config.train.zero.stage = stage;
    c.by_checkpoint = true;
    change(c);
  });
}

// "zero-2-bf16-offload": a stage of ZeRO and what is changed.
std::map<std::string, Case> ShardedCases() {
  const auto bf16 = [](Case& c) {
    c.config.train.parameters = at::kBFloat16;
    c.config.train.precision = Precision::kBf16;
  };
  const std::pair<std::string, std::function<void(Case&)>> changes[] = {
      {"", [](Case&) {}},
      {"-bf16", bf16},
      {"-accumulation",
       [](Case& c) {
         c.config.train.micro_batch = 1;
         c.config.train.zero.exchange_once = c.config.train.zero.stage >= 2;
       }},
      {"-recompute", [](Case& c) { c.config.train.recompute = true; }},
      {"-offload", [](Case& c) { c.config.train.offload.optimizer = true; }},
      {"-offload-share",
       [](Case& c) {
         c.config.train.offload.optimizer = true;
         c.config.train.offload.share = 0.5;
         c.stop_at = 9;
       }},
      {"-bf16-offload",
       [bf16](Case& c) {
         bf16(c);
         c.config.train.offload.optimizer = true;
       }},
      {"-offload-resumed",
       [](Case& c) {
         c.config.train.offload.optimizer = true;
         c.stop_at = 9;
       }},
      {"-reproducible", [](Case& c) { c.config.train.reproducible = true; }},
      {"-validated",
       [](Case& c) {
         c.config.data.validation.every = 5;
         c.config.data.validation.batch = 2;
         c.make = [] {
           auto chain = std::make_unique<Chain>();
           chain->held_out = std::make_shared<Points>(7);  // ranks have different numbers of batches
           return chain;
         };
       }},
  };
  const auto offload_all = [](Case& c) { c.config.train.offload = {.optimizer = true, .parameters = true}; };
  std::map<std::string, Case> cases;
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& [name, change] : changes) {
      cases.emplace("zero-" + std::to_string(stage) + name, Sharded(stage, change));
    }
    if (stage == 3) {
      cases.emplace("zero-3-offload-parameters", Sharded(3, offload_all));
      cases.emplace("zero-3-bf16-offload-parameters", Sharded(3, [&](Case& c) {
                      bf16(c);
                      offload_all(c);
                    }));
      continue;
    }
    cases.emplace("zero-" + std::to_string(stage) + "-graph",
                  Sharded(stage, [](Case& c) { c.config.train.graph = "require"; }));
  }
  return cases;
}

std::map<std::string, Case> Cases() {
  std::map<std::string, Case> sharded = ShardedCases();
  std::map<std::string, Case> cases = {
      {"plain", Changed([](Case&) {})},
      {"accumulation", Changed([](Case& c) { c.config.train.micro_batch = 1; })},
      {"find-unused", Changed([](Case& c) {
         c.config.train.find_unused = true;
         c.make = [] { return std::make_unique<Branching>(); };
       })},
      {"fp16", Changed([](Case& c) {
         c.config.train.precision = Precision::kFp16;
         c.config.train.scaler.initial = 65536;
         c.config.train.scaler.interval = 4;
       })},
      {"bf16", Changed([](Case& c) { c.config.train.precision = Precision::kBf16; })},
      {"graph", Changed([](Case& c) { c.config.train.graph = "require"; })},
      {"graph-accumulation", Changed([](Case& c) {
         c.config.train.graph = "require";
         c.config.train.micro_batch = 1;
       })},
      {"graph-fp16", Changed([](Case& c) {
         c.config.train.graph = "require";
         c.config.train.precision = Precision::kFp16;
         c.config.train.scaler.initial = 65536;
         c.config.train.scaler.interval = 4;
       })},
      {"discriminator", Changed([](Case& c) { c.make = [] { return std::make_unique<Adversary>(); }; })},
      {"graph-discriminator", Changed([](Case& c) {
         c.config.train.graph = "require";
         c.make = [] { return std::make_unique<Adversary>(); };
       })},
      {"reproducible", Changed([](Case& c) { c.config.train.reproducible = true; })},
      {"reproducible-graph", Changed([](Case& c) {
         c.config.train.reproducible = true;
         c.config.train.graph = "require";
       })},
      {"resumed", Changed([](Case& c) { c.stop_at = 9; })},
      {"graph-resumed", Changed([](Case& c) {
         c.config.train.graph = "require";
         c.stop_at = 9;
       })},
  };
  cases.merge(sharded);
  return cases;
}

struct Ended {
  at::Tensor weights;
  double loss = 0;
  double best = -1;  // score of a validation
  uint64_t replayed = 0;
  int rank = 0;
  std::string transport;
};

Result<Ended> Train(const Case& one, const TrainerOptions& options, Ranks& ranks, at::Device device) {
  const std::unique_ptr<Toy> toy = one.make();
  Trainer trainer(one.config, toy.get(), &ranks, device, options);
  LOCKSTEP_RETURN_IF_ERROR(trainer.Setup());
  const Result<RunEnd> end = trainer.Run();
  if (!end.ok()) return end.status();
  at::Tensor weights;
  if (one.by_checkpoint && !options.stop_at) {
    LOCKSTEP_RETURN_IF_ERROR(ranks.Barrier());
    const Result<std::string> model = ReadFile(options.run_dir + "/checkpoints/latest/model.safetensors");
    if (!model.ok()) return model.status();
    weights = at::empty({static_cast<int64_t>(model->size())}, at::kByte);
    std::memcpy(weights.data_ptr(), model->data(), model->size());
  } else if (!one.by_checkpoint) {
    weights = trainer.flat().values().cpu();
  }
  return Ended{
      weights,      trainer.last_loss().value_or(-1), trainer.position().best.value_or(-1), trainer.captured_steps(),
      ranks.rank(), ranks.tensors().transport()};
}

Result<Ended> Run(const std::string& name, const Case& one, comm::Backend backend, const std::string& folder) {
  auto bootstrap = comm::BootstrapFromEnvironment();
  if (!bootstrap.ok()) return bootstrap.status();
  comm::Options options;
  options.group = name;
  const at::Device device(at::kCUDA, 0);
  auto comm = comm::TensorCommunicator::Create(*bootstrap, options, backend, device);
  if (!comm.ok()) return comm.status();
  Ranks ranks(*comm);
  PrepareTorch(one.config);
  TrainerOptions quiet;
  quiet.quiet = true;
  if (one.stop_at > 0 || one.by_checkpoint) {
    quiet.run_dir = folder + "/run-" + name;
    quiet.metrics_path = fmt::format("{}/metrics/rank-{}.jsonl", quiet.run_dir, ranks.rank());
  }
  if (one.stop_at > 0) {
    quiet.stop_at = one.stop_at;
    auto stopped = Train(one, quiet, ranks, device);
    if (!stopped.ok()) return stopped.status();
    quiet.stop_at.reset();
  }
  return Train(one, quiet, ranks, device);
}

int Main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: cuda_rank nccl|host FOLDER CASE...\n");
    return 2;
  }
  const auto backend = comm::ParseBackend(words[1]);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().ToString().c_str());
    return 2;
  }
  const std::string folder = words[2];
  const std::map<std::string, Case> cases = Cases();
  for (int i = 3; i < count; ++i) {
    const auto it = cases.find(words[i]);
    if (it == cases.end()) {
      std::fprintf(stderr, "cuda_rank: there is no case '%s'\n", words[i]);
      return 2;
    }
    const Result<Ended> ended = Run(it->first, it->second, *backend, folder);
    if (!ended.ok()) {
      std::fprintf(stderr, "%s: %s\n", words[i], ended.status().ToString().c_str());
      return 1;
    }
    const at::Tensor weights = ended->weights.contiguous();
    const Status written =
        WriteFileAtomic(fmt::format("{}/{}.{}.bin", folder, it->first, ended->rank),
                        std::string(static_cast<const char*>(weights.const_data_ptr()), weights.nbytes()));
    if (!written.ok()) {
      std::fprintf(stderr, "%s\n", written.ToString().c_str());
      return 1;
    }
    const nlohmann::json line = {{"case", it->first},
                                 {"loss", ended->loss},
                                 {"best", ended->best},
                                 {"replayed", ended->replayed},
                                 {"transport", ended->transport}};
    std::printf("%s\n", ToJsonLine(line).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::engine

int main(int count, char** words) { return lockstep::engine::Main(count, words); }
