// `lockstep restore`: clips through VRT in windows and tiles, on any number of ranks. Rank 0 looks at what is there and
// tells the others; windows that are missing are divided over the ranks, each clip is put together by one.
#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <thread>

#include "base/checksum.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "engine/precision.h"
#include "engine/ranks.h"
#include "engine/trainer.h"
#include "media/load_vrt.h"
#include "media/pipe.h"
#include "media/restore_run.h"
#include "media/tool.h"

namespace lockstep::media {
namespace {

constexpr std::chrono::hours kPatience{24 * 14};  // ranks wait for each other's windows; a dead one is noticed at once
constexpr std::chrono::minutes kConnect{5};
constexpr size_t kNext = 256;        // windows whose marks are looked for
constexpr size_t kMostThreads = 16;  // that decode or encode pictures beside computing
// Memory of a tile on a GPU: what four of 12 x 224 x 224 took of an H200 with 006's shape in bf16.
constexpr double kTileBytesPerPixel = 8500;
constexpr int64_t kMostTiles = 4;

// What the model needs to know, and of this rank's device.
struct Restorer {
  LoadedVrt loaded;
  at::Device device = at::kCPU;
  engine::Precision precision = engine::Precision::kFp32;
  RestoreTiles tiles;
  int64_t spike_channels = 0;
  std::string weights;  // checksum
};

// `spikes`: channels of them that the model takes.
Status CheckModel(const models::VrtConfig& config, int64_t spikes, const RestoreAsked& asked,
                  const std::string& weights) {
  if (spikes > 0 && asked.spikes.empty()) {
    return Status(Code::kUsage,
                  fmt::format("'{}' takes {} channels: RGB and {} of spikes", weights, 3 + spikes, spikes),
                  "name the folder of the clip's spike files: --spikes DIR");
  }
  if (spikes == 0 && !asked.spikes.empty()) {
    return Status(Code::kUsage, fmt::format("--spikes: '{}' takes RGB alone", weights), "leave --spikes out");
  }
  if (config.nonblind_denoising != asked.noise.has_value()) {
    return Status(Code::kUsage,
                  config.nonblind_denoising
                      ? fmt::format("'{}' wants to know the level of the noise: --noise 0 to 255", weights)
                      : fmt::format("--noise: '{}' takes no level of noise", weights));
  }
  return Status::Ok();
}

// Another sensor may be told than that of the training; another form would be other channels.
Status CheckSpikeForm(const LoadedVrt& loaded, const RestoreAsked& asked) {
  if (!loaded.spikes || asked.spike_form.empty()) return Status::Ok();
  if (data::SpikeKindByName(asked.spike_form) == loaded.spikes->form.kind) return Status::Ok();
  return Status(Code::kUsage,
                fmt::format("--spike-form {}: '{}' was trained with spikes as {}", asked.spike_form, loaded.path,
                            loaded.spikes->form.Folder()),
                "leave --spike-form out");
}

std::string ChecksumOf(const models::Vrt& model) {
  Checksum sum;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor values = item.value().detach().contiguous();
    sum.Update(item.key().data(), item.key().size());
    sum.Update(values.data_ptr(), values.nbytes());
  }
  return sum.Text();
}

int64_t TilesAtOnce(const RestoreTiles& tiles, at::Device device) {
  if (tiles.batch > 0) return tiles.batch;
  const auto gpu = engine::DescribeGpu(device);
  if (!gpu || tiles.tile == 0 || tiles.frames == 0) return 1;
  const double one = kTileBytesPerPixel * static_cast<double>(tiles.frames * tiles.tile * tiles.tile);
  return std::clamp<int64_t>(static_cast<int64_t>(0.6 * static_cast<double>(gpu->memory) / one), 1, kMostTiles);
}

Result<Restorer> LoadRestorer(const MediaOptions& options) {
  const RestoreAsked& asked = options.restore;
  Result<at::Device> device =
      engine::ChooseDevice(options.device, asked.who.local_rank, asked.who.local_size, comm::Backend::kHost);
  if (!device.ok()) return device.status();
  Result<LoadedVrt> loaded = LoadVrtWeights(options.weights, options.variant);
  if (!loaded.ok()) return loaded.status().Context("--weights");
  Restorer made;
  made.loaded = std::move(*loaded);
  made.device = *device;
  const models::VrtConfig& config = made.loaded.model->config();
  made.spike_channels = made.loaded.adapter ? made.loaded.adapter->config().spike_bins : config.in_chans - 3;
  LOCKSTEP_RETURN_IF_ERROR(CheckModel(config, made.spike_channels, asked, made.loaded.path));
  LOCKSTEP_RETURN_IF_ERROR(CheckSpikeForm(made.loaded, asked));
  made.tiles = asked.tiles;
  made.tiles.scale = config.upscale;
  made.tiles.window = config.ClipMultiples();
  made.tiles.least = config.LeastClip();
  if (config.pa_frames == 0) {
    made.tiles.between = config.img_size[0];
    made.tiles.frame_overlap = 0;  // windows share no frames
  }
  LOCKSTEP_RETURN_IF_ERROR(made.tiles.Check(/*flags=*/true));
  made.tiles.batch = TilesAtOnce(made.tiles, *device);
  made.precision = options.precision == "auto"
                       ? (device->is_cuda() ? engine::Precision::kBf16 : engine::Precision::kFp32)
                       : *engine::PrecisionNamed(options.precision);
  made.weights = ChecksumOf(*made.loaded.model);
  return made;
}

// Everything but the files that the result depends on, by the names that a user knows.
nlohmann::json SettingsOf(const MediaOptions& options, const Restorer& restorer) {
  const RestoreAsked& asked = options.restore;
  const RestoreTiles& tiles = restorer.tiles;
  nlohmann::json all = {
      {"the weights", restorer.weights},
      {"the model", ChecksumText(models::ToJson(restorer.loaded.model->config()).dump())},
      {"--frames", std::to_string(tiles.frames)},
      {"--frame-overlap", std::to_string(tiles.frame_overlap)},
      {"--tile", std::to_string(tiles.tile)},
      {"--tile-overlap", std::to_string(tiles.tile_overlap)},
      {"--tile-batch", std::to_string(tiles.batch)},
      {"--precision", engine::PrecisionName(restorer.precision)},
      {"--device", restorer.device.is_cuda() ? "cuda" : "cpu"},
      {"--max-frames", std::to_string(options.max_frames)},
      {"--fps", options.fps},
      {"--codec", options.out.codec},
      {"--pixels", options.out.pixels},
      {"--crf", options.out.crf ? std::to_string(*options.out.crf) : ""},
      {"--dtype", options.dtype},
      {"version", ThisBuild().version},
  };
  if (!asked.spikes.empty()) {
    const data::SpikeSensor sensor = SensorOf(asked);
    all["--spike-form"] = FormOf(asked, restorer.spike_channels).Folder();
    all["--sensor-height"] = std::to_string(sensor.height);
    all["--sensor-width"] = std::to_string(sensor.width);
    all["--no-flip"] = sensor.flip ? "no" : "yes";
  }
  if (asked.noise) all["--noise"] = std::to_string(*asked.noise);
  if (restorer.loaded.adapter) all["the adapter"] = FusionToJson(restorer.loaded.adapter->config()).dump();
  return all;
}

RestoreForward ForwardOf(const Restorer& restorer) {
  return [&restorer](const at::Tensor& clips) {
    const engine::AutocastGuard autocast(restorer.device.type(), restorer.precision);
    const LoadedVrt& loaded = restorer.loaded;
    if (!loaded.adapter) return loaded.model->Forward(clips);
    const at::Tensor rgb = clips.narrow(2, 0, 3);
    const at::Tensor fused = loaded.adapter->Forward(rgb, clips.narrow(2, 3, restorer.spike_channels));
    return loaded.adapter->Reduce(loaded.model->Forward(fused, {}, loaded.adapter->Base(rgb)));
  };
}

// Frames that are done, of all ranks, on stderr: those of rank 0 as it goes, those of others by their marks.
class RestoreProgress {
 public:
  RestoreProgress(const WorkFiles& files, const std::vector<RestoreTask>& tasks, const std::vector<WorkState>& states)
      : files_(files) {
    uint64_t total = 0, done = 0;
    for (const RestoreTask& task : tasks) {
      const WorkState& state = states[task.number];
      total += state.count;
      for (size_t w = 0; w < task.windows.size(); ++w) {
        const bool last = w + 1 == task.windows.size();
        const int64_t frames = (last ? task.windows[w].end() : task.windows[w + 1].begin) - task.windows[w].begin;
        if (state.done[w] != 0) done += static_cast<uint64_t>(frames);
        if (state.done[w] == 0) waiting_.push_back({task.number, w, static_cast<uint64_t>(frames)});
      }
    }
    first_ = done_ = done;
    line_.emplace(track::ProgressLineOptions{.unit = "frame", .total = total, .first_step = done, .fd = 2});
  }
  // At most once in a while, and at the next windows only: they become ready about in order.
  void Look(bool all) {
    if (!all && SecondsSince(looked_) < 0.5) return;
    looked_ = Now();
    const uint64_t before = done_;
    const auto end =
        waiting_.begin() + static_cast<ptrdiff_t>(all ? waiting_.size() : std::min(waiting_.size(), kNext));
    waiting_.erase(std::remove_if(waiting_.begin(), end,
                                  [&](const Waiting& one) {
                                    const bool there = FileExists(files_.Mark(one.clip, one.window));
                                    if (there) done_ += one.frames;
                                    return there;
                                  }),
                   end);
    if (done_ > before) line_->Update({.step = done_});
  }
  void End() { line_->Finish(); }
  uint64_t restored() const { return done_ - first_; }
  double seconds() const { return SecondsSince(began_); }

