#include "models/taehv_stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

namespace lockstep::models {
namespace {

// Nothing, the one, or all of them along time.
at::Tensor Join(const std::vector<at::Tensor>& pieces) {
  std::vector<at::Tensor> some;
  for (const at::Tensor& piece : pieces) {
    if (piece.defined() && piece.size(1) > 0) some.push_back(piece);
  }
  if (some.empty()) return {};
  return some.size() == 1 ? some[0] : at::cat(some, 1);
}

void CheckPiece(const at::Tensor& x, int64_t channels, const char* what) {
  TORCH_CHECK(x.defined() && x.dim() == 5 && x.size(2) == channels && x.numel() > 0, "a TAEHV stream takes ", what,
              " as (clips, frames, ", channels, ", height, width), not ",
              x.defined() ? fmt::format("[{}]", fmt::join(x.sizes(), ", ")) : "nothing");
}

}  // namespace

at::Tensor taehv::HoldBack::Add(const at::Tensor& piece, int64_t hold) {
  at::Tensor all = Join({waiting_, piece});
  if (!all.defined() || hold == 0) {
    waiting_ = at::Tensor();
    return all;
  }
  int64_t out = std::max<int64_t>(0, all.size(1) - hold);
  waiting_ = all.narrow(1, out, all.size(1) - out).clone();
  return out == 0 ? at::Tensor() : all.narrow(1, 0, out);
}

at::Tensor EncoderStream::Run(const at::Tensor& frames) {
  const TaehvConfig& config = model_->config();
  int64_t clips = frames.size(0);
  at::Tensor x = config.patch > 1 ? at::pixel_unshuffle(frames, config.patch) : frames;
  x = model_->RunEncoder(x.flatten(0, 1), clips, &memory_);
  return x.defined() ? x.unflatten(0, {clips, -1}) : x;
}

at::Tensor EncoderStream::Push(const at::Tensor& frames) {
  torch::NoGradGuard no_grad;
  CheckPiece(frames, 3, "frames");
  TORCH_CHECK(
      !last_.defined() || (frames.size(0) == last_.size(0) && frames.sizes().slice(2) == last_.sizes().slice(2)),
      "a TAEHV stream began with ", last_.sizes(), " and goes on with ", frames.sizes(),
      ": clips and picture size must stay the same; call Reset for a new clip");
  const TaehvConfig& config = model_->config();
  int64_t count = frames.size(1), down = config.TimeDown();
  last_ = frames.narrow(1, count - 1, 1).clone();
  frames_ += count;
  if (config.chunk == 0) return Run(frames);
  std::vector<at::Tensor> latents;
  for (int64_t at = 0; at < count;) {
    int64_t take = std::min(count - at, config.chunk - in_chunk_);
    at::Tensor piece = frames.narrow(1, at, take);
    if (in_chunk_ == 0) {  // every chunk is a clip of its own behind black frames
      memory_.Reset();
      piece = at::constant_pad_nd(piece, {0, 0, 0, 0, 0, 0, down - 1, 0});
    }
    at += take;
    in_chunk_ += take;
    if (in_chunk_ == config.chunk) {
      in_chunk_ = 0;
      int64_t missing = CeilDiv(config.chunk + down - 1, down) * down - (config.chunk + down - 1);
      piece = at::cat({piece, piece.narrow(1, piece.size(1) - 1, 1).expand({-1, missing, -1, -1, -1})}, 1);
    }
    latents.push_back(Run(piece));
  }
  return held_.Add(Join(latents), config.chunk_drop);
}

at::Tensor EncoderStream::Finish() {
  torch::NoGradGuard no_grad;
  const TaehvConfig& config = model_->config();
  int64_t whole = config.chunk > 0 ? config.chunk : config.TimeDown();
  int64_t missing = (whole - frames_ % whole) % whole;
  at::Tensor latents;
  if (missing > 0) latents = Push(last_.expand({-1, missing, -1, -1, -1}));
  Reset();
  return latents;
}

void EncoderStream::Reset() {
  memory_.Reset();
  held_.Clear();
  last_ = at::Tensor();
  frames_ = in_chunk_ = 0;
}

at::Tensor DecoderStream::Show(at::Tensor x) {
  if (!x.defined()) return x;
  int patch = model_->config().patch;
  if (patch > 1) x = at::pixel_shuffle(x, patch);
  return clamp_ ? x.clamp(0, 1) : x;
}

at::Tensor DecoderStream::Push(const at::Tensor& latents) {
  torch::NoGradGuard no_grad;
  const TaehvConfig& config = model_->config();
  CheckPiece(latents, config.latent, "latents");
  int64_t clips = latents.size(0), trim = config.TimeUp() - 1;
  at::Tensor x = model_->RunDecoder(latents.flatten(0, 1), clips, &memory_).unflatten(0, {clips, -1});
  bool starts = latents_ == 0;
  latents_ += latents.size(1);
  if (config.chunk == 0) {
    bool untrimmed = config.cogvideox && expected_.value_or(0) % 2 == 0;
    if (starts && !untrimmed) x = x.narrow(1, trim, x.size(1) - trim);  // a latent gives more frames than are trimmed
    return Show(x);
  }
  int64_t raw = CeilDiv(config.chunk, config.TimeDown()) * config.TimeUp(), count = x.size(1);
  std::vector<at::Tensor> kept;
  for (int64_t at = 0; at < count;) {
    int64_t take = std::min(count - at, raw - in_chunk_), skip = std::clamp<int64_t>(trim - in_chunk_, 0, take);
    kept.push_back(x.narrow(1, at + skip, take - skip));
    at += take;
    in_chunk_ = (in_chunk_ + take) % raw;
  }
  blank_ = at::zeros_like(x.narrow(1, 0, 1));
  return Show(held_.Add(Join(kept), int64_t(config.chunk_drop) * config.TimeUp()));
}

at::Tensor DecoderStream::Finish() {
  torch::NoGradGuard no_grad;
  const TaehvConfig& config = model_->config();
  TORCH_CHECK(!config.cogvideox || !expected_ || *expected_ == latents_, "a TAEHV decoder stream was announced ",
              expected_.value_or(0), " latents and got ", latents_,
              ": which frames this variant keeps depends on the number");
  at::Tensor frames;
  if (in_chunk_ > 0) {  // the chunk's missing frames are black; the end that is dropped is usually made of them
    int64_t raw = CeilDiv(config.chunk, config.TimeDown()) * config.TimeUp();
    frames =
        Show(held_.Add(blank_.expand({-1, raw - in_chunk_, -1, -1, -1}), int64_t(config.chunk_drop) * config.TimeUp()));
  }
  Reset();
  return frames;
}

void DecoderStream::Reset() {
  memory_.Reset();
  held_.Clear();
  blank_ = at::Tensor();
  latents_ = in_chunk_ = 0;
}

at::Tensor Taehv::EncodeSequential(const at::Tensor& frames, int64_t piece) {
  CheckPiece(frames, 3, "frames");
  TORCH_CHECK(piece > 0, "pieces of ", piece, " frames");
  EncoderStream stream(this);
  int64_t whole = config_.chunk > 0 ? config_.chunk : config_.TimeDown(), count = frames.size(1);
  std::vector<at::Tensor> latents;
  for (int64_t at = 0; at < count; at += piece) {
    at::Tensor next = frames.narrow(1, at, std::min(piece, count - at));
    int64_t missing = CeilDiv(count, whole) * whole - count;
    // Filled up here and not by Finish, so that one piece for the whole clip is what Encode computes.
    if (at + piece >= count && missing > 0) {
      next = at::cat({next, next.narrow(1, next.size(1) - 1, 1).expand({-1, missing, -1, -1, -1})}, 1);
    }
    latents.push_back(stream.Push(next));
  }
  latents.push_back(stream.Finish());
  return Join(latents);
}

at::Tensor Taehv::DecodeSequential(const at::Tensor& latents, int64_t piece, bool clamp) {
  CheckPiece(latents, config_.latent, "latents");
  TORCH_CHECK(piece > 0, "pieces of ", piece, " latents");
  int64_t count = latents.size(1);
  DecoderStream stream(this, count, clamp);
  std::vector<at::Tensor> frames;
  for (int64_t at = 0; at < count; at += piece)
    frames.push_back(stream.Push(latents.narrow(1, at, std::min(piece, count - at))));
  frames.push_back(stream.Finish());
  return Join(frames);
}

}  // namespace lockstep::models
