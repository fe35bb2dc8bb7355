#include "models/vrt_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>

#include "base/text.h"

namespace lockstep::models {
namespace {

constexpr int64_t kStages = 7;  // before the groups of stage 8

Status VrtField(const std::string& what, const std::string& remedy) {
  return Status(Code::kUsage, "the description of a VRT model: " + what, remedy);
}

// Applies f(key, field) to every field: one list for writing and reading.
template <typename Config, typename F>
void ForEachVrtField(Config& c, F f) {
  f("name", c.name);
  f("upscale", c.upscale);
  f("in_chans", c.in_chans);
  f("out_chans", c.out_chans);
  f("img_size", c.img_size);
  f("window_size", c.window_size);
  f("depths", c.depths);
  f("indep_reconsts", c.indep_reconsts);
  f("embed_dims", c.embed_dims);
  f("num_heads", c.num_heads);
  f("mul_attn_ratio", c.mul_attn_ratio);
  f("mlp_ratio", c.mlp_ratio);
  f("qkv_bias", c.qkv_bias);
  f("qk_scale", c.qk_scale);
  f("drop_path_rate", c.drop_path_rate);
  f("pa_frames", c.pa_frames);
  f("deformable_groups", c.deformable_groups);
  f("recal_all_flows", c.recal_all_flows);
  f("nonblind_denoising", c.nonblind_denoising);
  f("use_checkpoint_attn", c.use_checkpoint_attn);
  f("use_checkpoint_ffn", c.use_checkpoint_ffn);
  f("no_checkpoint_attn_blocks", c.no_checkpoint_attn_blocks);
  f("no_checkpoint_ffn_blocks", c.no_checkpoint_ffn_blocks);
}

bool IsWhole(const nlohmann::json& json) { return json.is_number_integer(); }

template <typename T>
bool ReadVrtField(const nlohmann::json& json, T* value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return false;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return false;
  } else if constexpr (std::is_same_v<T, double>) {
    if (!json.is_number()) return false;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (!IsWhole(json)) return false;
  } else {  // a list of whole numbers
    if (!json.is_array() || !std::all_of(json.begin(), json.end(), IsWhole)) return false;
    if constexpr (std::is_same_v<T, std::array<int64_t, 3>>) {
      if (json.size() != 3) return false;
    }
  }
  *value = json.get<T>();
  return true;
}

bool Contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Status CheckDims(const VrtConfig& c) {
  for (size_t i = 0; i < c.embed_dims.size(); ++i) {
    const int64_t dim = c.embed_dims[i], heads = c.num_heads[i];
    if (dim < 1 || heads < 1 || c.depths[i] < 1) {
      return VrtField(
          fmt::format("entry {} of embed_dims, num_heads and depths is {}, {}, {}", i, dim, heads, c.depths[i]),
          "use positive numbers");
    }
    if (dim % heads != 0) {
      return VrtField(fmt::format("num_heads[{}] = {} does not divide embed_dims[{}] = {}", i, heads, i, dim),
                      "use a number of heads that divides the width");
    }
    if (i < kStages && dim % 4 != 0) {
      return VrtField(fmt::format("embed_dims[{}] = {} is not a multiple of 4", i, dim),
                      "position codes and upsampling of stages 1 to 7 need multiples of 4");
    }
  }
  for (size_t i = kStages + 1; i < c.embed_dims.size(); ++i) {
    if (c.embed_dims[i] == c.embed_dims[kStages]) continue;
    return VrtField(fmt::format("embed_dims[{}] = {} and embed_dims[{}] = {} differ", kStages, c.embed_dims[kStages], i,
                                c.embed_dims[i]),
                    "groups of stage 8 follow one another without a change of width: give them the same");
  }
  for (size_t i = 0; i < 3; ++i) {
    if (c.embed_dims[i] == c.embed_dims[6 - i]) continue;
    return VrtField(fmt::format("embed_dims[{}] = {} and embed_dims[{}] = {} differ", i, c.embed_dims[i], 6 - i,
                                c.embed_dims[6 - i]),
                    "stages of the same scale are added: give them the same width");
  }
  return Status::Ok();
}

Status CheckWarping(const VrtConfig& c) {
  if (c.pa_frames != 0 && c.pa_frames != 2 && c.pa_frames != 4 && c.pa_frames != 6) {
    return VrtField(fmt::format("pa_frames is {}", c.pa_frames),
                    "use 2, 4 or 6 neighbours (as many before as after a frame), or 0 for interpolation");
  }
  if (c.pa_frames == 0) {
    if (c.upscale != 1 || c.nonblind_denoising) {
      return VrtField("pa_frames 0 (interpolation) goes with upscale 1 and without nonblind_denoising",
                      "set pa_frames to 2, 4 or 6");
    }
    if (c.out_chans % 3 != 0)
      return VrtField("out_chans is not a multiple of 3", "frames that are made have 3 channels");
    return Status::Ok();
  }
  const int64_t sides = c.pa_frames / 2;
  if (c.deformable_groups < 1) return VrtField("deformable_groups is below 1", "use 16");
  if (c.pa_frames == 4 && c.deformable_groups % 2 != 0) {
    return VrtField(fmt::format("deformable_groups = {} is odd with pa_frames = 4", c.deformable_groups),
                    "half of the groups follow each of two frames: use an even number");
  }
  for (size_t i = 0; i < kStages; ++i) {
    if (c.embed_dims[i] * sides % c.deformable_groups == 0 && c.embed_dims[i] % sides == 0) continue;
    return VrtField(fmt::format("deformable_groups = {} and pa_frames = {} do not divide embed_dims[{}] = {}",
                                c.deformable_groups, c.pa_frames, i, c.embed_dims[i]),
                    "use a number of groups that divides the width times pa_frames / 2");
  }
  return Status::Ok();
}

}  // namespace

