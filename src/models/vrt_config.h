// The shape of a VRT (video restoration transformer, JingyunLiang/VRT), under the names of upstream's constructor and
// of KAIR's option files ("netG"). Plain values, any thread.
//
//   VrtConfig config = *FindVrt("006");
//   config.in_chans = 4;  // RGB and one spike channel
//   LOCKSTEP_RETURN_IF_ERROR(config.Check());
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::models {

struct VrtConfig {
  std::string name = "custom";
  int64_t upscale = 1;  // 1, 3 or a power of two; frames come out this much larger
  int64_t in_chans = 3;
  int64_t out_chans = 3;
  std::array<int64_t, 3> img_size{6, 192, 192};  // frames, height, width of a training clip
  std::array<int64_t, 3> window_size{6, 8, 8};
  std::vector<int64_t> depths{8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4};
  std::vector<int64_t> indep_reconsts{9, 10};  // groups of stage 8 whose windows are one frame deep
  std::vector<int64_t> embed_dims{96, 96, 96, 96, 96, 96, 96, 120, 120, 120, 120};
  std::vector<int64_t> num_heads{6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6};
  double mul_attn_ratio = 0.75;  // of the blocks of stages 1 to 7: mutual and self attention; the rest: self attention
  double mlp_ratio = 2;
  bool qkv_bias = true;
  double qk_scale = 0;  // 0: 1 / sqrt(head size)
  double drop_path_rate = 0.2;
  int64_t pa_frames = 2;  // neighbours that are warped and fused: 2, 4 or 6; 0: none (interpolation)
  int64_t deformable_groups = 16;
  bool recal_all_flows = false;  // read and kept; upstream's forward does not use it either
  bool nonblind_denoising = false;
  // Activation recomputation: blocks of the stages (0 to 6) and of stage 8's groups (7, 8, ...) but for the exceptions.
  // Attention of the self-attention blocks of stages 1 to 7 is always recomputed, as upstream does.
  bool use_checkpoint_attn = false, use_checkpoint_ffn = false;
  std::vector<int64_t> no_checkpoint_attn_blocks, no_checkpoint_ffn_blocks;

  bool operator==(const VrtConfig&) const = default;

  // Whether such a model can be built; the message names the field.
  Status Check() const;
  // Frames, height and width that it takes at least, and what sizes are multiples of when clips are padded for it.
  std::array<int64_t, 3> LeastClip() const;
  std::array<int64_t, 3> ClipMultiples() const;
  // Whether it can run on clips of this size.
  Status CheckClip(int64_t frames, int64_t height, int64_t width) const;

  // Channels of a clip that Forward takes: those of in_chans and, for non-blind denoising, the noise level.
  int64_t InputChannels() const { return in_chans + (nonblind_denoising ? 1 : 0); }
  // Input channels of conv_first: with neighbours, four nearest pixels from each of both sides.
  int64_t FirstChannels() const { return (pa_frames > 0 ? 9 * in_chans : in_chans) + (nonblind_denoising ? 1 : 0); }
  bool RecomputesAttention(int64_t group) const;
  bool RecomputesMlp(int64_t group) const;
  // DropPath rates of all blocks, sum(depths) of them.
  std::vector<double> DropPathRates() const;
};

// Frames lose half of their height and width this often (stages 2, 3 and 4).
constexpr int64_t kVrtSmallest = 8;

// The models of the shipped option files, "001" to "009"; "006-spike" is S-VRT's 006 with a spike channel, "small" a
// model for CPUs, "tiny" one for tests.
const std::vector<VrtConfig>& VrtVariants();
Result<VrtConfig> FindVrt(const std::string& name);

// Every field. From JSON, absent fields keep their default; one that is unknown is an error with the nearest name.
nlohmann::json ToJson(const VrtConfig& config);
Result<VrtConfig> VrtFromJson(const nlohmann::json& json);

}  // namespace lockstep::models
