// The inventory as text that one rank writes and the others read: fields divided by zero bytes, which no path contains.
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/digits.h"
#include "base/text.h"
#include "data/file_source.h"
#include "data/listing.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kHead = "lockstep-index-1";

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
  bool Next(size_t* count) {
    std::string_view text;
    if (!Next(&text)) return false;
    const std::optional<size_t> number = ParseDigits<size_t>(text);
    *count = number.value_or(0);
    return number && *count <= rest_.size();
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

bool ReadVideo(Fields& fields, const std::string& root, Video* video) {
  size_t pictures = 0;
  if (!fields.Next(&video->origin) || !fields.Next(&video->path) || !fields.Next(&pictures)) return false;
  if (video->path.empty()) video->path = JoinPath(root, video->origin);
  video->pictures.resize(pictures);
  for (std::string& picture : video->pictures) {
    if (!fields.Next(&picture)) return false;
  }
  return true;
}

// Nodes with other data would train on other samples; looking at a few files finds a missing mount for the price of
// a few requests.
Status SpotCheck(const Inventory& inventory) {
  constexpr size_t kLooks = 16;
  const size_t count = inventory.videos.size();
  for (size_t i = 0; i < std::min(kLooks, count); ++i) {
    const Video& video = inventory.videos[i * count / std::min(kLooks, count)];
    const std::string path = video.pictures.empty() ? video.path : JoinPath(video.path, video.pictures.front());
    struct stat info{};
    if (::stat(path.c_str(), &info) == 0) continue;
    return Status(Code::kEnvironment,
                  fmt::format("'{}' is listed by rank 0 but cannot be read here: {}", path, ErrnoText(errno)),
                  "give every node the same files under data.path");
  }
  return Status::Ok();
}

}  // namespace

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
  add(std::to_string(inventory.videos.size()));
  for (const Video& video : inventory.videos) {
    add(video.origin);
    add(video.path == JoinPath(config.path, video.origin) ? "" : video.path);
    add(std::to_string(video.pictures.size()));
    for (const std::string& picture : video.pictures) add(picture);
  }
  return text;
}

Result<Inventory> ReadIndex(std::string_view text, const SourceConfig& config) {
  Fields fields(text);
  Inventory inventory;
  std::string_view head, root;
  size_t count = 0;
  const Status damaged(Code::kInternal, fmt::format("the index of '{}' is damaged", config.annotations));
  if (!fields.Next(&head) || head != kHead || !fields.Next(&root)) return damaged;
  if (root != config.path) {
    return Status(Code::kUsage,
                  fmt::format("data.path is '{}' on rank 0 and '{}' here", Printable(root), Printable(config.path)));
  }
  if (!fields.Next(&inventory.digest) || !fields.Next(&inventory.notes) || !fields.Next(&count)) return damaged;
  inventory.videos.resize(count);
  for (Video& video : inventory.videos) {
    if (!ReadVideo(fields, config.path, &video)) return damaged;
  }
  if (!fields.done() || inventory.videos.empty()) return damaged;
  LOCKSTEP_RETURN_IF_ERROR(SpotCheck(inventory));
  return inventory;
}

}  // namespace lockstep::data
