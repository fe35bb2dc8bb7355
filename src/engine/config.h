// Everything about a training that is not the recipe's own: the sections run, train, data, comm, checkpoint and track
// of the configuration. Declared once; the declaration reads, checks, explains and writes it. Plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "comm/torch/tensor_comm.h"
#include "data/sampler.h"
#include "engine/ema.h"
#include "engine/groups.h"
#include "engine/optimizer.h"
#include "engine/precision.h"
#include "engine/profile.h"
#include "engine/scaler.h"
#include "engine/schedule.h"
#include "engine/strategy.h"
#include "record/checkpoint_folder.h"

namespace lockstep::engine {

struct RunConfig {
  uint64_t seed = 42;
  std::optional<std::chrono::milliseconds> max_time;
};

struct OffloadConfig {
  bool optimizer = false;
  double share = 1;                       // of the optimizer's state, updated on the host
  bool parameters = false;                // a rank's shards of stage 3, too
  at::ScalarType gradients = at::kFloat;  // what they travel in; bf16 ones that were never added up stay so
};

struct TrainConfig {
  uint64_t steps = 1000;
  uint64_t batch = 16;       // global
  uint64_t micro_batch = 0;  // 0: a rank's whole share
  std::string device = "auto";
  Precision precision = Precision::kAuto;
  int threads = 0;  // 0: OMP_NUM_THREADS, else the rank's part of the cores; with `reproducible`: 1
  OptimizerConfig optimizer;
  Schedule schedule;
  double clip_norm = 1.0;
  std::vector<GroupRule> groups;
  EmaConfig ema;
  ScalerConfig scaler;
  bool recompute = false;
  ZeroConfig zero;
  OffloadConfig offload;
  at::ScalarType parameters = at::kFloat;  // what the model computes with; the master is float32
  bool find_unused = false, static_graph = false, broadcast_buffers = true;
  uint64_t bucket = 25u << 20, first_bucket = 1u << 20;
  bool reproducible = false, deterministic = false;
  uint64_t shards = 8;
  uint64_t bad_steps = 100;  // steps in a row without a usable gradient before the run stops
  std::string on_oom = "stop";
  std::string graph = "auto";
};

struct ValidationConfig {
  uint64_t every = 0;  // steps; 0: never
  double fraction = 0.1;
  uint64_t batch = 0;     // samples of one rank at a time; 0: as in training
  uint64_t samples = 0;   // at most; 0: all
  std::string best;       // metric; empty: the recipe's choice
  uint64_t patience = 0;  // validations without improvement before the run stops; 0: never stops
};

struct DataConfig {
  bool mixed = false;  // the recipe reads several sets (data.mix)
  data::LastBatch last_batch = data::LastBatch::kDrop;
  bool shuffle = true;
  bool augment = true;  // where the recipe's data can be: drawn anew in every epoch
  int threads = 2, prefetch = 2;
  double cores = 0;     // that decoder threads of a rank may keep busy: their number is chosen; 0: it is `threads`
  uint64_t cache = 0;   // bytes of samples kept in memory, per rank
  uint64_t memory = 0;  // of the batches of a rank; 0: prefetch alone bounds it
  std::chrono::milliseconds timeout{300000};  // of reading one sample; 0: none
  double bad_samples = 0;          // budget of the run: below 1 a share of the training samples, else a count
  std::string on_change = "stop";  // the data are not those of the checkpoint
  ValidationConfig validation;
};

struct CommConfig {
  comm::Backend backend = comm::Backend::kAuto;
  std::chrono::milliseconds timeout{600000};
};

struct CheckpointConfig {
  uint64_t every = 0;  // steps; 0: only at the end and when stopped
  std::optional<std::chrono::milliseconds> every_time;
  record::Keep keep;
  uint64_t staging = 2ull << 30;  // bytes of memory of a rank, at most
  std::string weights;            // to start from
};

enum class WandbMode { kOff, kOffline, kLive };

struct TrackConfig {
  bool tensorboard = true;
  bool csv = false;
  WandbMode wandb = WandbMode::kOff;
  std::string wandb_project, wandb_entity;
  uint64_t histograms = 0;  // steps between them; 0: none
  uint64_t every = 1;
  bool samples = false;
  ProfileConfig profile;
};

struct Config {
  RunConfig run;
  TrainConfig train;
  DataConfig data;
  CommConfig comm;
  CheckpointConfig checkpoint;
  TrackConfig track;
};

// Declares all sections but `recipe`. `data` adds a recipe's own keys to the section `data`.
void DeclareConfig(ConfigReader& reader, Config* config, const std::function<void(ConfigReader&)>& data = {});

// The strategy that a configuration asks for.
StrategyConfig StrategyOf(const TrainConfig& train);

// How the global batch falls on `world` ranks.
struct BatchPlan {
  uint64_t largest_share = 0;  // samples of the rank that has most
  uint64_t accumulation = 1;   // backward passes of a rank in one step
  bool even = true;
  std::string text;  // "8 samples x 2 ranks x 1 pass = 16"
};
// An error for fewer samples than ranks (or fewer canonical shards than ranks), with the nearest valid value.
Result<BatchPlan> PlanBatch(const TrainConfig& train, int world);

}  // namespace lockstep::engine
