#include "models/decoder_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace lockstep::models {
namespace {

constexpr int64_t kQwenVocabulary = 151936;

Status WrongConfig(const std::string& what, std::string hint = "") { return {Code::kUsage, what, std::move(hint)}; }

Status NotOurs(const std::string& what) {
  return WrongConfig("config.json: " + what, "give a model of the Qwen2 or Llama layout without it");
}

struct ConfigInteger {
  const char* key;
  int64_t DecoderConfig::* field;
};
constexpr ConfigInteger kConfigIntegers[] = {
    {"vocab_size", &DecoderConfig::vocabulary},
    {"hidden_size", &DecoderConfig::width},
    {"num_hidden_layers", &DecoderConfig::layers},
    {"num_attention_heads", &DecoderConfig::heads},
    {"num_key_value_heads", &DecoderConfig::kv_heads},
    {"intermediate_size", &DecoderConfig::mlp},
    {"max_position_embeddings", &DecoderConfig::positions},
};

// The value of a key, or null where it is absent.
const nlohmann::json& ValueAt(const nlohmann::json& json, const char* key) {
  static const nlohmann::json none;
  const auto found = json.find(key);
  return found == json.end() ? none : *found;
}

// Rotary embeddings: `rope_theta` beside the other keys, or inside `rope_parameters` as transformers 5 writes it.
Status ReadRotary(const nlohmann::json& json, DecoderConfig* config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json& rope = ValueAt(json, key);
    if (rope.is_null()) continue;
    if (!rope.is_object())
      return WrongConfig(fmt::format("config.json: {} is {}, expected an object", key, rope.dump()));
    for (const char* name : {"rope_type", "type"}) {
      const nlohmann::json& type = ValueAt(rope, name);
      if (!type.is_null() && type != "default") return NotOurs(fmt::format("{} is {}", key, rope.dump()));
    }
    if (rope.contains("factor")) return NotOurs(fmt::format("{} is {}", key, rope.dump()));
    if (rope.contains("partial_rotary_factor") && rope["partial_rotary_factor"] != 1.0) {
      return NotOurs(fmt::format("{} is {}", key, rope.dump()));
    }
    if (ValueAt(rope, "rope_theta").is_number()) config->rope_theta = rope["rope_theta"];
  }
  if (ValueAt(json, "rope_theta").is_number()) config->rope_theta = json["rope_theta"];
  return Status::Ok();
}

// What would change the function and is not built here.
Status RefuseOthers(const nlohmann::json& json, const std::string& type) {
  if (ValueAt(json, "use_sliding_window") == true) return NotOurs("use_sliding_window is true");
  const nlohmann::json& layers = ValueAt(json, "layer_types");
  for (const nlohmann::json& layer : layers.is_array() ? layers : nlohmann::json::array()) {
    if (layer != "full_attention") return NotOurs(fmt::format("layer_types has {}", layer.dump()));
  }
  const nlohmann::json& activation = ValueAt(json, "hidden_act");
  if (!activation.is_null() && activation != "silu") return NotOurs("hidden_act is " + activation.dump());
  const nlohmann::json& dropout = ValueAt(json, "attention_dropout");
  if (dropout.is_number() && dropout != 0.0) return NotOurs("attention_dropout is " + dropout.dump());
  if (!ValueAt(json, "quantization_config").is_null()) return NotOurs("quantization_config is given");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (type == "llama" && ValueAt(json, key) == true) return NotOurs(fmt::format("{} is true", key));
  }
  return Status::Ok();
}

}  // namespace

