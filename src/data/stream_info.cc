#include "data/stream_info.h"

#ifdef LOCKSTEP_FFMPEG

#include <string_view>

#include "data/ffmpeg.h"

namespace lockstep::data {
namespace {

constexpr size_t kMost = 1 << 16;  // files, about half a kilobyte each

bool IsMp4(const AVFormatContext* format) { return std::string_view(format->iformat->name).starts_with("mov,"); }

struct FreeParameters {
  void operator()(AVCodecParameters* x) const { avcodec_parameters_free(&x); }
};

}  // namespace

struct StreamInfoCache::Known {
  FileStamp stamp;
  unsigned streams = 0;
  int index = 0;
  std::unique_ptr<AVCodecParameters, FreeParameters> codec;
  AVRational mean_rate{}, rate{}, aspect{};
  int64_t start = 0, duration = 0, frames = 0, whole_duration = 0;
};

int StreamInfoCache::Restore(const std::string& path, uint64_t offset, AVFormatContext* format) {
  std::shared_ptr<const Known> known;
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find({path, offset});
    if (found == known_.end()) return -1;
    known = found->second;
  }
  if (!IsMp4(format) || format->nb_streams != known->streams || known->stamp != StampOf(path)) return -1;
  AVStream* stream = format->streams[known->index];
  if (avcodec_parameters_copy(stream->codecpar, known->codec.get()) < 0) return -1;
  stream->avg_frame_rate = known->mean_rate;
  stream->r_frame_rate = known->rate;
  stream->sample_aspect_ratio = known->aspect;
  stream->start_time = known->start;
  stream->duration = known->duration;
  stream->nb_frames = known->frames;
  format->duration = known->whole_duration;
  ++restored_;
  return known->index;
}

void StreamInfoCache::Keep(const std::string& path, uint64_t offset, const AVFormatContext* format, int index) {
  if (!IsMp4(format)) return;
  const AVStream* stream = format->streams[index];
  auto known = std::make_shared<Known>();
  known->stamp = StampOf(path);
  known->streams = format->nb_streams;
  known->index = index;
  known->codec.reset(avcodec_parameters_alloc());
  if (!known->codec || avcodec_parameters_copy(known->codec.get(), stream->codecpar) < 0) return;
  known->mean_rate = stream->avg_frame_rate;
  known->rate = stream->r_frame_rate;
  known->aspect = stream->sample_aspect_ratio;
  known->start = stream->start_time;
  known->duration = stream->duration;
  known->frames = stream->nb_frames;
  known->whole_duration = format->duration;
  const std::lock_guard lock(mutex_);
  if (known_.size() < kMost || known_.contains({path, offset})) known_[{path, offset}] = std::move(known);
}

}  // namespace lockstep::data

#endif
