// A clip that comes in pieces, encoded or decoded as it comes: what the layers must remember stays in the stream, so
// memory does not grow with the clip. All pieces together give what Taehv::Encode and Decode give for the whole clip:
// equal bits where the layers see the same shapes, otherwise up to the order of sums (float32: about 1e-6).
// Owned by the caller, one thread at a time, no gradients, no collectives; the model must outlive the stream.
//
//   EncoderStream encoder(&model);
//   while (ReadFrames(&frames)) Use(encoder.Push(frames));   // undefined: nothing finished yet
//   Use(encoder.Finish());
#pragma once

#include <optional>

#include "models/taehv.h"

namespace lockstep::models {

namespace taehv {
// Passes pieces on except for the last `hold` frames, which wait for what comes.
class HoldBack {
 public:
  at::Tensor Add(const at::Tensor& piece, int64_t hold);
  void Clear() { waiting_ = at::Tensor(); }

 private:
  at::Tensor waiting_;
};
}  // namespace taehv

class EncoderStream {
 public:
  explicit EncoderStream(Taehv* model) : model_(model) {}
  // Frames (clips, any number, 3, height, width); the latents they finish, or an undefined tensor.
  at::Tensor Push(const at::Tensor& frames);
  // The clip is over: it is filled up with its last frame, and the rest comes out (or an undefined tensor). The stream
  // is then ready for another clip.
  at::Tensor Finish();
  // Forgets the clip.
  void Reset();
  int64_t frames() const { return frames_; }  // of this clip so far

 private:
  at::Tensor Run(const at::Tensor& frames);

  Taehv* model_;
  taehv::StackMemory memory_;
  taehv::HoldBack held_;  // latents that are dropped if the clip ends here (MiniMax H3)
  at::Tensor last_;
  int64_t frames_ = 0;
  int64_t in_chunk_ = 0;
};

class DecoderStream {
 public:
  // How many latents the clip will have, when that is known. Only CogVideoX' variant asks: it keeps its start-up frames
  // when the number is even, and always when it is unknown, as upstream's streaming does.
  explicit DecoderStream(Taehv* model, std::optional<int64_t> latents = std::nullopt, bool clamp = true)
      : model_(model), expected_(latents), clamp_(clamp) {}
  // Latents (clips, any number, channels, height, width); the frames they give, or an undefined tensor.
  at::Tensor Push(const at::Tensor& latents);
  at::Tensor Finish();
  void Reset();
  int64_t latents() const { return latents_; }

 private:
  at::Tensor Show(at::Tensor x);  // raw frames as pictures

  Taehv* model_;
  std::optional<int64_t> expected_;
  bool clamp_;
  taehv::StackMemory memory_;
  taehv::HoldBack held_;
  at::Tensor blank_;  // a raw black frame, for the end of a chunk that never came
  int64_t latents_ = 0;
  int64_t in_chunk_ = 0;  // raw frames of this chunk so far
};

}  // namespace lockstep::models
