// The trainer before its first step: data, model, where to start from, and what it says about all of it.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/config_tree.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "data/cached_source.h"
#include "engine/convolution.h"
#include "engine/devices.h"
#include "engine/memory_need.h"
#include "engine/state_tensors.h"
#include "engine/trainer.h"
#include "engine/tree_sum.h"
#include "engine/unit_runner.h"
#include "record/checkpoint_folder.h"

namespace lockstep::engine {

Result<at::Device> ChooseDevice(const std::string& wanted, int local_rank, int local_size, comm::Backend backend) {
  const int count = VisibleGpus();
  if (wanted == "cpu" || (wanted == "auto" && count == 0)) {
    if (backend == comm::Backend::kNccl) {
      return Status(Code::kUsage, "comm.backend: nccl needs a GPU, and the device is the CPU",
                    "use comm.backend: host or auto");
    }
    return at::Device(at::kCPU);
  }
  if (count == 0) return NoGpuFor("train.device: cuda");
  // One visible GPU for each rank is how many launchers and containers do it.
  if (count == 1 && local_size > 1 && backend != comm::Backend::kHost) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible != nullptr && *visible != '\0') return at::Device(at::kCUDA, 0);
  }
  const bool may_share = backend == comm::Backend::kHost || std::getenv("NCCL_HOSTID") != nullptr;
  if (local_rank >= count && !may_share) {
    return Status(Code::kUsage,
                  fmt::format("{} ranks on this node, but only {} GPU{} visible", local_size, count,
                              count == 1 ? " is" : "s are"),
                  fmt::format("start {} rank{} (--nproc-per-node {}), or let ranks share a GPU with comm.backend: host",
                              count, count == 1 ? "" : "s", count));
  }
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(local_rank % count));
}

void PrepareTorch(const Config& config, int threads) {
  if (config.train.threads > 0) threads = config.train.threads;
  if (config.train.threads == 0 && config.train.reproducible) threads = 1;
  if (threads > 0) at::set_num_threads(threads);
  UseSleepingConvolutions();
  // Trying out algorithms would choose others in a resumed run; heuristics choose as well (docs/benchmarks.md).
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicCuDNN(true);
  if (!config.train.reproducible && !config.train.deterministic) return;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // it would write every buffer twice
}

Trainer::Trainer(const Config& config, Recipe* recipe, Ranks* ranks, at::Device device, TrainerOptions options)
    : config_(config),
      recipe_(recipe),
      ranks_(ranks),
      device_(device),
      options_(std::move(options)),
      stop_(config.run.max_time, options_.deadline) {}

Trainer::~Trainer() = default;

Status Trainer::Setup() {
  if (!device_.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    guard.synchronizeDevice(device_.index());
    stream_.emplace(guard.getStreamFromGlobalPool(device_));
  }
  Result<BatchPlan> plan = PlanBatch(config_.train, ranks_->size());
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(plan.status()));
  plan_ = *plan;
  passes_ = config_.train.reproducible ? LeavesOf(config_.train.shards, ranks_->rank(), ranks_->size()).count
                                       : plan_.accumulation;
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(CheckScores()));
  LOCKSTEP_RETURN_IF_ERROR(OpenData());
  const Result<StartPoint> start = FindStart(options_, ranks_);
  if (!start.ok()) return start.status();
  const std::string& path = start->path;
  LOCKSTEP_RETURN_IF_ERROR(ChoosePrecision(path));
  LOCKSTEP_RETURN_IF_ERROR(BuildModel());
  state_.position.seed = config_.run.seed;
  state_.position.sampler.seed = config_.run.seed;
  if (!path.empty()) LOCKSTEP_RETURN_IF_ERROR(StartFrom(path));
  state_.position.data = DataIdentity();
  Result<data::Sampler> sampler = MakeSampler();
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(sampler.status()));
  sampler_ = *sampler;

  Report::Options report;
  report.run_dir = options_.run_dir;
  report.metrics_path = options_.metrics_path;
  report.rank = ranks_->rank();
  report.attempt = options_.attempt;
  report.steps = std::max(config_.train.steps, options_.phase.total);
  report.first_step = state_.position.step;
  report.goes_on = options_.phase.takes_over;
  report.device = device_;
  report.track = config_.track;
  report.recipe = recipe_->name();
  std::tie(report.score, report.more_is_better) = BestScore();
  report.per_sample = recipe_->PerSample();
  Result<std::unique_ptr<Report>> started = Report::Start(report);
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(started.status()));
  report_ = std::move(*started);
  ProfileConfig profile = config_.track.profile;
  if (options_.run_dir.empty()) profile.steps = 0;
  profile_ =
      std::make_unique<Profile>(profile, fmt::format("{}/profile/rank-{}.json", options_.run_dir, ranks_->rank()),
                                ranks_->rank(), device_.is_cuda());
  LOCKSTEP_RETURN_IF_ERROR(OpenSaving(*start));
  if (!path.empty() && !options_.quiet) {
    report_->Say(fmt::format("{} {} at step {}", options_.phase.takes_over ? "going on from" : "resuming from", path,
                             state_.position.step));
  }
  Banner();
  StartFeed();
  StartCapturing();
  return ranks_->Agree(capturing_);
}

