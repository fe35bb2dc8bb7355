// Option files of KAIR and S-VRT (JSON with comments) as configurations of the recipe `vrt`. A pure function of the
// text: every key of the file is honoured (it means the same here), mapped (the same thing under another form, with a
// note), ignored (with the reason) or refused (training does not start, with the reason). A key that the table
// (kair_keys.cc) does not have is an error with the nearest name, file and line; so is a value of another type. Any
// thread.
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

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/config_tree.h"
#include "base/status.h"

namespace lockstep::recipes {

struct KairNote {
  std::string key;     // in the option file: "datasets.train.gt_size"
  std::string value;   // as written there; empty for secrets
  std::string to;      // keys of ours; may be empty
  std::string reason;  // what it means here, or why not
  int line = 0;
};

struct KairDerived {
  std::string name, value, reason;
};

struct KairTranslation {
  std::string file, task;
  ConfigNode settings;  // our configuration, sections and all
  std::vector<KairNote> honoured, mapped, ignored, refused;
  std::vector<KairDerived> derived;  // global batch, bytes of a sample, phases

  // What was refused, as one error; Ok where nothing was.
  Status Check() const;
  // Our own form, a configuration file of the recipe; with the lists as comments above it.
  std::string Yaml() const;
  // honoured[], mapped[], ignored[], refused[], derived[] and config, one JSON document.
  std::string Json() const;
  // The lists for people.
  std::string Table(const std::string& prefix) const;
};

// `file` names the text in errors.
Result<KairTranslation> TranslateKair(std::string_view text, const std::string& file);

// A row of the table, for tests and docs.
struct KairKey {
  enum class Fate { kHonoured, kMapped, kIgnored, kRefused, kSecret };
  std::string path;  // "datasets.*.gt_size": of train and test
  char type = 'x';   // b bool, i integer, n number, s string, l list, g integer or list, o keys, x anything; or null
  Fate fate = Fate::kIgnored;
  bool copied = false;               // the value goes to `to` as it is
  std::string to;                    // our key; of a test set below data.test
  std::vector<std::string> allowed;  // other values are refused; empty: all are allowed
  std::string why;
};
const std::vector<KairKey>& KairKeys();

}  // namespace lockstep::recipes
