#include "models/taehv.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cmath>
#include <utility>

namespace lockstep::models {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// x is (N*T, C, H, W): all frames of all clips at once. Only MemBlock cares which frames belong to one clip.
struct Layer : torch::nn::Module {
  virtual at::Tensor Forward(const at::Tensor& x, int64_t clips) = 0;
  virtual void StartNearIdentity() {}
};

struct Function : Layer {
  explicit Function(at::Tensor (*f)(const at::Tensor&)) : f(f) {}
  at::Tensor Forward(const at::Tensor& x, int64_t) override { return f(x); }
  at::Tensor (*f)(const at::Tensor&);
};

at::Tensor Relu(const at::Tensor& x) { return at::relu(x); }
at::Tensor SoftClamp(const at::Tensor& x) { return at::tanh(x / 3) * 3; }
at::Tensor UpsampleTwice(const at::Tensor& x) { return at::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)}); }

struct Conv : Layer {
  Conv(at::Generator& random, int in, int out, int kernel = 3, int stride = 1, bool with_bias = true)
      : stride(stride), padding(kernel / 2) {
    // Conv2d's default: uniform in +-1/sqrt(fan_in), reached for the weight by way of Kaiming's formula with a =
    // sqrt(5). The same roundings in the same order, so that the bits agree with PyTorch's.
    double fan_in = double(in) * kernel * kernel;
    double bound = std::sqrt(3.0) * (std::sqrt(2.0 / (1 + std::pow(std::sqrt(5.0), 2))) / std::sqrt(fan_in));
    weight = register_parameter("weight", at::empty({out, in, kernel, kernel}).uniform_(-bound, bound, random));
    if (!with_bias) return;
    bound = 1 / std::sqrt(fan_in);
    bias = register_parameter("bias", at::empty({out}).uniform_(-bound, bound, random));
  }
  at::Tensor Forward(const at::Tensor& x, int64_t) override { return at::conv2d(x, weight, bias, stride, padding); }
  void StartNearIdentity() override { PassOn(1, 1); }
  // Output channel c becomes input channel c (of all of them in turn, when there are fewer), averaged over the frames
  // that are pooled, copied to those that are grown; what was drawn stays as a smaller part that tells channels apart.
  void PassOn(int64_t frames_in, int64_t frames_out) {
    Scale(0.3);
    int64_t out = weight.size(0) / frames_out, in = weight.size(1) / frames_in, middle = weight.size(2) / 2;
    at::Tensor tap = weight.select(3, middle).select(2, middle);
    for (int64_t row = 0; row < weight.size(0); ++row) {
      for (int64_t frame = 0; frame < frames_in; ++frame)
        tap[row][frame * in + row % out % in] += 1.0 / double(frames_in);
    }
  }
  void Scale(double factor) {
    weight.mul_(factor);
    if (bias.defined()) bias.zero_();
  }
  at::Tensor weight, bias;
  int stride, padding;
};

}  // namespace

class Taehv::Stack : public torch::nn::Module {
 public:
  void Add(std::shared_ptr<Layer> layer) {
    layers_.push_back(register_module(std::to_string(layers_.size()), std::move(layer)));
  }
  // The layers since the last call are one stage.
  void EndStage() { stage_ends_.push_back(layers_.size()); }

  at::Tensor Forward(at::Tensor x, int64_t clips, const Wrap& wrap) {
    size_t begin = 0;
    for (size_t end : stage_ends_) {
      Stage stage = [this, begin, end, clips](const at::Tensor& input) {
        at::Tensor y = input;
        for (size_t i = begin; i < end; ++i) y = layers_[i]->Forward(y, clips);
        return y;
      };
      x = wrap ? wrap(stage, x) : stage(x);
      begin = end;
    }
    return x;
  }
  void StartNearIdentity() {
    for (auto& layer : layers_) layer->StartNearIdentity();
  }
  Conv& At(int i) { return static_cast<Conv&>(*layers_.at(i < 0 ? layers_.size() + i : i)); }

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
  std::vector<size_t> stage_ends_;
};

