#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "base/files.h"
#include "base/text.h"
#include "data/annotations.h"
#include "data/file_source.h"
#include "data/index_journal.h"
#include "data/key_frames.h"
#include "data/listing.h"
#include "data/parallel.h"
#include "data/video.h"

namespace lockstep::data {
namespace {

size_t CountFiles(const std::vector<Folder>& folders, bool (*accept)(std::string_view)) {
  size_t count = 0;
  for (const Folder& folder : folders) count += std::ranges::count_if(folder.files, accept);
  return count;
}

Status NothingUsable(const SourceConfig& config, const char* wanted, const char* names,
                     const std::vector<Folder>& folders) {
  std::string hint;
  if (config.kind != "videos" && CountFiles(folders, IsVideoName) > 0) {
    hint = "kind: videos reads video files";
  } else if (config.kind == "videos" && CountFiles(folders, IsImageName) > 0) {
    hint = "kind: frames reads folders of PNG and JPEG frames";
  } else {
    hint = "check the path of the data";
  }
  return Status(Code::kUsage,
                fmt::format("no {} in '{}': looked for {} in it and {} folder{} below, found {}", wanted, config.path,
                            names, folders.size() - 1, folders.size() == 2 ? "" : "s", SummarizeFiles(folders)),
                hint);
}

// The last part of a path, for a folder that is itself the one video.
std::string BaseName(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::vector<Picture> Pictures(const std::vector<std::string>& files) {
  std::vector<Picture> pictures;
  for (const std::string& file : files) {
    if (IsImageName(file)) pictures.push_back({file});
  }
  return pictures;
}

Result<Inventory> FromFrames(const SourceConfig& config) {
  Result<std::vector<Folder>> folders = ListFolders(config.path);
  if (!folders.ok()) return folders.status();
  Inventory inventory;
  size_t in_root = 0;
  for (const Folder& folder : *folders) {
    std::vector<Picture> pictures = Pictures(folder.files);
    if (pictures.empty()) continue;
    if (folder.name.empty()) in_root = pictures.size();
    inventory.videos.push_back({folder.name.empty() ? BaseName(config.path) : folder.name,
                                JoinPath(config.path, folder.name), std::move(pictures)});
  }
  if (inventory.videos.empty()) return NothingUsable(config, "frames", kImageNames, *folders);
  if (in_root > 0 && inventory.videos.size() > 1) {
    return Status(Code::kUsage,
                  fmt::format("'{}' holds {} itself and {} with frames below: one video or many?", config.path,
                              Count(static_cast<int64_t>(in_root), "frame"),
                              Count(static_cast<int64_t>(inventory.videos.size()) - 1, "folder")),
                  "move the frames into a folder of their own");
  }
  return inventory;
}

Result<Inventory> FromImages(const SourceConfig& config) {
  Result<std::vector<Folder>> folders = ListFolders(config.path);
  if (!folders.ok()) return folders.status();
  Inventory inventory;
  for (const Folder& folder : *folders) {
    for (Picture& picture : Pictures(folder.files)) {
      inventory.videos.push_back(
          {JoinPath(folder.name, picture.name), JoinPath(config.path, folder.name), {std::move(picture)}});
    }
  }
  if (inventory.videos.empty()) return NothingUsable(config, "images", kImageNames, *folders);
  return inventory;
}

Result<Inventory> FromVideos(const SourceConfig& config) {
  if (!HasVideo()) return NoVideoSupport();
  Inventory inventory;
  struct stat info{};
  if (::stat(config.path.c_str(), &info) != 0) return FileError("read", config.path, errno);
  if (S_ISREG(info.st_mode)) {
    inventory.videos.push_back({BaseName(config.path), config.path, {}});
    return inventory;
  }
  Result<std::vector<Folder>> folders = ListFolders(config.path);
  if (!folders.ok()) return folders.status();
  for (const Folder& folder : *folders) {
    for (const std::string& file : folder.files) {
      if (!IsVideoName(file)) continue;
      const std::string name = JoinPath(folder.name, file);
      inventory.videos.push_back({name, JoinPath(config.path, name), {}});
    }
  }
  if (inventory.videos.empty()) return NothingUsable(config, "videos", kVideoNames, *folders);
  return inventory;
}

// What exists among paths, asked folder by folder.
class Existing {
 public:
  // Null: there is no such thing.
  const Entry* Find(const std::string& path) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
    auto [it, fresh] = folders_.try_emplace(folder);
    if (fresh) {
      Result<std::vector<Entry>> entries = ListEntries(folder, /*hidden=*/true);
      if (entries.ok()) {  // a folder that is not there holds none of the files
        for (Entry& entry : *entries) it->second.emplace(entry.name, entry);
      }
    }
    const auto entry = it->second.find(slash == std::string::npos ? path : path.substr(slash + 1));
    return entry == it->second.end() ? nullptr : &entry->second;
  }

 private:
  std::unordered_map<std::string, std::unordered_map<std::string, Entry>> folders_;
};

// One name for one file, however the list writes it ("a/../v.mp4", an absolute path below the root): a split by name
// would else put the same pictures on both sides.
std::string OriginOf(const std::string& root, const std::string& path) {
  const std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  if (root.empty()) return whole.string();
  const std::filesystem::path below = whole.lexically_relative(std::filesystem::path(root + "/.").lexically_normal());
  return below.empty() || *below.begin() == ".." ? whole.string() : below.string();
}

Result<Inventory> FromAnnotations(const SourceConfig& config) {
  if (config.annotations.empty()) {
    return Status(Code::kUsage, "kind annotations needs the annotation file, and none is given",
                  "set annotations to a JSON file (docs/formats/annotations.md)");
  }
  Result<Annotations> annotations = ReadAnnotations(config.annotations);
  if (!annotations.ok()) return annotations.status();
  Inventory inventory;
  inventory.digest = annotations->digest;
  Existing existing;
  std::vector<std::string> missing;
  for (std::string& name : annotations->paths) {
    while (name.size() > 1 && name.ends_with('/')) name.pop_back();
    const std::string path = JoinPath(config.path, name);
    const Entry* entry = existing.Find(path);
    if (entry == nullptr) {
      inventory.digest += "\n" + name;
      missing.push_back(path);
      continue;
    }
    Video video{OriginOf(config.path, path), path, {}};
    if (entry->is_folder) {
      Result<std::vector<Entry>> inside = ListEntries(path);
      if (!inside.ok()) return inside.status();
      for (const Entry& file : *inside) {
        if (!file.is_folder && IsImageName(file.name)) video.pictures.push_back({file.name});
      }
      if (video.pictures.empty()) {
        return Status(Code::kUsage, fmt::format("{}: '{}' is a folder without frames (looked for {})",
                                                config.annotations, path, kImageNames));
      }
    } else if (IsImageName(name)) {
      const size_t slash = path.rfind('/');
      video.path = slash == std::string::npos ? "" : path.substr(0, slash);
      video.pictures = {{slash == std::string::npos ? path : path.substr(slash + 1)}};
    } else if (!HasVideo()) {
      return NoVideoSupport().Context(fmt::format("'{}'", path));
    }
    inventory.videos.push_back(std::move(video));
  }
  if (inventory.videos.empty()) {
    return Status(Code::kUsage,
                  fmt::format("{}: none of the {} it lists exists below '{}' (the first: '{}')", config.annotations,
                              Count(static_cast<int64_t>(missing.size()), "file"), config.path, missing.front()),
                  "check the root of the data: paths of the list are relative to it");
  }
  if (!missing.empty()) {
    std::vector<std::string> named(missing.begin(), missing.begin() + std::min<size_t>(missing.size(), 3));
    inventory.notes = fmt::format("{} of {} listed files missing: {}{}", missing.size(), annotations->paths.size(),
                                  Join(named, ", "), missing.size() > 3 ? ", ..." : "");
  }
  return inventory;
}

// Only the videos that are asked for by name, in the order they are asked for.
Status KeepNamed(const std::vector<std::string>& names, Inventory* inventory) {
  std::unordered_map<std::string, const Video*> by_name;
  std::vector<std::string> known;
  for (const Video& video : inventory->videos) {
    by_name.emplace(video.origin, &video);
    known.push_back(video.origin);
  }
  std::vector<Video> kept;
  for (const std::string& name : names) {
    const auto it = by_name.find(name);
    if (it == by_name.end()) {
      return Status(Code::kUsage, fmt::format("the data has no video '{}'{}", name, DidYouMean(name, known)));
    }
    kept.push_back(*it->second);
  }
  inventory->videos = std::move(kept);
  return Status::Ok();
}

}  // namespace

namespace {

void MeasureVideo(Video* video) {
  const auto size_of = [](const std::string& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : kMissing;
  };
  if (video->packed) return;
  if (video->pictures.empty()) video->bytes = size_of(video->path);
  for (Picture& picture : video->pictures) picture.bytes = size_of(JoinPath(video->path, picture.name));
}

// What a journal knows about the video, if that is the video which is there now.
bool Recall(const SourceConfig& config, const std::string& key, Video* video) {
  const std::string* record = config.journal->Find(key);
  std::vector<Video> known;
  if (record == nullptr || !ReadVideos(*record, config.path, &known) || known.size() != 1) return false;
  if (!std::ranges::equal(known[0].pictures, video->pictures, {}, &Picture::name, &Picture::name)) return false;
  *video = std::move(known[0]);
  return true;
}

}  // namespace

void MeasureFiles(Inventory* inventory, const FileCheck& check) {
  if (!inventory->digest.empty() && !check.all) return;
  ForEachAtOnce(inventory->videos.size(), [&](size_t i) { MeasureVideo(&inventory->videos[i]); });
}

void MeasureForIndex(const SourceConfig& config, const IndexOptions& options, Inventory* inventory) {
  const bool files = inventory->digest.empty() || config.check.all;
  const auto measure = [&](size_t i) {
    Video& video = inventory->videos[i];
    const bool asked = (files && !video.packed) || options.sizes || (options.key_frames && video.pictures.empty());
    if (!asked) return;
    const std::string key = fmt::format("video {} {}", video.path, video.origin);
    if (config.journal != nullptr && Recall(config, key, &video)) return;
    if (files) MeasureVideo(&video);
    if (options.sizes) MeasurePicture(&video);
    if (options.key_frames && video.pictures.empty()) {
      const VideoPart part{video.path, video.path, video.offset, video.packed ? video.bytes : 0};
      const Result<KeyFrames> found = FindKeyFrames(part, nullptr);
      if (found.ok()) video.keys = WriteKeyFrames(*found);
    }
    if (config.journal != nullptr) config.journal->Add(key, WriteVideos({&video, 1}, config.path));
  };
  ForEachShown(inventory->videos.size(), measure, config.index_progress);
  inventory->measured = inventory->measured || options.sizes;
}

Result<Inventory> TakeInventory(const SourceConfig& config) {
  using Take = Result<Inventory> (*)(const SourceConfig&);
  static const std::map<std::string, Take> kKinds = {{"frames", FromFrames},  {"images", FromImages},
                                                     {"videos", FromVideos},  {"annotations", FromAnnotations},
                                                     {"tar", InventoryOfTar}, {"lmdb", InventoryOfLmdb}};
  const auto kind = kKinds.find(config.kind);
  if (kind == kKinds.end()) return Status(Code::kInternal, "no kind of files: " + config.kind);
  Result<Inventory> inventory = kind->second(config);
  if (inventory.ok() && !config.names.empty()) LOCKSTEP_RETURN_IF_ERROR(KeepNamed(config.names, &*inventory));
  return inventory;
}

}  // namespace lockstep::data
