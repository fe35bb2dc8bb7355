#include "data/video.h"

#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "data/stages.h"

namespace lockstep::data {
namespace {

// The frames of a placed clip; false when the video ended first.
Result<bool> ReadPlaced(VideoReader* video, const Placed& placed, bool seek, const KeyFrames* keys, int frames,
                        const std::function<Status(const VideoFrame&)>& take) {
  if (seek) {
    const StageMark mark(LoadStage::kDecode);
    const uint64_t count = static_cast<uint64_t>(frames - 1) * placed.stride + 1;
    if (!(keys == nullptr ? video->Seek(placed.start, count) : video->Seek(placed.start, count, *keys))) return false;
  }
  const uint64_t skip = seek ? 0 : placed.start;
  VideoFrame frame;
  for (uint64_t seen = 0, given = 0;; ++seen) {
    const bool wanted = seen >= skip && (seen - skip) % placed.stride == 0;
    Result<bool> more = [&] {
      const StageMark mark(LoadStage::kDecode);
      return wanted ? video->Next(&frame) : video->Skip();
    }();
    if (!more.ok()) return more.status();
    if (!*more) return false;
    if (!wanted) continue;
    frame.number = static_cast<int>(given);
    LOCKSTEP_RETURN_IF_ERROR(take(frame));
    if (++given == static_cast<uint64_t>(frames)) return true;
  }
}

Result<uint64_t> CountFrames(const std::string& path, const VideoReader::Options& options) {
  auto video = VideoReader::Open(path, options);
  if (!video.ok()) return video.status();
  for (uint64_t count = 0;; ++count) {
    Result<bool> more = (*video)->Skip();
    if (!more.ok()) return more.status();
    if (!*more) return count;
  }
}

}  // namespace

Status ReadVideoClip(const VideoPart& part, const Pace& pace, const std::atomic<bool>* cancelled,
                     const std::function<Status(const VideoFrame&)>& take, KeyFrameCache* keys,
                     const WindowOf& window) {
  const std::string& path = part.path;
  const VideoReader::Options options{.cancelled = cancelled,
                                     .name = part.name,
                                     .offset = part.offset,
                                     .bytes = part.bytes,
                                     .streams = keys == nullptr ? nullptr : &keys->streams(),
                                     .window = window};
  uint64_t claimed = 0;
  {
    auto video = [&] {
      const StageMark mark(LoadStage::kRead);
      return VideoReader::Open(path, options);
    }();
    if (!video.ok()) return video.status();
    claimed = (*video)->info().frames;
    if (const std::optional<Placed> placed = Place(pace, claimed)) {
      Result<bool> complete = ReadPlaced(video->get(), *placed, placed->start > 0, nullptr, pace.frames, take);
      if (!complete.ok()) return complete.status();
      if (*complete) return Status::Ok();
    }
  }
  // The container was wrong, silent, or cannot be entered in the middle: by its key frames.
  const std::shared_ptr<const KeyFrames> known = keys == nullptr ? nullptr : keys->Find(part, cancelled);
  if (const std::optional<Placed> placed = known ? Place(pace, known->frames()) : std::nullopt) {
    auto video = VideoReader::Open(path, options);
    if (!video.ok()) return video.status();
    Result<bool> complete = ReadPlaced(video->get(), *placed, placed->start > 0, known.get(), pace.frames, take);
    if (complete.ok() && *complete) return Status::Ok();
    if (!complete.ok() && complete.status().code() == Code::kInterrupted) return complete.status();
    keys->Forget(part);
  }
  // Without them: count, then read from the start.
  Result<uint64_t> total = CountFrames(path, options);
  if (!total.ok()) return total.status();
  const std::optional<Placed> placed = Place(pace, *total);
  if (!placed) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' is too short: a clip needs {}, the video has {}{}", part.name,
                              Count(static_cast<int64_t>(pace.frames), "frame"), *total,
                              claimed > *total ? fmt::format(" (it promises {} and ends early)", claimed) : ""));
  }
  auto video = VideoReader::Open(path, options);
  if (!video.ok()) return video.status();
  Result<bool> complete = ReadPlaced(video->get(), *placed, /*seek=*/false, nullptr, pace.frames, take);
  if (!complete.ok()) return complete.status();
  if (!*complete) return Status(Code::kEnvironment, fmt::format("'{}' changed while it was read", part.name));
  return Status::Ok();
}

}  // namespace lockstep::data
