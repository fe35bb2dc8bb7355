#include "models/fused.h"

#include <ATen/autocast_mode.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <vector>

#include "models/fused_blocks.h"
#include "models/fused_frames.h"

namespace lockstep::models::fused {
namespace {

using at::Tensor;
using taehv::Conv, taehv::Function, taehv::LayerMemory, taehv::MemBlock, taehv::Stack, taehv::StackMemory;
using taehv::TGrow, taehv::TPool;

// Consecutive layers that run together, and how frames lie before and after them.
struct Step {
  enum class Kind { kLayer, kConvRelu, kPool, kBlocks, kGrow, kEnd } kind = Kind::kLayer;
  size_t begin = 0, end = 0;
  int64_t frames = 0;  // of a clip, coming in
  Layout in, out;
};

// What a plan is made from.
struct Walk {
  const Stack& stack;
  StackMemory* memory;
  size_t begin, end;  // the stage
  template <typename T>
  T* As(size_t i) const {
    return i < stack.layers.size() ? dynamic_cast<T*>(stack.layers[i].get()) : nullptr;
  }
  bool Is(size_t i, Function::Kind kind) const {
    Function* f = As<Function>(i);
    return f != nullptr && f->kind == kind;
  }
  bool IsConv(size_t i, int stride, bool bias) const {
    Conv* c = As<Conv>(i);
    return c != nullptr && c->shape.kernel == 3 && c->shape.groups == 1 && c->shape.stride == stride &&
           c->shape.bias == bias;
  }
  bool IsPool(size_t i) const { return As<TPool>(i) != nullptr && IsConv(i + 1, 2, false); }
  bool IsGrow(size_t i) const {
    return Is(i, Function::Kind::kUpsample) && As<Function>(i)->factor <= 2 && As<TGrow>(i + 1) != nullptr &&
           IsConv(i + 2, 1, false);
  }
  // Frames after the pooling layer i.
  int64_t Pooled(size_t i, int64_t frames) const {
    if (memory != nullptr && memory->layers[i].frames.defined()) frames += memory->layers[i].frames.size(1);
    return frames / As<TPool>(i)->frames;
  }
  // How many frames the layer i, if it pools, may find side by side: all it pools, unless some of them wait.
  int64_t GroupFor(size_t i, int64_t frames) const {
    if (!IsPool(i)) return 1;
    int64_t pooled = As<TPool>(i)->frames;
    bool waiting = memory != nullptr && memory->layers[i].frames.defined();
    return waiting || frames % pooled != 0 ? 1 : pooled;
  }
};

// Of one stage; *frames of a clip and their layout become what the next stage finds.
std::vector<Step> MakePlan(const Walk& walk, int64_t* clip_frames, Layout* layout) {
  std::vector<Step> plan;
  int64_t& frames = *clip_frames;
  Layout& in = *layout;
  for (size_t i = walk.begin; i < walk.end;) {
    Step step{.begin = i, .end = i + 1, .frames = frames, .in = in};
    if (walk.IsConv(i, 1, true) && walk.Is(i + 1, Function::Kind::kRelu) && i + 2 <= walk.end) {
      step.kind = Step::Kind::kConvRelu;
      step.end = i + 2;
      step.out = {.group = walk.GroupFor(i + 2, frames)};
    } else if (walk.IsPool(i)) {
      step.kind = Step::Kind::kPool;
      step.end = i + 2;
      frames = walk.Pooled(i, frames);
    } else if (walk.As<MemBlock>(i) != nullptr) {
      step.kind = Step::Kind::kBlocks;
      while (step.end < walk.end && walk.As<MemBlock>(step.end) != nullptr) ++step.end;
      step.out = {.group = walk.GroupFor(step.end, frames)};
    } else if (walk.IsGrow(i)) {
      bool last = walk.Is(i + 3, Function::Kind::kRelu) && walk.IsConv(i + 4, 1, true);
      if (last || walk.As<MemBlock>(i + 3) != nullptr) {
        int64_t grown = walk.As<TGrow>(i + 1)->frames;
        step.kind = last ? Step::Kind::kEnd : Step::Kind::kGrow;
        step.end = i + (last ? 5 : 3);
        if (!last) step.out = {.phases = walk.As<Function>(i)->factor == 2, .group = grown};
        frames *= grown;
      }
    }
    if (step.kind == Step::Kind::kLayer) {
      if (walk.As<TPool>(i) != nullptr) frames = walk.Pooled(i, frames);
      if (TGrow* grow = walk.As<TGrow>(i)) frames *= grow->frames;
    }
    i = step.end;
    in = step.out;
    plan.push_back(step);
  }
  return plan;
}

// Our own convolutions get what they need in the right type; autocast must not touch the merging of weights.
struct WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

int64_t Filled(int64_t channels, const Tensor& x) {  // tensor cores want eight at a time
  return x.is_cuda() ? (channels + 7) / 8 * 8 : channels;
}

// Groups of frames with `channels` channels, the missing ones zero.
Tensor Input(const Tensor& x, int64_t group, int64_t channels, at::ScalarType type) {
  int64_t have = group * x.size(1), h = x.size(2), w = x.size(3);
  Tensor grouped = x.reshape({-1, have, h, w});
  if (x.requires_grad() && at::GradMode::is_enabled()) {
    return at::constant_pad_nd(grouped, {0, 0, 0, 0, 0, channels - have}).to(type).contiguous(kLast);
  }
  Tensor out = at::empty({grouped.size(0), channels, h, w}, x.options().dtype(type), kLast);
  if (channels > have) out.narrow(1, have, channels - have).zero_();
  out.narrow(1, 0, have).copy_(grouped);
  return out;
}

Tensor FilledTo(const Tensor& bias, int64_t times, int64_t channels, at::ScalarType type) {
  Tensor all = bias.repeat({times});
  return at::constant_pad_nd(all, {0, channels - all.size(0)}).to(type);
}

struct Runner {
  Stack& stack;
  int64_t clips;
  StackMemory* memory;
  at::ScalarType type;

