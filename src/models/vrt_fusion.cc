#include "models/vrt_fusion.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "base/text.h"
#include "models/normal.h"
#include "models/vrt_fusion_operators.h"
#include "models/vrt_layers.h"

namespace lockstep::models {
namespace {

using at::Tensor;

// What S-VRT has and we do not.
struct RefusedPart {
  const char *kind, *name, *instead;
};
constexpr RefusedPart kRefusedParts[] = {
    {"fusion operator", "mamba", "use attention: the same tokens, mixed by self attention instead of a state space"},
    {"fusion operator", "dual_scale_temporal_mamba", "use attention, or pase_residual for raw spike windows"},
    {"deformable convolution", "dcnv4", "use dcnv2: modulated deformable convolution guided by the flow"},
    {"optical flow", "scflow", "use spynet on the RGB frames"},
    {"optical flow", "sea_raft", "use spynet"},
    {"optical flow", "searaft", "use spynet"},
};

std::string LowerPart(std::string_view text) {
  std::string lower;
  for (const char c : text) lower += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

Status CheckSvrtOperator(std::string_view kind, const std::string& name) {
  const std::string lower = LowerPart(name);
  std::vector<std::string> known;
  for (const fusion::OperatorRow& row : fusion::Operators()) known.emplace_back(row.name);
  if (kind == "deformable convolution") known = {"dcnv2"};
  if (kind == "optical flow") known = {"spynet"};
  for (const std::string& have : known) {
    if (lower == have) return Status::Ok();
  }
  for (const RefusedPart& part : kRefusedParts) {
    if (kind == part.kind && lower == part.name) {
      return Status(Code::kUsage, fmt::format("the {} '{}' is not supported", kind, Printable(name)), part.instead);
    }
  }
  return Status(Code::kUsage, fmt::format("there is no {} '{}'{}", kind, Printable(name), DidYouMean(lower, known)),
                fmt::format("use {}", known.size() > 1 ? "concat, gated, pase, pase_residual or attention" : known[0]));
}

Status FusionConfig::Check() const {
  LOCKSTEP_RETURN_IF_ERROR(CheckSvrtOperator("fusion operator", op));
  const auto refused = [](const std::string& what, const std::string& remedy) {
    return Status(Code::kUsage, "fusion of RGB and spikes: " + what, remedy);
  };
  const fusion::OperatorRow* row = fusion::FindOperator(op);
  if (row == nullptr) return refused(fmt::format("operator '{}'", Printable(op)), "write its name in lower case");
  if (placement != "early")
    return refused(fmt::format("placement '{}' is not supported", Printable(placement)), "use early");
  if (frame_contract != "operator_default" && frame_contract != "expanded" && frame_contract != "collapsed") {
    return refused(fmt::format("there is no frame_contract '{}'", Printable(frame_contract)),
                   "use operator_default, expanded or collapsed");
  }
  if (frame_contract == "collapsed" && !row->takes_bins) {
    return refused(fmt::format("the operator {} fuses one bin at a time and cannot be collapsed", op),
                   "use expanded, or one of pase_residual and attention");
  }
  if (frame_contract == "expanded" && op == "pase_residual") {
    return refused("pase_residual takes all bins of a frame and cannot be expanded", "use collapsed");
  }
  for (const auto& [name, value] : {std::pair("spike_bins", spike_bins), std::pair("hidden_chans", hidden_chans),
                                    std::pair("feature_chans", feature_chans), std::pair("token_dim", token_dim),
                                    std::pair("token_stride", token_stride), std::pair("num_layers", num_layers),
                                    std::pair("num_heads", num_heads), std::pair("kernel_size", kernel_size)}) {
    if (value < 1) return refused(fmt::format("{} is {}", name, value), "use a positive number");
  }
  if (kernel_size % 2 == 0) return refused(fmt::format("kernel_size is {}", kernel_size), "use an odd number");
  if (op == "attention" && token_dim % num_heads != 0) {
    return refused(fmt::format("num_heads = {} does not divide token_dim = {}", num_heads, token_dim),
                   "use a number of heads that divides it");
  }
  return Status::Ok();
}

FrameContract FusionConfig::Contract() const {
  if (frame_contract == "expanded") return FrameContract::kExpanded;
  if (frame_contract == "collapsed") return FrameContract::kCollapsed;
  return fusion::FindOperator(op)->contract;
}

FusionAdapter::FusionAdapter(const FusionConfig& config, uint64_t seed)
    : torch::nn::Module("FusionAdapter"), config_(config) {
  if (const Status check = config.Check(); !check.ok()) throw std::invalid_argument(check.ToString());
  const torch::NoGradGuard no_grad;
  const int64_t spikes = config.op == "pase_residual" ? config.spike_bins : 1;
  operator_ = register_module("operator", fusion::FindOperator(config.op)->make(config, spikes));
  const auto upsample = register_module("spike_upsample", std::make_shared<vrt::Numbered>());
  const int64_t s = config.spike_bins;
  refine_ = upsample->register_module(
      "refine", std::make_shared<fusion::ConvStack>(std::vector<fusion::ConvStack::Row>{{s, s, 3}, {s, s, 3}}, false));
  const auto parameters = named_parameters();
  for (const auto& item : parameters) {
    const std::string &name = item.key(), full = "fusion_adapter." + name;
    const Tensor flat = item.value().view({-1});
    const bool is_bias = name.ends_with("bias");
    const Tensor& weight = is_bias ? parameters[name.substr(0, name.size() - 4) + "weight"] : item.value();
    const bool head = name.find("fusion_writeback_head.delta.") != std::string::npos ||
                      name.find("fusion_writeback_head.gate.") != std::string::npos;
    if (name.ends_with(".alpha") || weight.dim() == 1) continue;             // set, and norms
    if (name.find("operator.correction.2.") != std::string::npos) continue;  // 0: no correction at first
    if (head && !is_bias) {
      DrawNormal(seed, full, 0, 1e-3, flat);
    } else if (is_bias && name.find("fusion_writeback_head.gate.") != std::string::npos) {
      flat.fill_(config.gate_bias_init);
    } else if (name == "operator.gate.2.bias") {
      flat.fill_(-5);
    } else if (name.ends_with("in_proj_weight")) {  // PyTorch's MultiheadAttention: Xavier's
      DrawUniform(seed, full, 0, std::sqrt(6.0 / static_cast<double>(weight.size(0) + weight.size(1))), flat);
    } else if (is_bias && (head || name.ends_with("in_proj_bias") || name.ends_with("out_proj.bias"))) {
      continue;  // 0
    } else {
      DrawUniform(seed, full, 0, 1 / std::sqrt(static_cast<double>(weight[0].numel())), flat);
    }
  }
}

Tensor FusionAdapter::Enlarged(const Tensor& spikes, int64_t height, int64_t width) const {
  if (spikes.size(3) == height && spikes.size(4) == width) return spikes;
  const Tensor large = at::upsample_bilinear2d(spikes.flatten(0, 1), {height, width}, /*align_corners=*/false);
  return std::static_pointer_cast<fusion::ConvStack>(refine_)->Forward(large).unflatten(
      0, {spikes.size(0), spikes.size(1)});
}

Tensor FusionAdapter::Forward(const Tensor& rgb, const Tensor& spikes) {
  TORCH_CHECK(rgb.dim() == 5 && rgb.size(2) == fusion::kRgb && spikes.dim() == 5 &&
                  spikes.size(2) == config_.spike_bins && rgb.size(0) == spikes.size(0) &&
                  rgb.size(1) == spikes.size(1),
              "fusion takes RGB [b, t, 3, h, w] and spikes [b, t, ", config_.spike_bins, ", h, w], found ", rgb.sizes(),
              " and ", spikes.sizes());
  const Tensor own = Enlarged(spikes, rgb.size(3), rgb.size(4));
  if (config_.Contract() == FrameContract::kCollapsed) return operator_->Fuse(rgb, own);
  return operator_->Fuse(Base(rgb), own.flatten(1, 2).unsqueeze(2));
}

Tensor FusionAdapter::Base(const Tensor& rgb) const {
  if (config_.Contract() == FrameContract::kCollapsed) return rgb;
  return rgb.repeat_interleave(config_.spike_bins, /*dim=*/1);
}

Tensor FusionAdapter::FrameOfBin(const Tensor& frames, int64_t bin) const {
  if (config_.Contract() == FrameContract::kCollapsed) return frames;
  TORCH_CHECK(frames.size(1) % config_.spike_bins == 0, "expected a multiple of ", config_.spike_bins,
              " frames, found ", frames.sizes());
  return frames.unflatten(1, {-1, config_.spike_bins}).select(2, bin);
}

Tensor FusionAdapter::Middle(const Tensor& fused) const { return FrameOfBin(fused, config_.spike_bins / 2); }

Tensor FusionAdapter::Reduce(const Tensor& restored) const {
  return FrameOfBin(restored, std::clamp<int64_t>(config_.reduce_index, 0, config_.spike_bins - 1));
}

FusionWarmup FusionWarmupAt(const FusionWarmupPlan& plan, int64_t step) {
  if (step >= plan.fix_iter) return FusionWarmup::kFull;
  return step < plan.head_only_iters ? FusionWarmup::kWritebackOnly : FusionWarmup::kTokenMixer;
}

bool TrainsInWarmup(const FusionConfig& config, FusionWarmup stage, std::string_view parameter) {
  const fusion::OperatorRow* row = fusion::FindOperator(config.op);
  constexpr std::string_view kPrefix = "fusion_adapter.operator.";
  if (stage != FusionWarmup::kWritebackOnly || row == nullptr || !row->warms_up || !parameter.starts_with(kPrefix)) {
    return true;
  }
  const std::string_view own = parameter.substr(kPrefix.size());
  return own.starts_with("fusion_writeback_head.") || own == "alpha";
}

}  // namespace lockstep::models
