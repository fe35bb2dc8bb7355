#include "recipes/paired_data.h"

#include <fmt/format.h>

#include "data/spike.h"

namespace lockstep::recipes {
namespace {

void DeclareSpikeKeys(ConfigReader& r, data::SpikeInput* spikes, bool generated) {
  data::SpikeForm& form = spikes->form;
  r.Field("use", &spikes->use, {.help = "the recipe gets spikes beside the input"});
  r.When(spikes->use && !generated, "only with use: true, and for kinds that read files", [&] {
    r.Field("path", &spikes->path, {.required = true, .help = "folder of CLIP/spike/FRAME.dat"});
    r.Field("height", &spikes->sensor.height, {.min = 1, .help = "of the sensor; checked against the size of files"});
    r.Field("width", &spikes->sensor.width, {.min = 1});
    r.Field("flip", &spikes->sensor.flip, {.help = "the file's last row is the picture's first"});
    r.Field("precomputed", &spikes->precomputed,
            {.help = "read arrays of `lockstep data prepare gopro-spike --artefacts` instead of .dat"});
    r.Field("precomputed_path", &spikes->precomputed_path, {.help = "where they lie; empty: beside the .dat files"});
  });
  r.When(spikes->use, "only with use: true", [&] {
    std::string kind = data::kSpikeKinds[static_cast<size_t>(form.kind)];
    r.Choice("form", &kind, data::kSpikeKinds, {.help = "how spikes become pictures (docs/formats/spikes.md)"});
    form.kind = data::SpikeKindByName(kind);
    r.Field("channels", &form.channels, {.min = 1, .help = "parts of the time, or steps of a raw window"});
    r.Field("half_window", &form.half_window, {.min = 1, .help = "steps on both sides of a centre (tfp, tfi)"});
    r.Field("middle", &form.middle, {.min = 0, .help = "middle step of middle_tfp"});
    r.Field("floats", &spikes->floats, {.help = "float32 as it was computed; else bytes"});
    if (const Status status = data::CheckForm(form); !status.ok()) r.Fail("channels", status.message());
  });
}

}  // namespace

std::optional<data::PairedConfig> PairedData::Test() const {
  if (test_target.empty()) return std::nullopt;
  data::PairedConfig test = train;
  test.kind = test_kind;
  test.target = test_target;
  test.input = test_input;
  test.meta_info = test_meta_info;
  test.spikes.path = test_spikes;
  test.spikes.precomputed_path = test_precomputed;
  if (test.target != train.target) test.partition.clear();  // clips of their own: all of them
  test.validation = true;
  test.crop = 0;
  if (!test.interpolate) test.frames = 1;
  test.repeat_last = 0;
  test.center = test_center;
  test.repeat_ends = test_repeat_ends;
  test.intervals = {1};
  test.color_jitter = 0;
  test.random_reverse = test.hflip = test.rotate = false;
  return test;
}

void DeclarePairedData(ConfigReader& r, PairedData* data, engine::DataConfig* engine) {
  data::PairedConfig& c = data->train;
  r.Choice("kind", &c.kind, data::kPairedKinds, {.help = "where pairs of clips come from"});
  const bool generated = c.kind == "generated";
  r.When(generated, "only for kind: generated", [&] {
    r.Field("clips", &c.clips, {.min = 2, .help = "number of generated scenes"});
    r.Field("clips_seed", &c.seed, {.help = "what they are drawn from"});
    r.Field("sensor_divisor", &c.sensor_divisor,
            {.min = 1, .max = 8, .help = "picture size / size of the spike sensor"});
  });
  r.When(!generated, "kind is generated: other kinds read files", [&] {
    r.Field("target", &c.target, {.required = true, .help = "folder of clips as they should be, or an .lmdb"});
    r.Field("input", &c.input,
            {.required = !c.interpolate, .help = "folder of degraded clips, or an .lmdb; of interpolation the target"});
    r.Field("meta_info", &c.meta_info, {.help = "list of clips, KAIR's or one name in a line; empty: all"});
    r.Field("partition", &c.partition, {.help = "REDS4 or official: clips of REDS that are not trained on"});
    r.Field("repeat_last", &c.repeat_last,
            {.min = 0, .help = "times that a sample's last frame follows again, to fill a window"});
    r.Field("intervals", &c.intervals, {.min = 1, .min_items = 1, .help = "distance of frames, drawn for each clip"});
    r.Enum("starts", &c.every_start, {{"every", true}, {"clip", false}},
           {.help = "every frame begins a sample, or one sample for each clip"});
    r.Section("test", [&](ConfigReader& t) {
      t.Choice("kind", &data->test_kind, {"folders", "lmdb"});
      t.Field("target", &data->test_target, {.help = "clips that validate, read whole; empty: a part of the others"});
      t.Field("input", &data->test_input);
      t.Field("meta_info", &data->test_meta_info);
      t.Section("spikes", [&](ConfigReader& s) {
        s.Field("path", &data->test_spikes);
        s.Field("precomputed_path", &data->test_precomputed);
      });
      t.When(c.interpolate, "only recipe.task interpolate has it", [&] {
        t.Field("center", &data->test_center, {.min = 0, .help = "height and width that count; 0: whole frames"});
        t.Field("repeat_ends", &data->test_repeat_ends,
                {.help = "the first and the last frame go on: every second frame of a clip is a target"});
      });
      if (!data->test_target.empty() && data->test_input.empty() && !c.interpolate) {
        t.Fail("input", "a test set needs an input");
      }
    });
  });
  r.Field("frames", &c.frames, {.min = 1, .help = "of one clip"});
  r.Field("crop", &c.crop, {.min = 0, .help = "square part of the target; 0: whole frames"});
  r.Field("scale", &c.scale, {.min = 1, .max = 8, .help = "size of the target / size of the input"});
  if (c.crop % c.scale != 0) r.Fail("crop", fmt::format("expected a multiple of scale {}", c.scale));
  r.Field("random_reverse", &c.random_reverse, {.help = "half of the clips backwards"});
  r.Field("hflip", &c.hflip, {.help = "horizontal flip of half of the clips"});
  r.Field("rotate", &c.rotate, {.help = "vertical flip and transposition, half of the clips each"});
  r.Field("color_jitter", &c.color_jitter,
          {.min = 0, .max = 0.5, .help = "change of brightness, contrast, saturation and hue, the same for a clip"});
  r.Section("spikes", [&](ConfigReader& s) { DeclareSpikeKeys(s, &c.spikes, generated); });
  if (!data->test_target.empty() && c.spikes.use && data->test_spikes.empty()) {
    r.Fail("test", "the training set has spikes, so the test set needs test.spikes.path");
  }
  r.Field("augment", &engine->augment, {.help = "random crop, flip and time; the same for all frames of a clip"});
}

}  // namespace lockstep::recipes
