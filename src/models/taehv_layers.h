// The layers TAEHV is made of, and the numbered stack of them that an encoder or a decoder is. A layer takes all frames
// of all clips at once, (clips * frames, channels, height, width); only those that look along time (MemBlock,
// SuperMemBlock, TPool) care which frames belong to one clip. They can also carry a memory from one call to the next,
// so that a clip may come in pieces of any length: that is how long videos run in constant memory.
//
// Everything is public: another way to run the same parameters (see Execution in taehv.h) reads kinds and weights from
// here. Owned by Taehv; one thread; no collectives.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::models::taehv {

// Runs stage number `index` of a stack on its input; the engine's activation checkpointing wraps stages this way.
// Default: just call it.
using Stage = std::function<at::Tensor(const at::Tensor&)>;
using Wrap = std::function<at::Tensor(size_t index, const Stage& stage, const at::Tensor& input)>;

// What one layer keeps of a clip's earlier frames, (clips, frames, channels, height, width); undefined: nothing yet.
// MemBlock: the last frame it was given. TPool: frames still too few to be pooled.
struct LayerMemory {
  at::Tensor frames;
};

// One per layer of a stack. Made new (or Reset) for the beginning of a clip.
struct StackMemory {
  std::vector<LayerMemory> layers;
  void Reset() { layers.clear(); }
};

struct Flow {
  int64_t clips = 1;
  LayerMemory* memory = nullptr;  // null: whole clips, zeros before the first frame
};

struct Layer : torch::nn::Module {
  // Undefined when nothing came out: a TPool is still waiting for frames (only with a memory).
  virtual at::Tensor Forward(const at::Tensor& x, const Flow& flow) = 0;
  virtual void StartNearIdentity() {}
};

// Without parameters.
struct Function : Layer {
  enum class Kind { kRelu, kSoftClamp /* 3 tanh(x / 3) */, kUpsample /* nearest */, kPixelShuffle };
  explicit Function(Kind kind, int factor = 1) : kind(kind), factor(factor) {}
  at::Tensor Forward(const at::Tensor& x, const Flow& flow) override;
  Kind kind;
  int factor;  // of kUpsample and kPixelShuffle, per side
};

struct ConvShape {
  int kernel = 3, stride = 1, groups = 1;
  bool bias = true;
  int shuffle = 1;  // a kPixelShuffle of this factor follows; matters to StartNearIdentity alone
};

// Padded to keep the size (times the stride). Weights are drawn as PyTorch's Conv2d draws them, to the bit.
struct Conv : Layer {
  Conv(at::Generator& random, int in, int out, const ConvShape& shape = {});
  at::Tensor Forward(const at::Tensor& x, const Flow& flow) override;
  void StartNearIdentity() override { PassOn(1, 1); }
  // Output channel c becomes input channel c (of all of them in turn, when there are fewer), averaged over the frames
  // that are pooled, copied to those that are grown, softened where the size changes; what was drawn stays as a smaller
  // part that tells channels apart.
  void PassOn(int64_t frames_in, int64_t frames_out);
  void Scale(double factor);  // the weight; the bias becomes zero
  at::Tensor weight, bias;    // bias undefined without one
  ConvShape shape;
};

// Numbered layers; names in the state dict are the numbers.
struct Stack : torch::nn::Module {
  void Add(std::shared_ptr<Layer> layer);
  // The layers since the last call are one stage.
  void EndStage() { stage_ends.push_back(layers.size()); }
  // With a memory, x continues the clips of the calls before; undefined when nothing came out.
  at::Tensor Forward(at::Tensor x, int64_t clips, StackMemory* memory = nullptr, const Wrap& wrap = {});
  void StartNearIdentity();
  Conv& ConvAt(int i);  // negative: from the end
  std::vector<std::shared_ptr<Layer>> layers;
  std::vector<size_t> stage_ends;
};

// relu(x + conv(x, the frame before x)).
struct MemBlock : Layer {
  MemBlock(at::Generator& random, int width);
  at::Tensor Forward(const at::Tensor& x, const Flow& flow) override;
  void StartNearIdentity() override;
  std::shared_ptr<Stack> conv;  // conv 2c -> c, relu, conv, relu, conv
};

// x + conv(x, the frame before x), no relu: the wide decoder's block.
struct SuperMemBlock : Layer {
  SuperMemBlock(at::Generator& random, int width);
  at::Tensor Forward(const at::Tensor& x, const Flow& flow) override;
  void StartNearIdentity() override;
  std::shared_ptr<Stack> conv;  // depthwise 7x7 on 2c, 1x1 -> 4c, relu, 1x1 -> c
};

// `frames` consecutive frames become one.
struct TPool : Layer {
  TPool(at::Generator& random, int width, int frames);
  at::Tensor Forward(const at::Tensor& x, const Flow& flow) override;
  void StartNearIdentity() override { conv->PassOn(frames, 1); }
  int frames;
  std::shared_ptr<Conv> conv;
};

// One frame becomes `frames`.
struct TGrow : Layer {
  TGrow(at::Generator& random, int width, int frames);
  at::Tensor Forward(const at::Tensor& x, const Flow& flow) override;
  void StartNearIdentity() override { conv->PassOn(1, frames); }
  int frames;
  std::shared_ptr<Conv> conv;
};

// The frame before each frame of x, in x's layout; updates the memory. Shared by both kinds of memory blocks.
at::Tensor FrameBefore(const at::Tensor& x, const Flow& flow);

}  // namespace lockstep::models::taehv