namespace {

// Sees this frame and the one before it (zeros before the first): causal memory of one frame.
struct MemBlock : Layer {
  MemBlock(at::Generator& random, int width) : conv(register_module("conv", std::make_shared<Taehv::Stack>())) {
    conv->Add(std::make_shared<Conv>(random, 2 * width, width));
    conv->Add(std::make_shared<Function>(Relu));
    conv->Add(std::make_shared<Conv>(random, width, width));
    conv->Add(std::make_shared<Function>(Relu));
    conv->Add(std::make_shared<Conv>(random, width, width));
    conv->EndStage();
  }
  at::Tensor Forward(const at::Tensor& x, int64_t clips) override {
    at::Tensor clip = x.unflatten(0, {clips, -1});
    int64_t frames = clip.size(1);
    at::Tensor past = at::cat({at::zeros_like(clip.narrow(1, 0, 1)), clip.narrow(1, 0, frames - 1)}, 1).flatten(0, 1);
    return at::relu(conv->Forward(at::cat({x, past}, 1), clips, {}) + x);
  }
  void StartNearIdentity() override {
    for (int i : {0, 2}) conv->At(i).Scale(std::sqrt(3.0));  // PyTorch's draw loses this much of a signal
    conv->At(4).Scale(0.3);
  }
  std::shared_ptr<Taehv::Stack> conv;
};

// `frames` consecutive frames become one.
struct TPool : Layer {
  TPool(at::Generator& random, int width, int frames)
      : frames(frames),
        conv(register_module("conv", std::make_shared<Conv>(random, width * frames, width, 1, 1, false))) {}
  at::Tensor Forward(const at::Tensor& x, int64_t clips) override {
    return conv->Forward(x.reshape({-1, frames * x.size(1), x.size(2), x.size(3)}), clips);
  }
  void StartNearIdentity() override { conv->PassOn(frames, 1); }
  int frames;
  std::shared_ptr<Conv> conv;
};

// One frame becomes `frames`.
struct TGrow : Layer {
  TGrow(at::Generator& random, int width, int frames)
      : frames(frames),
        conv(register_module("conv", std::make_shared<Conv>(random, width, width * frames, 1, 1, false))) {}
  at::Tensor Forward(const at::Tensor& x, int64_t clips) override {
    return conv->Forward(x, clips).reshape({-1, x.size(1), x.size(2), x.size(3)});
  }
  void StartNearIdentity() override { conv->PassOn(1, frames); }
  int frames;
  std::shared_ptr<Conv> conv;
};

std::shared_ptr<Taehv::Stack> MakeEncoder(const TaehvConfig& config, at::Generator& random) {
  auto stack = std::make_shared<Taehv::Stack>();
  const auto& width = config.encoder_width;
  stack->Add(std::make_shared<Conv>(random, 3 * config.patch * config.patch, width[0]));
  stack->Add(std::make_shared<Function>(Relu));
  for (int i = 0; i < 3; ++i) {
    stack->Add(std::make_shared<TPool>(random, width[i], config.encoder_time[i]));
    stack->Add(std::make_shared<Conv>(random, width[i], width[i + 1], 3, 2, false));
    for (int m = 0; m < 3; ++m) stack->Add(std::make_shared<MemBlock>(random, width[i + 1]));
    if (i < 2) stack->EndStage();
  }
  stack->Add(std::make_shared<Conv>(random, width[3], config.latent));
  stack->EndStage();
  return stack;
}

std::shared_ptr<Taehv::Stack> MakeDecoder(const TaehvConfig& config, at::Generator& random) {
  auto stack = std::make_shared<Taehv::Stack>();
  const auto& width = config.decoder_width;
  stack->Add(std::make_shared<Function>(SoftClamp));
  stack->Add(std::make_shared<Conv>(random, config.latent, width[0]));
  stack->Add(std::make_shared<Function>(Relu));
  for (int i = 0; i < 3; ++i) {
    for (int m = 0; m < 3; ++m) stack->Add(std::make_shared<MemBlock>(random, width[i]));
    stack->Add(std::make_shared<Function>(UpsampleTwice));
    stack->Add(std::make_shared<TGrow>(random, width[i], config.decoder_time[i]));
    stack->Add(std::make_shared<Conv>(random, width[i], width[i + 1], 3, 1, false));
    if (i < 2) stack->EndStage();
  }
  stack->Add(std::make_shared<Function>(Relu));
  stack->Add(std::make_shared<Conv>(random, width[3], 3 * config.patch * config.patch));
  stack->EndStage();
  return stack;
}

// Frames NTCHW, the last one repeated until there are `count`.
at::Tensor RepeatLast(const at::Tensor& frames, int64_t count) {
  int64_t have = frames.size(1);
  if (count <= have) return frames;
  return at::cat({frames, frames.narrow(1, have - 1, 1).expand({-1, count - have, -1, -1, -1})}, 1);
}

void CheckClip(const at::Tensor& x, int64_t channels, const char* what) {
  TORCH_CHECK(x.dim() == 5 && x.size(2) == channels && x.numel() > 0, "TAEHV takes ", what, " as (clips, frames, ",
              channels, ", height, width), not ", x.sizes());
}

}  // namespace

