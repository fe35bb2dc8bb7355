// Option files of KAIR and S-VRT (JSON with comments) as configurations of the recipe `vrt`: a pure function of the
// text, and the table kair_keys.cc. What becomes of keys: foreign/translation.h. Any thread.
//
// Keys of the recipe that a translation sets, besides train.*, checkpoint.*, track.* and run.seed, which every recipe
// has:
//
//   data.kind            folders | lmdb           data.target, data.input      folders of frames
//   data.meta_info       list of clips            data.partition               REDS4 | official
//   data.frames          of a clip                data.crop                    of the target; 0: whole frames
//   data.scale           target / input           data.intervals               list
//   data.random_reverse, data.hflip, data.rotate  augmentation
//   data.starts          every | clip             samples: every frame begins one, or one for each clip (Vimeo)
//   data.spikes.use, .path, .height, .width, .flip, .form, .channels, .half_window, .middle, .precomputed,
//               .precomputed_path
//   data.test.*          kind, target, input, meta_info, spikes.path: the clips that validate, whole
//   recipe.task          restore | denoise
//   recipe.in_channels, recipe.upscale, recipe.img_size, recipe.window, recipe.depths, recipe.indep_reconsts,
//   recipe.embed_dims, recipe.heads, recipe.pa_frames, recipe.deformable_groups, recipe.nonblind_denoising
//   recipe.spynet        file of the optical flow's weights
//   recipe.recompute.attention, .ffn, .keep_attention, .keep_ffn     stages (0 to 10) whose activations stay
//   recipe.fusion.operator        concat | gated | pase | pase_residual | attention; concat is early concatenation
//   recipe.fusion.mode, .out_channels, .frames (expanded | collapsed | operator_default), .reducer_index, .hidden,
//                .features, .kernel, .normalize_kernel, .alpha, .gate_bias, .token_dim, .token_stride, .layers
//   recipe.fusion.loss.restored, .fused, .passthrough, .passthrough_end, .passthrough_steps, .update
//   recipe.fusion.warmup                          steps of the adapter's last layers alone
//   recipe.lora.rank, .alpha, .targets, .also     rank 0: none
//   recipe.loss, recipe.loss_weight, recipe.epsilon
//   recipe.noise.min, .max, .test                 of denoising, in levels of 255
//   recipe.partial                                weights may lack parameters
//   phases               list of {steps, optimizer: keep | fresh, and what differs}: one after another in one run
//   recipe.test.frames, .frame_overlap, .tile, .tile_overlap, .tile_batch     tiles of validation and restoration
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "foreign/translation.h"

namespace lockstep::recipes {

using KairKey = foreign::KeyRow;
using KairNote = foreign::Note;
using KairDerived = foreign::Derived;

struct KairTranslation : foreign::Translation {
  std::string task;
  // honoured[], mapped[], ignored[], refused[], derived[] and config, one JSON document.
  std::string Json() const;
};

// `file` names the text in errors.
Result<KairTranslation> TranslateKair(std::string_view text, const std::string& file);

// The table.
const std::vector<KairKey>& KairKeys();

}  // namespace lockstep::recipes
