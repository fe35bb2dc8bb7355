// The modules inside a Decoder, nested and named as Hugging Face's, and what all layers of one pass share.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <vector>

#include "models/decoder_attention.h"
#include "models/decoder_config.h"
#include "models/decoder_ops.h"

namespace lockstep::models::decoder {

// Makes the tensor of a parameter.
using Allocate = std::function<at::Tensor(at::IntArrayRef shape)>;

struct Linear : torch::nn::Module {
  Linear(const Allocate& allocate, int64_t in, int64_t out, bool with_bias);
  at::Tensor Forward(const at::Tensor& x) const;
  // From now on with `scale` * B A beside the weight (models/lora.h). Both are memory that is not filled, without
  // gradients.
  void AddLora(int64_t rank, double scale, double dropout);
  // The weight with its LoRA added, in float32; the weight itself where it has none.
  at::Tensor Merged() const;
  at::Tensor weight, bias;
  at::Tensor lora_a, lora_b;  // undefined without LoRA

 private:
  double lora_scale_ = 0, lora_dropout_ = 0;
};

// A weight alone: norms, the embedding.
struct Weight : torch::nn::Module {
  Weight(const Allocate& allocate, at::IntArrayRef shape) { weight = register_parameter("weight", allocate(shape)); }
  at::Tensor weight;
};

// What the layers of one pass have in common.
struct Pass {
  Rotary rotary;
  AttentionPlan plan;
  bool gradients_in_place = false;  // see Decoder::AddGradientsInPlace
  // Layers that, on a GPU, compute gate and up again in backward: what the last layers keep is there while logits take
  // the most memory.
  std::vector<const struct Layer*> recompute_mlp;
};

// Keys and values of one layer so far: [B, kv heads, capacity, size], the first `length` in use.
struct LayerCache {
  at::Tensor keys, values;
  int64_t length = 0;
};

struct Attention : torch::nn::Module {
  Attention(const Allocate& allocate, const DecoderConfig& config);
  at::Tensor Forward(const at::Tensor& x, const Pass& pass, const LayerCache* cache) const;
  int64_t head_size;
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;
};

struct Mlp : torch::nn::Module {
  Mlp(const Allocate& allocate, const DecoderConfig& config);
  at::Tensor Forward(const at::Tensor& x) const;
  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;
};

struct Layer : torch::nn::Module {
  Layer(const Allocate& allocate, const DecoderConfig& config);
  // With a cache, x continues it: its keys and values are written there (the caller moves `length`).
  at::Tensor Forward(const at::Tensor& x, const Pass& pass, const LayerCache* cache = nullptr) const;
  double epsilon;
  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<Mlp> mlp;
  std::shared_ptr<Weight> input_layernorm, post_attention_layernorm;
};

struct Body : torch::nn::Module {
  Body(const Allocate& allocate, const DecoderConfig& config);
  std::shared_ptr<Weight> embed_tokens, norm;
  std::vector<std::shared_ptr<Layer>> layers;
};

}  // namespace lockstep::models::decoder
