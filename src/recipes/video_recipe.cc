#include "recipes/video_recipe.h"

#include <fmt/format.h>

#include "base/log.h"
#include "data/bucketed_source.h"
#include "data/clip_transform.h"

namespace lockstep::recipes {
namespace {

bool HasRows(const std::string& kind) { return kind == "hdf5" || kind == "safetensors"; }

Result<std::string> IndexOf(const data::SourceConfig& source, const std::string& file) {
  if (file.empty()) return data::IndexSource(source);
  Result<std::string> index = data::ReadIndexFile(file);
  return index.ok() ? data::IndexForBuckets(std::move(*index), source) : index;
}

// Where the samples of one set are.
void DeclareSet(ConfigReader& r, data::SourceConfig* source, std::string* index) {
  data::SourceConfig& s = *source;
  r.Choice("kind", &s.kind, data::SourceKinds(), {.help = "where samples come from"});
  const bool generated = s.kind == "clips";
  r.When(generated, "only for kind: clips", [&] {
    r.Field("clips", &s.clips, {.min = 1, .help = "number of generated clips"});
    r.Field("clips_seed", &s.seed, {.help = "what the scenes are drawn from"});
  });
  r.When(!generated, "kind is clips, which are generated: other kinds read files", [&] {
    r.Field("path", &s.path, {.required = true, .help = "folder of the data, or its one file"});
    r.Field("clips_per_video", &s.clips_per_video, {.min = 1});
  });
  r.When(s.kind == "annotations", "only for kind: annotations",
         [&] { r.Field("annotations", &s.annotations, {.required = true, .help = "JSON list of videos below path"}); });
  r.When(!generated && !HasRows(s.kind), "only for kinds whose files are listed", [&] {
    r.Field("index", index, {.help = "file of `lockstep data index`: nothing is listed at the start; empty: none"});
  });
  r.When(HasRows(s.kind), "only for kinds hdf5 and safetensors",
         [&] { r.Field("field", &s.field, {.help = "the array whose rows are clips or pictures, U8"}); });
}

// What a clip is, whichever set it comes from.
void DeclareForm(ConfigReader& r, data::SourceConfig* clips, bool mixed, bool bucketed) {
  data::SourceConfig& s = *clips;
  const bool of_one_size = mixed || HasRows(s.kind) || s.kind == "episodes";
  r.When(mixed || s.kind != "clips", "kind is clips, which are generated: other kinds read files", [&] {
    r.Choice("resize", &s.resize, data::kResizeNames,
             {.help = "of a crop to height x width: as torch's antialias, or with Pillow's bits"});
    r.Choice("decode", &s.decode, {"exact", "scaled"},
             {.help = "scaled: JPEG is reduced by 2, 4 or 8 while it is decoded, where the crop allows; faster"});
  });
  r.When(mixed || (s.kind != "clips" && !HasRows(s.kind)), "only for kinds whose files are listed", [&] {
    r.Enum("check", &s.check.all, {{"some", false}, {"all", true}},
           {.help = "files whose sizes every node compares with rank 0's at the start: 64, or all"});
  });
  r.Field("frames", &s.frames, {.min = 1, .help = "of one clip"});
  if (bucketed) {
    r.When(!of_one_size,
           mixed
               ? "data.mix draws sample by sample, so that each set has its share in every step, and a batch can have "
                 "one size only"
               : "pictures of this kind have one size",
           [&] {
             r.Field(
                 "buckets", &s.buckets,
                 {.help =
                      "several sizes [HEIGHTxWIDTH, ...]: each sample has that nearest to its aspect ratio, each batch "
                      "one of them"});
           });
    const Result<std::vector<data::ImageSize>> sizes = data::ParseSizes(s.buckets);
    if (!sizes.ok()) r.Fail("buckets", sizes.status().message());
  }
  r.When(s.buckets.empty(), "data.buckets says the sizes", [&] {
    r.Field("height", &s.height, {.min = 8});
    r.Field("width", &s.width, {.min = 8});
  });
  r.Field("min_stride", &s.min_stride, {.min = 1, .help = "frames of the video between frames of the clip"});
  r.Field("max_stride", &s.max_stride, {.min = 1});
  if (s.max_stride < s.min_stride) r.Fail("max_stride", fmt::format("is below min_stride {}", s.min_stride));
}

}  // namespace

void DeclareClips(ConfigReader& r, data::SourceConfig* clips, std::string* index) {
  DeclareSet(r, clips, index);
  DeclareForm(r, clips, /*mixed=*/false, /*bucketed=*/false);
}

void VideoRecipe::DeclareData(ConfigReader& r, engine::DataConfig* data) {
  r.List<Set>("mix", &mix_,
              [](ConfigReader& m, Set* set) {
                m.Field("weight", &set->weight,
                        {.required = true, .above = 0, .help = "share of the samples, of all weights"});
                DeclareSet(m, &set->source, &set->index);
              },
              {.help = "several sets, drawn by weight: each has a weight and the keys kind to field; empty: one set"});
  data->mixed = !mix_.empty();
  r.When(!data->mixed, "each set of data.mix has its own", [&] { DeclareSet(r, &clips_, &index_); });
  DeclareForm(r, &clips_, data->mixed, bucketed_);
  r.Field("augment", &data->augment, {.help = "random crop, flip, colour, time; the same for all frames of a clip"});
  r.When(data->augment, "only with augment: true", [&] {
    r.Field("flip", &clips_.flip, {.help = "augmentation mirrors half of the clips, left and right"});
    r.Field("colour", &clips_.colour,
            {.help = "augmentation changes brightness, contrast, saturation and hue a little"});
  });
  if (!with_features_) return;
  r.Section("features", [&](ConfigReader& f) {
    DeclareFeatures(f, &features_config_);
    if (features_config_.config.empty()) return;
    if (data->augment) f.Fail("config", "augmentation draws other clips in every epoch: set data.augment: false");
    if (!clips_.buckets.empty()) f.Fail("config", "features are of clips of one size: not with data.buckets");
  });
}

void VideoRecipe::Shrink(engine::Config* /*config*/) {
  constexpr uint64_t kFew = 64;
  if (clips_.kind == "clips") clips_.clips = kFew;
  for (Set& set : mix_) {
    if (set.source.kind == "clips") set.source.clips = kFew;
  }
}

// The ranks of a node look at its files together.
void VideoRecipe::Join(engine::Ranks* ranks) {
  const comm::RankIdentity& identity = ranks->tensors().identity();
  clips_.check.part = static_cast<uint64_t>(identity.local_rank);
  clips_.check.parts = static_cast<uint64_t>(identity.local_size);
  main_ = ranks->is_main();
}

data::SourceConfig VideoRecipe::SourceOf(const Set& set) const {
  data::SourceConfig source = set.source;
  source.frames = clips_.frames;
  source.height = clips_.height;
  source.width = clips_.width;
  source.min_stride = clips_.min_stride;
  source.max_stride = clips_.max_stride;
  source.resize = clips_.resize;
  source.decode = clips_.decode;
  source.flip = clips_.flip;
  source.colour = clips_.colour;
  source.check = clips_.check;
  return source;
}

Result<std::string> VideoRecipe::IndexData() {
  if (mix_.empty()) return IndexOf(clips_, index_);
  std::vector<std::string> all;
  for (size_t i = 0; i < mix_.size(); ++i) {
    Result<std::string> one = IndexOf(SourceOf(mix_[i]), mix_[i].index);
    if (!one.ok()) return one.status().Context(fmt::format("data.mix[{}]", i));
    all.push_back(std::move(*one));
  }
  return data::JoinIndexes(all);
}

void VideoRecipe::UseIndex(std::shared_ptr<const std::string> index) {
  if (mix_.empty()) {
    clips_.index = std::move(index);
    return;
  }
  Result<std::vector<std::string>> all = data::SplitIndexes(*index);
  for (size_t i = 0; all.ok() && i < mix_.size() && i < all->size(); ++i) {
    if (!(*all)[i].empty()) mix_[i].source.index = std::make_shared<const std::string>(std::move((*all)[i]));
  }
}

Result<engine::Sources> VideoRecipe::Open(const engine::Config& config) {
  Result<engine::Sources> sources = OpenSets(config);
  if (!sources.ok() || features_config_.config.empty()) return sources;
  return WithFeatures(std::move(*sources), config);
}

Result<engine::Sources> VideoRecipe::WithFeatures(engine::Sources sources, const engine::Config& config) {
  Result<std::unique_ptr<CachedFeatures>> features =
      CachedFeatures::Open(features_config_, sources.train->fields()[0].shape);
  if (!features.ok()) return features.status();
  features_ = std::move(*features);
  reproducible_ = config.train.reproducible;
  coverage_.clear();
  for (auto* part : {&sources.train, &sources.validation}) {
    if (*part == nullptr) continue;
    const Result<std::string> line =
        features_->Coverage(part == &sources.train ? "training" : "validation", **part, sources.whole.get(), clips_);
    if (!line.ok()) return line.status();
    coverage_ += (coverage_.empty() ? "" : "\n") + *line;
    *part = features_->With(*part);
  }
  return sources;
}

Status VideoRecipe::Start(at::Device device) {
  if (!features_) return Status::Ok();
  if (main_) LogInfo("{}", coverage_);
  // A choice by time is another one in every run.
  return features_->Start(device, /*choose=*/!reproducible_);
}

Status VideoRecipe::Prepare(const engine::Pass& /*pass*/, engine::TensorBatch* batch) {
  return features_ ? features_->Fill(batch) : Status::Ok();
}

Status VideoRecipe::PrepareValidation(engine::TensorBatch* batch) {
  return features_ ? features_->Fill(batch) : Status::Ok();
}

std::vector<std::pair<std::string, double>> VideoRecipe::Metrics() {
  return features_ ? features_->Metrics() : std::vector<std::pair<std::string, double>>();
}

Result<engine::Sources> VideoRecipe::OpenSets(const engine::Config& config) const {
  if (mix_.empty()) {
    Result<std::unique_ptr<data::Source>> opened = data::OpenSource(clips_);
    if (!opened.ok()) return opened.status().Context(clips_.path.empty() ? "data" : "data.path");
    return engine::HoldOut(std::move(*opened), config);
  }
  // The number of validation samples is of all sets together.
  engine::Config each = config;
  each.data.validation.samples = 0;
  std::vector<engine::Sources> sets;
  std::vector<double> weights;
  for (size_t i = 0; i < mix_.size(); ++i) {
    Result<std::unique_ptr<data::Source>> opened = data::OpenSource(SourceOf(mix_[i]));
    Result<engine::Sources> sources =
        opened.ok() ? engine::HoldOut(std::move(*opened), each) : Result<engine::Sources>(opened.status());
    if (!sources.ok()) return sources.status().Context(fmt::format("data.mix[{}]", i));
    sets.push_back(std::move(*sources));
    weights.push_back(mix_[i].weight);
  }
  Result<engine::Sources> mixed = engine::Mix(sets, weights, config);
  return mixed.ok() ? mixed : mixed.status().Context("data.mix");
}

}  // namespace lockstep::recipes
