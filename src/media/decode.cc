// `lockstep decode`: latents (docs/formats/latents.md) to frames.
#include <fmt/format.h>
#include <torch/types.h>

#include "base/digits.h"
#include "media/pipe.h"
#include "media/tool.h"
#include "models/taehv_stream.h"

namespace lockstep::media {
namespace {

int64_t FramesOf(const models::TaehvConfig& config, int64_t latents) {
  const int64_t up = config.TimeUp();
  const int64_t trim = up - 1;
  if (config.chunk == 0) return latents * up - (config.cogvideox && latents % 2 == 0 ? 0 : trim);
  const int64_t raw = (config.chunk + config.TimeDown() - 1) / config.TimeDown() * up;
  const int64_t chunks = (latents * up + raw - 1) / raw;
  return chunks * (raw - trim) - config.chunk_drop * up;
}

// A whole number of the file's metadata; 0: it is not there.
Result<int64_t> Remembered(const MediaInput& input, const std::string& path, const char* key) {
  const auto found = input.metadata().find(key);
  if (found == input.metadata().end()) return int64_t{0};
  const int64_t value = ParseDigits<int64_t>(found->second).value_or(0);
  if (value < 1) {
    return Status(Code::kUsage,
                  fmt::format("'{}': its metadata say {} '{}', expected a number", path, key, found->second));
  }
  return value;
}

// What comes out, as the file remembers it or as the model makes it.
Status Plan(const MediaOptions& options, const MediaInput& input, const models::TaehvConfig& config,
            MediaShape* frames) {
  const MediaShape& latents = input.shape();
  if (latents.channels != config.latent) {
    return Status(Code::kUsage,
                  fmt::format("'{}' has latents of {} channels, the weights '{}' ({}) take {}", options.input,
                              latents.channels, options.weights, config.name, config.latent),
                  "use the weights it was encoded with");
  }
  *frames = latents;
  frames->channels = 3;
  const int64_t count = FramesOf(config, static_cast<int64_t>(latents.count));
  if (count < 1) {
    return Status(Code::kUsage,
                  fmt::format("'{}': {} latents give no frame with {}", options.input, latents.count, config.name));
  }
  frames->count = static_cast<uint64_t>(count);
  const bool aligned = config.TimeUp() == config.TimeDown() && !(config.cogvideox && latents.count % 2 == 0);
  if (aligned) {
    Result<int64_t> remembered = Remembered(input, options.input, "frames");
    if (!remembered.ok()) return remembered.status();
    if (*remembered > 0 && *remembered < count) frames->count = static_cast<uint64_t>(*remembered);
  }
  if (options.max_frames > 0) frames->count = std::min(frames->count, options.max_frames);
  const auto size = [&](const char* key, int64_t of, int64_t* to) {
    *to = of * config.SpaceUp();
    Result<int64_t> remembered = Remembered(input, options.input, key);
    if (!remembered.ok()) return remembered.status();
    if (*remembered == 0) return Status::Ok();
    const int64_t there = of * config.SpaceDown();
    if (*remembered > there || *remembered <= there - config.SpaceDown()) {
      return Status(Code::kUsage,
                    fmt::format("'{}': its metadata say {} {}, but {} latents make {} with {}", options.input, key,
                                *remembered, of, there, config.name),
                    "the file was changed, or belongs to another variant");
    }
    *to = (*remembered * config.SpaceUp() + config.SpaceDown() - 1) / config.SpaceDown();
    return Status::Ok();
  };
  LOCKSTEP_RETURN_IF_ERROR(size("height", latents.height, &frames->height));
  LOCKSTEP_RETURN_IF_ERROR(size("width", latents.width, &frames->width));
  if (const auto aspect = input.metadata().find("pixel_aspect"); aspect != input.metadata().end()) {
    if (Result<data::Ratio> parsed = ParseRate(aspect->second); parsed.ok()) frames->pixel_aspect = *parsed;
  }
  if (!options.fps.empty()) {
    Result<data::Ratio> rate = ParseRate(options.fps);
    if (!rate.ok()) return rate.status().Context("--fps");
    frames->rate = *rate;
  }
  return Status::Ok();
}

}  // namespace

Status Decode(const MediaOptions& options, nlohmann::json* summary) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOutput(options.output, /*latents=*/false, options.out.overwrite));
  auto input = OpenLatents(options.input);
  if (!input.ok()) return input.status();
  Result<MediaModel> model = MediaModel::Load(options);
  if (!model.ok()) return model.status();
  const models::TaehvConfig& config = model->config();
  MediaShape shape;
  LOCKSTEP_RETURN_IF_ERROR(Plan(options, **input, config, &shape));
  auto output = CreateFrames(options.output, shape, options.out);
  if (!output.ok()) return output.status();
  MediaProgress progress(shape.count);
  const bool planes = IsTensorName(options.output);
  const bool bytes = !planes || options.out.dtype == Dtype::kU8;
  const int64_t piece_frames = model->PieceOf(options, shape);
  const int64_t latents = static_cast<int64_t>((*input)->shape().count);
  MediaPipe pipe(input->get(), std::max<int64_t>(1, piece_frames / config.TimeUp()), 0);
  pipe.WriteTo(output->get());
  models::DecoderStream decoder(&model->taehv(), latents);
  const auto put = [&](const at::Tensor& x) {
    if (!x.defined()) return Status::Ok();
    const int64_t count = std::min(x.size(1), static_cast<int64_t>(shape.count - progress.frames()));
    if (count <= 0) return Status::Ok();
    Result<at::Tensor> given = model->Give(x.narrow(1, 0, count), shape.height, shape.width, bytes);
    if (!given.ok()) return given.status();
    LOCKSTEP_RETURN_IF_ERROR(pipe.Put({MediaModel::ToHost(*given, planes), {}}));
    progress.Done(count);
    return Status::Ok();
  };
  int64_t used = 0;
  while (progress.frames() < shape.count) {
    Result<Piece> piece = pipe.Next();
    if (!piece.ok()) return piece.status();
    if (piece->count() == 0) break;
    used += piece->count();
    LOCKSTEP_RETURN_IF_ERROR(put(decoder.Push(model->TakeLatents(piece->data))));
  }
  if (used == latents) LOCKSTEP_RETURN_IF_ERROR(put(decoder.Finish()));
  LOCKSTEP_RETURN_IF_ERROR(pipe.Finish({{"rate", RateText(shape.rate)}}));
  progress.End();
  std::vector<std::string> notes;
  if (!model->loaded().note.empty()) notes.push_back(model->loaded().note);
  if (const auto variant = (*input)->metadata().find("variant");
      variant != (*input)->metadata().end() && variant->second != config.name) {
    notes.push_back(
        fmt::format("'{}' was encoded by {}, the weights are {}", options.input, variant->second, config.name));
  }
  for (std::string& note : (*output)->Notes()) notes.push_back(std::move(note));
  Summarize(options, *model, shape, progress, notes, summary);
  (*summary)["latents"] = used;
  (*summary)["written"] = (*output)->Describe();
  return Status::Ok();
}

}  // namespace lockstep::media
