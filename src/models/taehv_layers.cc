#include "models/taehv_layers.h"

#include <torch/types.h>

#include <cmath>
#include <utility>

namespace lockstep::models::taehv {

at::Tensor Function::Forward(const at::Tensor& x, const Flow&) {
  switch (kind) {
    case Kind::kRelu:
      return at::relu(x);
    case Kind::kSoftClamp:
      return at::tanh(x / 3) * 3;
    case Kind::kUpsample:
      return factor == 1 ? x : at::upsample_nearest2d(x, {factor * x.size(2), factor * x.size(3)});
    case Kind::kPixelShuffle:
      return factor == 1 ? x : at::pixel_shuffle(x, factor);
  }
  return x;
}

Conv::Conv(at::Generator& random, int in, int out, const ConvShape& shape) : shape(shape) {
  // Conv2d's default: uniform in +-1/sqrt(fan_in), reached for the weight by way of Kaiming's formula with a =
  // sqrt(5). The same roundings in the same order, so that the bits agree with PyTorch's.
  int kernel = shape.kernel, group = in / shape.groups;
  double fan_in = double(group) * kernel * kernel;
  double bound = std::sqrt(3.0) * (std::sqrt(2.0 / (1 + std::pow(std::sqrt(5.0), 2))) / std::sqrt(fan_in));
  weight = register_parameter("weight", at::empty({out, group, kernel, kernel}).uniform_(-bound, bound, random));
  if (!shape.bias) return;
  bound = 1 / std::sqrt(fan_in);
  bias = register_parameter("bias", at::empty({out}).uniform_(-bound, bound, random));
}

at::Tensor Conv::Forward(const at::Tensor& x, const Flow&) {
  return at::conv2d(x, weight, bias, shape.stride, shape.kernel / 2, 1, shape.groups);
}

void Conv::PassOn(int64_t frames_in, int64_t frames_out) {
  Scale(0.3);
  int64_t out = weight.size(0) / frames_out, in = weight.size(1) / frames_in, middle = weight.size(2) / 2;
  int64_t merged = int64_t(shape.shuffle) * shape.shuffle;  // rows that become one channel of a larger picture
  // Convolutions without bias change the size of the picture: they begin as a soft filter, so that the net begins with
  // means of pixels and slopes between them instead of single pixels and blocks.
  bool resizes = shape.kernel == 3 && !shape.bias;
  at::Tensor line = at::tensor({0.25, 0.5, 0.25}), taps = at::zeros({shape.kernel, shape.kernel});
  if (resizes) {
    taps = at::outer(line, line);
  } else {
    taps[middle][middle] = 1;
  }
  for (int64_t row = 0; row < weight.size(0); ++row) {
    for (int64_t frame = 0; frame < frames_in; ++frame) {
      weight[row][frame * in + row % out / merged % in] += taps / double(frames_in);
    }
  }
}

void Conv::Scale(double factor) {
  weight.mul_(factor);
  if (bias.defined()) bias.zero_();
}

void Stack::Add(std::shared_ptr<Layer> layer) {
  layers.push_back(register_module(std::to_string(layers.size()), std::move(layer)));
}

at::Tensor Stack::Forward(at::Tensor x, int64_t clips, StackMemory* memory, const Wrap& wrap) {
  if (memory != nullptr) memory->layers.resize(layers.size());
  size_t begin = 0;
  for (size_t index = 0; index < stage_ends.size(); ++index) {
    const size_t end = stage_ends[index];
    Stage stage = [this, begin, end, clips, memory](const at::Tensor& input) {
      at::Tensor y = input;
      for (size_t i = begin; i < end && y.defined(); ++i) {
        y = layers[i]->Forward(y, {clips, memory != nullptr ? &memory->layers[i] : nullptr});
      }
      return y;
    };
    if (!x.defined()) break;
    x = wrap ? wrap(index, stage, x) : stage(x);
    begin = end;
  }
  return x;
}

void Stack::StartNearIdentity() {
  for (auto& layer : layers) layer->StartNearIdentity();
}

Conv& Stack::ConvAt(int i) { return dynamic_cast<Conv&>(*layers.at(i < 0 ? layers.size() + i : i)); }

at::Tensor FrameBefore(const at::Tensor& x, const Flow& flow) {
  at::Tensor clip = x.unflatten(0, {flow.clips, -1});
  int64_t frames = clip.size(1);
  at::Tensor first;
  if (flow.memory != nullptr) {
    first = flow.memory->frames;
    flow.memory->frames = clip.narrow(1, frames - 1, 1).clone();  // a view would keep the whole piece alive
  }
  if (!first.defined()) first = at::zeros_like(clip.narrow(1, 0, 1));
  return at::cat({first, clip.narrow(1, 0, frames - 1)}, 1).flatten(0, 1);
}

MemBlock::MemBlock(at::Generator& random, int width) : conv(register_module("conv", std::make_shared<Stack>())) {
  conv->Add(std::make_shared<Conv>(random, 2 * width, width));
  conv->Add(std::make_shared<Function>(Function::Kind::kRelu));
  conv->Add(std::make_shared<Conv>(random, width, width));
  conv->Add(std::make_shared<Function>(Function::Kind::kRelu));
  conv->Add(std::make_shared<Conv>(random, width, width));
  conv->EndStage();
}

at::Tensor MemBlock::Forward(const at::Tensor& x, const Flow& flow) {
  return at::relu(conv->Forward(at::cat({x, FrameBefore(x, flow)}, 1), flow.clips) + x);
}

void MemBlock::StartNearIdentity() {
  for (int i : {0, 2}) conv->ConvAt(i).Scale(std::sqrt(3.0));  // PyTorch's draw loses this much of a signal
  conv->ConvAt(4).Scale(0.3);
}

SuperMemBlock::SuperMemBlock(at::Generator& random, int width)
    : conv(register_module("conv", std::make_shared<Stack>())) {
  conv->Add(
      std::make_shared<Conv>(random, 2 * width, 2 * width, ConvShape{.kernel = 7, .groups = 2 * width, .bias = false}));
  conv->Add(std::make_shared<Conv>(random, 2 * width, 4 * width, ConvShape{.kernel = 1}));
  conv->Add(std::make_shared<Function>(Function::Kind::kRelu));
  conv->Add(std::make_shared<Conv>(random, 4 * width, width, ConvShape{.kernel = 1, .bias = false}));
  conv->EndStage();
}

at::Tensor SuperMemBlock::Forward(const at::Tensor& x, const Flow& flow) {
  return conv->Forward(at::cat({x, FrameBefore(x, flow)}, 1), flow.clips) + x;
}

void SuperMemBlock::StartNearIdentity() {
  for (int i : {0, 1}) conv->ConvAt(i).Scale(std::sqrt(3.0));
  conv->ConvAt(3).Scale(0.3);
}

TPool::TPool(at::Generator& random, int width, int frames)
    : frames(frames),
      conv(register_module(
          "conv", std::make_shared<Conv>(random, width * frames, width, ConvShape{.kernel = 1, .bias = false}))) {}

at::Tensor TPool::Forward(const at::Tensor& x, const Flow& flow) {
  at::Tensor all = x;
  if (flow.memory != nullptr && frames > 1) {
    at::Tensor clip = x.unflatten(0, {flow.clips, -1}), &waiting = flow.memory->frames;
    if (waiting.defined()) clip = at::cat({waiting, clip}, 1);
    int64_t left = clip.size(1) % frames, ready = clip.size(1) - left;
    waiting = left > 0 ? clip.narrow(1, ready, left).clone() : at::Tensor();
    if (ready == 0) return {};
    all = clip.narrow(1, 0, ready);
  }
  return conv->Forward(all.reshape({-1, frames * x.size(1), x.size(2), x.size(3)}), flow);
}

TGrow::TGrow(at::Generator& random, int width, int frames)
    : frames(frames),
      conv(register_module(
          "conv", std::make_shared<Conv>(random, width, width * frames, ConvShape{.kernel = 1, .bias = false}))) {}

at::Tensor TGrow::Forward(const at::Tensor& x, const Flow& flow) {
  return conv->Forward(x, flow).reshape({-1, x.size(1), x.size(2), x.size(3)});
}

}  // namespace lockstep::models::taehv
