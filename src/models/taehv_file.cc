#include "models/taehv_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "base/safetensors.h"

namespace lockstep::models {
namespace {

constexpr const char* kModelKey = "lockstep.model";
constexpr const char* kConfigKey = "lockstep.taehv";

bool SameShapes(const TaehvConfig& a, const TaehvConfig& b) {
  // How much a plain decoder enlarges leaves no trace in its weights.
  return a.patch == b.patch && a.latent == b.latent && a.encoder_time == b.encoder_time &&
         a.decoder_time == b.decoder_time && a.encoder_width == b.encoder_width && a.decoder_width == b.decoder_width &&
         a.super == b.super && (!a.super || a.decoder_space == b.decoder_space);
}

constexpr const char* kFirst = "encoder.0.weight";

// Where models begin: "" or what training scripts wrap weights in ("state_dict.", "module.").
std::vector<std::string> Prefixes(const NamedTensors& weights) {
  std::vector<std::string> prefixes;
  for (const auto& [name, tensor] : weights) {
    if (name == kFirst) return {""};
    if (name.ends_with(std::string(".") + kFirst)) prefixes.push_back(name.substr(0, name.rfind(kFirst)));
  }
  return prefixes;
}

// Training scripts store other things beside the weights: when there is one model, what has its prefix is all of it.
NamedTensors Unwrap(const NamedTensors& weights) {
  const std::vector<std::string> prefixes = Prefixes(weights);
  if (prefixes.size() != 1 || prefixes[0].empty()) return weights;
  NamedTensors inner;
  for (const auto& [name, tensor] : weights) {
    if (name.starts_with(prefixes[0])) inner.emplace_back(name.substr(prefixes[0].size()), tensor);
  }
  return inner;
}

// A file with weights and their average: which of them is meant, it does not say. "" when it is not one of those.
std::string Several(const NamedTensors& weights) {
  std::vector<std::string> prefixes = Prefixes(weights);
  if (prefixes.size() < 2) return "";
  for (std::string& prefix : prefixes) prefix.pop_back();
  return fmt::format("it holds {} models: '{}'", prefixes.size(), fmt::join(prefixes, "', '"));
}

constexpr const char* kSaveOne = "save the one you want alone, in Python: torch.save(torch.load(path)[NAME], new_path)";

// Reads a file's configuration off the shapes of its tensors; nothing when it is no TAEHV.
std::optional<TaehvConfig> Describe(const NamedTensors& weights) {
  std::map<std::string, at::Tensor> by_name(weights.begin(), weights.end());
  bool complete = true;
  auto size = [&](const std::string& name, int dim) -> int {
    auto it = by_name.find(name);
    bool found = it != by_name.end() && it->second.dim() == 4 && it->second.size(dim) > 0;
    complete = complete && found;
    return found ? int(it->second.size(dim)) : 1;
  };
  TaehvConfig config{.name = "custom"};
  while (3 * config.patch * config.patch < size("encoder.0.weight", 1)) ++config.patch;
  complete = complete && 3 * config.patch * config.patch == size("encoder.0.weight", 1);
  config.super = by_name.contains("decoder.0.weight");
  config.latent = size("encoder.17.weight", 0);
  config.encoder_width[0] = size("encoder.0.weight", 0);
  config.decoder_width[0] = size(config.super ? "decoder.0.weight" : "decoder.1.weight", 0);
  for (int i = 0; i < 3; ++i) {
    config.encoder_width[i + 1] = size(fmt::format("encoder.{}.weight", 3 + 5 * i), 0);
    config.encoder_time[i] = size(fmt::format("encoder.{}.conv.weight", 2 + 5 * i), 1) / config.encoder_width[i];
    std::string grow = fmt::format("decoder.{}.conv.weight", config.super ? 7 + 7 * i : 7 + 6 * i);
    config.decoder_time[i] = size(grow, 0) / size(grow, 1);
    if (config.super) {
      config.decoder_width[i + 1] = size(grow, 1);
      int enlarged = size(fmt::format("decoder.{}.weight", 4 + 7 * i), 0) / config.decoder_width[i + 1];
      config.decoder_space[i] = enlarged >= 4 ? 2 : 1;
    } else {
      config.decoder_width[i + 1] = size(fmt::format("decoder.{}.weight", 8 + 6 * i), 0);
    }
  }
  for (int time : config.encoder_time) complete = complete && time > 0;
  for (int time : config.decoder_time) complete = complete && time > 0;
  if (!complete) return std::nullopt;
  return config;
}

std::string Looks(const TaehvConfig& config) {
  return fmt::format("patch {}, {} latent channels, time /{}, {}decoder width {}", config.patch, config.latent,
                     config.TimeDown(), config.super ? "_super " : "", config.decoder_width[0]);
}

// Variants (and their _super forms) with these shapes, in the order of the table.
std::vector<TaehvConfig> Candidates(const TaehvConfig& found) {
  std::vector<TaehvConfig> same;
  for (const TaehvConfig& row : TaehvVariants()) {
    if (SameShapes(row, found)) same.push_back(row);
  }
  for (const TaehvConfig& row : TaehvVariants()) {
    if (row.super || !found.super) continue;
    TaehvConfig wide = *FindTaehv(row.name + "_super");
    if (SameShapes(wide, found) &&
        std::none_of(same.begin(), same.end(), [&](const auto& it) { return it.name == wide.name; })) {
      same.push_back(wide);
    }
  }
  return same;
}

std::vector<std::string> Names(const std::vector<TaehvConfig>& configs) {
  std::vector<std::string> names;
  for (const TaehvConfig& config : configs) names.push_back(config.name);
  return names;
}

std::string Advise(const TaehvConfig& wanted, const NamedTensors& weights) {
  if (const std::string several = Several(weights); !several.empty()) return fmt::format("{}; {}", several, kSaveOne);
  std::optional<TaehvConfig> found = Describe(weights);
  if (found && SameShapes(wanted, *found)) {
    return fmt::format("the file is {} otherwise: it is not complete, or holds more than the model", wanted.name);
  }
  if (!found) return "this is not a TAEHV weight file, or a part of one";
  std::vector<TaehvConfig> same = Candidates(*found);
  if (same.empty()) return fmt::format("the file is {}: no variant is like that", Looks(*found));
  return fmt::format("the file is {}; its variant (recipe.model, --variant) is {}", Looks(*found),
                     fmt::join(Names(same), " or "));
}

// A decoder that makes fewer frames per step keeps the rows of the last ones.
std::optional<at::Tensor> KeepLastRows(const TaehvConfig& config, const std::string& name, const at::Tensor& have,
                                       at::IntArrayRef want) {
  bool grows = false;
  for (int i = 0; i < 3; ++i) {
    grows = grows || name == fmt::format("decoder.{}.conv.weight", config.super ? 7 + 7 * i : 7 + 6 * i);
  }
  if (!grows || have.dim() != 4 || want.size() != 4 || have.size(0) <= want[0] || have.size(0) % want[0] != 0 ||
      have.sizes().slice(1) != want.slice(1)) {
    return std::nullopt;
  }
  return have.narrow(0, have.size(0) - want[0], want[0]);
}

}  // namespace

Status Taehv::Load(const NamedTensors& weights) {
  auto fit = [this](const std::string& name, const at::Tensor& have, at::IntArrayRef want) {
    return KeepLastRows(config_, name, have, want);
  };
  auto advise = [this](const NamedTensors& given) { return Advise(config_, given); };
  return LoadWeights(*this, Unwrap(weights), {.fit = fit, .advise = advise}).Context(config_.name);
}

Result<TaehvConfig> RecognizeTaehv(const NamedTensors& weights, const std::string& file_name,
                                   const std::map<std::string, std::string>& metadata, std::string* note) {
  std::string unused;
  std::string& said = note != nullptr ? *note : unused;
  said.clear();
  std::optional<TaehvConfig> found = Describe(Unwrap(weights));
  if (const std::string several = Several(weights); !several.empty()) {
    return Status(Code::kUsage, fmt::format("{}: {}, expected one", file_name, several), kSaveOne);
  }
  if (!found) {
    return Status(Code::kUsage, fmt::format("{}: this is not a TAEHV weight file, or a part of one", file_name),
                  "expected tensors encoder.0.weight to encoder.17.bias and those of a decoder");
  }
  if (auto stored = metadata.find(kConfigKey); stored != metadata.end()) {
    Result<nlohmann::json> json = ParseJson(stored->second, kConfigKey);
    if (!json.ok()) return json.status().Context(file_name);
    Result<TaehvConfig> config = TaehvFromJson(*json);
    if (!config.ok()) return config.status().Context(fmt::format("{}: {}", file_name, kConfigKey));
    if (!SameShapes(*config, *found)) {
      return Status(Code::kUsage, fmt::format("{}: it says it is {} ({}), but its tensors are {}", file_name,
                                              config->name, Looks(*config), Looks(*found)));
    }
    return config;
  }
  std::string base = file_name.substr(file_name.rfind('/') + 1);  // all of it where there is no slash
  std::vector<TaehvConfig> same = Candidates(*found);
  if (same.empty()) {
    // The rest of a behaviour that shapes do not show, as upstream's names tell it.
    for (const TaehvConfig& row : TaehvVariants()) {
      if (base.find(row.name) == std::string::npos || !(row.cogvideox || row.chunk > 0)) continue;
      found->cogvideox = row.cogvideox;
      found->chunk = row.chunk;
      found->chunk_drop = row.chunk_drop;
    }
    said = fmt::format("no variant is like this file ({}); it is taken as it is", Looks(*found));
    return *found;
  }
  const TaehvConfig* named = nullptr;
  for (const TaehvConfig& row : same) {
    std::string plain = row.super ? row.name.substr(0, row.name.size() - 6) : row.name;
    if (base.find(plain) != std::string::npos && (named == nullptr || row.name.size() > named->name.size())) {
      named = &row;
    }
  }
  if (named != nullptr) return *named;
  if (same.size() > 1) {
    said = fmt::format("the file may be {}; neither it nor its name says which: taken as {}",
                       fmt::join(Names(same), " or "), same[0].name);
  }
  return same[0];
}

std::string ConversionReport::Summary() const {
  std::string text =
      fmt::format("{} of {} tensors taken", taken.size() + cut.size(), taken.size() + cut.size() + drawn.size());
  AppendNames(text, "cut to their last rows", cut);
  AppendNames(text, "newly drawn", drawn);
  AppendNames(text, "not used", unused);
  return text;
}

Status StartFrom(Taehv& model, const NamedTensors& weights, ConversionReport* report) {
  ConversionReport local;
  ConversionReport& said = report != nullptr ? *report : local;
  said = {};
  NamedTensors inner = Unwrap(weights);
  std::map<std::string, at::Tensor> given(inner.begin(), inner.end());
  bool other_decoder = given.contains("decoder.0.weight") != model.config().super;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, own] : StateDict(model)) {
    auto it = given.find(name);
    if (it == given.end() || (other_decoder && name.starts_with("decoder."))) {
      said.drawn.push_back(fmt::format("{} ({})", name, it == given.end() ? "not in the file" : "another decoder"));
      continue;
    }
    at::Tensor tensor = it->second;
    given.erase(it);
    bool fits = tensor.is_floating_point() && tensor.sizes() == own.sizes();
    if (fits) {
      said.taken.push_back(name);
    } else if (auto rows = KeepLastRows(model.config(), name, tensor, own.sizes());
               rows && tensor.is_floating_point()) {
      said.cut.push_back(name);
      tensor = *rows;
      fits = true;
    } else {
      said.drawn.push_back(fmt::format("{} (file [{}], model [{}])", name, fmt::join(tensor.sizes(), ", "),
                                       fmt::join(own.sizes(), ", ")));
    }
    if (fits) copies.emplace_back(own, tensor);
  }
  for (const auto& [name, tensor] : given) said.unused.push_back(name);
  size_t all = copies.size() + said.drawn.size();
  if (copies.size() * 2 < all) {
    return Status(
        Code::kUsage,
        fmt::format("{}: too little of the file fits to start from it: {}", model.config().name, said.Summary()),
        Advise(model.config(), inner));
  }
  torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : inner) LOCKSTEP_RETURN_IF_ERROR(CheckFinite(name, tensor));
  for (auto& [own, tensor] : copies) own.copy_(tensor);
  return Status::Ok();
}

