#include "models/decoder_layers.h"

#include <string>

#include "models/decoder_fused.h"

namespace lockstep::models::decoder {

Linear::Linear(const Allocate& allocate, int64_t in, int64_t out, bool with_bias) {
  weight = register_parameter("weight", allocate({out, in}));
  if (with_bias) bias = register_parameter("bias", allocate({out}));
}

at::Tensor Linear::Forward(const at::Tensor& x) const {
  const at::Tensor y = at::linear(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
  if (!lora_a.defined()) return y;
  const at::Tensor input = lora_dropout_ > 0 && is_training() ? at::dropout(x, lora_dropout_, true) : x;
  return at::add(y, at::linear(at::linear(input, lora_a), lora_b), lora_scale_);
}

void Linear::AddLora(int64_t rank, double scale, double dropout) {
  const auto options = weight.options().requires_grad(false);
  lora_a = register_parameter("lora_A", at::empty({rank, weight.size(1)}, options), /*requires_grad=*/false);
  lora_b = register_parameter("lora_B", at::empty({weight.size(0), rank}, options), /*requires_grad=*/false);
  lora_scale_ = scale;
  lora_dropout_ = dropout;
}

at::Tensor Linear::Merged() const {
  if (!lora_a.defined()) return weight;
  return at::addmm(weight.to(at::kFloat), lora_b.to(at::kFloat), lora_a.to(at::kFloat), 1, lora_scale_);
}

Attention::Attention(const Allocate& allocate, const DecoderConfig& config) : head_size(config.HeadSize()) {
  const int64_t kv = config.kv_heads * head_size;
  const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
    return register_module(name, std::make_shared<Linear>(allocate, in, out, bias));
  };
  q_proj = linear("q_proj", config.width, config.width, config.qkv_bias);
  k_proj = linear("k_proj", config.width, kv, config.qkv_bias);
  v_proj = linear("v_proj", config.width, kv, config.qkv_bias);
  o_proj = linear("o_proj", config.width, config.width, false);
}

at::Tensor Attention::Forward(const at::Tensor& x, const Pass& pass, const LayerCache* cache) const {
  const auto heads = [&](const Linear& linear) { return linear.Forward(x).unflatten(2, {-1, head_size}); };
  const at::Tensor q = Rotate(heads(*q_proj), pass.rotary);
  const at::Tensor k = Rotate(heads(*k_proj), pass.rotary);
  const at::Tensor v = heads(*v_proj);
  if (cache == nullptr) return o_proj->Forward(Attend(q, k, v, pass.plan));
  const int64_t fresh = x.size(1), all = cache->length + fresh;
  cache->keys.narrow(2, cache->length, fresh).copy_(k.transpose(1, 2));
  cache->values.narrow(2, cache->length, fresh).copy_(v.transpose(1, 2));
  return o_proj->Forward(AttendCached(q, cache->keys.narrow(2, 0, all), cache->values.narrow(2, 0, all)));
}

Mlp::Mlp(const Allocate& allocate, const DecoderConfig& config) {
  gate_proj = register_module("gate_proj", std::make_shared<Linear>(allocate, config.width, config.mlp, false));
  up_proj = register_module("up_proj", std::make_shared<Linear>(allocate, config.width, config.mlp, false));
  down_proj = register_module("down_proj", std::make_shared<Linear>(allocate, config.mlp, config.width, false));
}

at::Tensor Mlp::Forward(const at::Tensor& x) const {
  return down_proj->Forward(SwiGlu(gate_proj->Forward(x), up_proj->Forward(x)));
}

Layer::Layer(const Allocate& allocate, const DecoderConfig& config) : epsilon(config.norm_epsilon) {
  self_attn = register_module("self_attn", std::make_shared<Attention>(allocate, config));
  mlp = register_module("mlp", std::make_shared<Mlp>(allocate, config));
  const auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<Weight>(allocate, at::IntArrayRef{config.width}));
  };
  input_layernorm = norm("input_layernorm");
  post_attention_layernorm = norm("post_attention_layernorm");
}

at::Tensor Layer::Forward(const at::Tensor& x, const Pass& pass, const LayerCache* cache) const {
  if (cache == nullptr && Fuses(*this, x, pass)) return FusedLayer(*this, x, pass);
  const at::Tensor attended = self_attn->Forward(RmsNorm(x, input_layernorm->weight, epsilon), pass, cache);
  const auto [sum, normed] = AddRmsNorm(x, attended, post_attention_layernorm->weight, epsilon);
  return sum + mlp->Forward(normed);
}

Body::Body(const Allocate& allocate, const DecoderConfig& config) {
  embed_tokens = register_module("embed_tokens",
                                 std::make_shared<Weight>(allocate, at::IntArrayRef{config.vocabulary, config.width}));
  auto list = register_module("layers", std::make_shared<torch::nn::Module>());
  for (int64_t i = 0; i < config.layers; ++i) {
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<Layer>(allocate, config)));
  }
  norm = register_module("norm", std::make_shared<Weight>(allocate, at::IntArrayRef{config.width}));
}

}  // namespace lockstep::models::decoder