Status Trainer::OpenSaving(const StartPoint& start) {
  std::string folder;
  if (!options_.run_dir.empty()) {
    folder = options_.run_dir + "/checkpoints";
    LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(ranks_->is_main() ? SetCheckpointsAside(start) : Status::Ok()));
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(saving_.Open(config_.checkpoint, folder, device_, ranks_)));
  return ranks_->Agree(saving_.Reserve(state_));
}

Status Trainer::CheckScores() const {
  std::vector<std::string> names = recipe_->Scores();
  names.insert(names.begin(), "loss");
  const std::string& wanted = config_.data.validation.best;
  if (wanted.empty() || std::find(names.begin(), names.end(), wanted) != names.end()) return Status::Ok();
  return Status(
      Code::kUsage,
      fmt::format("data.validation.best: there is no score '{}'{}", Printable(wanted), DidYouMean(wanted, names)),
      "the scores are " + Join(names, ", "));
}

Result<data::Sampler> Trainer::MakeSampler() const {
  const data::SamplerState& state = state_.position.sampler;
  const uint64_t batch = config_.train.batch;
  if (sources_.mixture) return data::Sampler::CreateMixed(sources_.mixture, state, batch, config_.data.shuffle);
  const std::vector<uint64_t> buckets = data::BucketSizes(*sources_.train);
  if (buckets.size() > 1) {
    return data::Sampler::CreateBucketed(buckets, state, batch, config_.data.last_batch, config_.data.shuffle);
  }
  return data::Sampler::Create(sources_.train->size(), state, batch, config_.data.last_batch, config_.data.shuffle);
}

// What a position of the sampler belongs to. Which samples form a batch of one bucket depends on the batch.
std::string Trainer::DataIdentity() const {
  const std::string digest = sources_.train->Digest();
  if (sources_.mixture || data::BucketSizes(*sources_.train).size() <= 1) return digest;
  return fmt::format("{} in batches of {}", digest, config_.train.batch);
}

Status Trainer::OpenData() {
  recipe_->Join(ranks_);
  // One rank reads a list of files and looks for them; the others get what it found.
  Result<std::string> index = std::string();
  if (ranks_->is_main()) index = recipe_->IndexData();
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(index.status()));
  Result<std::vector<std::string>> told = ranks_->host().Gather(index.ok() ? *index : "");
  if (!told.ok()) return told.status();
  if (!told->front().empty()) {
    recipe_->UseIndex(std::make_shared<const std::string>(std::move(told->front())));
  }
  // One rank looks first: a missing folder is said once, and an index it writes is there for the others.
  LOCKSTEP_RETURN_IF_ERROR(ranks_->MainFirst([&] {
    Result<Sources> opened = recipe_->Open(config_);
    if (opened.ok()) sources_ = *opened;
    return opened.status();
  }));
  if (config_.data.cache > 0) sources_.train = data::Cached(sources_.train, config_.data.cache);
  const std::string digest = sources_.train->Digest();
  Result<std::vector<std::string>> all = ranks_->host().Gather(digest);
  if (!all.ok()) return all.status();
  for (size_t r = 1; r < all->size(); ++r) {
    if ((*all)[r] != all->front()) {
      return ranks_->Agree(Status(
          Code::kEnvironment,
          fmt::format("the data differ between ranks: rank 0 sees {}, rank {} sees {}", all->front(), r, (*all)[r]),
          "give every node the same files under data.path"));
    }
  }
  return Status::Ok();
}

