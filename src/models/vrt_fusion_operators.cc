#include "models/vrt_fusion_operators.h"

#include <algorithm>

#include "models/vrt_layers.h"

namespace lockstep::models::fusion {
namespace {

using at::Tensor;

struct ConcatOperator : Operator {
  ConcatOperator(const FusionConfig&, int64_t spikes) {
    proj = register_module("proj", std::make_shared<PlainConv>(kRgb + spikes, kRgb, 1));
  }
  Tensor Fuse(const Tensor& rgb, const Tensor& spikes) const override {
    return proj->Forward(at::cat({rgb, spikes}, 2).flatten(0, 1)).view(rgb.sizes());
  }
  std::shared_ptr<PlainConv> proj;
};

// rgb + sigmoid(gate) * correction.
struct GatedOperator : Operator {
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

struct PaseOperator : Operator {
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
struct WritebackOperator : Operator {
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
std::shared_ptr<Operator> MakeOperator(const FusionConfig& config, int64_t spikes) {
  return std::make_shared<T>(config, spikes);
}

}  // namespace

const std::vector<OperatorRow>& Operators() {
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
  for (const OperatorRow& row : Operators()) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

}  // namespace lockstep::models::fusion
