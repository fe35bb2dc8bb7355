#include "models/vrt_fusion.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "base/text.h"
#include "models/normal.h"
#include "models/vrt_layers.h"

namespace lockstep::models {

using at::Tensor;

// Frames [b, n, c, h, w] in and out. What an operator is given, and what it returns, follows from the frame contract.
struct FusionAdapter::Operator : torch::nn::Module {
  virtual Tensor Fuse(const Tensor& rgb, const Tensor& spikes) const = 0;
};

namespace {

constexpr int64_t kRgb = 3;

struct OperatorRow {
  const char* name;
  FrameContract contract;
  bool takes_bins;  // supports the collapsed contract
  bool warms_up;
  std::function<std::shared_ptr<FusionAdapter::Operator>(const FusionConfig&, int64_t spikes)> make;
};

// PyTorch's Conv2d, frames channels first.
struct PlainConv : torch::nn::Module {
  PlainConv(int64_t in, int64_t out, int64_t kernel, int64_t step = 1) : stride(step), padding(kernel / 2) {
    weight = register_parameter("weight", at::zeros({out, in, kernel, kernel}));
    bias = register_parameter("bias", at::zeros({out}));
  }
  Tensor Forward(const Tensor& x) const { return at::conv2d(x, weight, bias, stride, padding); }
  Tensor weight, bias;
  int64_t stride, padding;
};

// Convolutions with a ReLU after each, or after all but the last; numbered as a Sequential with its activations.
struct ConvStack : torch::nn::Module {
  struct Row {
    int64_t in, out, kernel, stride = 1;
  };
  ConvStack(const std::vector<Row>& rows, bool relu_last) : relu_after_last(relu_last) {
    for (size_t i = 0; i < rows.size(); ++i) {
      convs.push_back(register_module(
          std::to_string(2 * i), std::make_shared<PlainConv>(rows[i].in, rows[i].out, rows[i].kernel, rows[i].stride)));
    }
  }
  Tensor Forward(Tensor x) const {
    for (size_t i = 0; i < convs.size(); ++i) {
      x = convs[i]->Forward(x);
      if (relu_after_last || i + 1 < convs.size()) x = at::relu(x);
    }
    return x;
  }
  std::vector<std::shared_ptr<PlainConv>> convs;
  bool relu_after_last;
};

struct ConcatOperator : FusionAdapter::Operator {
  ConcatOperator(const FusionConfig&, int64_t spikes) {
    proj = register_module("proj", std::make_shared<PlainConv>(kRgb + spikes, kRgb, 1));
  }
  Tensor Fuse(const Tensor& rgb, const Tensor& spikes) const override {
    return proj->Forward(at::cat({rgb, spikes}, 2).flatten(0, 1)).view(rgb.sizes());
  }
  std::shared_ptr<PlainConv> proj;
};

// rgb + sigmoid(gate) * correction.
struct GatedOperator : FusionAdapter::Operator {
  GatedOperator(const FusionConfig& c, int64_t spikes) {
    const std::vector<ConvStack::Row> rows{{kRgb + spikes, c.hidden_chans, 3}, {c.hidden_chans, kRgb, 1}};
    correction = register_module("correction", std::make_shared<ConvStack>(rows, false));
    gate = register_module("gate", std::make_shared<ConvStack>(rows, false));
  }
  Tensor Fuse(const Tensor& rgb, const Tensor& spikes) const override {
    const Tensor both = at::cat({rgb, spikes}, 2).flatten(0, 1);
    return rgb + (at::sigmoid(gate->Forward(both)) * correction->Forward(both)).view(rgb.sizes());
  }
  std::shared_ptr<ConvStack> correction, gate;
};

// A kernel for each pixel and output channel, predicted from the spikes and applied to them.
struct PixelAdaptiveEncoder : torch::nn::Module {
  PixelAdaptiveEncoder(const FusionConfig& c, int64_t in, int64_t width)
      : out(width), kernel(c.kernel_size), normalize(c.normalize_kernel) {
    const auto outer = register_module("kernel_predictor", std::make_shared<vrt::Numbered>());
    const std::vector<ConvStack::Row> rows{
        {in, c.hidden_chans, 3}, {c.hidden_chans, c.hidden_chans, 3}, {c.hidden_chans, out * in * kernel * kernel, 3}};
    net = outer->register_module("net", std::make_shared<ConvStack>(rows, false));
  }
  Tensor Forward(const Tensor& x) const {
    const int64_t h = x.size(2), w = x.size(3);
    const Tensor patches = at::im2col(x, {kernel, kernel}, {1, 1}, {kernel / 2, kernel / 2}, {1, 1});
    Tensor weights = net->Forward(x).view({x.size(0), out, patches.size(1), h * w});
    if (normalize) weights = at::softmax(weights, 2);
    return (weights * patches.unsqueeze(1)).sum(2).view({x.size(0), out, h, w});
  }
  int64_t out, kernel;
  bool normalize;
  std::shared_ptr<ConvStack> net;
};

struct PaseOperator : FusionAdapter::Operator {
  PaseOperator(const FusionConfig& c, int64_t spikes) {
    pase = register_module("pase", std::make_shared<PixelAdaptiveEncoder>(c, spikes, kRgb));
    rgb_proj = register_module("rgb_proj", std::make_shared<PlainConv>(kRgb, kRgb, 1));
  }
  Tensor Fuse(const Tensor& rgb, const Tensor& spikes) const override {
    return (rgb_proj->Forward(rgb.flatten(0, 1)) + pase->Forward(spikes.flatten(0, 1))).view(rgb.sizes());
  }
  std::shared_ptr<PixelAdaptiveEncoder> pase;
  std::shared_ptr<PlainConv> rgb_proj;
};

// rgb + alpha * sigmoid(gate) * delta.
struct WritebackOperator : FusionAdapter::Operator {
  void AddHead(const FusionConfig& c, int64_t width, bool body) {
    const auto head = register_module("fusion_writeback_head", std::make_shared<vrt::Numbered>());
    if (body) {
      head_body = head->register_module(
          "body", std::make_shared<ConvStack>(std::vector<ConvStack::Row>{{width, width, 3}}, /*relu_last=*/true));
    }
    delta = head->register_module("delta", std::make_shared<PlainConv>(width, kRgb, 1));
    gate = head->register_module("gate", std::make_shared<PlainConv>(width, kRgb, 1));
    alpha = register_parameter("alpha", at::full({1, kRgb, 1, 1}, c.alpha_init));
  }
  Tensor Written(const Tensor& rgb, const Tensor& features) const {
    const Tensor x = head_body ? head_body->Forward(features) : features;
    const auto sized = [&](const Tensor& y) {
      const bool same = y.size(2) == rgb.size(3) && y.size(3) == rgb.size(4);
      return same ? y : at::upsample_bilinear2d(y, {rgb.size(3), rgb.size(4)}, /*align_corners=*/false);
    };
    const Tensor update = alpha * at::sigmoid(sized(gate->Forward(x))) * sized(delta->Forward(x));
    return rgb + update.view(rgb.sizes());
  }
  std::shared_ptr<ConvStack> head_body;
  std::shared_ptr<PlainConv> delta, gate;
  Tensor alpha;
};

struct PaseResidualOperator : WritebackOperator {
  PaseResidualOperator(const FusionConfig& c, int64_t spikes) {
    const int64_t f = c.feature_chans;
    context = register_module("rgb_context_encoder",
                              std::make_shared<ConvStack>(std::vector<ConvStack::Row>{{kRgb, f, 3}, {f, f, 3}}, true));
    pase = register_module("pase", std::make_shared<PixelAdaptiveEncoder>(c, spikes, f));
    body = register_module("fusion_body",
                           std::make_shared<ConvStack>(std::vector<ConvStack::Row>{{f, f, 3}, {f, f, 3}}, true));
    AddHead(c, f, /*body=*/false);
  }
  Tensor Fuse(const Tensor& rgb, const Tensor& spikes) const override {
    const Tensor features = context->Forward(rgb.flatten(0, 1)) + pase->Forward(spikes.flatten(0, 1));
    return Written(rgb, body->Forward(features));
  }
  std::shared_ptr<ConvStack> context, body;
  std::shared_ptr<PixelAdaptiveEncoder> pase;
};

// A block of a transformer over the bins of one place; PyTorch's MultiheadAttention by its names.
struct TokenBlock : torch::nn::Module {
  TokenBlock(int64_t width, int64_t head_count, double mlp_ratio) : heads(head_count) {
    norm1 = register_module("norm1", std::make_shared<vrt::Norm>(width));
    const auto attn = register_module("attn", std::make_shared<vrt::Numbered>());
    in_weight = attn->register_parameter("in_proj_weight", at::zeros({3 * width, width}));
    in_bias = attn->register_parameter("in_proj_bias", at::zeros({3 * width}));
    out_proj = attn->register_module("out_proj", vrt::MakeLinear(width, width));
    norm2 = register_module("norm2", std::make_shared<vrt::Norm>(width));
    const auto mlp = register_module("mlp", std::make_shared<vrt::Numbered>());
    const int64_t hidden = std::max(width, static_cast<int64_t>(static_cast<double>(width) * mlp_ratio));
    first = mlp->Add(0, vrt::MakeLinear(width, hidden));
    second = mlp->Add(3, vrt::MakeLinear(hidden, width));  // activation and dropout have the numbers between
  }
  Tensor Forward(const Tensor& x) const {  // [places, bins, width]
    const int64_t places = x.size(0), bins = x.size(1), width = x.size(2);
    const auto qkv = at::linear(norm1->Forward(x), in_weight, in_bias)
                         .view({places, bins, 3, heads, width / heads})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
    const Tensor seen = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]).transpose(1, 2).reshape(x.sizes());
    const Tensor y = x + out_proj->Forward(seen);
    return y + second->Forward(at::gelu(first->Forward(norm2->Forward(y))));
  }
  int64_t heads;
  std::shared_ptr<vrt::Norm> norm1, norm2;
  Tensor in_weight, in_bias;
  std::shared_ptr<vrt::Linear> out_proj, first, second;
};

