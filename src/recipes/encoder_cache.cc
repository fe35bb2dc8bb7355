#include "recipes/encoder_cache.h"

#include <fmt/format.h>

#include <memory>

#include "cache/folder.h"
#include "recipes/feature_build.h"
#include "recipes/video_recipe.h"

namespace lockstep::recipes {
namespace {

void DeclareEncoder(ConfigReader& r, EncoderCacheConfig* config) {
  ClipEncoderConfig& e = config->encoder;
  r.Choice("kind", &e.file.kind, {"torchscript", "program"}, {.help = "what encoder.path is"});
  const bool program = e.file.kind == "program";
  r.Field("path", &e.file.path, {.required = true, .help = "TorchScript file, or program: frames in, features out"});
  r.When(program, "only for kind: program", [&] {
    r.Field("arguments", &e.file.arguments, {.help = "of the program"});
    r.Field("weights", &e.file.weights,
            {.required = program, .help = "files the program reads its weights from; []: it has all in itself"});
  });
  r.When(!program, "a program chooses its own", [&] {
    r.Field("device", &config->device, {.help = "auto, cpu, cuda or cuda:N"});
    r.Enum("precision", &e.file.precision,
           {{"fp32", engine::Precision::kFp32}, {"bf16", engine::Precision::kBf16}, {"fp16", engine::Precision::kFp16}},
           {.help = "it is converted to this type"});
  });
  r.Field("range", &e.range, {.help = "what black and white become"});
  if (e.range[0] >= e.range[1]) r.Fail("range", "black must be below white");
  r.Field("mean", &e.mean, {.help = "for red, green and blue: taken off after range"});
  r.Field("deviation", &e.deviation, {.above = 0, .help = "for red, green and blue: divided by after mean"});
  e.layout = LayoutsOf(e.context).front();
  r.Choice("layout", &e.layout, LayoutsOf(e.context), {.help = "axes of its input"});
  r.Field("batch", &config->batch, {.min = 1, .help = "clips, or independent frames, encoded at once"});
}

}  // namespace

void Declare(ConfigReader& reader, EncoderCacheConfig* config) {
  ClipEncoderConfig& e = config->encoder;
  reader.Section("cache", [&](ConfigReader& r) {
    r.Field("root", &config->root, {.required = true, .help = "folder of the feature cache, shared by all nodes"});
    r.Enum("context", &e.context,
           {{"independent", cache::Context::kIndependent},
            {"ordered", cache::Context::kOrdered},
            {"reference+set", cache::Context::kReferenceSet}},
           {.help = "what the features of a frame depend on: it alone, all frames of its clip in their order, or the "
                    "first frame and the set of the others"});
    r.Field("fields", &e.fields,
            {.help = "tensors to keep of a dict or program, names for those of a tuple; empty: all"});
    r.When(e.context == cache::Context::kReferenceSet, "only for context: reference+set",
           [&] { r.Field("per_item", &e.per_item, {.help = "fields whose first axis counts frames"}); });
    r.Enum("stored", &e.stored,
           {{"same", cache::Storage::kSame},
            {"bf16", cache::Storage::kBf16},
            {"f8_e4m3", cache::Storage::kF8},
            {"int8", cache::Storage::kInt8}},
           {.help = "type of floating-point values in it"});
    r.When(e.stored != cache::Storage::kSame, "cache.stored is same", [&] {
      r.Field("max_error", &config->max_error, {.above = 0, .help = "relative, of a unit in another type"});
    });
  });
  reader.Section("encoder", [&](ConfigReader& r) { DeclareEncoder(r, config); });
  reader.Section("data", [&](ConfigReader& r) {
    DeclareClips(r, &config->clips, &config->index);
    r.Field("threads", &config->threads, {.min = 0, .help = "decoder threads of a rank"});
  });
}

Result<EncoderCacheConfig> ReadEncoderCacheConfig(const std::string& file,
                                                  const std::vector<std::string>& assignments) {
  Result<ConfigTree> tree = file.empty() ? Result<ConfigTree>(ConfigTree::Empty("defaults")) : ConfigTree::Load(file);
  if (!tree.ok()) return tree.status();
  for (const std::string& assignment : assignments) LOCKSTEP_RETURN_IF_ERROR(tree->Override(assignment));
  EncoderCacheConfig config;
  ConfigReader reader(*tree);
  Declare(reader, &config);
  if (const Status read = reader.Finish(); !read.ok()) {
    return Status(
        read.code(), read.message(),
        "docs/feature-cache.md lists the keys; for the configuration of a training name its recipe: `lockstep "
        "cache build RECIPE`");
  }
  return config;
}

Status BuildEncoderCache(const EncoderCacheConfig& config, at::Device device, const cache::BuildOptions& options) {
  data::SourceConfig clips = config.clips;
  if (!config.index.empty()) {
    Result<std::string> index = data::ReadIndexFile(config.index);
    if (!index.ok()) return index.status().Context("data.index");
    clips.index = std::make_shared<const std::string>(std::move(*index));
  }
  Result<std::unique_ptr<data::Source>> opened = data::OpenSource(clips);
  if (!opened.ok()) return opened.status().Context(clips.path.empty() ? "data" : "data.path");
  const std::shared_ptr<const data::Source> source = std::move(*opened);
  Result<std::unique_ptr<ClipEncoder>> encoder = ClipEncoder::Load(config.encoder, device, source->fields()[0].shape);
  if (!encoder.ok()) return encoder.status();
  const Result<cache::Description> description = (*encoder)->Describe();
  if (!description.ok()) return description.status();
  const Result<cache::Folder> folder = cache::Folder::Create(config.root, *description);
  if (!folder.ok()) return folder.status().Context("cache.root");
  cache::BuildOptions with = options;
  with.error_limit = config.max_error;
  FeatureBuild build{source, PlanFor(*source, clips, *description), config.threads, config.batch};
  build.encode = [&](const at::Tensor& frames) { return (*encoder)->Features(frames); };
  return BuildFeatures(*folder, build, with).status();
}

}  // namespace lockstep::recipes
