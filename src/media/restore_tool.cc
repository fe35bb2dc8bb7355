// `lockstep restore`: frames through VRT in windows and tiles, with the spikes that belong to them where it takes some.
#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <deque>
#include <filesystem>

#include "data/spike.h"
#include "engine/precision.h"
#include "media/load_vrt.h"
#include "media/pipe.h"
#include "media/restore.h"
#include "media/tool.h"

namespace lockstep::media {
namespace {

// Spikes of one frame after the other: files of a folder, in the order of their names.
class SpikeFolder {
 public:
  static Result<SpikeFolder> Open(const RestoreAsked& asked, int64_t channels) {
    SpikeFolder folder;
    folder.sensor_ = {asked.sensor_height, asked.sensor_width, !asked.no_flip};
    folder.form_ = {.kind = data::SpikeKindByName(asked.spike_form), .channels = static_cast<int>(channels)};
    LOCKSTEP_RETURN_IF_ERROR(data::CheckForm(folder.form_).Context("--spike-form"));
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(asked.spikes, error)) {
      if (entry.path().extension() == ".dat") folder.files_.push_back(entry.path().string());
    }
    if (error || folder.files_.empty()) {
      return Status(Code::kUsage, fmt::format("--spikes {}: expected a folder of .dat files{}", asked.spikes,
                                              error ? ", found: " + error.message() : ", found none"));
    }
    std::sort(folder.files_.begin(), folder.files_.end());
    return folder;
  }
  size_t size() const { return files_.size(); }

  // Of `count` frames from `begin` on: [count, channels, height, width].
  Result<at::Tensor> Read(int64_t begin, int64_t count, int height, int width) const {
    at::Tensor all = at::empty({count, form_.channels, height, width});
    for (int64_t i = 0; i < count; ++i) {
      if (begin + i >= static_cast<int64_t>(files_.size())) {
        return Status(Code::kUsage,
                      fmt::format("--spikes: {} files, and frame {} has none", files_.size(), begin + i + 1),
                      "give one file for each frame");
      }
      const std::string& path = files_[static_cast<size_t>(begin + i)];
      Result<data::SpikeFile> file = data::SpikeFile::Open(path, sensor_);
      if (!file.ok()) return file.status().Context("--spikes");
      LOCKSTEP_RETURN_IF_ERROR(data::CheckSteps(form_, file->steps(), path));
      Result<std::vector<float>> planes = data::RenderSpikes(*file, form_, {0, 0, sensor_.height, sensor_.width});
      if (!planes.ok()) return planes.status();
      const std::vector<float> sized =
          data::ResizePlanes(std::move(*planes), form_.channels, sensor_.height, sensor_.width, height, width);
      std::copy(sized.begin(), sized.end(), all[i].data_ptr<float>());
    }
    return all;
  }