Status ExportTaehv(const Taehv& model, const std::string& path, Dtype dtype) {
  at::ScalarType type = dtype == Dtype::kF16 ? at::kHalf : dtype == Dtype::kBF16 ? at::kBFloat16 : at::kFloat;
  if (dtype != Dtype::kF16 && dtype != Dtype::kBF16 && dtype != Dtype::kF32) {
    return Status(Code::kUsage, fmt::format("{}: weights cannot be exported as {}", path, DtypeName(dtype)),
                  "use F32, F16 or BF16");
  }
  torch::NoGradGuard no_grad;
  std::vector<TensorSpec> specs;
  NamedTensors tensors;
  for (const auto& [name, own] : StateDict(model)) {
    at::Tensor tensor = own.detach().to(at::kCPU, type).contiguous();
    if (!tensor.isfinite().all().item<bool>()) {
      bool before = own.isfinite().all().item<bool>();
      return Status(Code::kUsage,
                    before ? fmt::format("{}: {} has values that {} cannot hold", path, name, DtypeName(dtype))
                           : fmt::format("{}: {} has values that are not finite", path, name),
                    before ? "export as F32 or BF16" : "export a checkpoint from before the training broke");
    }
    specs.push_back({name, dtype, tensor.sizes().vec()});
    tensors.emplace_back(name, tensor);
  }
  std::map<std::string, std::string> metadata = {
      {"format", "pt"}, {kModelKey, model.config().name}, {kConfigKey, ToJsonLine(ToJson(model.config()))}};
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, specs, metadata);
  if (!writer.ok()) return writer.status();
  for (const auto& [name, tensor] : tensors) {
    LOCKSTEP_RETURN_IF_ERROR(writer->Write(name, tensor.data_ptr(), tensor.nbytes()));
  }
  return writer->Finish();
}

}  // namespace lockstep::models
