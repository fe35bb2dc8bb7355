#include "data/paired_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digits.h"
#include "base/text.h"
#include "data/image.h"
#include "data/listing.h"

namespace lockstep::data {
namespace {

constexpr int kLeastScored = 11;  // pixels: the window of SSIM

// By the header; what has none that can be read is decoded, for its error.
Result<ImageSize> SizeOfFrame(const std::string& path, const Picture& picture, bool packed, const PartReader& parts) {
  ImageSize size;
  if (packed) {
    const ReadAt read = [&](uint64_t offset, size_t bytes, char* out) {
      Result<std::string> part = parts.Read(path, offset, bytes, picture.name);
      if (!part.ok()) return part.status();
      part->copy(out, bytes);
      return Status::Ok();
    };
    size = SizeOfImage(read, picture.offset, picture.bytes);
  } else {
    const Result<ListedFile> file = OpenListed(path);
    if (!file.ok()) return file.status();
    size = SizeOfImage(file->read, 0, file->bytes);
  }
  if (size.width > 0) return size;
  Result<Image> image = Status(Code::kInternal, "");
  if (packed) {
    Result<std::string> whole = parts.Read(path, picture.offset, picture.bytes, path);
    if (!whole.ok()) return whole.status();
    image = DecodeImageBytes(*whole, fmt::format("{} in {}", picture.name, path));
  } else {
    image = DecodeImage(path);
  }
  if (!image.ok()) {
    return Status(image.status().code(), image.status().message(), "copy the frame again, or leave its clip out");
  }
  return ImageSize{image->whole_height, image->whole_width};
}

// Of all frames of one side, which must be equal.
Result<ImageSize> SizeOfFrames(const std::string& root, const std::string& file, const PairedClip& clip,
                               const std::vector<Picture>& pictures, const PartReader& parts) {
  const bool packed = !file.empty();
  ImageSize first;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const std::string path = packed ? file : JoinPath(JoinPath(root, clip.name), pictures[i].name);
    Result<ImageSize> size = SizeOfFrame(path, pictures[i], packed, parts);
    if (!size.ok()) return size.status();
    if (i == 0) first = *size;
    if (*size != first) {
      return Status(
          Code::kUsage,
          fmt::format("frames of mixed size in clip '{}' of '{}': '{}' is {}x{}, '{}' is {}x{}", clip.name, root,
                      pictures[0].name, first.width, first.height, pictures[i].name, size->width, size->height),
          "bring the frames of a clip to one size");
    }
  }
  return first;
}

}  // namespace

std::optional<int64_t> NumberOfFrame(std::string_view stem) {
  size_t begin = stem.size();
  while (begin > 0 && IsDigit(stem[begin - 1])) --begin;
  if (begin == stem.size() || stem.size() - begin > 17) return std::nullopt;
  return std::stoll(std::string(stem.substr(begin)));
}

