// The variants of TAEHV as rows of data, their frame arithmetic, and which variant a weight file is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "models/taehv.h"

namespace lockstep::models {
namespace {

bool SameShapes(const TaehvConfig& a, const TaehvConfig& b) {
  return a.patch == b.patch && a.latent == b.latent && a.encoder_time == b.encoder_time &&
         a.decoder_time == b.decoder_time && a.encoder_width == b.encoder_width && a.decoder_width == b.decoder_width;
}

// Reads a file's configuration off the shapes of its tensors; false when it is no TAEHV at all.
bool Describe(const NamedTensors& weights, TaehvConfig* found) {
  std::map<std::string, at::Tensor> by_name(weights.begin(), weights.end());
  auto size = [&](const std::string& name, int dim) -> int {
    auto it = by_name.find(name);
    return it == by_name.end() || it->second.dim() != 4 ? 0 : int(it->second.size(dim));
  };
  while (3 * found->patch * found->patch < size("encoder.0.weight", 1)) ++found->patch;
  found->latent = size("encoder.17.weight", 0);
  found->encoder_width[0] = size("encoder.0.weight", 0);
  found->decoder_width[0] = size("decoder.1.weight", 0);
  for (int i = 0; i < 3; ++i) {
    found->encoder_width[i + 1] = size(fmt::format("encoder.{}.weight", 3 + 5 * i), 0);
    found->decoder_width[i + 1] = size(fmt::format("decoder.{}.weight", 8 + 6 * i), 0);
    int pooled = size(fmt::format("encoder.{}.conv.weight", 2 + 5 * i), 1);
    int grown = size(fmt::format("decoder.{}.conv.weight", 7 + 6 * i), 0);
    if (found->encoder_width[i] == 0 || found->decoder_width[i] == 0) return false;
    found->encoder_time[i] = pooled / found->encoder_width[i];
    found->decoder_time[i] = grown / found->decoder_width[i];
  }
  return found->latent > 0 && found->encoder_width[3] > 0 && found->decoder_width[3] > 0;
}

std::string Advise(const NamedTensors& weights) {
  for (const auto& [name, tensor] : weights) {
    if (name == "decoder.0.weight")
      return "this is a _super decoder, which is not supported; use the plain variant's file";
  }
  TaehvConfig found;
  if (!Describe(weights, &found)) return "this is not a TAEHV weight file, or a part of one";
  std::vector<std::string> names;
  for (const TaehvConfig& variant : TaehvVariants()) {
    if (SameShapes(variant, found)) names.push_back(variant.name);
  }
  std::string what = fmt::format("the file is patch {}, {} latent channels, time /{}, decoder width {}", found.patch,
                                 found.latent, found.TimeDown(), found.decoder_width[0]);
  if (names.empty()) return what + ": no variant is like that";
  return fmt::format("{}; use recipe.model={}", what, fmt::join(names, " or "));
}

// A decoder that makes fewer frames per step keeps the rows of the last ones.
std::optional<at::Tensor> KeepLastRows(const std::string& name, const at::Tensor& have, at::IntArrayRef want) {
  bool grows = name == "decoder.7.conv.weight" || name == "decoder.13.conv.weight" || name == "decoder.19.conv.weight";
  if (!grows || have.dim() != 4 || want.size() != 4 || have.size(0) <= want[0] || have.size(0) % want[0] != 0 ||
      have.sizes().slice(1) != want.slice(1)) {
    return std::nullopt;
  }
  return have.narrow(0, have.size(0) - want[0], want[0]);
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
  return Status(Code::kUsage, fmt::format("there is no TAEHV variant '{}'", name),
                fmt::format("use one of {}", fmt::join(names, ", ")));
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
  if (frames < 1) {
    return Status(Code::kUsage, fmt::format("{}: clips of {} frames: at least 1 is needed", name, frames));
  }
  return Status::Ok();
}

Status Taehv::Load(const NamedTensors& weights) {
  return LoadWeights(*this, weights, {.fit = KeepLastRows, .advise = Advise}).Context(config_.name);
}

}  // namespace lockstep::models
