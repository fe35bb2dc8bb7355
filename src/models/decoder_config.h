// The shape of a decoder-only language model of the Qwen2.5 family, and its form in Hugging Face's config.json. Plain
// values, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace lockstep::models {

struct DecoderConfig {
  int64_t vocabulary = 256;  // vocab_size
  int64_t width = 256;       // hidden_size
  int64_t layers = 4;        // num_hidden_layers
  int64_t heads = 4;         // num_attention_heads
  int64_t kv_heads = 2;      // num_key_value_heads; heads / kv_heads queries share a key and a value
  int64_t mlp = 704;         // intermediate_size
  double rope_theta = 1e6;
  double norm_epsilon = 1e-6;  // rms_norm_eps
  bool tied = true;            // tie_word_embeddings: the head's weight is the embedding's
  bool qkv_bias = true;        // false: the layout that Hugging Face calls "llama"
  int64_t positions = 32768;   // max_position_embeddings; a bound that is written down, not enforced

  bool operator==(const DecoderConfig&) const = default;

  int64_t HeadSize() const { return width / heads; }
  // Whether such a model can be built; the message names the field.
  Status Check() const;
  int64_t ParameterCount() const;

  // As Hugging Face's config.json: model_type "qwen2" ("llama" without qkv_bias). `dtype` is that of the weights beside
  // it: "float32", "bfloat16" or "float16".
  nlohmann::json ToJson(const std::string& dtype = "float32") const;
  // Also from the config.json of transformers 5. An error names what this model does not have (scaled rotary
  // embeddings, a sliding window in use, another activation, quantization) instead of ignoring it.
  static Result<DecoderConfig> FromJson(const nlohmann::json& json);

  // "tiny" (1 M parameters, for CPUs), "124m", and the published "qwen2.5-0.5b", "-1.5b", "-3b", "-7b".
  static const std::map<std::string, DecoderConfig>& Named();
};

}  // namespace lockstep::models
