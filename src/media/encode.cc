// `lockstep encode`: frames to latents (docs/formats/latents.md).
#include <fmt/format.h>
#include <torch/types.h>

#include "media/pipe.h"
#include "media/tool.h"
#include "models/taehv_stream.h"

namespace lockstep::media {
Status Encode(const MediaOptions& options, nlohmann::json* summary) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOutput(options.output, /*latents=*/true, options.out.overwrite));
  Result<AskedFrames> asked = OpenAsked(options);
  if (!asked.ok()) return asked.status();
  const std::unique_ptr<MediaInput>& input = asked->input;
  const MediaShape& shape = asked->shape;
  Result<MediaModel> model = MediaModel::Load(options);
  if (!model.ok()) return model.status();
  const models::TaehvConfig& config = model->config();
  const auto complete = [&](int64_t frames) { return options.no_tail ? frames : model->Complete(frames); };
  MediaShape latents = shape;
  latents.channels = config.latent;
  latents.height = (shape.height + config.SpaceDown() - 1) / config.SpaceDown();
  latents.width = (shape.width + config.SpaceDown() - 1) / config.SpaceDown();
  if (shape.count_certain) {
    latents.count = static_cast<uint64_t>(config.Latents(complete(static_cast<int64_t>(shape.count))));
  }
  auto output = CreateLatents(options.output, latents, options.out);
  if (!output.ok()) return output.status();
  MediaProgress progress(shape.count);
  MediaPipe pipe(input.get(), model->PieceOf(options, shape), options.max_frames);
  pipe.WriteTo(output->get());
  models::EncoderStream encoder(&model->taehv());
  int64_t made = 0;
  const auto put = [&](const at::Tensor& x) {
    if (!x.defined()) return Status::Ok();
    Result<at::Tensor> given = model->GiveLatents(x);
    if (!given.ok()) return given.status();
    made += given->size(1);
    return pipe.Put({*given, {}});
  };
  at::Tensor last;
  bool steady = true;  // every frame at its place of a constant rate
  for (;;) {
    Result<Piece> piece = pipe.Next();
    if (!piece.ok()) return piece.status();
    if (piece->count() == 0) break;
    for (size_t i = 0; i < piece->seconds.size(); ++i) {
      const double at = static_cast<double>(progress.frames() + i) / shape.rate.value();
      steady = steady && std::abs(piece->seconds[i] - at) < 0.5 / shape.rate.value();
    }
    const at::Tensor frames = model->Take(piece->data);
    last = frames.narrow(1, frames.size(1) - 1, 1).clone();
    LOCKSTEP_RETURN_IF_ERROR(put(encoder.Push(frames)));
    progress.Done(piece->count());
  }
  const int64_t count = static_cast<int64_t>(progress.frames());
  if (const int64_t more = complete(count) - count; more > 0) {
    LOCKSTEP_RETURN_IF_ERROR(put(encoder.Push(last.expand({-1, more, -1, -1, -1}))));
  }
  LOCKSTEP_RETURN_IF_ERROR(put(encoder.Finish()));
  LOCKSTEP_RETURN_IF_ERROR(pipe.Finish({{"format", "lockstep-latents"},
                                        {"variant", config.name},
                                        {"frames", std::to_string(count)},
                                        {"height", std::to_string(shape.height)},
                                        {"width", std::to_string(shape.width)},
                                        {"rate", RateText(shape.rate)},
                                        {"pixel_aspect", RateText(shape.pixel_aspect)}}));
  progress.End();
  std::vector<std::string> notes = input->Notes();
  if (!model->loaded().note.empty()) notes.push_back(model->loaded().note);
  if (!steady) {
    notes.push_back(
        fmt::format("'{}' has a variable frame rate; latents remember its mean, {} (--fps makes it constant)",
                    options.input, RateText(shape.rate)));
  }
  Summarize(options, *model, shape, progress, notes, summary);
  (*summary)["latents"] = made;
  (*summary)["shape"] = {latents.clips, made, latents.channels, latents.height, latents.width};
  (*summary)["written"] = (*output)->Describe();
  return Status::Ok();
}

}  // namespace lockstep::media
