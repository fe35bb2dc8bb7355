#include "plan/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace lockstep::plan {
namespace {

using nlohmann::json;

// f(key, field) for every number of a sample: one list for writing and reading.
template <typename S, typename F>
void EachOfLm(S& s, F f) {
  f("vocabulary", s.vocabulary), f("width", s.width), f("layers", s.layers), f("heads", s.heads);
  f("kv_heads", s.kv_heads), f("mlp", s.mlp), f("length", s.length), f("tied", s.tied), f("bias", s.bias);
  f("lora", s.lora);
}

template <typename S, typename F>
void EachOfTaehv(S& s, F f) {
  f("frames", s.frames), f("height", s.height), f("width", s.width), f("patch", s.patch), f("latent", s.latent);
  f("encoder_time", s.encoder_time), f("decoder_time", s.decoder_time), f("decoder_space", s.decoder_space);
  f("encoder_width", s.encoder_width), f("decoder_width", s.decoder_width), f("super", s.super);
}

Status Wrong(const std::string& what) {
  return Status(Code::kInternal, "the description of the model: " + what, "use programs of one version");
}

int64_t Sum(const std::vector<Parameter>& parameters, bool trained) {
  int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.trained == trained ? parameter.numel : 0;
  return sum;
}

}  // namespace

int64_t Workload::trained() const { return Sum(parameters, true); }
int64_t Workload::frozen() const { return Sum(parameters, false); }

Workload LmWorkload(const std::string& name, const LmSample& s) {
  Workload workload{.name = name, .drawn_in_parts = true, .sample = s};
  const int first = s.tied ? 0 : 1;
  if (!s.tied) workload.units.emplace_back("embed");
  const auto add = [&](const std::string& parameter, int64_t numel, int unit) {
    workload.parameters.push_back({parameter, numel, unit});
  };
  add("model.embed_tokens.weight", s.vocabulary * s.width, s.tied ? -1 : 0);
  const int64_t kv = s.kv_heads * s.HeadSize();
  for (int64_t i = 0; i < s.layers; ++i) {
    const int unit = first + static_cast<int>(i);
    const std::string layer = fmt::format("model.layers.{}.", i);
    workload.units.push_back(fmt::format("layers.{}", i));
    for (const auto& [which, out] : {std::pair("q_proj", s.width), {"k_proj", kv}, {"v_proj", kv}}) {
      add(fmt::format("{}self_attn.{}.weight", layer, which), out * s.width, unit);
      if (s.bias) add(fmt::format("{}self_attn.{}.bias", layer, which), out, unit);
    }
    add(layer + "self_attn.o_proj.weight", s.width * s.width, unit);
    for (const char* which : {"gate_proj", "up_proj", "down_proj"}) {
      add(fmt::format("{}mlp.{}.weight", layer, which), s.mlp * s.width, unit);
    }
    add(layer + "input_layernorm.weight", s.width, unit);
    add(layer + "post_attention_layernorm.weight", s.width, unit);
  }
  add("model.norm.weight", s.width, first + static_cast<int>(s.layers) - 1);
  if (!s.tied) {
    workload.units.emplace_back("head");
    add("lm_head.weight", s.vocabulary * s.width, first + static_cast<int>(s.layers));
  }
  return workload;
}

LmSample LmOfSize(int64_t parameters, int64_t vocabulary, int64_t length) {
  LmSample best;
  double nearest = -1;
  for (int64_t heads = 1; heads <= 512; ++heads) {
    LmSample s{.vocabulary = vocabulary, .width = 128 * heads, .heads = heads, .kv_heads = heads, .length = length};
    s.bias = false;
    s.mlp = (s.width * 8 / 3 + 127) / 128 * 128;
    const auto left = static_cast<double>(parameters - vocabulary * s.width);
    const auto each = static_cast<double>(4 * s.width * s.width + 3 * s.mlp * s.width);
    s.layers = std::max<int64_t>(1, std::llround(left / each));
    const double size = static_cast<double>(vocabulary * s.width) + each * static_cast<double>(s.layers);
    // How far off the size is, and how far from 128 times as wide as deep.
    const double off = 100 * std::abs(std::log(size / static_cast<double>(parameters))) +
                       std::abs(std::log(static_cast<double>(s.width) / (128.0 * static_cast<double>(s.layers))));
    if (nearest >= 0 && off >= nearest) continue;
    nearest = off;
    best = s;
  }
  return best;
}

json ToJson(const Workload& workload) {
  json parameters = json::array();
  for (const Parameter& p : workload.parameters) {
    parameters.push_back({p.name, p.numel, p.unit, p.trained, p.bytes});
  }
  json out = {{"name", workload.name},
              {"parameters", std::move(parameters)},
              {"units", workload.units},
              {"drawn_in_parts", workload.drawn_in_parts},
              {"notes", workload.notes}};
  const auto put = [](json* to) { return [to](const char* key, const auto& value) { (*to)[key] = value; }; };
  if (const auto* lm = std::get_if<LmSample>(&workload.sample)) EachOfLm(*lm, put(&out["lm"]));
  if (const auto* taehv = std::get_if<TaehvSample>(&workload.sample)) EachOfTaehv(*taehv, put(&out["taehv"]));
  return out;
}

Result<Workload> WorkloadFromJson(const json& from) {
  if (!from.is_object() || !from.contains("parameters")) return Wrong("expected an object with 'parameters'");
  Workload workload;
  try {
    workload.name = from.at("name").get<std::string>();
    workload.units = from.at("units").get<std::vector<std::string>>();
    workload.drawn_in_parts = from.at("drawn_in_parts").get<bool>();
    workload.notes = from.at("notes").get<std::vector<std::string>>();
    for (const json& p : from.at("parameters")) {
      workload.parameters.push_back({p.at(0).get<std::string>(), p.at(1).get<int64_t>(), p.at(2).get<int>(),
                                     p.at(3).get<bool>(), p.at(4).get<int>()});
    }
    const auto take = [](const json& of) { return [&of](const char* key, auto& value) { of.at(key).get_to(value); }; };
    if (from.contains("lm")) EachOfLm(workload.sample.emplace<LmSample>(), take(from["lm"]));
    if (from.contains("taehv")) EachOfTaehv(workload.sample.emplace<TaehvSample>(), take(from["taehv"]));
  } catch (const json::exception& error) {
    return Wrong(error.what());
  }
  return workload;
}

}  // namespace lockstep::plan
