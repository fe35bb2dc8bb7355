// The inventory as text that one rank writes and the others read: fields divided by zero bytes, which no path contains.
#include <fmt/format.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <mutex>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"
#include "data/file_source.h"
#include "data/listing.h"
#include "data/parallel.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kHead = "lockstep-index-3";

class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}

  // False: the text is cut.
  bool Next(std::string_view* field) {
    const size_t end = rest_.find('\0');
    if (end == std::string_view::npos) return false;
    *field = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return true;
  }
  bool Next(std::string* field) {
    std::string_view text;
    if (!Next(&text)) return false;
    *field = text;
    return true;
  }
  bool Next(uint64_t* value) {
    std::string_view text;
    if (!Next(&text)) return false;
    const std::optional<uint64_t> number = ParseDigits<uint64_t>(text);
    *value = number.value_or(0);
    return number.has_value();
  }
  // Of things that follow.
  bool NextCount(size_t* count) { return Next(count) && *count <= rest_.size(); }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

bool ReadVideo(Fields& fields, const std::string& root, Video* video) {
  size_t pictures = 0;
  uint64_t packed = 0, width = 0, height = 0;
  if (!fields.Next(&video->origin) || !fields.Next(&video->path) || !fields.Next(&packed) ||
      !fields.Next(&video->offset) || !fields.Next(&video->bytes) || !fields.Next(&width) || !fields.Next(&height) ||
      !fields.Next(&video->keys) || !fields.NextCount(&pictures)) {
    return false;
  }
  constexpr uint64_t kMostSide = 1 << 28;
  if (width > kMostSide || height > kMostSide) return false;
  video->width = static_cast<int>(width), video->height = static_cast<int>(height);
  if (video->path.empty()) video->path = JoinPath(root, video->origin);
  video->packed = packed != 0;
  video->pictures.resize(pictures);
  for (Picture& picture : video->pictures) {
    if (!fields.Next(&picture.name) || !fields.Next(&picture.bytes)) return false;
    if (video->packed && !fields.Next(&picture.offset)) return false;
  }
  return true;
}

// Every file of the inventory: of a container once for each part that is read from it.
Status CheckInventory(const Inventory& inventory, const FileCheck& check) {
  std::vector<size_t> starts = {0};  // of each video's files among all
  for (const Video& video : inventory.videos) {
    starts.push_back(starts.back() + std::max<size_t>(video.pictures.size(), 1));
  }
  return CheckFiles(starts.back(), check, [&](size_t file) {
    const size_t at = std::ranges::upper_bound(starts, file) - starts.begin() - 1;
    const Video& video = inventory.videos[at];
    const Picture* picture = video.pictures.empty() ? nullptr : &video.pictures[file - starts[at]];
    const uint64_t bytes = picture == nullptr ? video.bytes : picture->bytes;
    const uint64_t offset = picture == nullptr ? video.offset : picture->offset;
    if (video.packed) return LookAtFile(video.path, offset + bytes, /*at_least=*/true);
    return LookAtFile(picture == nullptr ? video.path : JoinPath(video.path, picture->name), bytes, /*at_least=*/false);
  });
}

// Behind the text of an index file.
std::string SumOf(std::string_view index) {
  return fmt::format("xxh64:{:016x}\n", static_cast<uint64_t>(XXH64(index.data(), index.size(), 0)));
}

}  // namespace

Status LookAtFile(const std::string& path, uint64_t bytes, bool at_least) {
  const char* const hint = "give every node the same files under data.path";
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    if (bytes == kMissing) return Status::Ok();  // nor could rank 0
    return Status(Code::kEnvironment,
                  fmt::format("'{}' is listed by rank 0 but cannot be read here: {}", path, ErrnoText(errno)), hint);
  }
  const auto here = static_cast<uint64_t>(info.st_size);
  if (bytes == 0 || (at_least ? bytes <= here : bytes == here)) return Status::Ok();
  if (bytes == kMissing) return Status(Code::kEnvironment, fmt::format("'{}' is here and not on rank 0", path), hint);
  return Status(Code::kEnvironment,
                at_least ? fmt::format("'{}' has {} bytes here, rank 0's reaches beyond", path, here)
                         : fmt::format("'{}' has {} bytes here and {} on rank 0", path, here, bytes),
                hint);
}

