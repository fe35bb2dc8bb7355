#include "recipes/cached_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/clock.h"
#include "base/text.h"
#include "cache/folder.h"
#include "engine/devices.h"

namespace lockstep::recipes {
namespace {

constexpr char kFeaturePrefix[] = "features/";
constexpr char kFeaturesThere[] = "features/cached";

// What a field of a sample has instead of a type of the cache.
struct FieldType {
  data::ElementType type;
  at::ScalarType from;
  bool converted;
};

std::optional<FieldType> FieldTypeOf(Dtype dtype) {
  static const auto& types = *new std::map<Dtype, FieldType>{
      {Dtype::kF32, {data::ElementType::kF32, at::kFloat, false}},
      {Dtype::kF16, {data::ElementType::kF32, at::kHalf, true}},
      {Dtype::kBF16, {data::ElementType::kF32, at::kBFloat16, true}},
      {Dtype::kI64, {data::ElementType::kI64, at::kLong, false}},
      {Dtype::kU8, {data::ElementType::kU8, at::kByte, false}},
  };
  const auto it = types.find(dtype);
  return it == types.end() ? std::nullopt : std::optional<FieldType>(it->second);
}

// The namespaces below a root that have the features of an encoder, whatever they store of it.
Result<std::vector<cache::Folder>> Matching(const EncoderCacheConfig& build, const cache::Description& wanted) {
  const Result<std::vector<std::string>> ids = cache::Namespaces(build.root);
  if (!ids.ok()) return ids.status();
  std::vector<cache::Folder> found;
  for (const std::string& id : *ids) {
    Result<cache::Folder> folder = cache::Folder::Open(build.root + "/" + id);
    if (!folder.ok()) continue;  // of another version
    const cache::Description& there = folder->description();
    if (there.encoder != wanted.encoder || there.weights != wanted.weights || there.context != wanted.context ||
        there.preprocessing != wanted.preprocessing) {
      continue;
    }
    std::vector<std::string> names;
    bool stored_so = build.encoder.stored == cache::Storage::kSame;
    for (const cache::FieldSpec& field : there.fields) {
      names.push_back(field.name);
      stored_so = build.encoder.stored == cache::Storage::kSame ? stored_so && field.stored == cache::Storage::kSame
                                                                : stored_so || field.stored == build.encoder.stored;
    }
    if (stored_so && (build.encoder.fields.empty() || build.encoder.fields == names))
      found.push_back(std::move(*folder));
  }
  return found;
}

}  // namespace

void DeclareFeatures(ConfigReader& r, FeaturesConfig* config) {
  r.Field("config", &config->config,
          {.help = "file of `lockstep cache build --config FILE`: its features come with each sample; empty: none"});
  r.When(!config->config.empty(), "only with data.features.config", [&] {
    r.Choice(
        "policy", &config->policy, {"auto", "read", "require"},
        {.help = "auto: read or encode, whichever is faster; read: all that is there; require: nothing is encoded"});
  });
}

Result<std::unique_ptr<CachedFeatures>> CachedFeatures::Open(const FeaturesConfig& config,
                                                             const std::vector<int64_t>& frames) {
  Result<EncoderCacheConfig> build = ReadEncoderCacheConfig(config.config, {});
  if (!build.ok()) return build.status().Context("data.features.config");
  const Result<cache::Description> wanted = DescribeEncoder(build->encoder, frames);
  if (!wanted.ok()) return wanted.status().Context("data.features.config");
  const Result<std::vector<cache::Folder>> found = Matching(*build, *wanted);
  if (!found.ok()) return found.status().Context("data.features.config");
  if (found->size() != 1) {
    return Status(
        Code::kUsage,
        fmt::format("data.features: {} has {} of {} for clips of {}x{}x{}", Printable(build->root),
                    found->empty() ? "no features" : "several sets of features", build->encoder.file.path, frames[0],
                    frames[2], frames[3]),
        found->empty()
            ? fmt::format("make them with the same size of clips: lockstep cache build --config {}", config.config)
            : "name cache.fields in that file, or remove one with lockstep cache gc --remove");
  }
  Result<std::unique_ptr<FeatureLookup>> lookup =
      FeatureLookup::Open(found->front(), "data.features", config.policy == "require");
  if (!lookup.ok()) return lookup.status();
  std::unique_ptr<CachedFeatures> made(new CachedFeatures());
  made->config_ = config;
  made->build_ = std::move(*build);
  made->frames_ = made->record_ = frames;
  made->lookup_ = std::move(*lookup);
  if (made->independent()) made->record_.erase(made->record_.begin());
  for (const cache::FieldSpec& spec : found->front().description().fields) {
    const std::optional<FieldType> type = FieldTypeOf(spec.dtype);
    if (!type) {
      return Status(Code::kUsage, fmt::format("data.features: '{}' has a type that a sample cannot have", spec.name),
                    "let the encoder give float32, bf16, fp16, int64 or uint8");
    }
    std::vector<int64_t> shape = spec.shape;
    if (made->independent()) shape.insert(shape.begin(), frames[0]);
    made->fields_.push_back({kFeaturePrefix + spec.name, type->type, std::move(shape)});
  }
  made->fields_.push_back({kFeaturesThere, data::ElementType::kU8, {1}});
  return made;
}

class FeatureSource final : public data::Source {
 public:
  FeatureSource(std::shared_ptr<const data::Source> source, const CachedFeatures* features)
      : source_(std::move(source)), features_(features), fields_(source_->fields()) {
    fields_.insert(fields_.end(), features->fields_.begin(), features->fields_.end());
  }
  const std::vector<data::Field>& fields() const override { return fields_; }
  uint64_t size() const override { return source_->size(); }
  std::string Name(uint64_t index) const override { return source_->Name(index); }
  std::string Origin(uint64_t index) const override { return source_->Origin(index); }
  std::string Describe() const override { return source_->Describe() + ", with features"; }
  std::string Digest() const override { return source_->Digest(); }
  Status Read(const data::Draw& draw, std::span<std::byte* const> out) const override {
    const size_t own = source_->fields().size();
    LOCKSTEP_RETURN_IF_ERROR(source_->Read(draw, out.first(own)));
    const auto records = static_cast<size_t>(features_->independent() ? features_->frames_[0] : 1);
    const size_t frame_bytes = source_->fields()[0].bytes() / records;
    bool all = true;
    for (size_t r = 0; r < records; ++r) {
      all = ReadRecord(out[0] + r * frame_bytes, r, records, out.subspan(own)) && all;
    }
    *out.back() = std::byte{static_cast<unsigned char>(all ? 1 : 0)};
    return Status::Ok();
  }

