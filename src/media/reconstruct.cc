// `lockstep reconstruct`: frames through the autoencoder and back, as many as came in, each in its place.
#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <deque>

#include "media/pipe.h"
#include "media/tool.h"
#include "media/video_metrics.h"
#include "models/taehv_stream.h"

namespace lockstep::media {
namespace {

class FileReconstruction {
 public:
  FileReconstruction(const MediaModel& model, const MediaShape& shape, bool bytes, bool planes, MediaPipe* pipe,
                     MediaProgress* progress)
      : model_(model),
        shape_(shape),
        bytes_(bytes),
        planes_(planes),
        pipe_(pipe),
        progress_(progress),
        encoder_(&model.taehv()),
        // Without a number of latents CogVideoX' variant keeps its first frames; they are dropped here, since the end
        // is filled up such that the number becomes odd.
        decoder_(&model.taehv()),
        warm_up_(model.config().cogvideox ? model.config().TimeUp() - 1 : 0) {}

  Status Push(const Piece& piece) {
    waiting_.push_back(piece.data.to(model_.device()));
    waiting_frames_ += piece.count();
    seconds_.insert(seconds_.end(), piece.seconds.begin(), piece.seconds.end());
    const at::Tensor frames = model_.Take(waiting_.back());
    last_ = frames.narrow(1, frames.size(1) - 1, 1).clone();
    count_ += piece.count();
    return Decode(encoder_.Push(frames));
  }
  Status Finish() {
    const int64_t more = model_.Complete(count_) - count_;
    if (more > 0) LOCKSTEP_RETURN_IF_ERROR(Decode(encoder_.Push(last_.expand({-1, more, -1, -1, -1}))));
    LOCKSTEP_RETURN_IF_ERROR(Decode(encoder_.Finish()));
    LOCKSTEP_RETURN_IF_ERROR(Out(decoder_.Finish()));
    if (waiting_frames_ == 0) return Status::Ok();
    return Status(Code::kInternal, fmt::format("{} frames went in and {} came out", count_, count_ - waiting_frames_));
  }
  int64_t count() const { return count_; }
  // Mean over frames; infinite where one came back exactly.
  double psnr() const { return psnr_sum_ / static_cast<double>(count_ * shape_.clips); }

 private:
  Status Decode(const at::Tensor& latents) { return latents.defined() ? Out(decoder_.Push(latents)) : Status::Ok(); }

  Status Out(const at::Tensor& frames) {
    if (!frames.defined()) return Status::Ok();
    const int64_t skip = std::min(warm_up_, frames.size(1));
    warm_up_ -= skip;
    const int64_t count = std::min(frames.size(1) - skip, waiting_frames_);
    if (count <= 0) return Status::Ok();
    Result<at::Tensor> given = model_.Give(frames.narrow(1, skip, count), shape_.height, shape_.width, bytes_);
    if (!given.ok()) return given.status();
    Measure(*given, count);
    Piece piece{MediaModel::ToHost(*given, planes_), {}};
    if (!seconds_.empty()) {
      piece.seconds.assign(seconds_.begin(), seconds_.begin() + count);
      seconds_.erase(seconds_.begin(), seconds_.begin() + count);
    }
    LOCKSTEP_RETURN_IF_ERROR(pipe_->Put(std::move(piece)));
    progress_->Done(count);
    return Status::Ok();
  }

  static at::Tensor Unit(const at::Tensor& frames) {
    return frames.scalar_type() == at::kByte ? frames.to(at::kFloat).div_(255) : frames.to(at::kFloat);
  }
  // Takes the frames that `given` reconstructs off the waiting ones.
  void Measure(const at::Tensor& given, int64_t count) {
    for (int64_t at = 0; at < count;) {
      at::Tensor& first = waiting_.front();
      const int64_t take = std::min(count - at, first.size(1));
      const at::Tensor original = first.narrow(1, 0, take);
      psnr_sum_ +=
          Psnr(Unit(given.narrow(1, at, take)), Unit(original)).sum().item<double>() * static_cast<double>(take);
      at += take;
      if (take == first.size(1)) {
        waiting_.pop_front();
      } else {
        first = first.narrow(1, take, first.size(1) - take);
      }
    }
    waiting_frames_ -= count;
  }

  const MediaModel& model_;
  const MediaShape& shape_;
  bool bytes_;
  bool planes_;
  MediaPipe* pipe_;
  MediaProgress* progress_;
  models::EncoderStream encoder_;
  models::DecoderStream decoder_;
  int64_t warm_up_;
  std::deque<at::Tensor> waiting_;  // frames that went in and did not come out yet
  int64_t waiting_frames_ = 0;
  std::deque<double> seconds_;
  at::Tensor last_;
  int64_t count_ = 0;
  double psnr_sum_ = 0;
};

}  // namespace

Status Reconstruct(const MediaOptions& options, nlohmann::json* summary) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOutput(options.output, /*latents=*/false, options.out.overwrite));
  Result<AskedFrames> asked = OpenAsked(options);
  if (!asked.ok()) return asked.status();
  const std::unique_ptr<MediaInput>& input = asked->input;
  const MediaShape& shape = asked->shape;
  Result<MediaModel> model = MediaModel::Load(options);
  if (!model.ok()) return model.status();
  const models::TaehvConfig& config = model->config();
  if (config.TimeDown() != config.TimeUp() || config.SpaceDown() != config.SpaceUp()) {
    return Status(
        Code::kUsage,
        fmt::format("'{}': these weights give frames of another rate or size than they take", options.weights),
        "use `lockstep encode` and `lockstep decode`");
  }
  auto output = CreateFrames(options.output, shape, options.out);
  if (!output.ok()) return output.status();
  MediaProgress progress(shape.count);
  const bool planes = IsTensorName(options.output);
  const bool bytes = !planes || options.out.dtype == Dtype::kU8;
  MediaPipe pipe(input.get(), model->PieceOf(options, shape), options.max_frames);
  pipe.WriteTo(output->get());
  FileReconstruction work(*model, shape, bytes, planes, &pipe, &progress);
  for (;;) {
    Result<Piece> piece = pipe.Next();
    if (!piece.ok()) return piece.status();
    if (piece->count() == 0) break;
    LOCKSTEP_RETURN_IF_ERROR(work.Push(*piece));
  }
  LOCKSTEP_RETURN_IF_ERROR(work.Finish());
  LOCKSTEP_RETURN_IF_ERROR(pipe.Finish({{"rate", RateText(shape.rate)}}));
  progress.End();
  std::vector<std::string> notes = input->Notes();
  if (!model->loaded().note.empty()) notes.push_back(model->loaded().note);
  for (std::string& note : (*output)->Notes()) notes.push_back(std::move(note));
  Summarize(options, *model, shape, progress, notes, summary);
  (*summary)["psnr"] = std::isfinite(work.psnr()) ? nlohmann::json(work.psnr()) : nlohmann::json(nullptr);
  (*summary)["written"] = (*output)->Describe();
  return Status::Ok();
}

}  // namespace lockstep::media
