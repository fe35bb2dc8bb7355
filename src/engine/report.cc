#include "engine/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/config_json.h"
#include "base/config_tree.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/resident.h"
#include "base/secrets.h"
#include "base/text.h"
#include "record/samples.h"

#ifdef LOCKSTEP_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace lockstep::engine {
namespace {

// For what is not uploaded when training is over; and when the launcher or a further phase waits for the end.
constexpr std::chrono::seconds kUploadPatience{60}, kUploadHurry{5};

// Every scalar and list of a configuration under its path; secrets are masked.
void Flatten(const ConfigNode& node, const std::string& path, track::HParamMap* values) {
  for (const ConfigEntry& entry : node.entries) {
    const std::string name = path.empty() ? entry.key : path + "." + entry.key;
    const ConfigNode& value = entry.value;
    if (value.kind == ConfigNode::Kind::kMap) Flatten(value, name, values);
    if (value.kind == ConfigNode::Kind::kList)
      (*values)[name] = track::HParamList{MaskSecrets(ToJsonLine(nlohmann::json(ToJson(value))), {})};
    if (value.kind != ConfigNode::Kind::kScalar) continue;
    if (IsSecretName(name)) {
      (*values)[name] = kMasked;
    } else if (value.LooksNumber()) {
      (*values)[name] = std::strtod(value.text.c_str(), nullptr);
    } else if (!value.quoted && (value.text == "true" || value.text == "false")) {
      (*values)[name] = value.text == "true";
    } else {
      (*values)[name] = MaskSecrets(value.text, {});
    }
  }
}

}  // namespace

std::optional<DevicePeak> DevicePeakBytes(at::Device device) {
#ifdef LOCKSTEP_CUDA
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return DevicePeak{static_cast<double>(stats.allocated_bytes[0].peak),
                      static_cast<double>(stats.reserved_bytes[0].peak)};
  }
#endif
  (void)device;
  return std::nullopt;
}

Report::Report(const Options& options) : options_(options) {}
Report::~Report() = default;

Result<std::unique_ptr<Report>> Report::Start(const Options& options) {
  std::unique_ptr<Report> report(new Report(options));
  track::MetricsOptions metrics;
  metrics.jsonl_path = options.metrics_path;
  metrics.rank = options.rank;
  metrics.attempt = options.attempt;
  if (options.rank == 0 && options.track.tensorboard && !options.run_dir.empty()) {
    metrics.tensorboard_dir = options.run_dir + "/tensorboard";
  }
  metrics.first_step = options.first_step;
  Environment env;
  if (options.rank == 0 && !options.run_dir.empty()) {
    env = CurrentEnvironment();
    if (options.track.csv) metrics.csv_path = options.run_dir + "/metrics.csv";
    if (options.track.wandb != WandbMode::kOff) metrics.wandb = report->Wandb(env);
  }
  Result<std::unique_ptr<track::Metrics>> started = track::Metrics::Start(metrics);
  if (!started.ok()) return started.status();
  report->metrics_ = std::move(*started);
  const bool dry = RunName(options.run_dir).ends_with("/smoke");
  if (!metrics.wandb.dir.empty() && options.track.wandb == WandbMode::kLive && !dry) report->StartUpload(env);
  if (options.rank == 0) {
    track::ProgressLineOptions progress;
    progress.total = options.steps;
    progress.first_step = options.first_step;
    report->progress_ = std::make_unique<track::ProgressLine>(progress);
  }
  if (options.rank == 0 && !options.run_dir.empty()) {
    report->pictures_ = std::make_unique<Pictures>(PicturesOptions{.run_dir = options.run_dir,
                                                                   .metrics_path = options.metrics_path,
                                                                   .recipe = options.recipe,
                                                                   .score = options.score,
                                                                   .more_is_better = options.more_is_better,
                                                                   .steps = options.steps},
                                                   report->metrics_.get());
  }
  return report;
}

track::WandbOptions Report::Wandb(const Environment& env) const {
  track::WandbOptions wandb;
  wandb.dir = options_.run_dir + "/wandb";
  wandb.name = RunName(options_.run_dir);
  const TrackConfig& track = options_.track;
  wandb.project = track.wandb_project.empty() ? ValueOf(env, "WANDB_PROJECT") : track.wandb_project;
  if (wandb.project.empty()) wandb.project = options_.recipe;
  wandb.entity = track.wandb_entity.empty() ? ValueOf(env, "WANDB_ENTITY") : track.wandb_entity;
  wandb.group = ValueOf(env, "WANDB_RUN_GROUP");
  for (const std::string& tag : Split(ValueOf(env, "WANDB_TAGS"), ',')) {
    if (!tag.empty()) wandb.tags.push_back(tag);
  }
  wandb.console = fmt::format("{}/logs/attempt-{}/node-0/rank-0.log", options_.run_dir, options_.attempt);
  wandb.console_from_now = options_.goes_on;
  wandb.secrets = SecretValues(env);
  return wandb;
}