Status Trainer::BuildModel() {
  queued_ = !device_.is_cpu() || options_.queued;
  // Weights of a file go into tensors that hold them.
  undrawn_ = config_.train.zero.stage == 3 && (ranks_->size() > 1 || offloads_parameters()) &&
             config_.checkpoint.weights.empty() && recipe_->UndrawnParts();
  Status built = recipe_->Build(config_, config_.run.seed);
  if (built.ok() && !config_.checkpoint.weights.empty()) {
    auto weights = ReadWeights(config_.checkpoint.weights);
    built = weights.ok() ? recipe_->LoadWeights(*weights, config_.checkpoint.weights) : weights.status();
    if (!built.ok()) built = built.Context("checkpoint.weights");
  }
  if (built.ok()) built = FreezeForGood(config_.train.groups, recipe_->model());
  if (built.ok()) built = CheckUnits();
  if (built.ok()) {
    model_size_ = SizeOf(recipe_->model());
    MakePlan();
    built = CheckMemory();
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(built));
  part_names_ = recipe_->Parts();
  readback_ = std::make_unique<Readback>(device_);
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(MoveModel()));
  recipe_->model().train();
  Result<std::unique_ptr<Learner>> learner = MakeLearner(recipe_->model(), /*discriminator=*/false);
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(learner.status()));
  learner_ = std::move(*learner);
  RunUnits();
  if (const auto discriminator = recipe_->discriminator()) {
    discriminator->module->to(device_);
    Result<std::unique_ptr<Learner>> second = MakeLearner(*discriminator->module, /*discriminator=*/true);
    LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(second.status()));
    discriminator_ = std::move(*second);
  }
  for (Learner* one : {learner_.get(), discriminator_.get()}) {
    if (one != nullptr) LOCKSTEP_RETURN_IF_ERROR(one->strategy().AdoptParameters());
  }
  Status started;
  try {
    started = recipe_->Start(device_);
  } catch (const std::exception& error) {
    started = Status(Code::kEnvironment, fmt::format("recipe {}: {}", recipe_->name(), error.what()));
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(started));
  state_ = {recipe_, learner_.get(), discriminator_.get(), {}, config_.train.precision};
  return Status::Ok();
}

// Before anything large is allocated.
Status Trainer::CheckMemory() const {
  const comm::RankIdentity& identity = ranks_->tensors().identity();
  MemoryThere there;
  there.ranks = identity.local_size;
  if (const std::optional<GpuFacts> gpu = DescribeGpu(device_)) {
    there.device = gpu->name;
    there.device_bytes = gpu->memory;
  }
  there.host_bytes = AvailableHostMemory();
  return engine::CheckMemory(InForce(), model_size_, identity.size, passes_ == 1, there);
}

// What of the configuration has an effect on this device.
TrainConfig Trainer::InForce() const {
  TrainConfig train = config_.train;
  train.offload.optimizer = train.offload.optimizer && queued_;
  train.offload.parameters = offloads_parameters();
  return train;
}

// To its device. Parameters without memory stay so, but for frozen ones that every rank holds whole.
Status Trainer::MoveModel() {
  if (!undrawn_) {
    recipe_->model().to(device_);
    return Status::Ok();
  }
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device_);
  std::set<std::string> in_units;
  for (const Unit& unit : recipe_->Units()) in_units.insert(unit.parameters.begin(), unit.parameters.end());
  for (auto& item : recipe_->model().named_parameters()) {
    at::Tensor& parameter = item.value();
    const bool taken = in_units.contains(item.key()) && FrozenShards::Takes(parameter, config_.train.zero.persistent);
    if (parameter.requires_grad() || taken) {
      parameter.set_data(at::zeros({1}, options).expand(parameter.sizes()));
      continue;
    }
    const at::Tensor whole = at::empty(parameter.sizes(), at::kFloat);
    LOCKSTEP_RETURN_IF_ERROR(recipe_->DrawPart(item.key(), 0, whole.view({-1})));
    parameter.set_data(whole.to(device_));
  }
  for (auto& item : recipe_->model().named_buffers()) item.value().set_data(item.value().to(device_));
  return Status::Ok();
}

// Before anything large is allocated.
Status Trainer::CheckUnits() const {
  const bool gathers = config_.train.zero.stage == 3;
  if (!config_.train.recompute && !gathers) return Status::Ok();
  const char* wanted = gathers ? "train.zero.stage: 3" : "train.recompute";
  const std::vector<Unit> units = recipe_->Units();
  if (units.empty()) {
    return Status(Code::kUsage, fmt::format("{}: the recipe {} names no units of its model", wanted, recipe_->name()),
                  gathers ? "use stage 2, or let the recipe name them (Recipe::Units)"
                          : "let the recipe name them (Recipe::Units), or do without");
  }
  std::vector<std::string> names;
  for (const auto& item : recipe_->model().named_parameters()) names.push_back(item.key());
  std::map<std::string, std::string> unit_of;
  for (const Unit& unit : units) {
    for (const std::string& name : unit.parameters) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        return Status(Code::kUsage, fmt::format("{}: unit {} names the parameter {}, which the model does not have{}",
                                                wanted, unit.name, name, DidYouMean(name, names)));
      }
      const auto [known, fresh] = unit_of.emplace(name, unit.name);
      if (fresh) continue;
      return Status(Code::kUsage,
                    fmt::format("{}: parameter {} is in two units of the model, {} and {}", wanted, name, known->second,
                                unit.name),
                    "list it in one unit, or in none where several use it (Recipe::Units)");
    }
  }
  return Status::Ok();
}

