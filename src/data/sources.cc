#include "data/sources.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/text.h"
#include "data/bucketed_source.h"
#include "data/clip_transform.h"
#include "data/episodes.h"
#include "data/file_source.h"
#include "data/pace.h"
#include "data/random.h"
#include "data/rows.h"
#include "data/scene.h"

namespace lockstep::data {
namespace {

// Scenes drawn from a seed. Augmentation moves the camera and the clock, flips, and changes colours.
class ClipsSource final : public Source {
 public:
  // Scenes first, first + step, first + 2 step, ... of config.clips.
  explicit ClipsSource(const SourceConfig& config, uint64_t first = 0, uint64_t step = 1)
      : config_(config),
        first_(first),
        step_(step),
        fields_{{"frames", ElementType::kU8, {config.frames, 3, config.height, config.width}}} {}

  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return (config_.clips - first_ + step_ - 1) / step_; }
  std::string Name(uint64_t index) const override { return fmt::format("clip {}", SceneOf(index)); }

  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    Scene scene(config_.seed, SceneOf(draw.index), config_.height, config_.width);
    View view;
    view.stride = config_.min_stride;
    if (draw.augment) {
      Random time(draw.seed, draw.epoch, draw.index, Purpose::kTime);
      view.stride = static_cast<double>(time.Between(config_.min_stride, config_.max_stride));
      view.time = time.Uniform(0, 16);
      Random crop(draw.seed, draw.epoch, draw.index, Purpose::kCrop);
      view.zoom = 1 / crop.Uniform(0.8, 1.0);
      view.shift_x = crop.Uniform(-0.15, 0.15);
      view.shift_y = crop.Uniform(-0.15, 0.15);
    }
    const bool flip = DrawFlip(draw, config_.flip);
    const Colour colour = DrawColour(draw, config_.colour);
    const size_t pixels = static_cast<size_t>(config_.height) * config_.width;
    for (int frame = 0; frame < config_.frames; ++frame) {
      if (draw.cancelled != nullptr && *draw.cancelled) return Status(Code::kInterrupted, "reading was stopped");
      auto* planes = reinterpret_cast<uint8_t*>(out[0]) + frame * 3 * pixels;
      scene.Render(view, frame, planes);
      if (flip) FlipHorizontally(planes, config_.width, config_.height);
      ApplyColour(colour, planes, pixels);
    }
    return Status::Ok();
  }

  std::string Describe() const override {
    return fmt::format("clips: {} generated scenes from seed {}", config_.clips, config_.seed);
  }
  std::string Digest() const override {
    // 2: the second kind of scenes. A training on others does not go on with these.
    const std::string identity = fmt::format("clips 2 {} {}", config_.seed, config_.clips);
    return fmt::format("xxh64:{:016x}", static_cast<uint64_t>(XXH64(identity.data(), identity.size(), 0)));
  }

 private:
  uint64_t SceneOf(uint64_t index) const { return first_ + index * step_; }

  SourceConfig config_;
  uint64_t first_, step_;
  std::vector<Field> fields_;
};

// A few large files, each with its own index: every rank opens them for itself.
bool IsRowKind(const std::string& kind) { return kind == "hdf5" || kind == "safetensors"; }

Status Check(const SourceConfig& config) {
  const std::vector<std::string>& kinds = SourceKinds();
  if (std::ranges::find(kinds, config.kind) == kinds.end()) {
    return Status(Code::kUsage, fmt::format("unknown kind of data '{}'{}", config.kind, DidYouMean(config.kind, kinds)),
                  "kinds: " + Join(kinds, " "));
  }
  struct Limit {
    const char* name;
    int64_t value;
    int64_t low;
    int64_t high;
  };
  constexpr int64_t kMaxFrames = 1 << 16;
  constexpr int64_t kMaxSide = 8192;
  for (const Limit& limit :
       {Limit{"frames", config.frames, 1, kMaxFrames}, Limit{"height", config.height, 1, kMaxSide},
        Limit{"width", config.width, 1, kMaxSide}, Limit{"min_stride", config.min_stride, 1, kMaxFrames},
        Limit{"max_stride", config.max_stride, config.min_stride, kMaxFrames}}) {
    if (limit.value >= limit.low && limit.value <= limit.high) continue;
    return Status(Code::kUsage, fmt::format("{} of the data is {}; expected {} to {}", limit.name, limit.value,
                                            limit.low, limit.high));
  }
  struct Choice {
    const char* name;
    const std::string& value;
    const std::vector<std::string>& choices;
  };
  const std::vector<std::string> decodes = {"exact", "scaled"};
  for (const Choice& choice : {Choice{"resize", config.resize, kResizeNames}, {"decode", config.decode, decodes}}) {
    if (std::ranges::find(choice.choices, choice.value) != choice.choices.end()) continue;
    return Status(Code::kUsage, fmt::format("{} of the data is '{}'; expected one of: {}", choice.name, choice.value,
                                            Join(choice.choices, " ")));
  }
  if (config.kind == "clips") {
    if (config.clips == 0) return Status(Code::kUsage, "clips of the data is 0; expected at least 1");
    return Status::Ok();
  }
  if (config.clips_per_video == 0) return Status(Code::kUsage, "clips_per_video is 0; expected at least 1");
  if (config.path.empty() && config.kind != "annotations") {
    return Status(Code::kUsage, fmt::format("kind {} needs the path of the data, and none is given", config.kind));
  }
  if (config.kind == "images" && config.frames != 1) {
    return Status(Code::kUsage, fmt::format("kind images gives clips of one frame, but frames is {}", config.frames),
                  "set frames to 1, or use kind frames if the images are frames of a video");
  }
  return Status::Ok();
}

}  // namespace