Status DecoderConfig::Check() const {
  for (const ConfigInteger& integer : kConfigIntegers) {
    if (this->*integer.field < 1) {
      return WrongConfig(fmt::format("{} is {}, expected at least 1", integer.key, this->*integer.field));
    }
  }
  if (width % heads != 0) {
    return WrongConfig(fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", width, heads));
  }
  if (heads % kv_heads != 0) {
    return WrongConfig(
        fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", heads, kv_heads));
  }
  if (HeadSize() % 2 != 0) {
    return WrongConfig(
        fmt::format("the head size {} (hidden_size {} / num_attention_heads {}) is odd; rotary embeddings turn "
                    "pairs of values",
                    HeadSize(), width, heads));
  }
  if (!(rope_theta > 0)) return WrongConfig(fmt::format("rope_theta is {}, expected a positive number", rope_theta));
  if (!(norm_epsilon >= 0)) return WrongConfig(fmt::format("rms_norm_eps is {}, expected 0 or more", norm_epsilon));
  return Status::Ok();
}

int64_t DecoderConfig::ParameterCount() const {
  const int64_t kv = kv_heads * HeadSize();
  const int64_t attention = 2 * width * width + 2 * width * kv + (qkv_bias ? width + 2 * kv : 0);
  const int64_t layer = attention + 3 * width * mlp + 2 * width;
  return vocabulary * width * (tied ? 1 : 2) + layers * layer + width;
}

nlohmann::json DecoderConfig::ToJson(const std::string& dtype) const {
  nlohmann::json json = {
      {"architectures", {qkv_bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
      {"model_type", qkv_bias ? "qwen2" : "llama"},
      {"attention_dropout", 0.0},
      {"hidden_act", "silu"},
      {"initializer_range", 0.02},
      {"rms_norm_eps", norm_epsilon},
      {"rope_theta", rope_theta},
      {"tie_word_embeddings", tied},
      {"torch_dtype", dtype},
      {"use_cache", true},
  };
  if (qkv_bias) {
    json["use_sliding_window"] = false;
  } else {
    json["attention_bias"] = false;
    json["mlp_bias"] = false;
  }
  for (const ConfigInteger& integer : kConfigIntegers) json[integer.key] = this->*integer.field;
  return json;
}

Result<DecoderConfig> DecoderConfig::FromJson(const nlohmann::json& json) {
  if (!json.is_object()) return WrongConfig("config.json: expected an object");
  const nlohmann::json& type = ValueAt(json, "model_type");
  if (type != "qwen2" && type != "llama") {
    return WrongConfig(fmt::format("config.json: model_type is {}, expected \"qwen2\" or \"llama\"", type.dump()),
                       "give the folder of a Qwen2, Qwen2.5 or Llama model");
  }
  DecoderConfig config;
  config.qkv_bias = type == "qwen2";
  config.rope_theta = 10000;  // transformers' defaults for keys that are absent
  config.tied = false;
  LOCKSTEP_RETURN_IF_ERROR(RefuseOthers(json, type));
  LOCKSTEP_RETURN_IF_ERROR(ReadRotary(json, &config));
  for (const ConfigInteger& integer : kConfigIntegers) {
    const nlohmann::json& value = ValueAt(json, integer.key);
    if (value.is_null() && integer.field == &DecoderConfig::kv_heads) {
      config.kv_heads = config.heads;
      continue;
    }
    if (value.is_null() && integer.field == &DecoderConfig::positions) continue;
    if (!value.is_number_integer()) {
      return WrongConfig(fmt::format("config.json: {} is {}, expected an integer", integer.key, value.dump()));
    }
    config.*integer.field = value;
  }
  if (ValueAt(json, "rms_norm_eps").is_number()) config.norm_epsilon = json["rms_norm_eps"];
  if (ValueAt(json, "tie_word_embeddings").is_boolean()) config.tied = json["tie_word_embeddings"];
  const Status check = config.Check();
  if (!check.ok()) return check.Context("config.json");
  const nlohmann::json& head = ValueAt(json, "head_dim");
  if (head.is_number() && head != config.HeadSize()) {
    return NotOurs(
        fmt::format("head_dim is {}, hidden_size / num_attention_heads is {}", head.dump(), config.HeadSize()));
  }
  return config;
}

const std::map<std::string, DecoderConfig>& DecoderConfig::Named() {
  static const std::map<std::string, DecoderConfig> named = {
      {"tiny", {.width = 128, .mlp = 512, .rope_theta = 10000, .positions = 2048}},
      {"124m",
       {.vocabulary = 50304,
        .width = 768,
        .layers = 12,
        .heads = 12,
        .kv_heads = 12,
        .mlp = 2048,
        .rope_theta = 10000,
        .positions = 4096}},
      {"qwen2.5-0.5b",
       {.vocabulary = kQwenVocabulary, .width = 896, .layers = 24, .heads = 14, .kv_heads = 2, .mlp = 4864}},
      {"qwen2.5-1.5b",
       {.vocabulary = kQwenVocabulary,
        .width = 1536,
        .layers = 28,
        .heads = 12,
        .kv_heads = 2,
        .mlp = 8960,
        .positions = 131072}},
      {"qwen2.5-3b",
       {.vocabulary = kQwenVocabulary, .width = 2048, .layers = 36, .heads = 16, .kv_heads = 2, .mlp = 11008}},
      {"qwen2.5-7b",
       {.vocabulary = 152064,
        .width = 3584,
        .layers = 28,
        .heads = 28,
        .kv_heads = 4,
        .mlp = 18944,
        .tied = false,
        .positions = 131072}},
  };
  return named;
}

}  // namespace lockstep::models