void Trainer::RunUnits() {
  ParallelStrategy& strategy = learner_->strategy();
  std::function<void(size_t)> before;
  if (learner_->waits_for_units()) before = [this](size_t unit) { learner_->BeforeUnit(unit); };
  std::vector<bool> keep;
  for (const Unit& unit : recipe_->Units()) keep.push_back(unit.keep);
  if (keep.empty()) return;
  recipe_->RunUnits(
      MakeUnitRunner(strategy.wraps_units() ? &strategy : nullptr, config_.train.recompute, before, std::move(keep)));
}

Result<std::unique_ptr<Learner>> Trainer::MakeLearner(const torch::nn::Module& module, bool discriminator) {
  const TrainConfig& t = config_.train;
  Learner::Settings settings;
  settings.updater.optimizer = discriminator ? recipe_->discriminator()->optimizer : t.optimizer;
  if (!discriminator) {
    settings.groups = t.groups;
    settings.updater.ema = t.ema;
    settings.updater.clip = t.clip_norm;
    settings.parts = part_names_.size();
  }
  settings.updater.scaled = t.precision == Precision::kFp16;
  settings.updater.scaler = t.scaler;
  settings.updater.batch = static_cast<double>(t.batch);
  settings.strategy = StrategyOf(t);
  if (discriminator) {
    settings.strategy.zero.stage = std::min(settings.strategy.zero.stage, 2);  // it names no units
  } else {
    settings.strategy.units = recipe_->Units();
    settings.strategy.host_parameters = offloads_parameters();
    if (undrawn_) {
      settings.draw = [this](const std::string& name, int64_t begin, const at::Tensor& out) {
        return recipe_->DrawPart(name, begin, out);
      };
    }
  }
  settings.strategy.alone = options_.alone;
  settings.queued = queued_;
  settings.offload = t.offload.optimizer && queued_ && !discriminator;
  settings.single_pass = passes_ == 1;
  settings.updater.travels = t.offload.gradients;
  settings.updater.host_share = t.offload.share;
  return Learner::Create(module, settings, ranks_, device_);
}

// `auto`: what the checkpoint was trained in, so that other hardware changes nothing in the middle of a run; else what
// every rank's device computes in.
Status Trainer::ChoosePrecision(const std::string& checkpoint) {
  Precision& precision = config_.train.precision;
  if (precision != Precision::kAuto) return Status::Ok();
  const std::optional<GpuFacts> gpu = DescribeGpu(device_);
  Result<Precision> recorded = Precision::kAuto;
  if (ranks_->is_main() && !checkpoint.empty()) recorded = RecordedPrecision(checkpoint);
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(recorded.status()));
  const Result<std::vector<std::string>> all =
      ranks_->host().Gather(fmt::format("{} {}", PrecisionName(AutoPrecision(gpu)), PrecisionName(*recorded)));
  if (!all.ok()) return all.status();
  const auto said = [&](const std::string& text, size_t word) {
    return PrecisionNamed(Split(text, ' ')[word]).value_or(Precision::kFp32);
  };
  precision = said(all->front(), 1);
  precision_why_ = "auto: as in the checkpoint";
  if (precision == Precision::kAuto) {
    precision = Precision::kBf16;
    for (const std::string& rank : *all) {
      if (said(rank, 0) != Precision::kBf16) precision = Precision::kFp32;
    }
    precision_why_ = !gpu                            ? "auto: on a CPU"
                     : precision == Precision::kBf16 ? "auto: the GPU computes in it"
                                                     : "auto: not every GPU computes in bf16";
  }
  if (options_.effective_config.empty()) return Status::Ok();
  Result<ConfigTree> tree =
      ConfigTree::Parse(options_.effective_config, "effective configuration", ConfigTree::Format::kYaml);
  if (!tree.ok()) return tree.status();
  LOCKSTEP_RETURN_IF_ERROR(tree->Override(fmt::format("train.precision={}", PrecisionName(precision))));
  options_.effective_config = WriteYaml(tree->root());
  return Status::Ok();
}

