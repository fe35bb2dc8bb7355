// Records of a feature cache for the samples of a training: found by the content of their frames, verified, counted.
// What is missing or damaged is encoded live by whoever asks, as the policy allows. Shared by the loader's threads
// (Find); the rest is for the training thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/arbiter.h"
#include "cache/reader.h"
#include "cache/upkeep.h"
#include "data/source.h"
#include "data/sources.h"

namespace lockstep::recipes {

class FeatureLookup {
 public:
  // Opens the namespace. `key` names the section of the configuration in messages ("recipe.teacher.cache"). `required`:
  // nothing may be encoded live.
  static Result<std::unique_ptr<FeatureLookup>> Open(const cache::Folder& folder, std::string key, bool required);

  const cache::Folder& folder() const { return reader_->folder(); }
  bool required() const { return required_; }
  // May leave out reads that would be slower than the encoder.
  void ChooseByCost() { choose_ = true; }
  cache::Arbiter& arbiter() { return arbiter_; }

  // The fields of one record, each with room for what the encoder gives. False: there is none, or it is not to be read;
  // the fields are zero then.
  bool Find(const std::byte* frames, const std::vector<int64_t>& shape, std::span<std::byte* const> fields);

  // How much of the source is there, one line; an error if all is required and a part is known to be missing. `whole`
  // (may be null): what the source is a part of; a build of it counts where there is none of the source.
  Result<std::string> Coverage(const std::string& what, const data::Source& source, const data::Source* whole,
                               const data::SourceConfig& clips) const;
  // So many clips had to be encoded instead. Says so at the first time; an error where all is required.
  Status NoteLive(size_t clips, double seconds);
  std::vector<std::pair<std::string, double>> Metrics() const;

 private:
  FeatureLookup() = default;
  Result<cache::PlanCoverage> Published(const data::Source& source, const data::SourceConfig& clips) const;
  void NoteRead(const std::string& why);

  std::string key_;
  bool required_ = false;
  std::unique_ptr<cache::Reader> reader_;
  cache::Arbiter arbiter_;
  std::atomic<bool> choose_{false};
  std::atomic<uint64_t> hits_{0}, misses_{0}, damaged_{0}, live_{0};
  std::mutex mutex_;
  std::string first_reason_;  // why a record could not be read
  std::atomic<bool> said_{false};
};

}  // namespace lockstep::recipes
