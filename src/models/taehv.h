// TAEHV, the tiny video autoencoder: frames (NTCHW, RGB in [0, 1]) -> latents (time /4, space /8 times the patch) ->
// frames. Parameter names are upstream's, so its weight files load. A plain module: owned by the recipe, used by one
// thread, no collectives; equal seeds give equal weights on every rank.
//
//   Taehv model(*FindTaehv("taehv"), /*seed=*/7);
//   at::Tensor decoded = model.Decode(model.Encode(frames));
//   at::Tensor loss = at::mse_loss(decoded, model.Target(frames));
#pragma once

#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/taehv_layers.h"
#include "models/weights.h"

namespace lockstep::models {

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct TaehvConfig {
  std::string name = "taehv";
  int patch = 1;                             // pixels per side folded into channels
  int latent = 16;                           // channels of a latent
  std::array<int, 3> encoder_time{2, 2, 1};  // frames each encoder stage pools into one
  std::array<int, 3> decoder_time{1, 2, 2};  // frames each decoder stage makes of one
  std::array<int, 4> encoder_width{64, 64, 64, 64};
  std::array<int, 4> decoder_width{256, 128, 64, 64};
  bool super = false;                         // the wide decoder: SuperMemBlocks and pixel shuffle
  std::array<int, 3> decoder_space{2, 2, 2};  // how much each decoder stage enlarges; 1: a cheap, small preview
  bool cogvideox = false;                     // an even number of latents decodes untrimmed
  int chunk = 0;       // > 0: frames are encoded in chunks of this many, each on its own (MiniMax H3: 17)
  int chunk_drop = 0;  // latents dropped at the end of a chunked clip

  int TimeDown() const { return encoder_time[0] * encoder_time[1] * encoder_time[2]; }
  int TimeUp() const { return decoder_time[0] * decoder_time[1] * decoder_time[2]; }
  int SpaceDown() const { return 8 * patch; }
  int SpaceUp() const { return decoder_space[0] * decoder_space[1] * decoder_space[2] * patch; }
  int64_t Latents(int64_t frames) const;    // how many latents that many frames become
  int64_t FramesOut(int64_t frames) const;  // how many frames come back out
  // Whether clips of this size come back in the same size and leave something to compare.
  Status Check(int64_t frames, int64_t height, int64_t width) const;
};

// All named variants; the rows of the table.
const std::vector<TaehvConfig>& TaehvVariants();
// A row, or any row's name with "_super" behind it: the same with the wide decoder.
Result<TaehvConfig> FindTaehv(const std::string& name);

// How the same parameters are run: layer by layer as they are written (the bits of PyTorch), or rearranged for speed
// (the same function, other roundings).
enum class Execution { kReference, kFast };

class Taehv : public torch::nn::Module {
 public:
  using Stage = taehv::Stage;
  using Wrap = taehv::Wrap;

  // Weights are drawn as PyTorch's Conv2d draws them, in upstream's order, from a CPU generator with this seed: they
  // equal those of `torch.manual_seed(seed)` and upstream's constructor bit for bit.
  Taehv(const TaehvConfig& config, uint64_t seed);

  // Frames NTCHW in [0, 1]; the end is padded with its last frame to whole latents.
  at::Tensor Encode(const at::Tensor& frames);
  // Latents NTCHW; the first TimeUp() - 1 frames are warm-up and dropped, so out[i] reconstructs in[i]. Clamped to [0,
  // 1] as upstream does in training too: a saturated pixel has no gradient. clamp = false gives the raw output.
  at::Tensor Decode(const at::Tensor& latents, bool clamp = true);
  // What Decode(Encode(frames)) should be: the first FramesOut frames (the last one repeated where Encode had to pad).
  at::Tensor Target(const at::Tensor& frames) const;

  // The same results while the layers see at most `piece` frames (latents) at a time: memory for activations does not
  // grow with the clip. No gradients. Equal bits where the pieces are whole clips, otherwise up to the order of sums.
  at::Tensor EncodeSequential(const at::Tensor& frames, int64_t piece);
  at::Tensor DecodeSequential(const at::Tensor& latents, int64_t piece, bool clamp = true);

  // Another beginning than PyTorch's; right after construction, the same on every rank. The default one passes hardly
  // any signal through 40 layers and stays grey for a long time. Middle grey instead of black, where half of all pixels
  // would be clamped and learn nothing.
  void SetOutputBias(double value = 0.5);
  // Every layer passes its input on, plus some of its random weights: the net begins as a coarse copy of the clip.
  void StartNearIdentity();

  // Stages of the encoder, then of the decoder, are numbered through; `wrap` runs each of them.
  void SetWrap(Wrap wrap) { wrap_ = std::move(wrap); }
  // Names of the parameters of every stage; "encoder.0.weight", ...
  struct StageParameters {
    std::string name;  // "encoder.0": the first stage of the encoder
    std::vector<std::string> parameters;
  };
  std::vector<StageParameters> Stages() const;
  void SetExecution(Execution execution) { execution_ = execution; }
  Execution execution() const { return execution_; }
  const TaehvConfig& config() const { return config_; }

  // The layers on (clips * frames, channels, height, width), in the chosen execution; what Encode, Decode and the
  // streams have in common. With a memory, x continues the clips of earlier calls and nothing may come out (undefined).
  at::Tensor RunEncoder(const at::Tensor& x, int64_t clips, taehv::StackMemory* memory = nullptr);
  at::Tensor RunDecoder(const at::Tensor& x, int64_t clips, taehv::StackMemory* memory = nullptr);
  taehv::Stack& encoder() { return *encoder_; }
  taehv::Stack& decoder() { return *decoder_; }

  // Strict, with upstream's one rule: a TGrow with fewer frames keeps the last rows of its weight. A file of another
  // variant is refused with the variant that would fit.
  Status Load(const NamedTensors& weights);

 private:
  at::Tensor Run(taehv::Stack& stack, const at::Tensor& x, int64_t clips, taehv::StackMemory* memory);

  TaehvConfig config_;
  std::shared_ptr<taehv::Stack> encoder_;
  std::shared_ptr<taehv::Stack> decoder_;
  Wrap wrap_;
  Execution execution_ = Execution::kReference;
};

}  // namespace lockstep::models
