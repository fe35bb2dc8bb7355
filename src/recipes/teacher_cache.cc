#include "recipes/teacher_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cache/folder.h"
#include "recipes/feature_build.h"
#include "recipes/frozen_script.h"

namespace lockstep::recipes {
namespace {

constexpr char kCached[] = "teacher/cached";

std::vector<std::string> FeatureNames(bool sampled) {
  return sampled ? std::vector<std::string>{"mean", "deviation"} : std::vector<std::string>{"latents"};
}

}  // namespace

Result<cache::Description> DescribeTeacher(const TeacherConfig& config, const TeacherShapes& shapes, bool sampled) {
  cache::Description made;
  if (config.kind == "program" && config.weights.empty()) {
    return Status(Code::kUsage, "recipe.teacher.weights: a cache must know which files the program's weights are in",
                  "list them: features of other weights are then never found");
  }
  Result<std::string> digest = ScriptDigest(FileOf(config));
  if (!digest.ok()) return digest.status().Context("recipe.teacher.path");
  made.encoder = {{"kind", config.kind}, {"implementation", 1}, {"precision", engine::PrecisionName(config.precision)}};
  made.weights = std::move(*digest);
  made.preprocessing = {{"frames", shapes.frames}, {"range", config.range}, {"layout", config.layout}};
  made.context = cache::Context::kOrdered;
  for (std::string& name : FeatureNames(sampled)) {
    made.fields.push_back({std::move(name), Dtype::kF32, config.cache.stored, shapes.latents, false});
  }
  const Status right = made.Check();
  if (!right.ok()) return right;
  return made;
}

Result<cache::BuildProgress> BuildTeacherCache(const cache::Folder& folder, std::shared_ptr<const data::Source> source,
                                               const data::SourceConfig& clips, Teacher* teacher, int threads,
                                               const cache::BuildOptions& options) {
  FeatureBuild build{source, PlanFor(*source, clips, folder.description()), threads};
  build.encode = [teacher](const at::Tensor& frames) {
    return teacher->Features(frames.to(teacher->device()).to(at::kFloat).div(255));
  };
  return BuildFeatures(folder, build, options);
}

Result<std::unique_ptr<TeacherCache>> TeacherCache::Open(const TeacherConfig& config, const TeacherShapes& shapes,
                                                         std::string* note) {
  std::string missing;
  for (const bool sampled : {false, true}) {
    const Result<cache::Description> description = DescribeTeacher(config, shapes, sampled);
    if (!description.ok()) return description.status();
    const std::string path = config.cache.root + "/" + description->Id();
    const Result<std::vector<std::string>> there = cache::Namespaces(config.cache.root);
    if (!there.ok()) return there.status().Context("recipe.teacher.cache.root");
    missing = description->Id();
    if (std::find(there->begin(), there->end(), missing) == there->end()) continue;
    Result<cache::Folder> folder = cache::Folder::Open(path);
    if (!folder.ok()) return folder.status();
    Result<std::unique_ptr<FeatureLookup>> lookup =
        FeatureLookup::Open(*folder, "recipe.teacher.cache", config.cache.policy == "require");
    if (!lookup.ok()) return lookup.status();
    std::unique_ptr<TeacherCache> made(new TeacherCache());
    made->sampled_ = sampled;
    made->shapes_ = shapes;
    made->lookup_ = std::move(*lookup);
    return made;
  }
  const std::string what = fmt::format(
      "recipe.teacher.cache.root: {} has no latents of {} with this precision, range, layout and size of clips",
      Printable(config.cache.root), Printable(config.path));
  if (config.cache.policy == "require") {
    return Status(Code::kUsage, what, "lockstep cache build RECIPE with this configuration makes them");
  }
  *note = what + ": every clip is encoded live; `lockstep cache build` makes them";
  return std::unique_ptr<TeacherCache>();
}

// Adds teacher/<feature> and teacher/cached.
class TeacherCacheSource final : public data::Source {
 public:
  TeacherCacheSource(std::shared_ptr<const data::Source> source, TeacherCache* cache)
      : source_(std::move(source)), cache_(cache), fields_(source_->fields()) {
    for (const std::string& name : FeatureNames(cache->sampled())) {
      fields_.push_back({"teacher/" + name, data::ElementType::kF32, cache->shapes_.latents});
    }
    fields_.push_back({kCached, data::ElementType::kU8, {1}});
  }
  const std::vector<data::Field>& fields() const override { return fields_; }
  uint64_t size() const override { return source_->size(); }
  std::string Name(uint64_t index) const override { return source_->Name(index); }
  std::string Origin(uint64_t index) const override { return source_->Origin(index); }
  std::string Describe() const override { return source_->Describe() + ", teacher cached"; }
  std::string Digest() const override { return source_->Digest(); }
  Status Read(const data::Draw& draw, std::span<std::byte* const> out) const override {
    const size_t own = source_->fields().size();
    LOCKSTEP_RETURN_IF_ERROR(source_->Read(draw, out.first(own)));
    const bool found = cache_->lookup_->Find(out[0], cache_->shapes_.frames, out.subspan(own, out.size() - own - 1));
    *out.back() = std::byte{static_cast<unsigned char>(found ? 1 : 0)};
    return Status::Ok();
  }

 private:
  std::shared_ptr<const data::Source> source_;
  TeacherCache* cache_;
  std::vector<data::Field> fields_;
};

std::shared_ptr<const data::Source> TeacherCache::With(std::shared_ptr<const data::Source> source) {
  return std::make_shared<const TeacherCacheSource>(std::move(source), this);
}

TeacherCache::Found TeacherCache::Take(engine::TensorBatch* batch) {
  Found found;
  for (const std::string& name : FeatureNames(sampled_)) {
    const auto field = batch->fields.find("teacher/" + name);
    found.features.push_back(field->second);
    batch->fields.erase(field);
  }
  const at::Tensor cached = batch->host.at(kCached);
  batch->fields.erase(kCached);
  batch->host.erase(kCached);
  const auto* flags = static_cast<const uint8_t*>(cached.const_data_ptr());
  for (int64_t i = 0; i < batch->count(); ++i) {
    if (flags[i] == 0) found.missing.push_back(i);
  }
  return found;
}

}  // namespace lockstep::recipes
