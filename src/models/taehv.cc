#include "models/taehv.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <utility>

#include "models/fused.h"

namespace lockstep::models {
namespace {

using taehv::Conv, taehv::Function, taehv::MemBlock, taehv::Stack, taehv::StackMemory, taehv::SuperMemBlock;
using taehv::TGrow, taehv::TPool;

std::shared_ptr<Stack> MakeEncoder(const TaehvConfig& config, at::Generator& random) {
  auto stack = std::make_shared<Stack>();
  const auto& width = config.encoder_width;
  stack->Add(std::make_shared<Conv>(random, 3 * config.patch * config.patch, width[0]));
  stack->Add(std::make_shared<Function>(Function::Kind::kRelu));
  for (int i = 0; i < 3; ++i) {
    stack->Add(std::make_shared<TPool>(random, width[i], config.encoder_time[i]));
    stack->Add(std::make_shared<Conv>(random, width[i], width[i + 1], taehv::ConvShape{.stride = 2, .bias = false}));
    for (int m = 0; m < 3; ++m) stack->Add(std::make_shared<MemBlock>(random, width[i + 1]));
    if (i < 2) stack->EndStage();
  }
  stack->Add(std::make_shared<Conv>(random, width[3], config.latent));
  stack->EndStage();
  return stack;
}

std::shared_ptr<Stack> MakeDecoder(const TaehvConfig& config, at::Generator& random) {
  auto stack = std::make_shared<Stack>();
  const auto& width = config.decoder_width;
  stack->Add(std::make_shared<Function>(Function::Kind::kSoftClamp));
  stack->Add(std::make_shared<Conv>(random, config.latent, width[0]));
  stack->Add(std::make_shared<Function>(Function::Kind::kRelu));
  for (int i = 0; i < 3; ++i) {
    for (int m = 0; m < 3; ++m) stack->Add(std::make_shared<MemBlock>(random, width[i]));
    stack->Add(std::make_shared<Function>(Function::Kind::kUpsample, config.decoder_space[i]));
    stack->Add(std::make_shared<TGrow>(random, width[i], config.decoder_time[i]));
    stack->Add(std::make_shared<Conv>(random, width[i], width[i + 1], taehv::ConvShape{.bias = false}));
    if (i < 2) stack->EndStage();
  }
  stack->Add(std::make_shared<Function>(Function::Kind::kRelu));
  stack->Add(std::make_shared<Conv>(random, width[3], 3 * config.patch * config.patch));
  stack->EndStage();
  return stack;
}

// Latents are taken as they are (no soft clamp), and enlarged after the convolution instead of before it.
std::shared_ptr<Stack> MakeSuperDecoder(const TaehvConfig& config, at::Generator& random) {
  auto stack = std::make_shared<Stack>();
  const auto& width = config.decoder_width;
  stack->Add(std::make_shared<Conv>(random, config.latent, width[0], taehv::ConvShape{.kernel = 1, .bias = false}));
  for (int i = 0; i < 3; ++i) {
    int factor = config.decoder_space[i];
    for (int m = 0; m < 3; ++m) stack->Add(std::make_shared<SuperMemBlock>(random, width[i]));
    stack->Add(
        std::make_shared<Conv>(random, width[i], width[i + 1] * factor * factor, taehv::ConvShape{.shuffle = factor}));
    stack->Add(std::make_shared<Function>(Function::Kind::kRelu));
    stack->Add(std::make_shared<Function>(Function::Kind::kPixelShuffle, factor));
    stack->Add(std::make_shared<TGrow>(random, width[i + 1], config.decoder_time[i]));
    if (i < 2) stack->EndStage();
  }
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
  decoder_ = register_module("decoder", (config_.super ? MakeSuperDecoder : MakeDecoder)(config_, random));
}

at::Tensor Taehv::Run(Stack& stack, const at::Tensor& x, int64_t clips, StackMemory* memory) {
  Wrap wrap;
  if (wrap_) {
    const size_t first = &stack == decoder_.get() ? encoder_->stage_ends.size() : 0;
    wrap = [this, first](size_t index, const Stage& stage, const at::Tensor& input) {
      return wrap_(first + index, stage, input);
    };
  }
  if (execution_ == Execution::kFast) return fused::Run(stack, x, clips, memory, wrap);
  return stack.Forward(x, clips, memory, wrap);
}

std::vector<Taehv::StageParameters> Taehv::Stages() const {
  std::vector<StageParameters> stages;
  for (const auto& [half, stack] : {std::pair("encoder", encoder_), std::pair("decoder", decoder_)}) {
    size_t begin = 0;
    for (size_t index = 0; index < stack->stage_ends.size(); ++index) {
      StageParameters stage{fmt::format("{}.{}", half, index), {}};
      for (; begin < stack->stage_ends[index]; ++begin) {
        for (const auto& item : stack->layers[begin]->named_parameters()) {
          stage.parameters.push_back(fmt::format("{}.{}.{}", half, begin, item.key()));
        }
      }
      stages.push_back(std::move(stage));
    }
  }
  return stages;
}

at::Tensor Taehv::RunEncoder(const at::Tensor& x, int64_t clips, StackMemory* memory) {
  return Run(*encoder_, x, clips, memory);
}

at::Tensor Taehv::RunDecoder(const at::Tensor& x, int64_t clips, StackMemory* memory) {
  return Run(*decoder_, x, clips, memory);
}

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
  x = RunEncoder(x.flatten(0, 1), clips * chunks).unflatten(0, {clips, -1});
  return x.narrow(1, 0, x.size(1) - config_.chunk_drop);
}

at::Tensor Taehv::Decode(const at::Tensor& latents, bool clamp) {
  CheckClip(latents, config_.latent, "latents");
  int64_t clips = latents.size(0), count = latents.size(1), trim = config_.TimeUp() - 1;
  at::Tensor x = RunDecoder(latents.flatten(0, 1), clips).unflatten(0, {clips, -1});
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
  decoder_->ConvAt(-1).bias.fill_(value);
}

void Taehv::StartNearIdentity() {
  torch::NoGradGuard no_grad;
  encoder_->StartNearIdentity();
  decoder_->StartNearIdentity();
}

}  // namespace lockstep::models