// Nodes with other data would train on other samples; looking at a few files, spread over all, finds a missing mount or
// another copy for the price of a few requests. Small data sets are looked at as a whole.
Status CheckFiles(size_t files, const FileCheck& check, const std::function<Status(size_t)>& look) {
  constexpr size_t kLooks = 64;
  const size_t few = std::min(kLooks, files);
  const size_t looks = check.all ? files / check.parts + (check.part < files % check.parts ? 1 : 0) : few;
  std::mutex mutex;
  size_t failed = looks;  // the first
  Status error;
  ForEachAtOnce(looks, [&](size_t i) {
    const size_t spread = few <= 1 ? 0 : i * (files - 1) / (few - 1);
    Status status = look(check.all ? i * check.parts + check.part : spread);
    const std::lock_guard lock(mutex);
    if (status.ok() || i >= failed) return;
    failed = i;
    error = std::move(status);
  });
  return error;
}

Status WriteIndexFile(const std::string& path, std::string_view index) {
  return WriteFileAtomic(path, std::string(index) + SumOf(index));
}

Result<std::string> ReadIndexFile(const std::string& path) {
  constexpr size_t kMostBytes = size_t{64} << 30;
  Result<std::string> text = ReadFile(path, kMostBytes);
  if (!text.ok()) return text.status();
  const size_t sum = SumOf("").size();
  const std::string_view index(text->data(), text->size() - std::min(sum, text->size()));
  if (SumOf(index) != std::string_view(*text).substr(index.size())) {
    return Status(Code::kUsage, fmt::format("'{}' is no index of this version, or it is damaged", path),
                  "make it again with `lockstep data index`");
  }
  text->resize(index.size());
  return text;
}

std::string WriteIndex(const Inventory& inventory, const SourceConfig& config) {
  std::string text;
  const auto add = [&text](std::string_view field) {
    text += field;
    text += '\0';
  };
  add(kHead);
  add(config.path);
  add(inventory.digest);
  add(inventory.notes);
  add(inventory.measured ? "1" : "0");
  add(std::to_string(inventory.videos.size()));
  return text + WriteVideos(inventory.videos, config.path);
}

std::string WriteVideos(std::span<const Video> videos, const std::string& root) {
  std::string text;
  const auto add = [&text](std::string_view field) {
    text += field;
    text += '\0';
  };
  for (const Video& video : videos) {
    add(video.origin);
    add(video.path == JoinPath(root, video.origin) ? "" : video.path);
    add(video.packed ? "1" : "0");
    add(std::to_string(video.offset));
    add(std::to_string(video.bytes));
    add(std::to_string(video.width));
    add(std::to_string(video.height));
    add(video.keys);
    add(std::to_string(video.pictures.size()));
    for (const Picture& picture : video.pictures) {
      add(picture.name);
      add(std::to_string(picture.bytes));
      if (video.packed) add(std::to_string(picture.offset));
    }
  }
  return text;
}

bool ReadVideos(std::string_view text, const std::string& root, std::vector<Video>* videos) {
  for (Fields fields(text); !fields.done();) {
    if (!ReadVideo(fields, root, &videos->emplace_back())) return false;
  }
  return true;
}

Result<Inventory> ReadIndex(std::string_view text, const SourceConfig& config) {
  Fields fields(text);
  Inventory inventory;
  std::string_view head, root;
  size_t count = 0;
  const Status damaged(Code::kInternal, fmt::format("the index of '{}' is damaged",
                                                    config.kind == "annotations" ? config.annotations : config.path));
  if (!fields.Next(&head)) return damaged;
  if (head != kHead) {
    return Status(Code::kUsage,
                  fmt::format("the index is of another version ({}; this one reads {})", Printable(head), kHead),
                  "make it again with `lockstep data index`");
  }
  if (!fields.Next(&root)) return damaged;
  if (root != config.path) {
    return Status(Code::kUsage,
                  fmt::format("data.path is '{}' in the index and '{}' here", Printable(root), Printable(config.path)));
  }
  uint64_t measured = 0;
  if (!fields.Next(&inventory.digest) || !fields.Next(&inventory.notes) || !fields.Next(&measured) ||
      !fields.NextCount(&count)) {
    return damaged;
  }
  inventory.measured = measured != 0;
  inventory.videos.resize(count);
  for (Video& video : inventory.videos) {
    if (!ReadVideo(fields, config.path, &video)) return damaged;
  }
  if (!fields.done() || inventory.videos.empty()) return damaged;
  LOCKSTEP_RETURN_IF_ERROR(CheckInventory(inventory, config.check));
  return inventory;
}

}  // namespace lockstep::data