void Trainer::StartFeed() {
  data::LoaderOptions options;
  options.threads = config_.data.threads;
  options.prefetch = config_.data.prefetch;
  options.memory = config_.data.memory;
  options.timeout = config_.data.timeout;
  options.augment = config_.data.augment;
  options.seed = config_.run.seed;
  const auto rank = static_cast<uint64_t>(ranks_->rank());
  const auto world = static_cast<uint64_t>(ranks_->size());
  const uint64_t first_leaf = LeavesOf(config_.train.shards, ranks_->rank(), ranks_->size()).first;
  const uint64_t left = config_.train.steps - std::min(config_.train.steps, state_.position.step);
  const auto plan = [sampler = *sampler_, passes = passes_, rank, world, first_leaf,
                     reproducible = config_.train.reproducible, shards = config_.train.shards](uint64_t n) {
    const std::vector<data::SampleId> global = sampler.Peek(n / passes);
    const uint64_t pass = n % passes;
    const auto part = reproducible ? data::ShareOf(global, first_leaf + pass, shards)
                                   : data::ShareOf(data::ShareOf(global, rank, world), pass, passes);
    return Feed::Planned{{part.begin(), part.end()}, static_cast<uint64_t>(part.data() - global.data())};
  };
  feed_ = std::make_unique<Feed>(sources_.train, plan, left * passes_, options, device_);
  if (config_.data.cores > 0) auto_threads_.emplace(config_.data.cores);
}

void Trainer::Banner() {
  if (!ranks_->is_main() || options_.quiet) return;
  const TrainConfig& t = config_.train;
  const std::optional<GpuFacts> gpu = DescribeGpu(device_);
  report_->Say(fmt::format("recipe      {}", recipe_->name()));
  report_->Say(fmt::format("devices     {} rank{} on {}, {} thread{} each, exchange: {}", ranks_->size(),
                           ranks_->size() == 1 ? "" : "s", gpu ? "GPU (" + gpu->name + ")" : "CPU",
                           at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s",
                           ranks_->tensors().transport()));
  report_->Say(fmt::format("precision   {}{}{}", PrecisionName(t.precision),
                           precision_why_.empty() ? "" : " (" + precision_why_ + ")",
                           t.reproducible ? ", the same bits on any number of ranks" : ""));
  report_->Say(fmt::format("parameters  {} trained, {} frozen", model_size_.trained, model_size_.frozen));
  const OwnedParameters& own = learner_->flat().owned();
  if (t.zero.stage > 0) {
    report_->Say(ranks_->size() == 1 ? fmt::format("sharding    ZeRO-{}: one rank has nothing to share", t.zero.stage)
                                     : fmt::format("sharding    ZeRO-{}: a rank updates {} of {} elements",
                                                   t.zero.stage, own.numel(), learner_->flat().numel()));
  }
  if (t.offload.optimizer) {
    report_->Say(own.on_host
                     ? fmt::format("offload     {} of a rank take {} of host memory",
                                   offloads_parameters() ? "master, optimizer's state and parameters"
                                                         : "master and optimizer's state",
                                   FormatSize(NeedOf(InForce(), model_size_, ranks_->size(), passes_ == 1).host))
                     : "offload     nothing to do: the device is the CPU");
  }
  if (discriminator_) {
    report_->Say(
        fmt::format("discriminator {}: {} parameters", recipe_->discriminator()->name, discriminator_->flat().count()));
  }
  report_->Say(fmt::format("data        {}", sources_.train->Describe()));
  if (sources_.validation) report_->Say(fmt::format("validation  {}", sources_.validation->Describe()));
  report_->Say(fmt::format("batch       {}", plan_.text));
  SayPlan();
  const RunPhase& phase = options_.phase;
  if (phase.count > 1) {
    report_->Say(fmt::format("phase       {} of {}: steps {} to {} of {}, {}", phase.index + 1, phase.count,
                             phase.begin + 1, t.steps, phase.total,
                             phase.index == 0        ? "from the beginning"
                             : phase.keeps_optimizer ? "optimizer and schedule go on"
                                                     : "with a fresh optimizer and schedule"));
  }
  report_->Say(fmt::format("steps       {} ({} {}), from {}", t.steps, sampler_->batches_per_epoch(),
                           sources_.mixture ? "until every sample was used" : "per epoch", state_.position.step));
  if (ranks_->size() > 1 && !options_.run_dir.empty()) {
    report_->Say(fmt::format("checkpoints are written {}", saving_.Describe()));
  }
  if (state_.position.step >= t.steps) {
    report_->Say(
        fmt::format("nothing to do: the run is at step {} and train.steps is {}; a larger train.steps goes on, "
                    "--resume none begins anew",
                    state_.position.step, t.steps));
  }
  report_->Hyperparameters(options_.effective_config);
}

}  // namespace lockstep::engine