  template <typename T>
  T& At(size_t i) const {
    return static_cast<T&>(*stack.layers[i]);
  }
  LayerMemory* Memory(size_t i) const { return memory != nullptr ? &memory->layers[i] : nullptr; }

  Tensor Forward(const std::vector<Step>& plan, Tensor x) const {
    for (const Step& step : plan) {
      if (!x.defined()) break;
      x = Forward(step, x);
    }
    return x;
  }

  Tensor Forward(const Step& step, const Tensor& x) const {
    if (step.kind == Step::Kind::kLayer) return stack.layers[step.begin]->Forward(x, {clips, Memory(step.begin)});
    WithoutAutocast without;
    switch (step.kind) {
      case Step::Kind::kConvRelu:
        return ConvAndRelu(step, x);
      case Step::Kind::kPool:
        return Pool(step, x);
      case Step::Kind::kBlocks:
        return MemBlocks(step, x);
      case Step::Kind::kGrow:
        return at::conv2d(x.to(type).contiguous(kLast), Grown(step), {}, 1, 1);
      default:
        return End(step, x);
    }
  }

  Tensor ConvAndRelu(const Step& step, const Tensor& x) const {
    Conv& conv = At<Conv>(step.begin);
    int64_t group = step.out.group, have = group * x.size(1), in = Filled(have, x);
    Tensor bias = group > 1 ? conv.bias.repeat({group}) : conv.bias;
    bool thin = x.is_cuda() && 3 * have <= 32 && !(x.requires_grad() && at::GradMode::is_enabled());
    Tensor weight = ForGroup(conv.weight, group, thin ? have : in, group * conv.weight.size(0), type);
    if (thin) {
      Tensor columns = Columns(x.reshape({-1, have, x.size(2), x.size(3)}), 32, type);
      return ConvRelu(columns, ColumnsOf(weight, 32), bias, {1, 0});
    }
    return ConvRelu(Input(x, group, in, type), weight, bias, {1, 1});
  }