// wandb's own program, beside the files. Whatever it lacks, training goes on and the files are complete.
void Report::StartUpload(const Environment& env) {
  const std::string dir = options_.run_dir + "/wandb";
  Status status = metrics_->Flush();  // wandb looks for the file once
  if (status.ok()) {
    Result<track::WandbLive> live = track::WandbLive::Start(dir, env);
    if (live.ok()) {
      upload_.emplace(std::move(*live));
      return;
    }
    status = live.status();
  }
  LogWarn("track.wandb: live: {}; the run is kept in files. To upload it later: {}wandb sync {}/offline-run-*",
          status.message(), status.hint().empty() ? "" : status.hint() + ", then ", ShellQuote(dir));
}

void Report::Set(const char* name, uint64_t step, double value) {
  auto it = ids_.find(name);
  if (it == ids_.end()) it = ids_.emplace(name, metrics_->Register(name)).first;
  metrics_->Set(it->second, step, value);
}

void Report::Step(const StepFacts& facts) {
  if (facts.skipped) ++skipped_;
  const uint64_t step = last_step_ = facts.step;
  if (step % options_.track.every == 0 || step == options_.steps) {
    if (options_.rank == 0) {
      Set("loss", step, facts.loss);
      for (const auto& [name, value] : facts.parts) Set(name.c_str(), step, value);
      Set("lr", step, facts.lr);
      Set("grad_norm", step, facts.gradient_norm);
      if (facts.loss_scale) Set("loss_scale", step, *facts.loss_scale);
      Set("time/step", step, facts.seconds);
      Set("samples_per_second", step, static_cast<double>(facts.samples) / facts.seconds);
      if (const auto& [what, count] = options_.per_sample; !what.empty()) {
        Set((what + "_per_second").c_str(), step, count * static_cast<double>(facts.samples) / facts.seconds);
      }
      if (skipped_ > 0) Set("steps_skipped", step, static_cast<double>(skipped_));
      if (facts.bad_samples > 0) Set("bad_samples", step, static_cast<double>(facts.bad_samples));
      for (size_t i = 0; i < facts.sets.size(); ++i) {
        Set(fmt::format("data/share/{}", i).c_str(), step, facts.sets[i].first);
        Set(fmt::format("data/epochs/{}", i).c_str(), step, facts.sets[i].second);
      }
      SetMissing(step);
    }
    Set("rank/time/step", step, facts.seconds);
    SetStages(step, facts.stages);
    SetLoader(step, facts);
    Set("rank/time/comm_exposed", step, facts.comm_seconds);
    Set("rank/time/save", step, facts.save_seconds);
    if (facts.graph_replayed) Set("rank/graph_replayed", step, *facts.graph_replayed ? 1 : 0);
    if (facts.fallbacks > 0) Set("rank/fallback/graph", step, static_cast<double>(facts.fallbacks));
    Set("rank/memory/host", step, static_cast<double>(ResidentBytes()));
    if (const auto device = DevicePeakBytes(options_.device)) {
      Set("rank/memory/device", step, device->used);
      Set("rank/memory/device_reserved", step, device->reserved);
    }
    Set("rank/comm/shm_bytes", step, static_cast<double>(facts.traffic.shm_bytes - last_traffic_.shm_bytes));
    Set("rank/comm/tcp_bytes", step, static_cast<double>(facts.traffic.tcp_bytes - last_traffic_.tcp_bytes));
    last_traffic_ = facts.traffic;
    for (const auto& [name, value] : facts.more) Set(("rank/" + name).c_str(), step, value);
    metrics_->EndStep(step);
  }
  if (upload_) {
    if (const auto ended = upload_->Poll()) LogWarn("track.wandb: live: {}", *ended);
  }
  if (progress_) {
    track::ProgressValues values;
    values.step = step;
    values.loss = facts.loss;
    values.lr = facts.lr;
    values.samples_per_second = static_cast<double>(facts.samples) / facts.seconds;
    values.data_wait = facts.data_seconds / facts.seconds;
    progress_->Update(values);
  }
}

void Report::SetStages(uint64_t step, const StageTimes& stages) {
  for (size_t i = 0; i < kStageCount; ++i) {
    if (IsComputed(static_cast<StepStage>(i)) && !stages.computed_known) continue;
    Set(fmt::format("rank/time/{}", record::kStageNames[i]).c_str(), step, stages.seconds[i]);
  }
  if (!stages.longest_wait) return;
  Set("rank/wait/peer", step, stages.longest_wait->first);
  Set("rank/wait/seconds", step, stages.longest_wait->second);
}

