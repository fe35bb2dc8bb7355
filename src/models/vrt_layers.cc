#include "models/vrt_layers.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>

#include "models/vrt_copies.h"
#include "models/vrt_fused.h"

namespace lockstep::models::vrt {
namespace {

using at::Tensor;

// Of a window, at most, whose attention is rather made again than kept: its cost grows with the square, its result
// does not.
constexpr int64_t kCheapFrames = 2;

std::vector<std::string> ParametersBelow(const torch::nn::Module& module, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(name + "." + item.key());
  return names;
}

// x + y, of each sample all of y or nothing; what stays is scaled up.
Tensor AddDropped(const Tensor& x, const Tensor& y, const Tensor& factor) {
  return factor.defined() ? x + y * factor.to(y.scalar_type()).view({-1, 1, 1, 1, 1}) : x + y;
}

void AppendAll(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

std::shared_ptr<Linear> MakeLinear(int64_t in, int64_t out, bool bias) {
  return std::make_shared<Linear>([](at::IntArrayRef shape) { return at::zeros(shape); }, in, out, bias);
}

Norm::Norm(int64_t width) {
  weight = register_parameter("weight", at::ones({width}));
  bias = register_parameter("bias", at::zeros({width}));
}

Tensor Norm::Forward(const Tensor& x) const {
  return Fuses(*this, x) ? FusedNorm(*this, x) : at::layer_norm(x, weight.sizes(), weight, bias);
}

Conv::Conv(int64_t in, int64_t out, int64_t kernel, bool conv3d, bool padded) : padding(padded ? kernel / 2 : 0) {
  std::vector<int64_t> shape{out, in, kernel, kernel};
  if (conv3d) shape.insert(shape.begin() + 2, 1);
  weight = register_parameter("weight", at::zeros(shape));
  bias = register_parameter("bias", at::zeros({out}));
}

Tensor Conv::Forward(const Tensor& x) const {
  Tensor frames = x.flatten(0, -4), kernel = weight.dim() == 5 ? weight.squeeze(2) : weight, shift = bias;
  const int64_t in = kernel.size(1), out = kernel.size(0);
  if (x.is_cuda() && decoder::ComputeType(x) != at::kFloat && decoder::ComputeType(x) != at::kDouble) {
    // Tensor cores take channels by eights: other numbers go through conversions that take longer than the product.
    const int64_t more_in = (8 - in % 8) % 8, more_out = (8 - out % 8) % 8, missing = in + more_in - frames.size(3);
    if (missing > 0) frames = at::constant_pad_nd(frames, {0, missing});
    if (more_in + more_out > 0) kernel = at::constant_pad_nd(kernel, {0, 0, 0, 0, 0, more_in, 0, more_out});
    if (more_out > 0) shift = at::constant_pad_nd(shift, {0, more_out});
    kernel = kernel.contiguous(at::MemoryFormat::ChannelsLast);
  }
  const Tensor y =
      at::conv2d(frames.permute({0, 3, 1, 2}), kernel, shift, 1, padding).permute({0, 2, 3, 1}).narrow(3, 0, out);
  std::vector<int64_t> shape = x.sizes().vec();
  std::copy(y.sizes().begin() + 1, y.sizes().end(), shape.end() - 3);
  return y.contiguous().view(shape);
}

Geglu::Geglu(int64_t in, int64_t hidden, int64_t out) {
  fc11 = register_module("fc11", MakeLinear(in, hidden));
  fc12 = register_module("fc12", MakeLinear(in, hidden));
  fc2 = register_module("fc2", MakeLinear(hidden, out));
}

Tensor Geglu::Forward(const Tensor& x) const {
  if (Fuses(*this, x)) return FusedGeglu(*this, x);
  return fc2->Forward(at::gelu(fc11->Forward(x)).mul(fc12->Forward(x)));
}

WindowAttention::WindowAttention(Builder& builder, int64_t width, const Size3& size, int64_t head_count,
                                 bool has_mutual)
    : window(size), heads(head_count), mutual(has_mutual), tables(builder.tables) {
  const double given = builder.config.qk_scale;
  const int64_t head_size = width / heads;
  scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(head_size));
  const int64_t positions = (2 * size[0] - 1) * (2 * size[1] - 1) * (2 * size[2] - 1);
  relative_position_bias_table = register_parameter("relative_position_bias_table", at::zeros({positions, heads}));
  qkv_self = register_module("qkv_self", MakeLinear(width, 3 * width, builder.config.qkv_bias));
  proj = register_module("proj", MakeLinear((mutual ? 2 : 1) * width, width));
  if (mutual) qkv_mut = register_module("qkv_mut", MakeLinear(width, 3 * width, builder.config.qkv_bias));
}

Tensor WindowAttention::Forward(const Tensor& x, const WindowPlan& plan, bool shifted) const {
  const int64_t count = x.size(0), n = x.size(1), width = x.size(2), size = width / heads;
  const Tensor none;
  const Tensor bias = PositionBias(relative_position_bias_table, tables->PositionIndex(window, n, x.device()), n);
  const auto self = qkv_self->Forward(x).view({count, n, 3, heads, size}).permute({2, 0, 3, 1, 4}).unbind(0);
  const Tensor own = Attend(self[0], self[1], self[2], bias, shifted ? plan.mask : none, scale)
                         .transpose(1, 2)
                         .reshape({count, n, width});
  if (!mutual) return proj->Forward(own);
  // Each frame of the pair is made from the other one's queries and its own keys and values.
  TORCH_CHECK(plan.window[0] == 2 && plan.window[1] == window[1] && plan.window[2] == window[2],
              "mutual attention takes windows of 2 x ", window[1], " x ", window[2],
              " tokens, found clips that are smaller");
  const auto pair = qkv_mut->Forward(x + tables->SineCode(window, width, x.device()))
                        .view({count, 2, n / 2, 3, heads, size})
                        .permute({3, 0, 1, 4, 2, 5})
                        .unbind(0);  // [windows, frame, heads, tokens, size]
  const Tensor other = Attend(pair[0].flip(1).flatten(0, 1), pair[1].flatten(0, 1), pair[2].flatten(0, 1), none,
                              shifted ? plan.mutual_mask : none, scale)
                           .transpose(1, 2)
                           .reshape({count, n, width});
  return proj->Forward(at::cat({other, own}, 2));
}

Tmsa::Tmsa(Builder& builder, const Options& options)
    : shift_(options.shift),
      keeps_attention_(options.recompute_attention && options.window[0] > kCheapFrames),
      first_unit_(builder.units.size()) {
  const int64_t hidden = static_cast<int64_t>(static_cast<double>(options.width) * builder.config.mlp_ratio);
  norm1 = register_module("norm1", std::make_shared<Norm>(options.width));
  attn = register_module(
      "attn", std::make_shared<WindowAttention>(builder, options.width, options.window, options.heads, options.mutual));
  norm2 = register_module("norm2", std::make_shared<Norm>(options.width));
  mlp = register_module("mlp", std::make_shared<Geglu>(options.width, hidden, options.width));
  Unit attention{options.name + ".attn", ParametersBelow(*norm1, options.name + ".norm1"), options.recompute_attention};
  AppendAll(attention.parameters, ParametersBelow(*attn, options.name + ".attn"));
  Unit forward{options.name + ".mlp", ParametersBelow(*norm2, options.name + ".norm2"), options.recompute_mlp};
  AppendAll(forward.parameters, ParametersBelow(*mlp, options.name + ".mlp"));
  builder.units.push_back(std::move(attention));
  builder.units.push_back(std::move(forward));
  if (options.drop > 0) {
    first_draw_ = static_cast<int64_t>(builder.rates.size());
    builder.rates.insert(builder.rates.end(), 2, options.drop);
  }
}

Tensor Tmsa::Attention(const Tensor& x) const {
  const Size3 size{x.size(1), x.size(2), x.size(3)};
  const auto plan = attn->tables->Plan(x.size(0), size, attn->window, shift_, x.device());
  const Tensor y = attn->Forward(ToWindows(norm1->Forward(x), *plan), *plan, plan->mask.defined());
  return FromWindows(y, *plan, x.sizes());
}

Tensor Tmsa::AddAttention(const Tensor& x, const Tensor& factor, const std::shared_ptr<const AttentionCopy>& copy,
                          KeptAttention* kept) const {
  if (Fuses(*norm1, *attn, x)) return FusedAttention(*norm1, *attn, shift_, x, factor, copy, kept);
  return AddDropped(x, Attention(x), factor);
}

Tensor Tmsa::AddMlp(const Tensor& x, const Tensor& factor, const std::shared_ptr<const MlpCopy>& copy) const {
  if (Fuses(*norm2, x) && Fuses(*mlp, x)) return FusedMlp(*norm2, *mlp, x, factor, copy);
  return AddDropped(x, mlp->Forward(norm2->Forward(x)), factor);
}

Tensor Tmsa::Forward(const Tensor& x, const Pass& pass) const {
  const auto factor = [&](int64_t i) {
    return pass.factors.defined() && first_draw_ >= 0 ? pass.factors.select(0, first_draw_ + i) : Tensor();
  };
  const size_t block = first_unit_ / 2;
  std::shared_ptr<const AttentionCopy> of_attention;
  std::shared_ptr<const MlpCopy> of_mlp;
  if (pass.copies) of_attention = pass.copies->attention(block), of_mlp = pass.copies->mlp(block);
  // The closures own what they use: a unit may run again in backward.
  const auto self = std::static_pointer_cast<const Tmsa>(shared_from_this());
  const auto kept = keeps_attention_ && at::GradMode::is_enabled() ? std::make_shared<KeptAttention>()
                                                                   : std::shared_ptr<KeptAttention>();
  const Tensor y = pass.Run(
      first_unit_,
      [self, own = factor(0), of_attention, kept](const Tensor& in) {
        return self->AddAttention(in, own, of_attention, kept.get());
      },
      x);
  return pass.Run(
      first_unit_ + 1, [self, own = factor(1), of_mlp](const Tensor& in) { return self->AddMlp(in, own, of_mlp); }, y);
}

Tmsag::Tmsag(Builder& builder, const Options& options) {
  const auto list = register_module("blocks", std::make_shared<Numbered>());
  const Size3 half{options.window[0] / 2, options.window[1] / 2, options.window[2] / 2};
  for (int64_t i = 0; i < options.depth; ++i) {
    const Tmsa::Options block{options.width,
                              options.heads,
                              options.window,
                              i % 2 == 0 ? Size3{0, 0, 0} : half,
                              options.mutual,
                              options.drop[static_cast<size_t>(i)],
                              options.recompute_attention,
                              options.recompute_mlp,
                              fmt::format("{}.blocks.{}", options.name, i)};
    blocks.push_back(list->Add(i, std::make_shared<Tmsa>(builder, block)));
    builder.blocks.push_back(blocks.back());
  }
}

Tensor Tmsag::Forward(Tensor x, const Pass& pass) const {
  for (const auto& block : blocks) x = block->Forward(x, pass);
  return x;
}

Rtmsa::Rtmsa(Builder& builder, const Tmsag::Options& options) {
  Tmsag::Options group = options;
  group.name += ".residual_group";
  residual_group = register_module("residual_group", std::make_shared<Tmsag>(builder, group));
  linear = register_module("linear", MakeLinear(options.width, options.width));
}

Tensor Rtmsa::Forward(const Tensor& x, const Pass& pass) const {
  return AddLinear(*linear, residual_group->Forward(x, pass), x);
}

}  // namespace lockstep::models::vrt