  Tensor Pool(const Step& step, const Tensor& x) const {
    TPool& pool = At<TPool>(step.begin);
    Tensor all = x;
    if (step.in.group == 1 && pool.frames > 1) {  // some wait, or the piece is no multiple
      Tensor clip = x.unflatten(0, {clips, -1});
      TORCH_CHECK(memory != nullptr || clip.size(1) % pool.frames == 0, "TAEHV pools ", pool.frames,
                  " frames into one and got ", clip.size(1));
      int64_t left = 0;
      if (memory != nullptr) {
        Tensor& waiting = memory->layers[step.begin].frames;
        if (waiting.defined()) clip = at::cat({waiting.to(clip.scalar_type()), clip}, 1);
        left = clip.size(1) % pool.frames;
        waiting = left > 0 ? clip.narrow(1, clip.size(1) - left, left).clone() : Tensor();
      }
      if (clip.size(1) == left) return {};
      all = clip.narrow(1, 0, clip.size(1) - left).reshape({-1, pool.frames * x.size(1), x.size(2), x.size(3)});
    }
    Tensor weight = MergePool(pool.conv->weight, At<Conv>(step.begin + 1).weight, type);
    return at::conv2d(all.to(type).contiguous(kLast), weight, {}, 2, 1);
  }

  Tensor MemBlocks(const Step& step, const Tensor& x) const {
    std::vector<MemBlock*> blocks;
    std::vector<LayerMemory*> memories;
    for (size_t i = step.begin; i < step.end; ++i) {
      blocks.push_back(&At<MemBlock>(i));
      if (memory != nullptr) memories.push_back(&memory->layers[i]);
    }
    bool phases = step.in.phases;
    Shape shape{.clips = clips,
                .frames = step.frames,
                .channels = blocks[0]->conv->ConvAt(0).weight.size(0),
                .height = phases ? 2 * (x.size(2) - 1) : x.size(2),
                .width = phases ? 2 * (x.size(3) - 1) : x.size(3)};
    return RunBlocks(blocks, x.to(type).contiguous(kLast), step.in, shape, step.out.group, memories);
  }

  Tensor Grown(const Step& step) const {
    return MergeGrow(At<TGrow>(step.begin + 1).conv->weight, At<Conv>(step.begin + 2).weight,
                     At<Function>(step.begin).factor, type);
  }

  // Enlarge, grow, convolve, relu, and the last convolution, which undoes the phases.
  Tensor End(const Step& step, const Tensor& x) const {
    Conv &before = At<Conv>(step.begin + 2), &last = At<Conv>(step.begin + 4);
    int64_t group = At<TGrow>(step.begin + 1).frames, phases = At<Function>(step.begin).factor == 2 ? 4 : 1;
    int64_t c = before.weight.size(0), o = last.weight.size(0), out = group * phases * o, filled = Filled(out, x);
    Tensor y = ConvRelu(x.to(type).contiguous(kLast), Grown(step), {}, {1, 1}, phases == 4 ? c : 0);
    Tensor one = phases == 4 ? PhasesOf(last.weight) : last.weight;
    Tensor weight = ForGroup(one, group, group * phases * c, filled, type);
    y = at::conv2d(y, weight, FilledTo(last.bias, group * phases, filled, type), 1, phases == 4 ? 0 : 1);
    y = y.narrow(1, 0, out);
    int64_t h = y.size(2), w = y.size(3);
    if (phases == 1) return y.reshape({-1, o, h, w});
    return y.unflatten(1, {group, 2, 2, o}).permute({0, 1, 4, 5, 2, 6, 3}).reshape({-1, o, 2 * h, 2 * w});
  }
};

}  // namespace

Tensor Run(Stack& stack, const Tensor& x, int64_t clips, StackMemory* memory, const taehv::Wrap& wrap) {
  at::AutoGradMode gradients(memory == nullptr && at::GradMode::is_enabled());
  if (memory != nullptr) memory->layers.resize(stack.layers.size());
  at::DeviceType device = x.device().type();
  at::ScalarType type = at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                                  : stack.parameters().front().scalar_type();
  Runner runner{stack, clips, memory, type};
  Tensor y = x;
  int64_t frames = x.size(0) / clips;
  Layout layout;
  size_t begin = 0;
  for (size_t index = 0; index < stack.stage_ends.size(); ++index) {
    const size_t end = stack.stage_ends[index];
    if (!y.defined()) break;
    Walk walk{stack, memory, begin, end};
    std::vector<Step> plan = MakePlan(walk, &frames, &layout);
    taehv::Stage stage = [runner, plan](const Tensor& input) { return runner.Forward(plan, input); };
    y = wrap && memory == nullptr ? wrap(index, stage, y) : stage(y);
    begin = end;
  }
  return y;
}

}  // namespace lockstep::models::fused