 private:
  struct Waiting {
    size_t clip, window;
    uint64_t frames;
  };
  const WorkFiles& files_;
  std::vector<Waiting> waiting_;
  uint64_t first_ = 0, done_ = 0;
  TimePoint began_ = Now(), looked_ = began_ - std::chrono::hours(1);
  std::optional<track::ProgressLine> line_;
};

struct Agreed {
  std::vector<WorkState> states;
  uint64_t kept = 0;
};
// Rank 0 tells what there is to do.
Result<Agreed> AgreeOnWork(comm::Communicator& comm, const std::optional<WorkFolder>& work) {
  nlohmann::json mine;
  if (work) mine = {{"states", ToJson(work->states())}, {"kept", work->kept()}};
  const auto all = comm.Gather(work ? mine.dump() : std::string());
  if (!all.ok()) return all.status();
  const Result<nlohmann::json> told = ParseJson(all->front(), "plan of rank 0");
  if (!told.ok()) return told.status();
  return Agreed{WorkStatesFrom((*told)["states"]), (*told)["kept"]};
}

// Windows that are missing, every rank's in turn; and the clips that each puts together.
void Divide(const std::vector<WorkState>& states, const comm::Bootstrap& who, RestoreLoop* loop) {
  size_t number = 0;
  for (size_t t = 0; t < loop->tasks.size(); ++t) {
    const RestoreTask& task = loop->tasks[t];
    for (size_t w = 0; w < task.windows.size(); ++w) {
      if (states[task.number].done[w] != 0) continue;
      if (static_cast<int>(number++ % static_cast<size_t>(who.size)) == who.rank) loop->units.push_back({t, w});
    }
    if (static_cast<int>(t % static_cast<size_t>(who.size)) == who.rank) loop->assembled.push_back(t);
  }
}

std::vector<RestoreTask> TasksOf(const std::vector<FoundClip>& clips, const std::vector<WorkState>& states,
                                 const RestoreTiles& tiles, const OutputOptions& out) {
  std::vector<RestoreTask> tasks;
  for (size_t i = 0; i < clips.size(); ++i) {
    if (states[i].complete) continue;
    RestoreTask task{&clips[i], i, FrameWindows(static_cast<int64_t>(states[i].count), tiles), clips[i].shape, true};
    task.out.height *= tiles.scale;
    task.out.width *= tiles.scale;
    task.out.count = states[i].count;
    if (tiles.between > 0) task.out.rate.num *= 2;
    task.out.count_certain = true;
    task.bytes = clips[i].written != Written::kTensor || out.dtype == Dtype::kU8;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

void Summarise(const MediaOptions& options, const Restorer& restorer, const std::vector<FoundClip>& clips,
               const Agreed& agreed, nlohmann::json* summary) {
  nlohmann::json& all = *summary;
  uint64_t frames = 0, windows = 0;
  all["results"] = nlohmann::json::array();
  bool complete = true;
  for (size_t i = 0; i < clips.size(); ++i) {
    const FoundClip& clip = clips[i];
    const WorkState& state = agreed.states[i];
    frames += state.count;
    windows += state.windows();
    complete = complete && state.complete;
    all["results"].push_back({{"name", clip.name},
                              {"input", clip.input},
                              {"output", clip.output},
                              {"frames", state.count},
                              {"width", clip.shape.width * restorer.tiles.scale},
                              {"height", clip.shape.height * restorer.tiles.scale},
                              {"already", state.complete}});
  }
  const models::VrtConfig& config = restorer.loaded.model->config();
  all["command"] = options.command;
  all["input"] = options.input;
  all["output"] = options.output;
  all["clips"] = clips.size();
  all["frames"] = frames;
  all["width"] = all["results"][0]["width"];
  all["height"] = all["results"][0]["height"];
  data::Ratio rate = clips[0].shape.rate;
  if (restorer.tiles.between > 0) rate.num *= 2;
  all["rate"] = RateText(rate);
  all["already"] = complete;
  all["ranks"] = options.restore.who.size;
  all["windows"] = windows;
  all["windows_kept"] = agreed.kept;
  all["tile_batch"] = restorer.tiles.batch;
  if (restorer.spike_channels > 0) all["spikes"] = FormOf(options.restore, restorer.spike_channels).Folder();
  all["variant"] = config.name == "custom" ? "vrt" : "vrt " + config.name;
  all["weights"] = restorer.loaded.path;
  all["averaged"] = restorer.loaded.averaged;
  if (restorer.loaded.step) all["step"] = *restorer.loaded.step;
  all["device"] = restorer.device.str();
  all["precision"] = engine::PrecisionName(restorer.precision);
  all["seconds"] = 0;
  all["frames_per_second"] = 0;
}

}  // namespace

Status Restore(const MediaOptions& given, nlohmann::json* summary) {
  MediaOptions options = given;
  const comm::Bootstrap& who = options.restore.who;
  auto comm = comm::Communicator::Connect(who, {.timeout = kPatience, .connect_timeout = kConnect, .group = "restore"});
  if (!comm.ok()) return comm.status();
  // Checked by every rank, so that all leave with the same error before anything is written.
  Result<Restorer> restorer = LoadRestorer(options);
  if (restorer.ok()) options.restore.trained = restorer->loaded.spikes;
  LOCKSTEP_RETURN_IF_ERROR(engine::AgreeOver(**comm, restorer.status()));
  Result<std::vector<FoundClip>> clips = FindRestoreClips(options, restorer->spike_channels);
  LOCKSTEP_RETURN_IF_ERROR(engine::AgreeOver(**comm, clips.status()));
  for (FoundClip& clip : *clips) clip.renumbered = restorer->tiles.between > 0;
  const nlohmann::json settings = SettingsOf(options, *restorer);
  std::optional<WorkFolder> work;
  Status opened;
  if (who.rank == 0) {
    Result<WorkFolder> folder = WorkFolder::Open(options, settings, *clips, restorer->tiles);
    opened = folder.status();
    if (folder.ok()) work.emplace(std::move(*folder));
  }
  LOCKSTEP_RETURN_IF_ERROR(engine::AgreeOver(**comm, opened));
  Result<Agreed> agreed = AgreeOnWork(**comm, work);
  if (!agreed.ok()) return agreed.status();
  Summarise(options, *restorer, *clips, *agreed, summary);
  (*summary)["began"] = true;
  if ((*summary)["already"].get<bool>()) return Status::Ok();

  const WorkFiles files(options.output);
  RestoreLoop loop;
  loop.tasks = TasksOf(*clips, agreed->states, restorer->tiles, options.out);
  loop.tiles = restorer->tiles;
  loop.forward = ForwardOf(*restorer);
  loop.device = restorer->device;
  if (options.restore.noise) loop.noise = *options.restore.noise / 255.0;
  const size_t cores = std::max(std::thread::hardware_concurrency(), 1U) / static_cast<size_t>(who.local_size);
  loop.store_threads = std::clamp<size_t>(cores, 1, kMostThreads);
  loop.reading = {SensorOf(options.restore), FormOf(options.restore, restorer->spike_channels), loop.store_threads,
                  restorer->device.is_cuda()};
  loop.assembling = {options.out, settings, nullptr};
  Divide(agreed->states, who, &loop);
  restorer->loaded.model->to(restorer->device);
  std::optional<RestoreProgress> progress;
  if (who.rank == 0) {
    if (agreed->kept > 0) {
      fmt::print(stderr, "lockstep restore: goes on with '{}': {} of {} windows are there\n", files.path(),
                 agreed->kept, (*summary)["windows"].dump());
    }
    progress.emplace(files, loop.tasks, agreed->states);
    loop.progress = [&] { progress->Look(/*all=*/false); };
  }
  Result<RestoreOutcome> outcome = RunRestoreLoop(files, options, loop, StopFlag());
  if (!outcome.ok()) return outcome.status();
  // Every rank's clips are in their places, and rank 0 knows what is to be said of them.
  const auto notes = (*comm)->Gather(nlohmann::json(outcome->notes).dump());
  if (!notes.ok()) return notes.status();
  if (!progress) return Status::Ok();
  progress->Look(/*all=*/true);
  progress->End();
  LOCKSTEP_RETURN_IF_ERROR(work->Remove());
  nlohmann::json& all = *summary;
  all["seconds"] = progress->seconds();
  all["frames_per_second"] = static_cast<double>(progress->restored()) / std::max(progress->seconds(), 1e-6);
  all["written"] = outcome->written;
  all["notes"] = work->notes();
  for (const std::string& of_rank : *notes) {
    const Result<nlohmann::json> told = ParseJson(of_rank, "notes of a rank");
    if (!told.ok()) return told.status();
    for (const nlohmann::json& note : *told) all["notes"].push_back(note);
  }
  if (!restorer->loaded.note.empty()) all["notes"].push_back(restorer->loaded.note);
  if (const int gpus = engine::VisibleGpus(); restorer->device.is_cuda() && who.size == 1 && gpus > 1) {
    all["notes"].push_back(fmt::format("one of {} GPUs was used; --nproc-per-node gpu uses all", gpus));
  }
  for (const nlohmann::json& note : all["notes"]) fmt::print(stderr, "note: {}\n", note.get<std::string>());
  return Status::Ok();
}

}  // namespace lockstep::media