struct AttentionOperator : WritebackOperator {
  AttentionOperator(const FusionConfig& c, int64_t /*spikes*/) {
    const int64_t d = c.token_dim, s = c.token_stride;
    rgb_encoder =
        register_module("rgb_context_encoder",
                        std::make_shared<ConvStack>(std::vector<ConvStack::Row>{{kRgb, d, 3, s}, {d, d, 3}}, true));
    spike_encoder =
        register_module("spike_token_encoder",
                        std::make_shared<ConvStack>(std::vector<ConvStack::Row>{{1, d, 3, s}, {d, d, 3}}, false));
    const auto list = register_module("attention_token_mixer", std::make_shared<vrt::Numbered>());
    for (int64_t i = 0; i < c.num_layers; ++i) {
      blocks.push_back(list->Add(i, std::make_shared<TokenBlock>(d, c.num_heads, c.mlp_ratio)));
    }
    AddHead(c, d, /*body=*/true);
  }
  Tensor Fuse(const Tensor& rgb, const Tensor& spikes) const override {
    const int64_t bins = spikes.size(2);
    const Tensor low = rgb_encoder->Forward(rgb.flatten(0, 1));  // [frames, d, h, w]
    const Tensor tokens = spike_encoder->Forward(spikes.flatten(0, 2).unsqueeze(1)).unflatten(0, {-1, bins});
    const Tensor places = low.permute({0, 2, 3, 1}).flatten(0, 2).unsqueeze(1);
    Tensor x = tokens.permute({0, 3, 4, 1, 2}).flatten(0, 2) + places;  // [frames * h * w, bins, d]
    for (const auto& block : blocks) x = block->Forward(x);
    const Tensor pooled = x.mean(1).view({low.size(0), low.size(2), low.size(3), low.size(1)}).permute({0, 3, 1, 2});
    return Written(rgb, pooled + low);
  }
  std::shared_ptr<ConvStack> rgb_encoder, spike_encoder;
  std::vector<std::shared_ptr<TokenBlock>> blocks;
};

