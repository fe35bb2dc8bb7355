// Pictures and videos that lie in containers: tar shards in WebDataset's layout, LMDB in KAIR's.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/digits.h"
#include "base/text.h"
#include "data/file_source.h"
#include "data/index_journal.h"
#include "data/listing.h"
#include "data/lmdb_listing.h"
#include "data/parallel.h"
#include "data/tar_listing.h"
#include "data/text_listing.h"
#include "data/video_reader.h"

namespace lockstep::data {
namespace {

const FileNames kTarFiles = {"*.tar", [](std::string_view name) { return name.ends_with(".tar"); }};

struct Samples {
  std::vector<Video> videos;
  size_t without_pictures = 0;
};

// Members of one key, in the order of their first ones.
Result<Samples> SamplesOf(const TextFile& shard) {
  Result<std::vector<TarMember>> members = ListTar(shard.path);
  if (!members.ok()) return members.status();
  Samples samples;
  std::unordered_map<std::string_view, size_t> by_key;
  for (const TarMember& member : *members) {
    const std::string_view key = SplitSampleName(member.name).first;
    const auto [it, fresh] = by_key.try_emplace(key, samples.videos.size());
    if (fresh) samples.videos.push_back({.origin = JoinPath(shard.name, std::string(key)), .path = shard.path});
    Video& video = samples.videos[it->second];
    const bool picture = IsImageName(member.name);
    if (!picture && !IsVideoName(member.name)) continue;
    if (video.packed && (!picture || video.pictures.empty())) {
      return Status(Code::kUsage,
                    fmt::format("'{}': sample '{}' has a video and another picture or video", shard.path, key));
    }
    video.packed = true;
    if (picture) {
      video.pictures.push_back({member.name, member.bytes, member.offset});
    } else {
      video.offset = member.offset, video.bytes = member.bytes;
    }
  }
  for (Video& video : samples.videos) {
    std::ranges::sort(video.pictures, NaturalLess, &Picture::name);
    const auto twice = std::ranges::adjacent_find(video.pictures, {}, &Picture::name);
    if (twice == video.pictures.end()) continue;
    return Status(Code::kUsage, fmt::format("'{}': sample '{}' has '{}' twice", shard.path, video.origin, twice->name),
                  "the members of a sample differ in what follows the first dot of their names");
  }
  samples.without_pictures = std::erase_if(samples.videos, [](const Video& video) { return !video.packed; });
  return samples;
}

// With a journal: what an earlier process found in this file, if the file is still that one.
Result<Samples> ListedOrKnown(const SourceConfig& config, const TextFile& shard) {
  if (config.journal == nullptr) return SamplesOf(shard);
  const FileStamp stamp = StampOf(shard.path);
  const std::string key = fmt::format("tar {} {} {}", shard.path, stamp.bytes, stamp.changed);
  if (const std::string* record = config.journal->Find(key)) {
    const size_t line = record->find('\n');
    const std::optional<size_t> without = ParseDigits<size_t>(record->substr(0, line));
    Samples known;
    if (without && ReadVideos(std::string_view(*record).substr(line + 1), config.path, &known.videos)) {
      known.without_pictures = *without;
      return known;
    }
  }
  Result<Samples> samples = SamplesOf(shard);
  if (samples.ok()) {
    config.journal->Add(key,
                        fmt::format("{}\n{}", samples->without_pictures, WriteVideos(samples->videos, config.path)));
  }
  return samples;
}

}  // namespace

Result<Inventory> InventoryOfTar(const SourceConfig& config) {
  Result<std::vector<TextFile>> shards = ListTextFiles(config.path, kTarFiles);
  if (!shards.ok()) return shards.status();
  std::vector<Result<Samples>> found(shards->size(), Status(Code::kInternal, "not listed"));
  const auto list = [&](size_t i) { found[i] = ListedOrKnown(config, (*shards)[i]); };
  ForEachShown(shards->size(), list, config.index_progress);
  Inventory inventory;
  size_t without = 0;
  for (Result<Samples>& samples : found) {
    if (!samples.ok()) return samples.status();
    without += samples->without_pictures;
    std::ranges::move(samples->videos, std::back_inserter(inventory.videos));
  }
  if (inventory.videos.empty()) {
    return Status(Code::kUsage, fmt::format("no picture or video in the {} of '{}': looked for {} and {} in {}",
                                            Count(static_cast<int64_t>(shards->size()), "tar file"), config.path,
                                            kImageNames, kVideoNames, Count(static_cast<int64_t>(without), "sample")));
  }
  const bool videos = std::ranges::any_of(inventory.videos, [](const Video& video) { return video.pictures.empty(); });
  if (videos && !HasVideo()) return NoVideoSupport().Context(fmt::format("'{}'", config.path));
  if (without > 0) inventory.notes = fmt::format("{} without picture or video left out", Count(without, "sample"));
  return inventory;
}

// KAIR: key "clip/frame", value an encoded picture. Clips of one frame: every key is a sample.
Result<Inventory> InventoryOfLmdb(const SourceConfig& config) {
  Result<LmdbListing> listing = ListLmdb(config.path);
  if (!listing.ok()) return listing.status();
  if (listing->values.empty()) return Status(Code::kUsage, fmt::format("'{}' holds no keys", config.path));
  const std::string file = LmdbFile(config.path);
  Inventory inventory;
  std::unordered_map<std::string, size_t> by_clip;
  for (LmdbValue& value : listing->values) {
    if (value.key.find('\0') != std::string::npos) {
      return Status(Code::kUsage,
                    fmt::format("'{}': key '{}' is no text: expected clip/frame", file, Printable(value.key)));
    }
    const size_t slash = value.key.rfind('/');
    std::string clip = config.frames == 1 ? value.key : slash == std::string::npos ? "" : value.key.substr(0, slash);
    const auto [it, fresh] = by_clip.try_emplace(clip, inventory.videos.size());
    if (fresh) inventory.videos.push_back({.origin = clip.empty() ? "all" : clip, .path = file, .packed = true});
    inventory.videos[it->second].pictures.push_back({std::move(value.key), value.bytes, value.offset});
  }
  for (Video& video : inventory.videos) std::ranges::sort(video.pictures, NaturalLess, &Picture::name);
  std::ranges::sort(inventory.videos, NaturalLess, &Video::origin);
  return inventory;
}

}  // namespace lockstep::data
