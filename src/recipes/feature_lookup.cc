#include "recipes/feature_lookup.h"

#include <fmt/format.h>

#include <cstring>

#include "base/log.h"
#include "base/text.h"
#include "cache/folder.h"
#include "cache/upkeep.h"
#include "recipes/feature_build.h"

namespace lockstep::recipes {
Result<std::unique_ptr<FeatureLookup>> FeatureLookup::Open(const cache::Folder& folder, std::string key,
                                                           bool required) {
  Result<std::unique_ptr<cache::Reader>> reader = cache::Reader::Open(folder);
  if (!reader.ok()) return reader.status();
  cache::Touch(folder);
  for (const std::string& warning : (*reader)->warnings()) LogWarn("feature cache: {}", warning);
  std::unique_ptr<FeatureLookup> made(new FeatureLookup());
  made->key_ = std::move(key);
  made->required_ = required;
  made->reader_ = std::move(*reader);
  return made;
}

Result<cache::PlanCoverage> FeatureLookup::Published(const data::Source& source,
                                                     const data::SourceConfig& clips) const {
  cache::PlanCoverage coverage{PlanFor(source, clips, folder().description()), 0};
  const Result<std::vector<std::string>> units = folder().Units();
  if (!units.ok()) return units.status();
  const std::string prefix = coverage.plan.Id() + "-";
  for (const std::string& unit : *units) coverage.published += unit.starts_with(prefix) ? 1 : 0;
  return coverage;
}

Result<std::string> FeatureLookup::Coverage(const std::string& what, const data::Source& source,
                                            const data::Source* whole, const data::SourceConfig& clips) const {
  Result<cache::PlanCoverage> coverage = Published(source, clips);
  if (!coverage.ok()) return coverage.status();
  uint64_t samples = source.size();
  std::string of = what + " samples";
  if (coverage->published == 0 && whole != nullptr) {
    coverage = Published(*whole, clips);
    if (!coverage.ok()) return coverage.status();
    samples = whole->size();
    of = fmt::format("samples, of which {} is a part,", what);
  }
  const std::string place =
      fmt::format("{} ({} records, {})", folder().path(), reader_->records(), reader_->Describe());
  if (coverage->published == 0) {
    return fmt::format("cache       {}: no build of exactly these samples; records are found by content in {}", what,
                       place);
  }
  const uint64_t covered = coverage->samples();
  if (required_ && covered < samples) {
    return Status(Code::kUsage,
                  fmt::format("{}: {} of {} {} are not built yet, and policy: require allows no live encoding", key_,
                              samples - covered, samples, of),
                  fmt::format("finish the build (lockstep cache build), or set {}.policy: read", key_));
  }
  const double share = 100.0 * static_cast<double>(covered) / static_cast<double>(samples);
  return fmt::format("cache       {}: {} of {} samples of an epoch ({:.1f} %) are built{}; {}", what, covered, samples,
                     share, covered < samples ? ", the rest is encoded live" : "", place);
}

bool FeatureLookup::Find(const std::byte* frames, const std::vector<int64_t>& shape,
                         std::span<std::byte* const> fields) {
  const std::vector<cache::FieldSpec>& specs = folder().description().fields;
  for (size_t i = 0; i < fields.size(); ++i) std::memset(fields[i], 0, specs[i].bytes());
  if (choose_ && !arbiter_.ReadNext()) return false;
  std::vector<cache::Request> one(1);
  one[0].key = KeyOfFrames(folder(), frames, shape);
  one[0].fields.assign(fields.begin(), fields.end());
  arbiter_.ReadBegins();
  reader_->Read(one);
  NoteRead(one[0].why);
  if (one[0].outcome == cache::Outcome::kHit) {
    ++hits_;
    return true;
  }
  ++(one[0].outcome == cache::Outcome::kMiss ? misses_ : damaged_);
  // A damaged record may have left a part of itself.
  for (size_t i = 0; i < fields.size(); ++i) std::memset(fields[i], 0, specs[i].bytes());
  return false;
}

void FeatureLookup::NoteRead(const std::string& why) {
  arbiter_.ReadEnds();
  const std::lock_guard<std::mutex> hold(mutex_);
  if (!why.empty() && first_reason_.empty()) first_reason_ = why;
}

Status FeatureLookup::NoteLive(size_t clips, double seconds) {
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
                  fmt::format("feature cache: {} could not be read, and {}.policy: require allows no live encoding: {}",
                              Count(static_cast<int64_t>(clips), "clip"), key_, reason),
                  fmt::format("lockstep cache repair, lockstep cache build; or {}.policy: read", key_));
  }
  if (!said_.exchange(true)) LogWarn("feature cache: clips are encoded live (rank/cache/live counts them): {}", reason);
  return Status::Ok();
}

std::vector<std::pair<std::string, double>> FeatureLookup::Metrics() const {
  std::vector<std::pair<std::string, double>> all = {{"cache/hits", static_cast<double>(hits_)},
                                                     {"cache/misses", static_cast<double>(misses_)},
                                                     {"cache/damaged", static_cast<double>(damaged_)},
                                                     {"cache/live", static_cast<double>(live_)},
                                                     {"cache/read_share", choose_ ? arbiter_.Share() : 1}};
  if (misses_ + damaged_ > 0) all.emplace_back("fallback/cache", static_cast<double>(misses_ + damaged_));
  return all;
}

}  // namespace lockstep::recipes
