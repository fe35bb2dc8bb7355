#include "data/file_source.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "data/clip_transform.h"
#include "data/image.h"
#include "data/listing.h"
#include "data/pace.h"
#include "data/parts.h"
#include "data/video.h"

namespace lockstep::data {
namespace {

class FileSource final : public Source {
 public:
  FileSource(const SourceConfig& config, Inventory inventory)
      : config_(config),
        inventory_(std::move(inventory)),
        fields_{{"frames", ElementType::kU8, {config.frames, 3, config.height, config.width}}} {
    for (Video& video : inventory_.videos) {
      if (!video.keys.empty()) keys_.Store(PartOf(video), std::exchange(video.keys, ""));
    }
  }

  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return inventory_.videos.size() * config_.clips_per_video; }
  std::string Name(uint64_t index) const override {
    const std::string path = PathOf(VideoOf(index));
    return config_.clips_per_video == 1 ? path : fmt::format("{} clip {}", path, index % config_.clips_per_video);
  }
  std::string Origin(uint64_t index) const override { return VideoOf(index).origin; }
  Status Read(const Draw& draw, std::span<std::byte* const> out) const override;
  std::string Describe() const override;
  std::string Digest() const override;

 private:
  const Video& VideoOf(uint64_t index) const { return inventory_.videos[index / config_.clips_per_video]; }
  std::string PathOf(const Video& video) const {
    if (video.pictures.size() == 1) return JoinPath(video.path, video.pictures[0].name);
    return video.packed ? fmt::format("{} in {}", video.origin, video.path) : video.path;
  }
  VideoPart PartOf(const Video& video) const {
    return {video.path, PathOf(video), video.packed ? video.offset : 0, video.packed ? video.bytes : 0};
  }
  Result<Image> Decode(const Draw& draw, const Video& video, const Picture& picture, const std::string& name) const {
    const WindowOf window = [&](int width, int height) { return WindowFor(draw, width, height); };
    if (!video.packed) return DecodeImage(name, window);
    Result<std::string> bytes = parts_.Read(video.path, picture.offset, picture.bytes, name);
    if (!bytes.ok()) return bytes.status();
    return DecodeImageBytes(*bytes, name, window);
  }
  Window WindowFor(const Draw& draw, int width, int height) const;
  ClipTransform TransformFor(const Draw& draw, const Image& image) const;
  Status ReadPictures(const Draw& draw, const Video& video, const Pace& pace, uint8_t* out) const;