const std::vector<std::string>& SourceKinds() {
  static const auto& kinds = *new std::vector<std::string>{"clips", "frames", "images", "videos",      "annotations",
                                                           "tar",   "lmdb",   "hdf5",   "safetensors", "episodes"};
  return kinds;
}

namespace {

std::unique_ptr<Source> BucketsOfClips(const SourceConfig& config, const std::vector<ImageSize>& sizes) {
  std::vector<std::shared_ptr<const Source>> parts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    SourceConfig part = config;
    part.height = sizes[i].height, part.width = sizes[i].width;
    parts.push_back(std::make_shared<ClipsSource>(part, i, sizes.size()));
  }
  return JoinBuckets(std::move(parts), sizes, "generated clips");
}

// A source for each bucket that has a video. The assignment needs the sizes that an inventory with buckets has.
std::unique_ptr<Source> BucketsOfFiles(const SourceConfig& config, Inventory inventory,
                                       const std::vector<ImageSize>& sizes) {
  std::vector<Inventory> split(sizes.size());
  for (Video& video : inventory.videos) {
    split[ChooseBucket(sizes, {video.height, video.width})].videos.push_back(std::move(video));
  }
  std::vector<std::shared_ptr<const Source>> parts;
  std::vector<ImageSize> used;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (split[i].videos.empty()) continue;
    SourceConfig part = config;
    part.height = sizes[i].height, part.width = sizes[i].width;
    split[i].digest = inventory.digest;
    split[i].notes = inventory.notes;
    parts.push_back(MakeFileSource(part, std::move(split[i])));
    used.push_back(sizes[i]);
  }
  std::string what =
      fmt::format("{} in {}", config.kind, config.kind == "annotations" ? config.annotations : config.path);
  if (!inventory.notes.empty()) what += " (" + inventory.notes + ")";
  return JoinBuckets(std::move(parts), used, std::move(what));
}

}  // namespace

Result<std::unique_ptr<Source>> OpenSource(const SourceConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(Check(config));
  const Result<std::vector<ImageSize>> buckets = ParseSizes(config.buckets);
  if (!buckets.ok()) return buckets.status();
  if (!buckets->empty() && (IsRowKind(config.kind) || config.kind == "episodes")) {
    return Status(Code::kUsage, fmt::format("kind {} has no buckets: all its pictures have one size", config.kind),
                  "give height and width instead");
  }
  if (config.kind == "clips" && !buckets->empty()) {
    if (config.clips >= buckets->size()) return BucketsOfClips(config, *buckets);
    return Status(Code::kUsage,
                  fmt::format("{} clips leave some of the {} buckets empty", config.clips, buckets->size()));
  }
  if (config.kind == "clips") return std::unique_ptr<Source>(std::make_unique<ClipsSource>(config));
  if (IsRowKind(config.kind)) return OpenRowClips(config);
  if (config.kind == "episodes") {
    Result<std::unique_ptr<EpisodeSource>> episodes = OpenEpisodes(config);
    if (!episodes.ok()) return episodes.status();
    return std::unique_ptr<Source>(std::move(*episodes));
  }
  Result<Inventory> inventory = config.index ? ReadIndex(*config.index, config) : TakeInventory(config);
  if (!inventory.ok()) return inventory.status();
  if (!config.index) MeasureFiles(&*inventory, config.check);
  if (!buckets->empty()) MeasurePictures(&*inventory);
  const auto frames = static_cast<size_t>(config.frames);
  const auto too_short = [&](const Video& video) { return !video.pictures.empty() && video.pictures.size() < frames; };
  const auto shorts = static_cast<size_t>(std::ranges::count_if(inventory->videos, too_short));
  if (shorts == inventory->videos.size()) {
    const Video& longest =
        *std::ranges::max_element(inventory->videos, {}, [](const Video& video) { return video.pictures.size(); });
    return Status(Code::kUsage,
                  fmt::format("clips need {} frames, but none of the {} videos has that many (the longest, "
                              "'{}', has {})",
                              frames, shorts, longest.path, longest.pictures.size()));
  }
  if (shorts > 0) {
    inventory->notes += fmt::format("{}{} of {} too short for {} frames", inventory->notes.empty() ? "" : "; ", shorts,
                                    inventory->videos.size(), frames);
  }
  if (!buckets->empty()) return BucketsOfFiles(config, std::move(*inventory), *buckets);
  return MakeFileSource(config, std::move(*inventory));
}

Result<std::string> IndexSource(const SourceConfig& config, const IndexOptions& options) {
  if (config.kind == "clips" || IsRowKind(config.kind)) return std::string();
  LOCKSTEP_RETURN_IF_ERROR(Check(config));
  if (config.kind == "episodes") return IndexEpisodes(config);
  Result<Inventory> inventory = TakeInventory(config);
  if (!inventory.ok()) return inventory.status();
  IndexOptions wanted = options;
  wanted.sizes = wanted.sizes || !config.buckets.empty();
  MeasureForIndex(config, wanted, &*inventory);
  return WriteIndex(*inventory, config);
}

Result<std::string> IndexForBuckets(std::string index, const SourceConfig& config) {
  if (config.buckets.empty()) return index;
  Result<Inventory> inventory = ReadIndex(index, config);
  if (!inventory.ok() || inventory->measured)
    return inventory.ok() ? Result<std::string>(std::move(index)) : inventory.status();
  MeasurePictures(&*inventory);
  return WriteIndex(*inventory, config);
}

}  // namespace lockstep::data