template <typename T>
std::shared_ptr<FusionAdapter::Operator> MakeOperator(const FusionConfig& config, int64_t spikes) {
  return std::make_shared<T>(config, spikes);
}

const std::vector<OperatorRow>& OperatorRows() {
  static const std::vector<OperatorRow> rows = {
      {"concat", FrameContract::kExpanded, false, false, MakeOperator<ConcatOperator>},
      {"gated", FrameContract::kExpanded, false, false, MakeOperator<GatedOperator>},
      {"pase", FrameContract::kExpanded, false, false, MakeOperator<PaseOperator>},
      {"pase_residual", FrameContract::kCollapsed, true, true, MakeOperator<PaseResidualOperator>},
      {"attention", FrameContract::kCollapsed, true, true, MakeOperator<AttentionOperator>},
  };
  return rows;
}

const OperatorRow* FindOperator(const std::string& name) {
  for (const OperatorRow& row : OperatorRows()) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

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
  for (const OperatorRow& row : OperatorRows()) known.emplace_back(row.name);
  if (kind == "deformable convolution") known = {"dcnv2"};
  if (kind == "optical flow") known = {"spynet"};
  for (const std::string& have : known) {
    if (lower == have) return Status::Ok();
  }
  for (const RefusedPart& part : kRefusedParts) {
    if (kind == part.kind && (lower == part.name || lower == "searaft")) {
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
  const OperatorRow* row = FindOperator(op);
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
  return FindOperator(op)->contract;
}

FusionAdapter::FusionAdapter(const FusionConfig& config, uint64_t seed)
    : torch::nn::Module("FusionAdapter"), config_(config) {
  if (const Status check = config.Check(); !check.ok()) throw std::invalid_argument(check.ToString());
  const torch::NoGradGuard no_grad;
  const int64_t spikes = config.op == "pase_residual" ? config.spike_bins : 1;
  operator_ = register_module("operator", FindOperator(config.op)->make(config, spikes));
  const auto upsample = register_module("spike_upsample", std::make_shared<vrt::Numbered>());
  const int64_t s = config.spike_bins;
  refine_ = upsample->register_module(
      "refine", std::make_shared<ConvStack>(std::vector<ConvStack::Row>{{s, s, 3}, {s, s, 3}}, false));
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
  return std::static_pointer_cast<ConvStack>(refine_)->Forward(large).unflatten(0, {spikes.size(0), spikes.size(1)});
}

Tensor FusionAdapter::Forward(const Tensor& rgb, const Tensor& spikes) {
  TORCH_CHECK(rgb.dim() == 5 && rgb.size(2) == kRgb && spikes.dim() == 5 && spikes.size(2) == config_.spike_bins &&
                  rgb.size(0) == spikes.size(0) && rgb.size(1) == spikes.size(1),
              "fusion takes RGB [b, t, 3, h, w] and spikes [b, t, ", config_.spike_bins, ", h, w], found ", rgb.sizes(),
              " and ", spikes.sizes());
  const Tensor own = Enlarged(spikes, rgb.size(3), rgb.size(4));
  if (config_.Contract() == FrameContract::kCollapsed) return operator_->Fuse(rgb, own);
  const Tensor repeated = rgb.repeat_interleave(config_.spike_bins, /*dim=*/1);
  return operator_->Fuse(repeated, own.flatten(1, 2).unsqueeze(2));
}

Tensor FusionAdapter::Reduce(const Tensor& restored) const {
  if (config_.Contract() == FrameContract::kCollapsed) return restored;
  TORCH_CHECK(restored.size(1) % config_.spike_bins == 0, "expected a multiple of ", config_.spike_bins,
              " frames, found ", restored.sizes());
  const int64_t index = std::clamp<int64_t>(config_.reduce_index, 0, config_.spike_bins - 1);
  return restored.unflatten(1, {-1, config_.spike_bins}).select(2, index);
}

FusionWarmup FusionWarmupAt(const FusionWarmupPlan& plan, int64_t step) {
  if (step >= plan.fix_iter) return FusionWarmup::kFull;
  return step < plan.head_only_iters ? FusionWarmup::kWritebackOnly : FusionWarmup::kTokenMixer;
}

bool TrainsInWarmup(const FusionConfig& config, FusionWarmup stage, std::string_view parameter) {
  const OperatorRow* row = FindOperator(config.op);
  constexpr std::string_view kPrefix = "fusion_adapter.operator.";
  if (stage != FusionWarmup::kWritebackOnly || row == nullptr || !row->warms_up || !parameter.starts_with(kPrefix)) {
    return true;
  }
  const std::string_view own = parameter.substr(kPrefix.size());
  return own.starts_with("fusion_writeback_head.") || own == "alpha";
}

}  // namespace lockstep::models
