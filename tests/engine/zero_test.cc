// Every stage of ZeRO trains as DDP does, bit for bit: over numbers of ranks and passes, precisions, clipping, EMA,
// recomputing, unused and shared parameters, ranks without samples; and a checkpoint of one stage is continued by any
// other.
#include "engine/zero.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "engine/chain.h"
#include "engine/learner.h"
#include "engine/train_on.h"
#include "engine/unit_runner.h"

namespace lockstep::engine {
namespace {

struct Trained {
  Status status;
  std::map<std::string, at::Tensor> values;  // by name, whole, from the parts of all ranks
  double loss = 0;
  Position position;
  int64_t own = 0;     // elements that one rank updates
  int64_t frozen = 0;  // elements of frozen parameters that one rank keeps as its shards
  bool host_parameters = false;
};

struct Work {
  int world = 2;
  Config config;
  TrainerOptions options;
  std::function<void(Chain&, int rank)> prepare;
  std::vector<std::string> nodes;
};

Trained Train(const Work& run) {
  Trained trained;
  std::mutex mutex;
  OnRanks(
      run.world,
      [&](Ranks& ranks) {
        at::set_num_threads(1);  // several would divide sums differently from run to run
        Chain chain;
        if (run.prepare) run.prepare(chain, ranks.rank());
        TrainerOptions options = run.options;
        options.quiet = true;
        if (!options.run_dir.empty()) {
          options.metrics_path = fmt::format("{}/metrics/rank-{}.jsonl", options.run_dir, ranks.rank());
        }
        Trainer trainer(run.config, &chain, &ranks, at::kCPU, options);
        Status status = trainer.Setup();
        if (status.ok()) status = trainer.Run().status();
        const std::lock_guard lock(mutex);
        if (!status.ok() && trained.status.ok()) trained.status = status;
        if (!status.ok()) return;
        trained.loss = trainer.last_loss().value_or(-1);
        trained.position = trainer.position();
        const OwnedParameters& own = trainer.flat().owned();
        trained.own = own.numel();
        trained.frozen = 0;
        trained.host_parameters = trainer.flat().options().host_parameters;
        for (const FrozenGroup& group : trainer.flat().frozen().groups()) trained.frozen += group.shard.numel();
        for (const Segment& segment : own.segments) {
          const FlatParameter& parameter = trainer.flat().parameters()[segment.parameter];
          at::Tensor& whole = trained.values[parameter.name];
          if (!whole.defined()) whole = at::full({parameter.numel}, std::nan(""));
          whole.narrow(0, segment.flat - parameter.offset, segment.end - segment.begin)
              .copy_(own.Values(segment.begin, segment.end - segment.begin, segment.flat));
        }
      },
      run.nodes);
  return trained;
}

Config Base() {
  Config config = ToyConfig();
  config.train.steps = 6;
  config.train.schedule.steps = 6;
  config.train.clip_norm = 0.05;  // always clips
  config.train.bucket = config.train.first_bucket = 1024;
  config.train.zero.persistent = 30;  // of 24: biases and the scale stay whole
  config.train.ema.decay = 0.9;
  return config;
}

void ExpectSame(const Trained& found, const Trained& expected, const std::string& what) {
  ASSERT_TRUE(found.status.ok()) << what << ": " << found.status.ToString();
  ASSERT_EQ(found.values.size(), expected.values.size()) << what;
  for (const auto& [name, tensor] : expected.values) {
    EXPECT_TRUE(at::equal(found.values.at(name), tensor)) << what << ": " << name;
  }
  EXPECT_EQ(found.loss, expected.loss) << what;
}

// bf16 parameters with a float32 master.
void UseBf16(TrainConfig* train) {
  train->parameters = at::kBFloat16;
  train->precision = Precision::kBf16;
}

TEST(ZeroBits, EveryStageHasTheBitsOfDdp) {
  for (const int world : {2, 3, 4}) {
    for (const bool bf16 : {false, true}) {
      for (const uint64_t passes : {1, 2}) {
        Work run{world, Base(), {}, {}, {}};
        run.config.train.batch = 12;
        run.config.train.micro_batch = 12 / static_cast<uint64_t>(world) / passes;
        if (bf16) UseBf16(&run.config.train);
        const Trained ddp = Train(run);
        ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
        for (const int stage : {1, 2, 3}) {
          run.config.train.zero.stage = stage;
          run.config.train.zero.exchange_once = stage >= 2 && passes > 1;
          const Trained sharded = Train(run);
          ExpectSame(sharded, ddp, fmt::format("stage {} on {}, bf16 {}, {} passes", stage, world, bf16, passes));
          EXPECT_LT(sharded.own, ddp.own);
        }
      }
    }
  }
}

// On the CPU the copies are plain ones; the chunks, the thread and the order are those of a GPU.
TEST(ZeroOffload, AnOffloadedOptimizerHasTheSameBits) {
  for (const int world : {1, 2}) {
    for (const bool bf16 : {false, true}) {
      for (const uint64_t passes : {1, 2}) {
        Work run{world, Base(), {}, {}, {}};
        run.config.train.micro_batch = 8 / static_cast<uint64_t>(world) / passes;
        run.config.train.groups = {{.match = "layer1.*", .freeze_until = 3}};
        if (bf16) UseBf16(&run.config.train);
        const Trained ddp = Train(run);
        ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
        run.options.queued = true;
        run.config.train.offload.optimizer = true;
        for (const int stage : {0, 1, 2, 3}) {
          if (world == 1 && stage > 0) continue;
          run.config.train.zero.stage = stage;
          run.config.train.zero.exchange_once = stage >= 2;
          ExpectSame(Train(run), ddp,
                     fmt::format("offload, stage {} on {}, bf16 {}, {} passes", stage, world, bf16, passes));
        }
      }
    }
  }
}

// Shards that are copied up before they are gathered; on one rank as well, whose device may be too small. Some layers
// are frozen, one thaws; validation uses the EMA.
TEST(ZeroOffload, OffloadedParametersHaveTheSameBits) {
  for (const int world : {1, 2, 3}) {
    for (const bool bf16 : {false, true}) {
      for (const int64_t prefetch : {0, 1 << 20}) {
        Work run{world, Base(), {}, {}, {}};
        run.config.train.batch = 12;
        run.config.train.micro_batch = 12 / static_cast<uint64_t>(world) / 2;
        run.config.train.groups = {{.match = "layer1.*", .freeze_until = 3},
                                   {.match = "layer3.weight", .freeze = true}};
        run.config.data.validation.every = 2;
        run.prepare = [](Chain& chain, int) { chain.held_out = std::make_shared<Points>(7); };
        if (bf16) UseBf16(&run.config.train);
        const Trained ddp = Train(run);
        ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
        run.options.queued = true;
        run.config.train.offload = {.optimizer = true, .parameters = true};
        run.config.train.zero.stage = 3;
        run.config.train.zero.exchange_once = true;
        run.config.train.zero.prefetch = prefetch;
        const Trained offloaded = Train(run);
        const std::string what = fmt::format("{} ranks, bf16 {}, {} ahead", world, bf16, prefetch);
        ExpectSame(offloaded, ddp, what);
        EXPECT_EQ(offloaded.position.best, ddp.position.best) << what;
        EXPECT_EQ(offloaded.frozen, (24 * 24 + 16 * world - 1) / (16 * world) * 16) << what << ": in shards";
        EXPECT_TRUE(offloaded.host_parameters) << what;
      }
    }
  }
}

// The norm on the device, and updates that are queued there.
TEST(ZeroBits, QueuedUpdatesHaveTheBitsOfDdpToo) {
  for (const int world : {2, 4}) {
    Work run{world, Base(), {}, {}, {}};
    run.options.queued = true;
    const Trained ddp = Train(run);
    ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
    for (const int stage : {1, 2, 3}) {
      run.config.train.zero.stage = stage;
      ExpectSame(Train(run), ddp, fmt::format("stage {} on {}", stage, world));
    }
  }
}

// Seven samples in batches of two: ranks have different numbers of batches, one of four ranks only one sample. The
// toy's score runs the model a second time. With an EMA, that is what is validated.
TEST(ZeroValidation, HasTheBitsOfDdpWhateverEachRankHasToDo) {
  for (const int world : {2, 3, 4}) {
    for (const double decay : {0.0, 0.9}) {
      Work run{world, Base(), {}, {}, {}};
      run.config.train.ema.decay = decay;
      run.config.data.validation.every = 2;
      run.config.data.validation.batch = 2;
      run.prepare = [](Chain& chain, int) { chain.held_out = std::make_shared<Points>(7); };
      const Trained ddp = Train(run);
      ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
      ASSERT_TRUE(ddp.position.best);
      for (const int64_t prefetch : {0, 1 << 20}) {
        run.config.train.zero.stage = 3;
        run.config.train.zero.prefetch = prefetch;
        const Trained sharded = Train(run);
        const std::string what = fmt::format("{} ranks, decay {}, {} ahead", world, decay, prefetch);
        ExpectSame(sharded, ddp, what);
        EXPECT_EQ(sharded.position.best, ddp.position.best) << what;
        EXPECT_EQ(sharded.position.best_step, ddp.position.best_step) << what;
      }
    }
  }
}

// What is whole during an evaluation, on every rank: the unit that computes and what is gathered ahead. The ranks run
// the model 0, 1 and 2 times, the last one backwards through its units.
TEST(ZeroValidation, HoldsAUnitAndWhatIsGatheredAheadAtAnyTime) {
  const int64_t unit = 24 * 24 + 24;
  const struct {
    int64_t prefetch, units;
  } rows[] = {{0, 1}, {1, 2}, {unit + 1, 3}};
  for (const auto& row : rows) {
    OnRanks(3, [&](Ranks& ranks) {
      Chain plain, chain;
      ASSERT_TRUE(plain.Build({}, 7).ok() && chain.Build({}, 7).ok());
      Learner::Settings settings;
      settings.strategy.zero = {.stage = 3, .prefetch = row.prefetch, .persistent = 0};
      settings.strategy.units = chain.Units();
      const auto learner = Learner::Create(chain.model(), settings, &ranks, at::kCPU);
      ASSERT_TRUE(learner.ok()) << learner.status().ToString();
      auto& zero = dynamic_cast<Zero&>((*learner)->strategy());
      ASSERT_TRUE(zero.AdoptParameters().ok());
      chain.RunUnits(MakeUnitRunner(&zero, /*recompute=*/false));
      const at::NoGradGuard no_grad;
      const at::Tensor x = at::rand({3, 4}), wide = at::rand({3, 24});
      const int64_t padded = 3 * kFlatAlignment;        // of a bucket
      const size_t always = zero.unit_memory().held();  // the scale
      zero.unit_memory().StartPeak();
      const Status status = zero.Evaluate([&] {
        for (int i = 0; i < ranks.rank(); ++i) {
          EXPECT_TRUE(at::equal(chain.Forward(x), plain.Forward(x)));
          for (const size_t u : {3, 2, 1}) {
            const auto forward = [&](const at::Tensor& y) { return chain.chain->layers[u]->forward(y); };
            EXPECT_TRUE(at::equal(chain.run(u, forward, wide), plain.chain->layers[u]->forward(wide)));
          }
        }
      });
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(zero.unit_memory().held(), always);
      EXPECT_GT(zero.unit_memory().peak(), always) << "ranks without work help";
      EXPECT_LE(zero.unit_memory().peak() - always, static_cast<size_t>(row.units * (unit + padded)) * sizeof(float));
    });
  }
}

// The same of a training pass, where the order is known. Two units are whole where one follows the other in memory.
TEST(Zero, GathersAheadNoMoreThanItMay) {
  OnRanks(2, [&](Ranks& ranks) {
    Chain chain;
    ASSERT_TRUE(chain.Build({}, 7).ok());
    Learner::Settings settings;
    settings.strategy.zero = {.stage = 3, .prefetch = 1, .persistent = 0};
    settings.strategy.units = chain.Units();
    const auto learner = Learner::Create(chain.model(), settings, &ranks, at::kCPU);
    ASSERT_TRUE(learner.ok()) << learner.status().ToString();
    auto& zero = dynamic_cast<Zero&>((*learner)->strategy());
    ASSERT_TRUE(zero.AdoptParameters().ok());
    chain.RunUnits(MakeUnitRunner(&zero, /*recompute=*/false));
    zero.BeginStep();
    zero.BeginBackward(/*last=*/true);
    chain.Forward(at::rand({3, 4})).sum().backward();
    ASSERT_TRUE(zero.EndBackward(ParallelStrategy::Backward::kDone).ok());
    ASSERT_TRUE(zero.FinishGradients().ok());
    const int64_t unit = 24 * 24 + 24 + 2 * kFlatAlignment;
    EXPECT_LE(zero.unit_memory().peak(), static_cast<size_t>(2 * unit + 2 * kFlatAlignment) * sizeof(float));
  });
}

TEST(ZeroValidation, AFailureOnOneRankIsThatOfAll) {
  Work run{3, Base(), {}, {}, {}};
  run.config.train.zero.stage = 3;
  run.config.data.validation.every = 2;
  run.prepare = [](Chain& chain, int rank) {
    chain.held_out = std::make_shared<Points>(9);
    if (rank != 1) return;
    chain.before_loss = [&chain](const TensorBatch&) {
      if (!chain.chain->is_training()) chain.foreign = 2;  // fails inside a unit
    };
  };
  run.config.train.zero.persistent = 0;
  const Trained trained = Train(run);
  EXPECT_NE(trained.status.message().find("validation failed on rank 1: unit layer2 uses the parameter layer0.bias"),
            std::string::npos)
      << trained.status.ToString();
}

TEST(Zero, StagesThatExchangeEveryPassAgree) {
  Work run{2, Base(), {}, {}, {}};
  run.config.train.micro_batch = 2;
  run.config.train.zero.stage = 2;
  const Trained two = Train(run);
  run.config.train.zero.stage = 3;
  ExpectSame(Train(run), two, "stage 3");
  run.config.train.zero.stage = 0;
  const Trained ddp = Train(run);
  for (const auto& [name, tensor] : ddp.values) {
    EXPECT_TRUE(at::allclose(two.values.at(name), tensor, 1e-4, 1e-5)) << name;
  }
}

TEST(Zero, IsReproducibleOverRanksAndStages) {
  Work run{1, Base(), {}, {}, {}};
  run.config.train.reproducible = true;
  run.config.train.shards = 4;
  const Trained one = Train(run);
  ASSERT_TRUE(one.status.ok()) << one.status.ToString();
  for (const int world : {2, 3, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      run.world = world;
      run.config.train.zero.stage = stage;
      ExpectSame(Train(run), one, fmt::format("stage {} on {}", stage, world));
    }
  }
}

// What may differ between passes and ranks: a unit that no rank uses, ranks without samples, recomputed units, units
// that stay or are not gathered ahead, two hosts.
TEST(Zero, OtherWaysThroughTheModelHaveTheSameBitsToo) {
  const struct {
    const char* what;
    std::function<void(Work*)> change;
  } rows[] = {
      {"recompute", [](Work* run) { run->config.train.recompute = true; }},
      {"an unused unit",
       [](Work* run) {
         run->config.train.find_unused = true;
         run->prepare = [](Chain& chain, int) { chain.left_out = 2; };
       }},
      {"batches of three on two ranks",  // a rank has one sample and two passes
       [](Work* run) {
         run->config.train.batch = 3;
         run->config.train.micro_batch = 1;
         run->config.train.zero.exchange_once = run->config.train.zero.stage >= 2;
       }},
      {"nothing ahead", [](Work* run) { run->config.train.zero.prefetch = 0; }},
      {"everything stays", [](Work* run) { run->config.train.zero.reuse_distance = 1 << 20; }},
      {"little may live", [](Work* run) { run->config.train.zero.live = 1; }},
      {"two hosts", [](Work* run) { run->nodes = {"a", "b"}; }},
      {"a frozen layer", [](Work* run) { run->config.train.groups = {{.match = "layer1.*", .freeze = true}}; }},
      {"a layer that thaws", [](Work* run) { run->config.train.groups = {{.match = "layer1.*", .freeze_until = 3}}; }},
      {"drawn by parts", [](Work* run) { run->prepare = [](Chain& chain, int) { chain.by_parts = true; }; }},
      {"an order that changes",
       [](Work* run) {
         run->config.train.find_unused = true;
         run->prepare = [](Chain& chain, int) {
           chain.before_loss = [&chain, calls = 0](const TensorBatch&) mutable {
             chain.left_out = calls++ % 3 == 2 ? 2 : 99;
           };
         };
       }},
  };
  for (const auto& row : rows) {
    Work run{2, Base(), {}, {}, {}};
    row.change(&run);
    const Trained ddp = Train(run);
    ASSERT_TRUE(ddp.status.ok()) << row.what << ": " << ddp.status.ToString();
    for (const int stage : {1, 2, 3}) {
      Work sharded{2, Base(), {}, {}, {}};
      sharded.config.train.zero.stage = stage;
      row.change(&sharded);
      ExpectSame(Train(sharded), ddp, fmt::format("{}, stage {}", row.what, stage));
    }
  }
}

// Each parameter is a bucket; the last bias has two elements, and four ranks share it: buckets are filled up.
TEST(Zero, MoreRanksThanElementsOfABucketIsNoMistake) {
  Work run{4, Base(), {}, {}, {}};
  run.config.train.bucket = run.config.train.first_bucket = 4;
  run.config.train.zero.persistent = 0;
  const Trained ddp = Train(run);
  ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
  for (const int stage : {1, 2, 3}) {
    run.config.train.zero.stage = stage;
    ExpectSame(Train(run), ddp, fmt::format("stage {}", stage));
  }
}

TEST(ZeroResume, ACheckpointIsContinuedUnderAnyStageAndNumberOfRanks) {
  const std::string root = testing::TempDir() + fmt::format("zero-{}", getpid());
  Work run{2, Base(), {}, {}, {}};
  run.config.train.reproducible = true;
  run.config.train.shards = 4;
  const Trained whole = Train(run);
  const struct {
    int stage, world, then, on;
    bool offload = false, parameters = false;
  } rows[] = {{3, 4, 0, 1},       {0, 1, 3, 4},       {2, 3, 1, 2},
              {1, 2, 3, 3, true}, {0, 1, 2, 2, true}, {3, 1, 3, 2, true, true}};
  for (const auto& row : rows) {
    const std::string what = fmt::format("stage {} on {}, then {} on {}", row.stage, row.world, row.then, row.on);
    run.options.run_dir = fmt::format("{}/{}-{}-{}", root, row.stage, row.world, row.offload);
    run.options.queued = run.config.train.offload.optimizer = row.offload;
    run.config.train.offload.parameters = row.parameters;
    run.options.stop_at = 3;
    run.world = row.world;
    run.config.train.zero.stage = row.stage;
    const Trained half = Train(run);
    ASSERT_TRUE(half.status.ok()) << what << half.status.ToString();
    ASSERT_EQ(half.position.step, 3u);
    run.options.stop_at = std::nullopt;
    run.world = row.on;
    run.config.train.zero.stage = row.then;
    ExpectSame(Train(run), whole, what);
  }
  std::filesystem::remove_all(root);
}

// The second phase trains a layer that was frozen, or keeps an EMA that the first one did not have.
TEST(ZeroResume, APhaseBeginsTheAveragesThatTheOneBeforeDidNotKeepUnderAnyStage) {
  const std::string root = testing::TempDir() + fmt::format("zero-phases-{}", getpid());
  for (const bool frozen : {false, true}) {
    Trained ddp;
    for (const int stage : {0, 1, 2, 3}) {
      Work run{2, Base(), {}, {}, {}};
      run.prepare = [](Chain& chain, int) { chain.held_out = std::make_shared<Points>(7); };
      run.options.run_dir = fmt::format("{}/{}-{}", root, frozen, stage);
      run.config.train.zero.stage = stage;
      run.config.train.steps = 3;
      if (frozen) run.config.train.groups = {{.match = "layer3.weight", .freeze = true}};
      if (!frozen) run.config.train.ema.decay = 0;
      const Trained first = Train(run);
      ASSERT_TRUE(first.status.ok()) << first.status.ToString();
      run.config.train.groups.clear();
      run.config.train.ema.decay = 0.9;
      run.config.train.steps = 6;
      run.options.phase = {.begin = 3, .origin = 3, .total = 6, .index = 1, .count = 2, .takes_over = true};
      const Trained second = Train(run);
      if (stage == 0) ddp = second;
      ExpectSame(second, ddp, fmt::format("stage {}, frozen {}", stage, frozen));
      EXPECT_EQ(second.position.best, ddp.position.best) << stage;
    }
  }
  std::filesystem::remove_all(root);
}

std::vector<GroupRule> FrozenLayers() {
  return {{.match = "layer1.*", .freeze = true}, {.match = "layer3.weight", .freeze = true}};
}

// Of 24 x 24 and 24 elements; zero.persistent keeps the 24 whole.
TEST(Zero, FrozenParametersOfUnitsAreKeptInShards) {
  for (const bool recompute : {false, true}) {
    Work run{2, Base(), {}, {}, {}};
    run.config.train.groups = FrozenLayers();
    run.config.train.recompute = recompute;
    const Trained ddp = Train(run);
    ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
    EXPECT_EQ(ddp.frozen, 0);
    run.config.train.zero.stage = 3;
    run.prepare = [](Chain& chain, int) {
      chain.before_loss = [&chain](const TensorBatch&) {
        EXPECT_EQ(chain.chain->layers[1]->weight.numel(), 0) << "whole between passes";
        EXPECT_EQ(chain.chain->layers[3]->weight.numel(), 0);
        EXPECT_EQ(chain.chain->layers[1]->bias.numel(), 24) << "small: it stays";
      };
    };
    const Trained sharded = Train(run);
    ExpectSame(sharded, ddp, recompute ? "recomputed" : "stage 3");
    EXPECT_EQ(sharded.frozen, 2 * 24 * 24 / 2) << "elements on one rank";
  }
}

// 24 x 24 + 24 of layer 1 and 24 x 24 of layer 3 are frozen; of them a rank draws its shards, and the small bias whole.
TEST(Zero, NoRankDrawsAllOfTheFrozenParameters) {
  Work run{2, Base(), {}, {}, {}};
  run.config.train.groups = FrozenLayers();
  const Trained ddp = Train(run);
  run.config.train.zero.stage = 3;
  run.prepare = [](Chain& chain, int) {
    chain.by_parts = true;
    chain.before_loss = [&chain](const TensorBatch&) {
      int64_t whole = 0;
      for (const auto& [name, tensor] : chain.whole) whole += tensor.numel();
      EXPECT_LE(chain.drawn, whole / 2 + 24 + 2 * kFlatAlignment * static_cast<int64_t>(chain.whole.size()));
    };
  };
  ExpectSame(Train(run), ddp, "stage 3");
}

TEST(Zero, ACheckpointHasFrozenParametersWhateverTheStage) {
  const std::string root = testing::TempDir() + fmt::format("zero-frozen-{}", getpid());
  Work run{1, Base(), {}, {}, {}};
  run.config.train.reproducible = true;
  run.config.train.shards = 4;
  run.config.train.groups = FrozenLayers();
  const Trained whole = Train(run);
  const struct {
    int stage, world, then, on;
  } rows[] = {{3, 4, 0, 1}, {0, 1, 3, 4}, {3, 2, 3, 3}};
  for (const auto& row : rows) {
    const std::string what = fmt::format("stage {} on {}, then {} on {}", row.stage, row.world, row.then, row.on);
    run.options.run_dir = fmt::format("{}/{}-{}", root, row.stage, row.world);
    run.options.stop_at = 3;
    run.world = row.world;
    run.config.train.zero.stage = row.stage;
    run.prepare = nullptr;
    const Trained half = Train(run);
    ASSERT_TRUE(half.status.ok()) << what << half.status.ToString();
    run.options.stop_at = std::nullopt;
    run.world = row.on;
    run.config.train.zero.stage = row.then;
    run.prepare = [](Chain& chain, int) {  // what is not read from the checkpoint is wrong
      chain.built = [](ChainNet& net) {
        for (at::Tensor& parameter : net.parameters()) parameter.zero_();
      };
    };
    ExpectSame(Train(run), whole, what);
  }
  std::filesystem::remove_all(root);
}

TEST(Zero, FrozenParametersThatDifferBetweenRanksAreRefused) {
  Work run{2, Base(), {}, {}, {}};
  run.config.train.groups = FrozenLayers();
  run.config.train.zero.stage = 3;
  run.prepare = [](Chain& chain, int rank) {
    if (rank == 1) chain.built = [](ChainNet& net) { net.layers[1]->weight.add_(1); };
  };
  EXPECT_NE(Train(run).status.message().find("the first weights of rank 1 differ from rank 0's"), std::string::npos);
}

TEST(Zero, RefusesUnitsThatOverlapOrAreMissing) {
  class Odd : public Chain {
   public:
    std::vector<Unit> Units() override { return units; }
    std::vector<Unit> units;
  };
  const struct {
    std::vector<Unit> units;
    const char* says;
  } rows[] = {
      {{}, "names no units"},
      {{{"a", {"layer0.weight"}}, {"b", {"layer0.weight"}}}, "layer0.weight is in two units of the model, a and b"},
      {{{"a", {"layer0.wight"}}}, "unit a names the parameter layer0.wight, which the model does not have"},
  };
  for (const auto& row : rows) {
    OnRanks(2, [&](Ranks& ranks) {
      Odd odd;
      odd.units = row.units;
      Config config = Base();
      config.train.zero.stage = 3;
      TrainerOptions options;
      options.quiet = true;
      const Status status = Trainer(config, &odd, &ranks, at::kCPU, options).Setup();
      EXPECT_EQ(status.code(), Code::kUsage);
      EXPECT_NE(status.message().find(row.says), std::string::npos) << status.message();
    });
  }
}

TEST(Zero, AUnitThatUsesAnotherUnitsParameterIsNamed) {
  Work run{2, Base(), {}, {}, {}};
  run.config.train.zero.stage = 3;
  run.config.train.zero.persistent = 0;
  run.prepare = [](Chain& chain, int) { chain.foreign = 2; };
  const Trained trained = Train(run);
  EXPECT_NE(trained.status.message().find("unit layer2 uses the parameter layer0.bias of unit layer0"),
            std::string::npos)
      << trained.status.ToString();
}

TEST(Zero, AFailingRankLeavesNoOtherWaiting) {
  for (const int stage : {1, 2, 3}) {
    for (const uint64_t at_step : {0, 3}) {
      Work run{2, Base(), {}, {}, {}};
      run.config.train.zero.stage = stage;
      run.prepare = [&](Chain& chain, int rank) {
        if (rank != 1) return;
        chain.before_loss = [calls = uint64_t{0}, at_step](const TensorBatch&) mutable {
          if (calls++ == at_step) throw std::runtime_error("made to fail");
        };
      };
      const Trained trained = Train(run);
      EXPECT_NE(trained.status.message().find("made to fail"), std::string::npos) << trained.status.ToString();
    }
  }
}

}  // namespace
}  // namespace lockstep::engine