Status VrtConfig::Check() const {
  if (depths.size() < kStages + 1 || embed_dims.size() != depths.size() || num_heads.size() != depths.size()) {
    return VrtField(fmt::format("depths, embed_dims and num_heads have {}, {} and {} entries", depths.size(),
                                embed_dims.size(), num_heads.size()),
                    "give all three the same number: one for each of stages 1 to 7 and for each group of stage 8");
  }
  if (in_chans < 1 || out_chans < 1 || (pa_frames > 0 && (in_chans < 3 || out_chans > in_chans))) {
    return VrtField(fmt::format("in_chans is {} and out_chans is {}", in_chans, out_chans),
                    "the first 3 input channels are RGB: they give the optical flow, and the result is added to them");
  }
  const bool power = upscale > 0 && (upscale & (upscale - 1)) == 0;
  if (!power && upscale != 3) return VrtField(fmt::format("upscale is {}", upscale), "use 1, 2, 3, 4 or 8");
  for (size_t i = 0; i < 3; ++i) {
    if (window_size[i] < 1 || img_size[i] < 1) {
      return VrtField(fmt::format("window_size is {} and img_size is {}", window_size, img_size),
                      "use positive numbers");
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckDims(*this));
  LOCKSTEP_RETURN_IF_ERROR(CheckWarping(*this));
  for (const int64_t entry : indep_reconsts) {  // the lists of recomputation may name more, as upstream's
    if (entry >= 0 && entry < static_cast<int64_t>(depths.size())) continue;
    return VrtField(fmt::format("indep_reconsts names entry {}, depths has {}", entry, depths.size()),
                    "entries are counted from 0");
  }
  if (!(mul_attn_ratio >= 0 && mul_attn_ratio <= 1)) {
    return VrtField(fmt::format("mul_attn_ratio is {}", mul_attn_ratio), "use a number from 0 to 1");
  }
  if (!(drop_path_rate >= 0 && drop_path_rate < 1)) {
    return VrtField(fmt::format("drop_path_rate is {}", drop_path_rate), "use a number from 0 to below 1");
  }
  if (!(mlp_ratio > 0)) return VrtField(fmt::format("mlp_ratio is {}", mlp_ratio), "use a positive number");
  return CheckClip(img_size[0], img_size[1], img_size[2]).Context("img_size");
}

std::array<int64_t, 3> VrtConfig::LeastClip() const {
  const int64_t frames = pa_frames == 0 ? img_size[0] : std::max<int64_t>(2, pa_frames / 2 + 1);
  return {frames, kVrtSmallest * window_size[1], kVrtSmallest * window_size[2]};
}

std::array<int64_t, 3> VrtConfig::ClipMultiples() const {
  return {window_size[0], std::lcm(kVrtSmallest, window_size[1]), std::lcm(kVrtSmallest, window_size[2])};
}

Status VrtConfig::CheckClip(int64_t frames, int64_t height, int64_t width) const {
  const auto refused = [&](const std::string& what, const std::string& remedy) {
    return Status(Code::kUsage,
                  fmt::format("clips of {} frames of {}x{} do not fit VRT: {}", frames, height, width, what), remedy);
  };
  const int64_t least = LeastClip()[0];
  if (pa_frames > 0 && frames < least) {
    return refused(fmt::format("with pa_frames {} it takes {} frames or more", pa_frames, least), "use longer clips");
  }
  if (pa_frames == 0 && frames != least) {
    return refused(fmt::format("for interpolation the number of frames is that of img_size, {}", least),
                   "set img_size, or give as many frames");
  }
  for (const auto& [size, window, what] :
       {std::tuple(height, window_size[1], "height"), std::tuple(width, window_size[2], "width")}) {
    const int64_t smallest = kVrtSmallest * window;
    if (size % kVrtSmallest != 0) {
      return refused(
          fmt::format("the {} {} is not a multiple of {}, and it is halved three times", what, size, kVrtSmallest),
          size < smallest ? fmt::format("use {} or more", smallest)
                          : fmt::format("use {} or {}", size / kVrtSmallest * kVrtSmallest,
                                        (size / kVrtSmallest + 1) * kVrtSmallest));
    }
    if (size < smallest) {
      return refused(fmt::format("the {} {} is {} at the smallest scale, less than the window's {}", what, size,
                                 size / kVrtSmallest, window),
                     fmt::format("use {} or more, or smaller windows", smallest));
    }
  }
  return Status::Ok();
}

bool VrtConfig::RecomputesAttention(int64_t group) const {
  return use_checkpoint_attn && !Contains(no_checkpoint_attn_blocks, group);
}

bool VrtConfig::RecomputesMlp(int64_t group) const {
  return use_checkpoint_ffn && !Contains(no_checkpoint_ffn_blocks, group);
}

std::vector<double> VrtConfig::DropPathRates() const {
  const int64_t blocks = std::accumulate(depths.begin(), depths.end(), int64_t{0});
  std::vector<double> rates;
  for (int64_t i = 0; i < blocks; ++i) {
    rates.push_back(blocks > 1 ? drop_path_rate * static_cast<double>(i) / static_cast<double>(blocks - 1) : 0.0);
  }
  return rates;
}

const std::vector<VrtConfig>& VrtVariants() {
  using Size = std::array<int64_t, 3>;
  using List = std::vector<int64_t>;
  static const std::vector<VrtConfig> rows = [] {
    VrtConfig sr{.name = "001",
                 .upscale = 4,
                 .img_size = Size{6, 64, 64},
                 .depths = List{8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4},
                 .indep_reconsts = List{11, 12},
                 .embed_dims = List{120, 120, 120, 120, 120, 120, 120, 180, 180, 180, 180, 180, 180},
                 .num_heads = List(13, 6),
                 .deformable_groups = 12};
    VrtConfig long_sr = sr;
    long_sr.window_size = Size{8, 8, 8};
    long_sr.pa_frames = 4;
    long_sr.deformable_groups = 16;
    VrtConfig reds16 = long_sr, vimeo = long_sr;
    reds16.name = "002";
    reds16.img_size = Size{16, 64, 64};
    reds16.use_checkpoint_attn = true;
    reds16.no_checkpoint_attn_blocks = List{0, 1, 2, 3, 4, 5};
    vimeo.img_size = Size{8, 64, 64};
    VrtConfig deblur{.use_checkpoint_attn = true,
                     .use_checkpoint_ffn = true,
                     .no_checkpoint_attn_blocks = List{2, 3, 4},
                     .no_checkpoint_ffn_blocks = List{1, 2, 3, 4, 5, 9}};
    VrtConfig spike = deblur, denoise = deblur;
    spike.in_chans = 4;
    denoise.nonblind_denoising = true;
    VrtConfig interpolation{.img_size = Size{4, 192, 192},
                            .window_size = Size{4, 8, 8},
                            .indep_reconsts = List{},
                            .pa_frames = 0,
                            .use_checkpoint_attn = true,
                            .no_checkpoint_attn_blocks = List{1, 2, 3, 4, 5}};
    VrtConfig small{.img_size = Size{4, 64, 64},
                    .window_size = Size{4, 8, 8},
                    .depths = List{2, 2, 2, 2, 2, 2, 2, 2, 2},
                    .indep_reconsts = List{8},
                    .embed_dims = List{32, 32, 32, 32, 32, 32, 32, 40, 40},
                    .num_heads = List(9, 4),
                    .mul_attn_ratio = 0.5,
                    .drop_path_rate = 0,
                    .deformable_groups = 8};
    VrtConfig tiny{.img_size = Size{2, 64, 64},
                   .window_size = Size{2, 8, 8},
                   .depths = List(8, 2),
                   .indep_reconsts = List{},
                   .embed_dims = List(8, 8),
                   .num_heads = List(8, 2),
                   .mul_attn_ratio = 0.5,
                   .drop_path_rate = 0.1,
                   .deformable_groups = 4};
    const auto named = [](VrtConfig config, const char* name) {
      config.name = name;
      return config;
    };
    return std::vector<VrtConfig>{sr,
                                  reds16,
                                  named(vimeo, "003"),
                                  named(vimeo, "004"),
                                  named(deblur, "005"),
                                  named(deblur, "006"),
                                  named(deblur, "007"),
                                  named(denoise, "008"),
                                  named(interpolation, "009"),
                                  named(spike, "006-spike"),
                                  named(small, "small"),
                                  named(tiny, "tiny")};
  }();
  return rows;
}

Result<VrtConfig> FindVrt(const std::string& name) {
  std::vector<std::string> names;
  for (const VrtConfig& row : VrtVariants()) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  return Status(Code::kUsage, fmt::format("there is no VRT model '{}'{}", Printable(name), DidYouMean(name, names)),
                fmt::format("use one of {}", fmt::join(names, ", ")));
}

nlohmann::json ToJson(const VrtConfig& config) {
  nlohmann::json json = nlohmann::json::object();
  ForEachVrtField(config, [&](const char* key, const auto& value) { json[key] = value; });
  return json;
}

Result<VrtConfig> VrtFromJson(const nlohmann::json& json) {
  if (!json.is_object()) return VrtField("expected an object, found " + std::string(json.type_name()), "");
  VrtConfig config;
  std::vector<std::string> known;
  std::string wrong;
  ForEachVrtField(config, [&](const char* key, auto& value) {
    known.emplace_back(key);
    if (!json.contains(key) || ReadVrtField(json[key], &value)) return;
    wrong += fmt::format("{}{} is {}, expected a value like {}", wrong.empty() ? "" : "; ", key, json[key].dump(),
                         nlohmann::json(value).dump());
  });
  if (!wrong.empty()) return VrtField(wrong, "correct these fields");
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return VrtField(fmt::format("there is no field '{}'{}", Printable(key), DidYouMean(key, known)),
                    "correct its name");
  }
  LOCKSTEP_RETURN_IF_ERROR(config.Check());
  return config;
}

}  // namespace lockstep::models