  SourceConfig config_;
  Inventory inventory_;
  std::vector<Field> fields_;
  PartReader parts_;
  mutable KeyFrameCache keys_;
};

Status FileSource::Read(const Draw& draw, std::span<std::byte* const> out) const {
  const Video& video = VideoOf(draw.index);
  const Pace pace = DrawPace(draw, config_.frames, config_.min_stride, config_.max_stride,
                             draw.index % config_.clips_per_video, config_.clips_per_video);
  auto* planes = reinterpret_cast<uint8_t*>(out[0]);
  if (!video.pictures.empty()) return ReadPictures(draw, video, pace, planes);
  std::optional<ClipTransform> transform;
  const size_t frame_bytes = fields_[0].bytes() / config_.frames;
  const auto take = [&](const VideoFrame& frame) {
    if (!transform) {
      const Image whole{
          .width = frame.width, .height = frame.height, .whole_width = frame.width, .whole_height = frame.height};
      transform.emplace(TransformFor(draw, whole));
    }
    transform->Apply(frame.rgb, frame.stride, planes + frame.number * frame_bytes);
    return Status::Ok();
  };
  return ReadVideoClip(PartOf(video), pace, draw.cancelled, take, &keys_,
                       [&](int width, int height) { return WindowFor(draw, width, height); });
}

// The part of a picture that its crop needs. Reduced as far as the crop stays as large as the target.
Window FileSource::WindowFor(const Draw& draw, int width, int height) const {
  const Crop crop = DrawCrop(draw, width, height, config_.width, config_.height);
  const int left = std::max(crop.x, 0), top = std::max(crop.y, 0);
  Window window{left, top, std::min(crop.x + crop.width, width) - left, std::min(crop.y + crop.height, height) - top};
  for (const int reduction : {2, 4, 8}) {
    const bool large = crop.width / reduction >= config_.width && crop.height / reduction >= config_.height;
    if (config_.decode == "scaled" && large) window.reduction = reduction;
  }
  return window;
}

ClipTransform FileSource::TransformFor(const Draw& draw, const Image& image) const {
  Crop crop = DrawCrop(draw, image.whole_width, image.whole_height, config_.width, config_.height);
  const int r = image.reduction;
  if (r > 1) crop = {crop.x / r, crop.y / r, crop.width / r, crop.height / r};
  crop.x -= image.x;
  crop.y -= image.y;
  return {crop,
          DrawFlip(draw, config_.flip),
          DrawColour(draw, config_.colour),
          image.width,
          image.height,
          config_.width,
          config_.height,
          ResizeByName(config_.resize)};
}

Status FileSource::ReadPictures(const Draw& draw, const Video& video, const Pace& pace, uint8_t* out) const {
  const std::optional<Placed> placed = Place(pace, video.pictures.size());
  if (!placed) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' is too short: a clip needs {}, it has {}", PathOf(video),
                              Count(static_cast<int64_t>(pace.frames), "frame"), video.pictures.size()));
  }
  std::optional<ClipTransform> transform;
  std::string first_path;
  int width = 0;
  int height = 0;
  Window decoded;  // the part of a picture that the transform is for
  for (int i = 0; i < pace.frames; ++i) {
    if (draw.cancelled != nullptr && *draw.cancelled) return Status(Code::kInterrupted, "reading was stopped");
    const Picture& picture = video.pictures[placed->start + i * placed->stride];
    const std::string path = JoinPath(video.path, picture.name);
    Result<Image> image = Decode(draw, video, picture, path);
    if (!image.ok()) return image.status();
    const Window part{image->x, image->y, image->width, image->height, image->reduction};
    if (!transform) {
      transform.emplace(TransformFor(draw, *image));
      first_path = path;
      width = image->whole_width;
      height = image->whole_height;
      decoded = part;
    } else if (image->whole_width != width || image->whole_height != height) {
      return Status(Code::kEnvironment,
                    fmt::format("frames of mixed size in one clip: '{}' is {}x{}, '{}' is {}x{}", first_path, width,
                                height, path, image->whole_width, image->whole_height),
                    "give each video a folder of its own, or bring its frames to one size");
    } else if (part != decoded) {
      // Frames of one size that are stored differently (PNG and JPEG, other subsampling): each has its own part.
      transform.emplace(TransformFor(draw, *image));
      decoded = part;
    }
    transform->Apply(image->rgb.data(), static_cast<size_t>(image->width) * 3,
                     out + i * (fields_[0].bytes() / config_.frames));
  }
  return Status::Ok();
}

std::string FileSource::Describe() const {
  const char* what = config_.kind == "images" || (config_.frames == 1 && config_.kind != "videos") ? "image" : "video";
  const size_t count = inventory_.videos.size();
  std::string text = fmt::format("{}: {} {}{}", config_.kind, count, what, count == 1 ? "" : "s");
  if (config_.clips_per_video > 1) text += fmt::format(" x {} clips", config_.clips_per_video);
  text += fmt::format(" in {}", config_.kind == "annotations" ? config_.annotations : config_.path);
  if (!inventory_.notes.empty()) text += "; " + inventory_.notes;
  return text;
}

std::string FileSource::Digest() const {
  XXH64_state_t* state = XXH64_createState();
  XXH64_reset(state, 0);
  const auto add = [state](const std::string& text) { XXH64_update(state, text.c_str(), text.size() + 1); };
  const auto add_file = [&](const std::string& name, uint64_t bytes) {
    add(name);
    add(bytes == kMissing ? "missing" : std::to_string(bytes));
  };
  add(inventory_.digest);
  add(std::to_string(config_.clips_per_video));
  for (const Video& video : inventory_.videos) {
    add(video.origin);
    if (!inventory_.digest.empty()) continue;  // millions of listed files are not asked one by one
    if (video.pictures.empty()) add_file("", video.bytes);
    for (const Picture& picture : video.pictures) add_file(picture.name, picture.bytes);
  }
  const uint64_t digest = XXH64_digest(state);
  XXH64_freeState(state);
  return fmt::format("xxh64:{:016x}", digest);
}

}  // namespace

std::unique_ptr<Source> MakeFileSource(const SourceConfig& config, Inventory inventory) {
  return std::make_unique<FileSource>(config, std::move(inventory));
}

}  // namespace lockstep::data
