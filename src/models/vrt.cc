#include "models/vrt.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "models/decoder_ops.h"
#include "models/flow_warp.h"
#include "models/normal.h"
#include "models/resize.h"
#include "models/vrt_copies.h"

namespace lockstep::models {
namespace {

using at::Tensor;

constexpr int64_t kUpsampleWidth = 64;
constexpr double kTableDeviation = 0.02;
constexpr size_t kScales = 4;

struct StageRow {
  vrt::Reshape reshape;
  int64_t scale;  // frames are this much smaller than the clip
};
constexpr StageRow kStageRows[] = {{vrt::Reshape::kNone, 1}, {vrt::Reshape::kDown, 2}, {vrt::Reshape::kDown, 4},
                                   {vrt::Reshape::kDown, 8}, {vrt::Reshape::kUp, 4},   {vrt::Reshape::kUp, 2},
                                   {vrt::Reshape::kUp, 1}};
constexpr double kReach = 10;  // pixels of the clip that offsets may differ from the flow

size_t ScaleIndex(int64_t scale) { return scale == 1 ? 0 : scale == 2 ? 1 : scale == 4 ? 2 : 3; }

bool HasLora(const std::string& module) {
  return module.ends_with(".qkv_self") || module.ends_with(".qkv_mut") || module.ends_with(".attn.proj");
}

// Frames [..., c, h, w] as [..., h, w, c], and back.
Tensor LastChannels(const Tensor& x) { return x.movedim(-3, -1).contiguous(); }
Tensor FirstChannels(const Tensor& x) { return x.movedim(-1, -3); }

}  // namespace

Vrt::Vrt(const VrtConfig& config, uint64_t seed)
    : torch::nn::Module("Vrt"), config_(config), seed_(seed), copies_(std::make_shared<vrt::Copies>()) {
  if (const Status check = config.Check(); !check.ok()) throw std::invalid_argument(check.ToString());
  const torch::NoGradGuard no_grad;
  vrt::Builder builder{config_, std::make_shared<vrt::WindowTables>(), {}, {}, {}};
  const std::vector<double> rates = config_.DropPathRates();
  auto rate = rates.begin();
  const auto next_rates = [&](size_t i) {
    const auto from = rate;
    rate += config_.depths[i];
    return std::vector<double>(from, rate);
  };
  const int64_t width = config_.embed_dims[0];
  conv_first_ = register_module("conv_first", std::make_shared<vrt::Conv>(config_.FirstChannels(), width, 3, true));
  if (config_.pa_frames > 0) spynet_ = register_module("spynet", std::make_shared<SpyNet>());
  for (size_t i = 0; i < std::size(kStageRows); ++i) {
    const vrt::Stage::Options options{i == 0 ? width : config_.embed_dims[i - 1],
                                      config_.embed_dims[i],
                                      config_.depths[i],
                                      config_.num_heads[i],
                                      kStageRows[i].reshape,
                                      kReach / static_cast<double>(kStageRows[i].scale),
                                      next_rates(i),
                                      static_cast<int64_t>(i)};
    stages_.push_back(register_module(fmt::format("stage{}", i + 1), std::make_shared<vrt::Stage>(builder, options)));
  }
  const auto stage8 = register_module("stage8", std::make_shared<vrt::Numbered>());
  const auto widen = stage8->Add(0, std::make_shared<vrt::Numbered>());
  widen_norm_ = widen->Add(1, std::make_shared<vrt::Norm>(config_.embed_dims[6]));
  widen_ = widen->Add(2, vrt::MakeLinear(config_.embed_dims[6], config_.embed_dims[7]));
  for (size_t i = std::size(kStageRows); i < config_.depths.size(); ++i) {
    const auto group = static_cast<int64_t>(i);
    vrt::Size3 window = config_.window_size;
    const auto& alone = config_.indep_reconsts;
    if (std::find(alone.begin(), alone.end(), group) != alone.end()) window[0] = 1;
    const vrt::Tmsag::Options options{config_.embed_dims[i],
                                      config_.depths[i],
                                      config_.num_heads[i],
                                      window,
                                      /*mutual=*/false,
                                      next_rates(i),
                                      config_.RecomputesAttention(group),
                                      config_.RecomputesMlp(group),
                                      fmt::format("stage8.{}", i - 6)};
    groups_.push_back(stage8->Add(group - 6, std::make_shared<vrt::Rtmsa>(builder, options)));
  }
  norm_ = register_module("norm", std::make_shared<vrt::Norm>(config_.embed_dims.back()));
  conv_after_body_ = register_module("conv_after_body", vrt::MakeLinear(config_.embed_dims.back(), width));
  if (config_.pa_frames == 0) {
    linear_fuse_ =
        register_module("linear_fuse", std::make_shared<vrt::Conv>(width * config_.img_size[0], kUpsampleWidth, 1));
    conv_last_ = register_module("conv_last", std::make_shared<vrt::Conv>(kUpsampleWidth, config_.out_chans, 7,
                                                                          /*conv3d=*/false, /*padded=*/false));
  } else if (config_.upscale == 1) {
    conv_last_ = register_module("conv_last", std::make_shared<vrt::Conv>(width, config_.out_chans, 3, true));
  } else {
    const auto before = register_module("conv_before_upsample", std::make_shared<vrt::Numbered>());
    conv_before_upsample_ = before->Add(0, std::make_shared<vrt::Conv>(width, kUpsampleWidth, 3, true));
    const auto list = register_module("upsample", std::make_shared<vrt::Numbered>());
    const int64_t each = config_.upscale == 3 ? 3 : 2;
    int64_t number = 0;  // a convolution, two transpositions, the shuffle and the activation: five numbers
    for (int64_t done = 1; done < config_.upscale; done *= each, number += 5) {
      upsample_.push_back(
          list->Add(number, std::make_shared<vrt::Conv>(kUpsampleWidth, each * each * kUpsampleWidth, 3, true)));
    }
    upsample_.push_back(list->Add(number, std::make_shared<vrt::Conv>(kUpsampleWidth, kUpsampleWidth, 3, true)));
    conv_last_ = register_module("conv_last", std::make_shared<vrt::Conv>(kUpsampleWidth, config_.out_chans, 3, true));
  }
  units_ = std::move(builder.units);
  rates_ = std::move(builder.rates);
  blocks_ = std::move(builder.blocks);
  DrawWeights();
}

// As upstream's constructor: PyTorch's uniform distributions, tables of positions normal, the last layer before offsets
// zero.
void Vrt::DrawWeights() {
  const auto parameters = named_parameters();
  for (const auto& item : parameters) {
    const std::string& name = item.key();
    const Tensor flat = item.value().view({-1});
    if (name.ends_with("relative_position_bias_table")) {
      DrawNormal(seed_, name, 0, kTableDeviation, flat);
      continue;
    }
    const bool is_bias = name.ends_with(".bias");
    const Tensor& weight = is_bias ? parameters[name.substr(0, name.size() - 4) + "weight"] : item.value();
    if (weight.dim() == 1) continue;  // a norm: 1 and 0
    if (name.find(".conv_offset.6.") != std::string::npos || name.ends_with(".pa_deform.bias")) continue;  // 0
    DrawUniform(seed_, name, 0, 1 / std::sqrt(static_cast<double>(weight[0].numel())), flat);
  }
}

std::vector<vrt::Flows> Vrt::OpticalFlows(const Tensor& clips) const {
  const int64_t b = clips.size(0), pairs = clips.size(1) - 1;
  const Tensor rgb = clips.narrow(4, 0, 3);
  const Tensor first = rgb.narrow(1, 0, pairs).flatten(0, 1), second = rgb.narrow(1, 1, pairs).flatten(0, 1);
  const std::vector<Tensor> both = spynet_->Forward(at::cat({first, second}), at::cat({second, first}));
  std::vector<vrt::Flows> flows;
  for (const Tensor& scale : both) {
    const Tensor halves = scale.unflatten(0, {2, b, pairs});
    flows.push_back(vrt::FollowFlows(halves[0], halves[1], config_.pa_frames / 2));
  }
  return flows;
}

Tensor Vrt::Features(const Tensor& first, const std::vector<vrt::Flows>& flows, const vrt::Pass& pass) const {
  const auto run = [&](size_t i, const Tensor& x) {
    return stages_[i]->Forward(x, flows[ScaleIndex(kStageRows[i].scale)], pass);
  };
  const Tensor x1 = run(0, first), x2 = run(1, x1), x3 = run(2, x2), x4 = run(3, x3);
  Tensor x = run(4, x4);
  x = run(5, x + x3);
  x = run(6, x + x2) + x1;
  x = widen_->Forward(widen_norm_->Forward(x));
  for (const auto& group : groups_) x = group->Forward(x, pass);
  return first + conv_after_body_->Forward(norm_->Forward(x));
}

Tensor Vrt::Restore(const Tensor& clips, const Tensor& added, const vrt::Pass& pass) const {
  const Tensor x = clips.narrow(4, 0, config_.in_chans);
  const std::vector<vrt::Flows> flows = OpticalFlows(x);
  const int64_t n = x.size(1), pairs = n - 1;
  // The neighbours of each frame; none before the first and after the last.
  const auto neighbour = [&](int64_t source, const Tensor& flow) {
    return FlowWarpNearest4(x.narrow(1, source, pairs).flatten(0, 1), flow.flatten(0, 1))
        .unflatten(0, {x.size(0), pairs});
  };
  const Tensor next = neighbour(1, flows[0].backward[0]), last = neighbour(0, flows[0].forward[0]);
  std::vector<Tensor> seen{x, at::constant_pad_nd(next, {0, 0, 0, 0, 0, 0, 0, 1}),
                           at::constant_pad_nd(last, {0, 0, 0, 0, 0, 0, 1, 0})};
  if (config_.nonblind_denoising) seen.push_back(clips.narrow(4, config_.in_chans, 1));
  Tensor y = Features(conv_first_->Forward(at::cat(seen, 4)), flows, pass);
  Tensor base = added.defined() ? added : x.narrow(4, 0, config_.out_chans);
  if (config_.upscale > 1) {
    y = at::leaky_relu(conv_before_upsample_->Forward(y));
    for (size_t i = 0; i + 1 < upsample_.size(); ++i) {
      const Tensor wide = FirstChannels(upsample_[i]->Forward(y));
      y = at::leaky_relu(LastChannels(at::pixel_shuffle(wide, config_.upscale == 3 ? 3 : 2)), 0.1);
    }
    y = upsample_.back()->Forward(y);
    const Tensor frames = FirstChannels(base).flatten(0, 1);
    base = ResizeBilinear(frames, y.size(2), y.size(3), /*align_corners=*/false)
               .permute({0, 2, 3, 1})
               .unflatten(0, {x.size(0), n});
  }
  return FirstChannels(conv_last_->Forward(y) + base).contiguous();
}

Tensor Vrt::Interpolate(const Tensor& clips, const vrt::Pass& pass) const {
  const Tensor mean = clips.mean({1, 2, 3}, /*keepdim=*/true);
  const Tensor y = Features(conv_first_->Forward(clips - mean), std::vector<vrt::Flows>(kScales), pass);
  const Tensor fused = at::leaky_relu(linear_fuse_->Forward(y.movedim(1, 3).flatten(3)), 0.2);  // [b, h, w, 64]
  const Tensor padded = PadByReflection(fused.permute({0, 3, 1, 2}), 3).permute({0, 2, 3, 1});
  const Tensor frames = conv_last_->Forward(padded).unflatten(3, {-1, 3});  // [b, h, w, frames, 3]
  // Further channels of the clip are not added, as in S-VRT.
  const Tensor added = mean.narrow(4, 0, std::min<int64_t>(mean.size(4), 3));
  return frames.permute({0, 3, 4, 1, 2}).contiguous() + FirstChannels(added);
}

Tensor Vrt::Forward(const Tensor& clips, const Tensor& draws, const Tensor& base) {
  TORCH_CHECK(clips.dim() == 5 && clips.size(2) == config_.InputChannels(), "clips are [batch, frames, ",
              config_.InputChannels(), ", height, width], found ", clips.sizes());
  const Status check = config_.CheckClip(clips.size(1), clips.size(3), clips.size(4));
  TORCH_CHECK(check.ok(), check.ToString());
  TORCH_CHECK(
      !base.defined() || (config_.pa_frames > 0 && base.size(2) == config_.out_chans && base.size(1) == clips.size(1)),
      "the result is added to [batch, ", clips.size(1), ", ", config_.out_chans, ", height, width], found ",
      base.defined() ? base.sizes() : at::IntArrayRef());
  vrt::Pass pass{runner_, {}, {}};
  if (is_training() && Draws() > 0) {
    const Tensor own =
        draws.defined() ? draws : at::rand({clips.size(0), Draws()}, clips.options().requires_grad(false));
    TORCH_CHECK(own.dim() == 2 && own.size(0) == clips.size(0) && own.size(1) == Draws(), "draws of DropPath are [",
                clips.size(0), ", ", Draws(), "], found ", own.sizes());
    pass.factors = Factors(own, clips.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }
  if (const at::ScalarType type = decoder::ComputeType(clips);
      clips.is_cuda() && at::isReducedFloatingType(type) && !lora_.on() && copies_->Refresh(blocks_, type)) {
    pass.copies = copies_;
  }
  const Tensor x = LastChannels(clips);
  if (config_.pa_frames == 0) return Interpolate(x, pass);
  return Restore(x, base.defined() ? LastChannels(base) : base, pass);
}

Tensor Vrt::Factors(const Tensor& draws, at::ScalarType type) const {
  std::vector<double> kept;
  for (const double rate : rates_) kept.push_back(1 - rate);
  const Tensor stays = draws.ge(OnDevice(rates_, draws.options()));
  return stays.to(type).div_(OnDevice(kept, draws.options().dtype(type))).t().contiguous();
}

std::vector<std::pair<std::string, std::shared_ptr<vrt::Linear>>> Vrt::LoraLinears() const {
  std::vector<std::pair<std::string, std::shared_ptr<vrt::Linear>>> linears;
  for (const auto& item : named_modules("", /*include_self=*/false)) {
    auto linear = std::dynamic_pointer_cast<vrt::Linear>(item.value());
    if (linear && HasLora(item.key())) linears.emplace_back(item.key(), std::move(linear));
  }
  return linears;
}

std::vector<std::string> Vrt::Matrices() const {
  std::vector<std::string> names;
  for (const auto& [name, linear] : LoraLinears()) names.push_back(name + ".weight");
  return names;
}

Status Vrt::AddLora(const LoraConfig& lora) {
  TORCH_CHECK(!lora_.on() && lora.on(), "LoRA is added once, with a rank");
  const Result<std::vector<std::string>> chosen = ChooseMatrices(lora.targets, Matrices());
  if (!chosen.ok()) return chosen.status();
  lora_ = lora;
  for (Tensor& parameter : parameters()) parameter.requires_grad_(false);
  const std::set<std::string> names(chosen->begin(), chosen->end());
  for (const auto& [name, linear] : LoraLinears()) {
    if (!names.contains(name + ".weight")) continue;
    linear->AddLora(lora.rank, lora.scale(), lora.dropout);
    const torch::NoGradGuard no_grad;
    // kaiming_uniform_ with a = sqrt(5); B is 0: the function is as before.
    const double bound = 1 / std::sqrt(static_cast<double>(linear->weight.size(1)));
    DrawUniform(seed_, name + ".lora_A", 0, bound, linear->lora_a.view({-1}));
    linear->lora_b.zero_();
    linear->lora_a.requires_grad_(true);
    linear->lora_b.requires_grad_(true);
  }
  return Status::Ok();
}

std::vector<std::pair<std::string, Tensor>> Vrt::Merged() const {
  const torch::NoGradGuard no_grad;
  std::map<std::string, Tensor> merged;
  for (const auto& [name, linear] : LoraLinears()) merged[name + ".weight"] = linear->Merged();
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& item : named_parameters()) {
    if (item.key().ends_with(".lora_A") || item.key().ends_with(".lora_B")) continue;
    const auto found = merged.find(item.key());
    all.emplace_back(item.key(), found != merged.end() ? found->second : item.value());
  }
  return all;
}

}  // namespace lockstep::models