Status CheckPairedConfig(const PairedConfig& config) {
  const auto wrong = [](const std::string& what, const std::string& remedy) {
    return Status(Code::kUsage, what, remedy);
  };
  if (std::ranges::find(kPairedKinds, config.kind) == kPairedKinds.end()) {
    return wrong(fmt::format("kind '{}' of paired clips{}", config.kind, DidYouMean(config.kind, kPairedKinds)),
                 "use one of " + Join(kPairedKinds, ", "));
  }
  if (config.frames < 1) return wrong(fmt::format("clips of {} frames", config.frames), "use 1 or more");
  if (config.scale < 1) {
    return wrong(fmt::format("scale {}: the target is as large as the input, or larger", config.scale),
                 "use 1 or more");
  }
  if (config.intervals.empty() || std::ranges::any_of(config.intervals, [](int i) { return i < 1; })) {
    return wrong("the list of intervals between frames is empty, or has one below 1", "use [1]");
  }
  if (config.crop < 0 || config.crop % config.scale != 0) {
    return wrong(
        fmt::format("a crop of {} pixels of the target: expected a multiple of scale {}", config.crop, config.scale),
        fmt::format("use {}", std::max(1, config.crop / config.scale) * config.scale));
  }
  const bool files = config.kind != "generated";
  if (config.crop == 0 && config.rotate && files) {
    return wrong("whole frames cannot be transposed", "switch rotate off, or train on square crops");
  }
  if (files && config.target.empty()) return wrong("no folder of target frames is given", "set data.target");
  if (files && config.input.empty()) return wrong("no folder of input frames is given", "set data.input");
  if (config.spikes.use && files && config.spikes.path.empty()) {
    return wrong("spikes are asked for, and no folder of spikes is given", "set data.spikes.path");
  }
  if (config.interpolate && (config.frames % 2 != 0 || config.scale != 1 || config.spikes.use)) {
    return wrong(
        fmt::format("interpolation from {} frames at scale {}{}: the target is a frame in the middle of an even "
                    "number of frames, of their size, and RGB",
                    config.frames, config.scale, config.spikes.use ? " with spikes" : ""),
        "use data.frames: 4, data.scale: 1 and no spikes");
  }
  if (config.repeat_last < 0 || (config.repeat_last > 0 && config.interpolate)) {
    return wrong(fmt::format("the last frame again {} times{}", config.repeat_last,
                             config.interpolate ? ": frames of interpolation are those around its target" : ""),
                 "use data.repeat_last: 0");
  }
  if (config.spikes.use) return CheckForm(config.spikes.form);
  return Status::Ok();
}

Status CheckClipSizes(const PairedConfig& config, const std::string& target_file, const std::string& input_file,
                      const PartReader& parts, PairedClip* clip) {
  const Result<ImageSize> target = SizeOfFrames(config.target, target_file, *clip, clip->target, parts);
  if (!target.ok()) return target.status();
  const Result<ImageSize> input =
      config.input == config.target ? target : SizeOfFrames(config.input, input_file, *clip, clip->input, parts);
  if (!input.ok()) return input.status();
  clip->width = target->width;
  clip->height = target->height;
  clip->input_width = input->width;
  clip->input_height = input->height;
  if (input->width * config.scale != target->width || input->height * config.scale != target->height) {
    return Status(Code::kUsage,
                  fmt::format("clip '{}': the input is {}x{}, the target {}x{}: expected {} times the input",
                              clip->name, input->width, input->height, target->width, target->height, config.scale),
                  "check scale, and which folder is the input");
  }
  if (config.crop > clip->width || config.crop > clip->height) {
    return Status(Code::kUsage,
                  fmt::format("a crop of {} pixels is larger than the frames of clip '{}', which are {}x{}",
                              config.crop, clip->name, clip->width, clip->height),
                  fmt::format("crop at most {}", std::min(clip->width, clip->height) / config.scale * config.scale));
  }
  if (config.center[0] > clip->height || config.center[1] > clip->width) {
    return Status(Code::kUsage,
                  fmt::format("a centre of {} x {} pixels is larger than the frames of clip '{}', which are {} x {}",
                              config.center[0], config.center[1], clip->name, clip->height, clip->width),
                  "set data.test.center to a smaller one, or to [0, 0] for whole frames");
  }
  if (config.validation && std::min(clip->height, clip->width) < kLeastScored) {
    return Status(Code::kUsage,
                  fmt::format("frames of clip '{}' that validates are {}x{}: SSIM needs {}x{} or more", clip->name,
                              clip->width, clip->height, kLeastScored, kLeastScored),
                  "validate on larger frames, or leave the clip out of the list of clips");
  }
  const int span = config.repeat_ends ? 3 : config.Span();
  const int64_t needed = static_cast<int64_t>(span - 1) * std::ranges::max(config.intervals) + 1;
  if (clip->frames() < needed) {
    return Status(Code::kUsage,
                  fmt::format("clip '{}' is too short: {} at interval {} need {}, it has {}", clip->name,
                              Count(span, "frame"), std::ranges::max(config.intervals), needed, clip->frames()),
                  "use shorter clips or smaller intervals, or leave it out of the list of clips");
  }
  return Status::Ok();
}

}  // namespace lockstep::data