 private:
  data::SpikeSensor sensor_;
  data::SpikeForm form_;
  std::vector<std::string> files_;
};

// `spikes`: channels of them that the model takes.
Status CheckModel(const models::VrtConfig& config, int64_t spikes, const RestoreAsked& asked,
                  const std::string& weights) {
  if (config.pa_frames == 0) {
    return Status(Code::kUsage, fmt::format("'{}' interpolates frames, which is not restored with", weights));
  }
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

}  // namespace

Status Restore(const MediaOptions& options, nlohmann::json* summary) {
  const RestoreAsked& how = options.restore;
  LOCKSTEP_RETURN_IF_ERROR(CheckOutput(options.output, /*latents=*/false, options.out.overwrite));
  Result<AskedFrames> asked = OpenAsked(options);
  if (!asked.ok()) return asked.status();
  const MediaShape& shape = asked->shape;
  if (shape.clips != 1) {
    return Status(Code::kUsage, fmt::format("'{}' has {} clips, expected one", options.input, shape.clips));
  }
  Result<LoadedVrt> loaded = LoadVrtWeights(options.weights, options.variant);
  if (!loaded.ok()) return loaded.status().Context("--weights");
  const models::VrtConfig& config = loaded->model->config();
  const int64_t spike_channels = loaded->adapter ? loaded->adapter->config().spike_bins : config.in_chans - 3;
  LOCKSTEP_RETURN_IF_ERROR(CheckModel(config, spike_channels, how, loaded->path));
  RestoreTiles tiles = how.tiles;
  tiles.scale = config.upscale;
  tiles.window = config.ClipMultiples();
  tiles.least = config.LeastClip();
  LOCKSTEP_RETURN_IF_ERROR(tiles.Check(/*flags=*/true));
  std::optional<SpikeFolder> spikes;
  if (!how.spikes.empty()) {
    Result<SpikeFolder> folder = SpikeFolder::Open(how, spike_channels);
    if (!folder.ok()) return folder.status();
    if (shape.count_certain && folder->size() < shape.count) {
      return Status(Code::kUsage, fmt::format("--spikes: {} files for {} frames", folder->size(), shape.count),
                    "give one file for each frame");
    }
    spikes = std::move(*folder);
  }
  const Result<at::Device> chosen = DeviceFor(options);
  if (!chosen.ok()) return chosen.status();
  const at::Device device = *chosen;
  const engine::Precision precision = options.precision == "auto"
                                          ? (device.is_cuda() ? engine::Precision::kBf16 : engine::Precision::kFp32)
                                          : *engine::PrecisionNamed(options.precision);
  loaded->model->to(device);

  MediaShape out = shape;
  out.height *= config.upscale;
  out.width *= config.upscale;
  auto output = CreateFrames(options.output, out, options.out);
  if (!output.ok()) return output.status();
  MediaProgress progress(shape.count);
  const bool planes = IsTensorName(options.output);
  MediaPipe pipe(asked->input.get(), std::max<int64_t>(1, options.chunk > 0 ? options.chunk : 8), options.max_frames);
  pipe.WriteTo(output->get());
  const at::NoGradGuard no_grad;
  std::deque<double> seconds;
  const RestoreForward forward = [&](const at::Tensor& clips) {
    const engine::AutocastGuard autocast(device.type(), precision);
    if (!loaded->adapter) return loaded->model->Forward(clips);
    const at::Tensor fused = loaded->adapter->Forward(clips.narrow(2, 0, 3), clips.narrow(2, 3, spike_channels));
    return loaded->adapter->Reduce(loaded->model->Forward(fused));
  };
  RestoreStream stream(forward, tiles, [&](const at::Tensor& frames) {
    if (!frames.isfinite().all().item<bool>()) {
      return Status(Code::kEnvironment, "the model gave values that are not finite", "try --precision fp32");
    }
    at::Tensor x = frames.clamp(0, 1).unsqueeze(0);
    if (!planes || options.out.dtype == Dtype::kU8) x = x.mul(255).round_().to(at::kByte);
    Piece piece{MediaModel::ToHost(x, planes), {}};
    for (int64_t i = 0; i < frames.size(0) && !seconds.empty(); ++i) {
      piece.seconds.push_back(seconds.front());
      seconds.pop_front();
    }
    progress.Done(frames.size(0));
    return pipe.Put(std::move(piece));
  });
  for (int64_t begin = 0;;) {
    Result<Piece> piece = pipe.Next();
    if (!piece.ok()) return piece.status();
    if (piece->count() == 0) break;
    seconds.insert(seconds.end(), piece->seconds.begin(), piece->seconds.end());
    at::Tensor x = piece->data[0].to(device);
    x = x.scalar_type() == at::kByte ? x.to(at::kFloat).div_(255) : x.to(at::kFloat).clamp(0, 1);
    std::vector<at::Tensor> channels = {x};
    if (spikes) {
      Result<at::Tensor> read =
          spikes->Read(begin, piece->count(), static_cast<int>(x.size(2)), static_cast<int>(x.size(3)));
      if (!read.ok()) return read.status();
      channels.push_back(read->to(device));
    }
    if (how.noise) channels.push_back(at::full_like(x.narrow(1, 0, 1), *how.noise / 255.0));
    LOCKSTEP_RETURN_IF_ERROR(stream.Push(at::cat(channels, 1)));
    begin += piece->count();
  }
  LOCKSTEP_RETURN_IF_ERROR(stream.Finish());
  LOCKSTEP_RETURN_IF_ERROR(pipe.Finish({{"rate", RateText(shape.rate)}}));
  progress.End();
  std::vector<std::string> notes = asked->input->Notes();
  if (!loaded->note.empty()) notes.push_back(loaded->note);
  for (std::string& note : (*output)->Notes()) notes.push_back(std::move(note));
  nlohmann::json& all = *summary;
  SummarizeFrames(options, out, progress, notes, summary);
  all["variant"] = config.name == "custom" ? "vrt" : "vrt " + config.name;
  all["weights"] = loaded->path;
  all["averaged"] = loaded->averaged;
  if (loaded->step) all["step"] = *loaded->step;
  all["device"] = device.str();
  all["precision"] = engine::PrecisionName(precision);
  all["written"] = (*output)->Describe();
  return Status::Ok();
}

}  // namespace lockstep::media
