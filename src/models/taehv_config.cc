// The variants of TAEHV as rows of data, their frame arithmetic, and a configuration as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "models/taehv.h"
#include "models/taehv_file.h"

namespace lockstep::models {
namespace {

// Twice as wide up to the last stage, with SuperMemBlocks.
TaehvConfig Widened(TaehvConfig config) {
  config.name += "_super";
  config.super = true;
  for (int i = 0; i < 3; ++i) config.decoder_width[i] *= 2;
  return config;
}

// Applies f(key, field, least, most) to every number of a configuration: one list for writing and reading.
template <typename Config, typename F>
void ForEachNumber(Config& c, F f) {
  f("patch", c.patch, 1, 64);
  f("latent", c.latent, 1, 65536);
  f("encoder_time", c.encoder_time, 1, 16);
  f("decoder_time", c.decoder_time, 1, 16);
  f("decoder_space", c.decoder_space, 1, 2);
  f("encoder_width", c.encoder_width, 1, 65536);
  f("decoder_width", c.decoder_width, 1, 65536);
  f("chunk", c.chunk, 0, 65536);
  f("chunk_drop", c.chunk_drop, 0, 65536);
}

bool Read(const nlohmann::json& json, int* value, int least, int most) {
  if (!json.is_number_integer() || json.is_number_float()) return false;
  int64_t number = json.get<int64_t>();
  if (number < least || number > most) return false;
  *value = int(number);
  return true;
}

template <size_t kCount>
bool Read(const nlohmann::json& json, std::array<int, kCount>* values, int least, int most) {
  if (!json.is_array() || json.size() != kCount) return false;
  for (size_t i = 0; i < kCount; ++i) {
    if (!Read(json[i], &(*values)[i], least, most)) return false;
  }
  return true;
}

}  // namespace

const std::vector<TaehvConfig>& TaehvVariants() {
  using T = std::array<int, 3>;
  static const std::vector<TaehvConfig> rows = {
      {.name = "taehv"},
      {.name = "taew2_1"},
      {.name = "taeos1_3"},
      {.name = "taecvx", .cogvideox = true},
      {.name = "taehv1_5", .patch = 2, .latent = 32},
      {.name = "taew2_2", .patch = 2, .latent = 48},
      {.name = "taeh3", .patch = 2, .latent = 24, .chunk = 17, .chunk_drop = 3},
      {.name = "taeltx_2", .patch = 4, .latent = 128, .encoder_time = T{2, 2, 2}, .decoder_time = T{2, 2, 2}},
      {.name = "taeltx2_3", .patch = 4, .latent = 128, .encoder_time = T{2, 2, 2}, .decoder_time = T{2, 2, 2}},
      Widened({.name = "taehv1_5", .patch = 2, .latent = 32}),
      Widened({.name = "taew2_2", .patch = 2, .latent = 48}),
      // For CPUs; not upstream's.
      {.name = "taehv-small", .encoder_width = {16, 16, 16, 16}, .decoder_width = {64, 32, 16, 16}},
  };
  return rows;
}

Result<TaehvConfig> FindTaehv(const std::string& name) {
  std::vector<std::string> names;
  for (const TaehvConfig& variant : TaehvVariants()) {
    if (variant.name == name) return variant;
    names.push_back(variant.name);
  }
  constexpr std::string_view kSuper = "_super";
  if (name.ends_with(kSuper)) {
    for (const TaehvConfig& variant : TaehvVariants()) {
      if (!variant.super && variant.name == name.substr(0, name.size() - kSuper.size())) return Widened(variant);
    }
  }
  return Status(
      Code::kUsage, fmt::format("there is no TAEHV variant '{}'", name),
      fmt::format("use one of {}, or one of them with {} for the wide decoder", fmt::join(names, ", "), kSuper));
}

int64_t TaehvConfig::Latents(int64_t frames) const {
  auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  if (chunk > 0) return ceil_div(frames, chunk) * ceil_div(chunk, TimeDown()) - chunk_drop;
  return ceil_div(frames, TimeDown());
}

int64_t TaehvConfig::FramesOut(int64_t frames) const {
  int64_t latents = Latents(frames), trim = TimeUp() - 1;
  if (chunk > 0) return (latents + chunk_drop) * TimeUp() - (frames + chunk - 1) / chunk * trim - chunk_drop * TimeUp();
  return latents * TimeUp() - (cogvideox && latents % 2 == 0 ? 0 : trim);
}

Status TaehvConfig::Check(int64_t frames, int64_t height, int64_t width) const {
  int step = SpaceDown();
  if (height <= 0 || width <= 0 || height % step != 0 || width % step != 0) {
    auto near = [&](int64_t v) { return std::max<int64_t>(step, (v + step / 2) / step * step); };
    return Status(
        Code::kUsage,
        fmt::format("{}: frames of {}x{}: height and width must be multiples of {}", name, height, width, step),
        fmt::format("use {}x{}", near(height), near(width)));
  }
  if (SpaceUp() != SpaceDown() || TimeUp() != TimeDown()) {
    return Status(
        Code::kUsage,
        fmt::format("{}: a preview decoder (time x{}, space x{}, of /{} and /{}) gives other frames than it got", name,
                    TimeUp(), SpaceUp(), TimeDown(), SpaceDown()),
        "train with decoder_time and decoder_space as the variant has them");
  }
  if (frames < 1) {
    return Status(Code::kUsage, fmt::format("{}: clips of {} frames: at least 1 is needed", name, frames));
  }
  return Status::Ok();
}

nlohmann::json ToJson(const TaehvConfig& config) {
  nlohmann::json json = {{"name", config.name}, {"super", config.super}, {"cogvideox", config.cogvideox}};
  ForEachNumber(config, [&](const char* key, const auto& value, int, int) { json[key] = value; });
  return json;
}

Result<TaehvConfig> TaehvFromJson(const nlohmann::json& json) {
  auto refused = [](const std::string& what) {
    return Status(Code::kUsage, "the description of a TAEHV model: " + what,
                  "it was written by another version, or edited");
  };
  if (!json.is_object()) return refused("expected an object, found " + std::string(json.type_name()));
  TaehvConfig config;
  std::set<std::string> known = {"name", "super", "cogvideox"};
  std::string wrong;
  ForEachNumber(config, [&](const char* key, auto& value, int least, int most) {
    known.insert(key);
    if (json.contains(key) && !Read(json[key], &value, least, most)) {
      wrong += fmt::format("{}{} is {}, expected {} from {} to {}", wrong.empty() ? "" : "; ", key, json[key].dump(),
                           nlohmann::json(value).is_array() ? "whole numbers" : "a whole number", least, most);
    }
  });
  if (!wrong.empty()) return refused(wrong);
  for (const auto& [key, value] : json.items()) {
    if (!known.contains(key)) return refused(fmt::format("there is no field '{}'", key));
  }
  for (auto [key, flag] : {std::pair("super", &config.super), std::pair("cogvideox", &config.cogvideox)}) {
    if (!json.contains(key)) continue;
    if (!json[key].is_boolean()) return refused(fmt::format("{} is {}, expected true or false", key, json[key].dump()));
    *flag = json[key].get<bool>();
  }
  if (json.contains("name")) {
    if (!json["name"].is_string()) return refused("name is no text");
    config.name = json["name"].get<std::string>();
  }
  // Each chunk is encoded behind TimeDown() - 1 black frames and must then be whole latents.
  if (config.chunk > 0 && config.chunk % config.TimeDown() != 1 % config.TimeDown()) {
    return refused(
        fmt::format("chunk is {}, expected one more than a multiple of {}", config.chunk, config.TimeDown()));
  }
  if (config.chunk_drop > 0 && config.chunk_drop >= (config.chunk + config.TimeDown() - 1) / config.TimeDown()) {
    return refused(
        fmt::format("chunk_drop {} leaves nothing of a chunk of {} frames", config.chunk_drop, config.chunk));
  }
  return config;
}

}  // namespace lockstep::models
