#include "recipes/teacher_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cache/folder.h"
#include "cache/reader.h"
#include "cache/upkeep.h"
#include "recipes/feature_build.h"
#include "recipes/frozen_script.h"

namespace lockstep::recipes {
namespace {

constexpr char kCached[] = "teacher/cached";
constexpr uint64_t kMeasureRecords = 16;  // reads between two looks at their cost

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
    Result<std::unique_ptr<cache::Reader>> reader = cache::Reader::Open(*folder);
    if (!reader.ok()) return reader.status();
    cache::Touch(*folder);
    for (const std::string& warning : (*reader)->warnings()) LogWarn("feature cache: {}", warning);
    std::unique_ptr<TeacherCache> made(new TeacherCache());
    made->sampled_ = sampled;
    made->required_ = config.cache.policy == "require";
    made->shapes_ = shapes;
    made->reader_ = std::move(*reader);
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

Result<std::string> TeacherCache::Coverage(const std::string& what, const data::Source& source,
                                           const data::SourceConfig& clips) const {
  const cache::Folder& folder = reader_->folder();
  cache::PlanCoverage coverage{PlanFor(source, clips, folder.description()), 0};
  const Result<std::vector<std::string>> units = folder.Units();
  if (!units.ok()) return units.status();
  const std::string prefix = coverage.plan.Id() + "-";
  for (const std::string& unit : *units) coverage.published += unit.starts_with(prefix) ? 1 : 0;
  const std::string place = fmt::format("{} ({} records, {})", folder.path(), reader_->records(), reader_->Describe());
  if (coverage.published == 0) {
    return fmt::format("cache       {}: no build of exactly these samples; records are found by content in {}", what,
                       place);
  }
  const uint64_t covered = coverage.samples();
  if (required_ && covered < source.size()) {
    return Status(Code::kUsage,
                  fmt::format("recipe.teacher.cache: {} of {} {} samples are not built yet, and policy: require allows "
                              "no live encoding",
                              source.size() - covered, source.size(), what),
                  "finish the build (lockstep cache build), or set recipe.teacher.cache.policy: read");
  }
  const double share = 100.0 * static_cast<double>(covered) / static_cast<double>(source.size());
  return fmt::format("cache       {}: {} of {} samples of an epoch ({:.1f} %) are built{}; {}", what, covered,
                     source.size(), share, covered < source.size() ? ", the rest is encoded live" : "", place);
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
    for (size_t i = own; i < fields_.size(); ++i) std::memset(out[i], 0, fields_[i].bytes());
    cache_->Lookup(out[0], out.subspan(own));
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

// `out`: the features, then whether they are there. Loader's threads.
void TeacherCache::Lookup(const std::byte* frames, std::span<std::byte* const> out) {
  if (choose_ && !arbiter_.ReadNext()) {
    ++chosen_;
    return;
  }
  std::vector<cache::Request> one(1);
  one[0].key = KeyOfFrames(reader_->folder(), frames, shapes_.frames);
  one[0].fields.assign(out.begin(), out.end() - 1);
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (reading_++ == 0) busy_since_ = Now();
  }
  reader_->Read(one);
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    const bool last = --reading_ == 0;
    ++since_read_;
    if (last || since_read_ >= kMeasureRecords) {
      arbiter_.Read(since_read_, SecondsSince(busy_since_));
      since_read_ = 0;
      busy_since_ = Now();
    }
    if (!one[0].why.empty() && first_reason_.empty()) first_reason_ = one[0].why;
  }
  switch (one[0].outcome) {
    case cache::Outcome::kHit:
      ++hits_;
      *out.back() = std::byte{1};
      return;
    case cache::Outcome::kMiss:
      ++misses_;
      break;
    default:
      ++damaged_;
  }
  // A damaged record may have left a part of itself.
  for (std::byte* field : out.first(out.size() - 1)) {
    std::memset(field, 0, reader_->folder().description().fields[0].bytes());
  }
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

Status TeacherCache::NoteLive(size_t clips, double seconds) {
  live_ += clips;
  if (seconds > 0) arbiter_.Encoded(clips, seconds);
  if (misses_ + damaged_ == 0) return Status::Ok();  // by choice
  std::string reason;
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    reason = first_reason_.empty() ? "it has no record of them" : first_reason_;
  }
  if (required_) {
    return Status(Code::kEnvironment,
                  fmt::format("feature cache: {} could not be read, and recipe.teacher.cache.policy: require allows no "
                              "live encoding: {}",
                              Count(static_cast<int64_t>(clips), "clip"), reason),
                  "lockstep cache repair, lockstep cache build; or recipe.teacher.cache.policy: read");
  }
  if (!said_.exchange(true)) LogWarn("feature cache: clips are encoded live (rank/cache/live counts them): {}", reason);
  return Status::Ok();
}

std::vector<std::pair<std::string, double>> TeacherCache::Metrics() const {
  std::vector<std::pair<std::string, double>> all = {{"cache/hits", static_cast<double>(hits_)},
                                                     {"cache/misses", static_cast<double>(misses_)},
                                                     {"cache/damaged", static_cast<double>(damaged_)},
                                                     {"cache/live", static_cast<double>(live_)},
                                                     {"cache/read_share", choose_ ? arbiter_.Share() : 1}};
  if (misses_ + damaged_ > 0) all.emplace_back("fallback/cache", static_cast<double>(misses_ + damaged_));
  return all;
}

}  // namespace lockstep::recipes