// The loader of this rank since the last line: mean time of a sample in each stage, the part of the step that waited
// for data, batches that were ready, memory of the batches.
void Report::SetLoader(uint64_t step, const StepFacts& facts) {
  const data::LoaderStats &now = facts.loader, &before = last_loader_;
  const auto samples =
      static_cast<double>(now.samples_read + now.samples_bad - before.samples_read - before.samples_bad);
  for (size_t i = 0; samples > 0 && i < data::kStages; ++i) {
    const double seconds = now.stages.seconds[i] - before.stages.seconds[i];
    Set(fmt::format("rank/data/{}", data::kStageNames[i]).c_str(), step, seconds / samples);
  }
  Set("rank/data/stall", step, facts.seconds > 0 ? facts.data_seconds / facts.seconds : 0);
  Set("rank/data/ready", step, static_cast<double>(now.ready_batches));
  Set("rank/data/threads", step, static_cast<double>(now.threads));
  Set("rank/data/memory", step, static_cast<double>(now.buffer_bytes));
  last_loader_ = now;
}

void Report::BadSamples(uint64_t step, const std::vector<std::string>& of_ranks, const std::set<uint64_t>& known) {
  if (options_.run_dir.empty()) return;
  std::set<uint64_t> said;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const Result<nlohmann::json> list = ParseJson(of_ranks[rank], "samples");
    if (!list.ok()) continue;
    for (const nlohmann::json& bad : *list) {
      const auto index = static_cast<uint64_t>(GetInt(bad, "index"));
      if (known.contains(index) || !said.insert(index).second) continue;
      const nlohmann::json event = {{"t", UnixSeconds()},
                                    {"type", "bad_sample"},
                                    {"attempt", options_.attempt},
                                    {"rank", rank},
                                    {"step", step},
                                    {"sample", GetString(bad, "sample")},
                                    {"class", GetString(bad, "class")},
                                    {"why", GetString(bad, "why")}};
      // A full disk ends no training; the rank's log names the sample as well.
      (void)AppendLine(options_.run_dir + "/events.jsonl", ToJsonLine(event)).ok();
    }
  }
}

// How many pictures a reader will look for in vain.
void Report::SetMissing(uint64_t step) {
  const uint64_t missing = pictures_ ? pictures_->missing() : 0;
  if (missing > 0) Set("pictures_missing", step, static_cast<double>(missing));
}

void Report::Validation(uint64_t step, ValidationResult result) {
  std::string text = fmt::format("validation at step {}:", step);
  for (const auto& [name, value] : result.means) {
    Set(("val/" + name).c_str(), step, value);
    text += fmt::format(" {} {:.4f}", name, value);
  }
  metrics_->EndStep(step);
  Say(text);
  if (!options_.run_dir.empty()) {
    for (nlohmann::json& row : result.rows) {
      row["step"] = step;
      (void)AppendLine(options_.run_dir + "/validation.jsonl", ToJsonLine(row));  // beside the metrics, not state
    }
  }
  if (!pictures_) return;
  if (!result.shown.ok()) pictures_->Fail(fmt::format("reconstruction-{}.png", step), result.shown);
  if (!result.sheet.rows.empty()) {
    pictures_->Show("reconstruction", step, result.means, result.samples, std::move(result.sheet));
  }
  pictures_->DrawCurve();
}

void Report::Say(const std::string& line) {
  if (progress_) {
    progress_->Say(line);
  }
}

void Report::Hyperparameters(const std::string& effective_config) {
  metrics_->Text("config", 0, "```yaml\n" + MaskSecrets(effective_config, {}) + "```");
  const Result<ConfigTree> tree = ConfigTree::Parse(effective_config, "config", ConfigTree::Format::kYaml);
  if (!tree.ok()) return;
  track::HParamMap values;
  Flatten(tree->root(), "", &values);
  metrics_->HParams(std::move(values));
}

Status Report::Samples(uint64_t step, const std::vector<data::SampleId>& ids) {
  if (!options_.track.samples || options_.run_dir.empty()) return Status::Ok();
  const std::string folder = options_.run_dir + "/samples";
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  nlohmann::json list = nlohmann::json::array();
  for (const data::SampleId& id : ids) list.push_back({id.epoch, id.position, id.index});
  const nlohmann::json line = {{"attempt", options_.attempt}, {"step", step}, {"samples", list}};
  return AppendLine(fmt::format("{}/rank-{}.jsonl", folder, options_.rank), ToJsonLine(line));
}

void Report::Histograms(uint64_t step, std::vector<std::pair<std::string, track::HistogramData>> histograms) {
  for (auto& [name, data] : histograms) metrics_->Histogram(name, step, std::move(data));
}

Result<std::string> Report::Finish(const track::StreamEnd& end) {
  if (progress_) progress_->Finish();
  if (pictures_) pictures_->Wait();  // TensorBoard gets them too
  SetMissing(last_step_);
  LOCKSTEP_RETURN_IF_ERROR(metrics_->Finish(end));
  if (!pictures_ || options_.metrics_path.empty()) return std::string();
  pictures_->DrawCurve();
  pictures_->Wait();
  return pictures_->curve_path();
}

void Report::AwaitUpload(const std::function<bool()>& hurry) {
  if (!upload_) return;
  if (const std::string said = upload_->Finish(kUploadPatience, kUploadHurry, hurry); !said.empty()) {
    Say("W&B: " + said);
  }
  upload_.reset();
}

}  // namespace lockstep::engine