 private:
  bool ReadRecord(const std::byte* frames, size_t number, size_t records, std::span<std::byte* const> out) const {
    const std::vector<cache::FieldSpec>& specs = features_->lookup_->folder().description().fields;
    std::vector<std::byte*> to;
    std::vector<std::vector<std::byte>> halves(specs.size());  // those that are converted
    for (size_t i = 0; i < specs.size(); ++i) {
      const bool converted = FieldTypeOf(specs[i].dtype)->converted;
      if (converted) halves[i].resize(specs[i].bytes());
      to.push_back(converted ? halves[i].data() : out[i] + number * (features_->fields_[i].bytes() / records));
    }
    const bool found = features_->lookup_->Find(frames, features_->record_, to);
    for (size_t i = 0; i < specs.size(); ++i) {
      if (halves[i].empty()) continue;
      std::byte* whole = out[i] + number * (features_->fields_[i].bytes() / records);
      const at::Tensor half = at::from_blob(halves[i].data(), specs[i].shape, FieldTypeOf(specs[i].dtype)->from);
      at::from_blob(whole, specs[i].shape, at::kFloat).copy_(half);
    }
    return found;
  }

  std::shared_ptr<const data::Source> source_;
  const CachedFeatures* features_;
  std::vector<data::Field> fields_;
};

std::shared_ptr<const data::Source> CachedFeatures::With(std::shared_ptr<const data::Source> source) const {
  return std::make_shared<const FeatureSource>(std::move(source), this);
}

Status CachedFeatures::Start(at::Device device, bool choose) {
  if (lookup_->required()) return Status::Ok();
  Result<std::unique_ptr<ClipEncoder>> encoder = ClipEncoder::Load(build_.encoder, device, frames_);
  if (!encoder.ok()) return encoder.status().Context("data.features.config");
  const Result<cache::Description> described = (*encoder)->Describe();
  if (!described.ok()) return described.status().Context("data.features.config");
  if (described->Id() != lookup_->folder().id()) {
    return Status(Code::kUsage,
                  fmt::format("data.features: the encoder gives other tensors than the cache has ({} and {})",
                              described->Id(), lookup_->folder().id()),
                  fmt::format("build anew: lockstep cache build --config {}", config_.config));
  }
  encoder_ = std::move(*encoder);
  bool exact = true;
  for (const cache::FieldSpec& field : described->fields) exact = exact && field.stored == cache::Storage::kSame;
  if (!choose || !exact || config_.policy != "auto") return Status::Ok();
  // The second call of an encoder is as fast as later ones.
  std::vector<int64_t> shape = frames_;
  shape.insert(shape.begin(), 1);
  at::Tensor clip = at::zeros(shape, at::kByte);
  if (independent()) clip = clip.flatten(0, 1);
  TimePoint start = Now();
  for (int call = 0; call < 2; ++call) {
    start = Now();
    const Result<std::vector<at::Tensor>> given = encoder_->Features(clip);
    if (!given.ok()) return given.status();
    for (const at::Tensor& feature : *given) feature.cpu();
  }
  lookup_->arbiter().Encoded(1, SecondsSince(start));
  lookup_->ChooseByCost();
  return Status::Ok();
}

Status CachedFeatures::Fill(engine::TensorBatch* batch) {
  const at::Tensor there = batch->host.at(kFeaturesThere);
  batch->fields.erase(kFeaturesThere);
  batch->host.erase(kFeaturesThere);
  const auto* flags = static_cast<const uint8_t*>(there.const_data_ptr());
  std::vector<int64_t> missing;
  for (int64_t i = 0; i < batch->count(); ++i) {
    if (flags[i] == 0) missing.push_back(i);
  }
  if (missing.empty()) return Status::Ok();
  const TimePoint start = Now();
  const auto at_once = std::max<size_t>(1, build_.batch / (independent() ? static_cast<size_t>(frames_[0]) : 1));
  for (size_t first = 0; encoder_ && first < missing.size(); first += at_once) {
    const auto count = static_cast<int64_t>(std::min(at_once, missing.size() - first));
    const at::Tensor frames = (*batch)["frames"];
    const at::Tensor which =
        at::tensor(at::ArrayRef<int64_t>(missing.data() + first, static_cast<size_t>(count))).to(frames.device());
    at::Tensor clips = frames.index_select(0, which);
    if (independent()) clips = clips.flatten(0, 1);
    const Result<std::vector<at::Tensor>> features = encoder_->Features(clips);
    if (!features.ok()) return features.status();
    for (size_t i = 0; i < features->size(); ++i) {
      at::Tensor& field = batch->fields.at(fields_[i].name);
      std::vector<int64_t> shape = fields_[i].shape;
      shape.insert(shape.begin(), count);
      field.index_copy_(0, which, (*features)[i].reshape(shape).to(field.device(), field.scalar_type()));
      if (const auto host = batch->host.find(fields_[i].name); host != batch->host.end()) host->second = field.cpu();
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(lookup_->NoteLive(missing.size(), SecondsSince(start)));
  if (encoder_) return Status::Ok();
  return Status(Code::kInternal, "features of a clip are missing, and there is no encoder");
}

}  // namespace lockstep::recipes
