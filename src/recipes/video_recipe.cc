#include "recipes/video_recipe.h"

#include <fmt/format.h>

#include "data/clip_transform.h"

namespace lockstep::recipes {

void DeclareClips(ConfigReader& r, data::SourceConfig* clips, std::string* index) {
  data::SourceConfig& s = *clips;
  r.Choice("kind", &s.kind, data::SourceKinds(), {.help = "where samples come from"});
  const bool generated = s.kind == "clips";
  r.When(generated, "only for kind: clips", [&] {
    r.Field("clips", &s.clips, {.min = 1, .help = "number of generated clips"});
    r.Field("clips_seed", &s.seed, {.help = "what the scenes are drawn from"});
  });
  r.When(!generated, "data.kind is clips, which are generated: other kinds read files", [&] {
    r.Field("path", &s.path, {.required = true, .help = "folder of the data, or its one file"});
    r.Field("clips_per_video", &s.clips_per_video, {.min = 1});
    r.Choice("resize", &s.resize, data::kResizeNames,
             {.help = "of a crop to height x width: as torch's antialias, or with Pillow's bits"});
    r.Choice("decode", &s.decode, {"exact", "scaled"},
             {.help = "scaled: JPEG is reduced by 2, 4 or 8 while it is decoded, where the crop allows; faster"});
  });
  r.When(s.kind == "annotations", "only for kind: annotations",
         [&] { r.Field("annotations", &s.annotations, {.required = true, .help = "JSON list of videos below path"}); });
  const bool rows = s.kind == "hdf5" || s.kind == "safetensors";
  r.When(!generated && !rows, "only for kinds whose files are listed", [&] {
    r.Field("index", index, {.help = "file of `lockstep data index`: nothing is listed at the start; empty: none"});
  });
  r.When(rows, "only for kinds hdf5 and safetensors",
         [&] { r.Field("field", &s.field, {.help = "the array whose rows are clips or pictures, U8"}); });
  r.Field("frames", &s.frames, {.min = 1, .help = "of one clip"});
  r.Field("height", &s.height, {.min = 8});
  r.Field("width", &s.width, {.min = 8});
  r.Field("min_stride", &s.min_stride, {.min = 1, .help = "frames of the video between frames of the clip"});
  r.Field("max_stride", &s.max_stride, {.min = 1});
  if (s.max_stride < s.min_stride) r.Fail("max_stride", fmt::format("is below min_stride {}", s.min_stride));
}

void VideoRecipe::DeclareData(ConfigReader& r, engine::DataConfig* data) {
  DeclareClips(r, &clips_, &index_);
  r.Field("augment", &data->augment, {.help = "random crop, flip, colour, time; the same for all frames of a clip"});
}

void VideoRecipe::Shrink(engine::Config* /*config*/) {
  if (clips_.kind == "clips") clips_.clips = 64;
}

Result<engine::Sources> VideoRecipe::Open(const engine::Config& config) {
  Result<std::unique_ptr<data::Source>> opened = data::OpenSource(clips_);
  if (!opened.ok()) return opened.status().Context(clips_.path.empty() ? "data" : "data.path");
  return engine::HoldOut(std::move(*opened), config);
}

}  // namespace lockstep::recipes
