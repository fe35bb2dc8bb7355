// What can be configured about VRT, and the rules between keys.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "media/load_vrt.h"
#include "recipes/vrt.h"

namespace lockstep::recipes {
namespace {

void DeclareShape(ConfigReader& r, VrtSettings* s) {
  std::vector<std::string> names;
  for (const models::VrtConfig& variant : models::VrtVariants()) names.push_back(variant.name);
  r.Choice("model", &s->model, names,
           {.help = "shape: small, or that of a shipped option file (006); the next keys change it"});
  r.Field("in_channels", &s->in_channels, {.min = 1, .help = "unset: 3, and the spike channels where they are used"});
  r.Field("upscale", &s->upscale, {.min = 1, .max = 8});
  r.Field("img_size", &s->img_size, {.min = 1, .help = "frames, height and width of a training clip"});
  r.Field("window", &s->window, {.min = 1, .help = "of attention: frames, height, width"});
  r.Field("depths", &s->depths, {.min = 1, .help = "blocks of the 7 stages and of the groups of the last one"});
  r.Field("indep_reconsts", &s->indep_reconsts, {.min = 0, .help = "groups whose windows are one frame deep"});
  r.Field("embed_dims", &s->embed_dims, {.min = 1});
  r.Field("heads", &s->heads, {.min = 1});
  r.Field("pa_frames", &s->pa_frames, {.min = 0, .max = 6, .help = "neighbours that are warped and fused: 2, 4 or 6"});
  r.Field("deformable_groups", &s->deformable_groups, {.min = 1});
  r.Field("nonblind_denoising", &s->nonblind_denoising, {.help = "one more input channel: the noise level"});
  r.Field("drop_path", &s->drop_path, {.min = 0, .max = 0.9, .help = "rate of the last block; unset: the shape's"});
}

void DeclareFusion(ConfigReader& f, VrtSettings* s) {
  models::FusionConfig& c = s->fusion;
  f.Choice("operator", &s->fusion_operator, {"concat", "gated", "pase", "pase_residual", "attention"},
           {.help = "concat: spikes are further input channels; else an adapter makes 3 channels of RGB and spikes"});
  f.When(s->fuses(), "recipe.fusion.operator is concat: there is no adapter", [&] {
    f.Choice("mode", &s->fusion_mode, {"replace"}, {.help = "VRT gets what the adapter gives"});
    f.Field("out_channels", &s->fusion_out_channels, {.min = 3, .max = 3});
    f.Choice("frames", &c.frame_contract, {"operator_default", "expanded", "collapsed"},
             {.help = "expanded: a frame for every spike channel; collapsed: one for all"});
    f.Field("reducer_index", &c.reduce_index, {.min = 0, .help = "which of the expanded frames is the result"});
    f.Field("hidden", &c.hidden_chans, {.min = 1});
    f.Field("features", &c.feature_chans, {.min = 1});
    f.Field("kernel", &c.kernel_size, {.min = 1});
    f.Field("normalize_kernel", &c.normalize_kernel);
    f.Field("alpha", &c.alpha_init);
    f.Field("gate_bias", &c.gate_bias_init);
    f.Field("token_dim", &c.token_dim, {.min = 1});
    f.Field("token_stride", &c.token_stride, {.min = 1});
    f.Field("layers", &c.num_layers, {.min = 1});
    f.Field("warmup", &s->fusion_warmup, {.help = "steps in which the adapter trains its last layers alone"});
    f.Section("loss", [&](ConfigReader& l) {
      l.Field("restored", &s->restored_loss,
              {.help = "of what VRT gives; false: the adapter alone is computed and trained"});
      l.Field("fused", &s->fused_loss, {.min = 0, .help = "weight of the distance of what the adapter gives"});
      l.Field("passthrough", &s->passthrough,
              {.min = 0, .help = "weight of the adapter's distance from its RGB input, at first"});
      l.Field("passthrough_end", &s->passthrough_end, {.min = 0, .help = "the same after passthrough_steps"});
      l.Field("passthrough_steps", &s->passthrough_steps, {.help = "steps from one to the other"});
      l.Field("update", &s->update_penalty, {.min = 0, .help = "weight of how much the adapter changes"});
      if (!s->restored_loss && s->fused_loss == 0)
        l.Fail("fused", "without the loss of what VRT gives it must be above 0");
    });
  });
}

}  // namespace

void VrtSettings::Declare(ConfigReader& r) {
  DeclareShape(r, this);
  r.Choice("task", &task, {"restore", "denoise", "interpolate"},
           {.help = "denoise: the input is the target with noise; interpolate: every second frame, the one between"});
  r.Field("spynet", &spynet, {.help = "file of SpyNet's weights, for a model that starts without them"});
  r.Section("recompute", [this](ConfigReader& c) {
    c.Field("attention", &recompute_attention,
            {.help = "attention of the blocks is computed again in backward; unset: as the shape"});
    c.Field("ffn", &recompute_ffn, {.help = "the same of the feed-forward parts"});
    c.Field("keep_attention", &keep_attention, {.min = 0, .help = "stages (0 to 10) whose activations stay"});
    c.Field("keep_ffn", &keep_ffn, {.min = 0});
  });
  r.Section("fusion", [this](ConfigReader& f) { DeclareFusion(f, this); });
  r.Section("lora", [this](ConfigReader& l) {
    l.Field("rank", &lora.rank, {.min = 0, .max = 65536, .help = "of A and B beside each chosen matrix; 0: no LoRA"});
    l.When(lora.on(), "recipe.lora.rank is 0: there is no LoRA", [&] {
      l.Field("alpha", &lora.alpha, {.above = 0, .help = "B A counts alpha / rank"});
      l.Field("targets", &lora.targets, {.min_items = 1, .help = "globs over the blocks' matrices: *qkv*, *proj*"});
      l.Field("also", &lora_also, {.help = "globs of other parameters that train beside LoRA: *spynet*"});
    });
  });
  r.Choice("loss", &loss, {"charbonnier", "l1", "l2"}, {.help = "computed in float32"});
  r.Field("loss_weight", &loss_weight, {.above = 0});
  r.When(loss == "charbonnier", "only charbonnier has it",
         [this, &r] { r.Field("epsilon", &epsilon, {.above = 0, .help = "sqrt(difference^2 + epsilon)"}); });
  r.Section("noise", [this](ConfigReader& n) {
    n.When(task == "denoise", "only task denoise adds noise", [&] {
      n.Field("min", &noise_min, {.min = 0, .max = 255, .help = "standard deviation, in levels of 255"});
      n.Field("max", &noise_max, {.min = 0, .max = 255});
      n.Field("test", &noise_test, {.min = 0, .max = 255, .help = "in validation"});
      if (noise_max < noise_min) n.Fail("max", fmt::format("is below min {}", noise_min));
    });
  });
  r.Field("partial", &partial, {.help = "weights may lack parameters, which keep their initial values"});
  r.Section("test", [this](ConfigReader& t) {
    t.Field("frames", &test.frames, {.min = 0, .help = "of a window of validation and restoration; 0: whole clips"});
    t.Field("frame_overlap", &test.frame_overlap, {.min = 0});
    t.Field("tile", &test.tile, {.min = 0, .help = "pixels of the input; 0: whole frames"});
    t.Field("tile_overlap", &test.tile_overlap, {.min = 0});
    t.Field("tile_batch", &test.batch, {.min = 1, .help = "tiles at once"});
  });
}

Result<models::VrtConfig> VrtSettings::Shape(const data::SpikeInput& spikes) const {
  Result<models::VrtConfig> found = models::FindVrt(model);
  if (!found.ok()) return found.status().Context("recipe.model");
  models::VrtConfig shape = *found;
  const int64_t given = 3 + (spikes.use && !fuses() ? spikes.form.channels : 0);
  shape.in_chans = in_channels.value_or(given);
  if (shape.in_chans != given) {
    return Status(Code::kUsage,
                  fmt::format("recipe.in_channels is {}, and the data have {} channels{}: the first layer would get {} "
                              "instead of {}",
                              shape.in_chans, given,
                              fuses()      ? " after the adapter"
                              : spikes.use ? fmt::format(" (3 of RGB, {} of spikes)", spikes.form.channels)
                                           : " (RGB; data.spikes.use is false)",
                              9 * given, 9 * shape.in_chans),
                  "leave recipe.in_channels out, or change data.spikes");
  }
  shape.upscale = upscale.value_or(shape.upscale);
  shape.pa_frames = pa_frames.value_or(interpolates() ? 0 : shape.pa_frames);
  shape.deformable_groups = deformable_groups.value_or(shape.deformable_groups);
  shape.img_size = img_size.value_or(shape.img_size);
  shape.window_size = window.value_or(shape.window_size);
  shape.depths = depths.value_or(shape.depths);
  shape.indep_reconsts = indep_reconsts.value_or(shape.indep_reconsts);
  shape.embed_dims = embed_dims.value_or(shape.embed_dims);
  shape.num_heads = heads.value_or(shape.num_heads);
  shape.nonblind_denoising = nonblind_denoising.value_or(shape.nonblind_denoising);
  shape.drop_path_rate = drop_path.value_or(shape.drop_path_rate);
  shape.use_checkpoint_attn = recompute_attention.value_or(shape.use_checkpoint_attn);
  shape.use_checkpoint_ffn = recompute_ffn.value_or(shape.use_checkpoint_ffn);
  shape.no_checkpoint_attn_blocks = keep_attention.value_or(shape.no_checkpoint_attn_blocks);
  shape.no_checkpoint_ffn_blocks = keep_ffn.value_or(shape.no_checkpoint_ffn_blocks);
  LOCKSTEP_RETURN_IF_ERROR(shape.Check().Context("recipe"));
  return shape;
}

void VrtRecipe::Defaults(engine::Config* config) {
  engine::TrainConfig& train = config->train;
  train.steps = 2000;
  train.batch = 8;
  train.optimizer.kind = engine::OptimizerConfig::Kind::kAdam;
  train.optimizer.lr = 4e-4;
  train.optimizer.beta2 = 0.99;
  train.optimizer.weight_decay = 0;
  train.clip_norm = 0;
  config->data.validation.every = 500;
  config->checkpoint.every = 500;
  // Clips as large as the shape was made for; of a shape that cannot be, Check says why.
  if (const auto found = models::FindVrt(settings_.model); found.ok()) {
    const std::array<int64_t, 3> size = settings_.img_size.value_or(found->img_size);
    const int64_t scale = settings_.upscale.value_or(found->upscale);
    data_.train.frames = static_cast<int>(size[0]);
    data_.train.crop = static_cast<int>(size[1] * scale);
    data_.train.scale = static_cast<int>(scale);
  }
  data_.train.interpolate = settings_.interpolates();
}

void VrtRecipe::DeclareData(ConfigReader& reader, engine::DataConfig* data) { DeclarePairedData(reader, &data_, data); }

Status VrtRecipe::Check(engine::Config* config) {
  Result<models::VrtConfig> shape = settings_.Shape(data_.train.spikes);
  if (!shape.ok()) return shape.status();
  shape_ = *shape;
  if ((shape_.pa_frames == 0) != settings_.interpolates()) {
    return Status(
        Code::kUsage,
        fmt::format("recipe.task is {} and recipe.pa_frames {}: a model for interpolation, and no other, has 0",
                    settings_.task, shape_.pa_frames),
        shape_.pa_frames == 0 ? "set recipe.task: interpolate, or recipe.pa_frames: 2" : "leave recipe.pa_frames out");
  }
  if (settings_.interpolates() && !settings_.spynet.empty()) {
    return Status(Code::kUsage,
                  fmt::format("recipe.spynet is {}, and a model for interpolation has no SpyNet", settings_.spynet),
                  "leave recipe.spynet out");
  }
  if (settings_.interpolates() && (data_.train.spikes.use || settings_.fuses())) {
    return Status(Code::kUsage, "recipe.task is interpolate, and spikes are asked for: it takes RGB alone",
                  "set data.spikes.use: false and recipe.fusion.operator: concat");
  }
  if (shape_.nonblind_denoising && settings_.task != "denoise") {
    return Status(Code::kUsage, "recipe.nonblind_denoising needs recipe.task: denoise, which knows the noise level");
  }
  if (config->train.parameters == at::kBFloat16 && shape_.pa_frames > 0) {
    return Status(Code::kUsage, "train.parameters is bf16, and SpyNet is computed in float32 with float32 parameters",
                  "set train.parameters=fp32: train.precision: bf16 alone computes the rest in bf16");
  }
  if (data_.train.scale != shape_.upscale) {
    return Status(Code::kUsage,
                  fmt::format("data.scale is {} and recipe.upscale {}: the target would have another size "
                              "than the output",
                              data_.train.scale, shape_.upscale),
                  "give both the same value");
  }
  if (settings_.fuses()) {
    if (!data_.train.spikes.use) {
      return Status(
          Code::kUsage,
          fmt::format("recipe.fusion.operator is {}, and data.spikes.use is false", settings_.fusion_operator),
          "set data.spikes.use: true, or the operator to concat");
    }
    settings_.fusion.op = settings_.fusion_operator;
    settings_.fusion.spike_bins = data_.train.spikes.form.channels;
    LOCKSTEP_RETURN_IF_ERROR(settings_.fusion.Check().Context("recipe.fusion"));
    if (settings_.fusion_warmup > 0) {
      const models::FusionAdapter adapter(settings_.fusion);
      // Before the groups of the configuration, the first that matches counts.
      std::vector<engine::GroupRule> groups;
      for (const auto& item : adapter.named_parameters()) {
        if (models::TrainsInWarmup(settings_.fusion, models::FusionWarmup::kWritebackOnly, kAdapter + item.key()))
          continue;
        groups.push_back({.match = kAdapter + item.key(), .freeze_until = settings_.fusion_warmup});
      }
      config->train.groups.insert(config->train.groups.begin(), groups.begin(), groups.end());
    }
  }
  // Windows of 4 pixels at an eighth of the size.
  if (shrunk_) data_.train.crop = std::min<int>(data_.train.crop, static_cast<int>(32 * shape_.upscale));
  if (data_.train.crop > 0) {
    const int64_t side = data_.train.crop / shape_.upscale;
    const int64_t own = data_.train.SampleFrames();
    const int64_t frames = settings_.fuses() ? settings_.fusion.BackboneFrames(own) : own;
    LOCKSTEP_RETURN_IF_ERROR(shape_.CheckClip(frames, side, side).Context("data.frames, data.crop"));
  }
  data_.train.spikes.all = config->data.bad_samples == 0;
  settings_.test.scale = shape_.upscale;
  settings_.test.window = shape_.ClipMultiples();
  settings_.test.least = shape_.LeastClip();
  LOCKSTEP_RETURN_IF_ERROR(settings_.test.Check(/*flags=*/false));
  if (shape_.use_checkpoint_attn || shape_.use_checkpoint_ffn) config->train.recompute = true;
  whole_clips_ = data_.Test().has_value() && !shrunk_;
  if (whole_clips_) config->data.validation.batch = 1;  // clips differ in length
  return Status::Ok();
}

// What restoring with the weights must do with spikes.
engine::RecipeState VrtRecipe::Save() {
  engine::RecipeState state;
  const data::SpikeInput& spikes = data_.train.spikes;
  if (spikes.use) state.values["spikes"] = media::SpikesToJson({spikes.form, spikes.sensor});
  return state;
}

// A tiny shape with the same inputs and parts.
void VrtRecipe::Shrink(engine::Config* config) {
  shrunk_ = true;
  config->train.batch = std::min<uint64_t>(config->train.batch, 2);
  settings_.model = "tiny";
  settings_.window = {2, 4, 4};  // of crops of 32: a step takes a third of a second
  for (auto* list : {&settings_.depths, &settings_.indep_reconsts, &settings_.embed_dims, &settings_.heads})
    list->reset();
  settings_.deformable_groups.reset();
  settings_.img_size.reset();
  settings_.spynet.clear();
  settings_.keep_attention.reset();
  settings_.keep_ffn.reset();
  data_.train.frames = settings_.interpolates() ? 2 : std::min(data_.train.frames, 3);
  data_.train.repeat_last = 0;
  if (data_.train.kind == "generated") data_.train.clips = std::min<uint64_t>(data_.train.clips, 16);
}

}  // namespace lockstep::recipes