Taehv::Taehv(const TaehvConfig& config, uint64_t seed) : torch::nn::Module("Taehv"), config_(config) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  torch::NoGradGuard no_grad;  // filling the weights is no part of any graph
  encoder_ = register_module("encoder", MakeEncoder(config_, random));
  decoder_ = register_module("decoder", MakeDecoder(config_, random));
}

Taehv::~Taehv() = default;

at::Tensor Taehv::Encode(const at::Tensor& frames) {
  CheckClip(frames, 3, "frames");
  int64_t clips = frames.size(0), chunks = 1;
  at::Tensor x = frames;
  if (config_.chunk > 0) {
    chunks = CeilDiv(x.size(1), config_.chunk);
    x = RepeatLast(x, chunks * config_.chunk).unflatten(1, {chunks, config_.chunk}).flatten(0, 1);
    x = at::constant_pad_nd(x, {0, 0, 0, 0, 0, 0, config_.TimeDown() - 1, 0});
  }
  x = RepeatLast(x, CeilDiv(x.size(1), config_.TimeDown()) * config_.TimeDown());
  if (config_.patch > 1) x = at::pixel_unshuffle(x, config_.patch);
  x = encoder_->Forward(x.flatten(0, 1), clips * chunks, wrap_).unflatten(0, {clips, -1});
  return x.narrow(1, 0, x.size(1) - config_.chunk_drop);
}

at::Tensor Taehv::Decode(const at::Tensor& latents, bool clamp) {
  CheckClip(latents, config_.latent, "latents");
  int64_t clips = latents.size(0), count = latents.size(1), trim = config_.TimeUp() - 1;
  at::Tensor x = decoder_->Forward(latents.flatten(0, 1), clips, wrap_).unflatten(0, {clips, -1});
  if (config_.chunk > 0) {
    int64_t raw =
        CeilDiv(config_.chunk, config_.TimeDown()) * config_.TimeUp();  // frames of one chunk, warm-up included
    int64_t chunks = CeilDiv(x.size(1), raw);
    x = at::constant_pad_nd(x, {0, 0, 0, 0, 0, 0, 0, chunks * raw - x.size(1)});
    x = x.unflatten(1, {chunks, raw}).narrow(2, trim, raw - trim).flatten(1, 2);
    x = x.narrow(1, 0, x.size(1) - int64_t(config_.chunk_drop) * config_.TimeUp());
  } else if (!(config_.cogvideox && count % 2 == 0)) {
    x = x.narrow(1, trim, x.size(1) - trim);
  }
  if (config_.patch > 1) x = at::pixel_shuffle(x, config_.patch);
  return clamp ? x.clamp(0, 1) : x;
}

at::Tensor Taehv::Target(const at::Tensor& frames) const {
  int64_t count = config_.FramesOut(frames.size(1));
  return RepeatLast(frames, count).narrow(1, 0, count);
}

void Taehv::SetOutputBias(double value) {
  torch::NoGradGuard no_grad;
  decoder_->At(-1).bias.fill_(value);
}

void Taehv::StartNearIdentity() {
  torch::NoGradGuard no_grad;
  encoder_->StartNearIdentity();
  decoder_->StartNearIdentity();
}

}  // namespace lockstep::models
