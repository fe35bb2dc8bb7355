#include "data/video.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>

#include "data/sources.h"

#ifdef LOCKSTEP_FFMPEG
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}
#endif

namespace lockstep::data {

Status NoVideoSupport() {
  return Status(
      Code::kUsage, "this build reads no video files: FFmpeg's libraries were not found when it was made",
      "install libavformat-dev libavcodec-dev libswscale-dev and build again, or unpack the videos into folders "
      "of PNG or JPEG frames (kind: frames)");
}

#ifndef LOCKSTEP_FFMPEG

bool HasVideo() { return false; }

Status ReadVideoClip(const std::string&, const Pace&, const std::atomic<bool>*,
                     const std::function<Status(const VideoFrame&)>&) {
  return NoVideoSupport();
}

#else

bool HasVideo() { return true; }

namespace {

struct FreeFormat {
  void operator()(AVFormatContext* x) const { avformat_close_input(&x); }
};
struct FreeCodec {
  void operator()(AVCodecContext* x) const { avcodec_free_context(&x); }
};
struct FreeFrame {
  void operator()(AVFrame* x) const { av_frame_free(&x); }
};
struct FreePacket {
  void operator()(AVPacket* x) const { av_packet_free(&x); }
};
struct FreeScaler {
  void operator()(SwsContext* x) const { sws_freeContext(x); }
};

std::string AvText(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = "";
  av_strerror(error, text, sizeof(text));
  return text;
}

int Interrupted(void* cancelled) {
  return cancelled != nullptr && *static_cast<const std::atomic<bool>*>(cancelled) ? 1 : 0;
}

// One pass over one open file.
class Decoder {
 public:
  Decoder(const std::string& path, const std::atomic<bool>* cancelled) : path_(path), cancelled_(cancelled) {}

  Status Open();
  // As the container says; 0: it does not.
  uint64_t ClaimedFrames() const;
  // Goes to frame `start`, so that the next Advance gives it. False: this file cannot be entered there.
  bool Seek(uint64_t start);
  // The next frame into frame_; false at the end of the video.
  Result<bool> Advance();
  Result<VideoFrame> Convert();

 private:
  Status Wrong(const std::string& what) const {
    return Status(Code::kEnvironment, fmt::format("'{}' cannot be decoded: {}", path_, what));
  }
  Result<bool> Feed();

  std::string path_;
  const std::atomic<bool>* cancelled_;
  std::unique_ptr<AVFormatContext, FreeFormat> format_;
  std::unique_ptr<AVCodecContext, FreeCodec> codec_;
  std::unique_ptr<AVPacket, FreePacket> packet_;
  std::unique_ptr<AVFrame, FreeFrame> frame_;
  std::unique_ptr<AVFrame, FreeFrame> rgb_;
  std::unique_ptr<SwsContext, FreeScaler> scaler_;
  AVPixelFormat scaler_takes_ = AV_PIX_FMT_NONE;
  AVStream* stream_ = nullptr;
  bool draining_ = false;
  bool held_ = false;  // frame_ was found by Seek and not yet given out
  int refused_ = 0;    // the decoder's complaint about the packet before, fatal unless it was the last
  uint64_t delivered_ = 0;
};

Status Decoder::Open() {
  static std::once_flag quiet;
  std::call_once(quiet, [] { av_log_set_level(AV_LOG_QUIET); });  // errors are values here
  AVFormatContext* format = avformat_alloc_context();
  if (format == nullptr) return Wrong("out of memory");
  format->interrupt_callback = {Interrupted, const_cast<std::atomic<bool>*>(cancelled_)};
  // A file can name others to be opened in its place (playlists): only files, nothing of the network.
  AVDictionary* options = nullptr;
  av_dict_set(&options, "protocol_whitelist", "file", 0);
  int error = avformat_open_input(&format, ("file:" + path_).c_str(), nullptr, &options);
  av_dict_free(&options);
  if (error < 0) return Wrong(AvText(error));
  format_.reset(format);
  error = avformat_find_stream_info(format, nullptr);
  if (error < 0) return Wrong(AvText(error));
  const AVCodec* decoder = nullptr;
  error = av_find_best_stream(format, AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
  if (error < 0 || decoder == nullptr) return Wrong("it has no video stream that can be decoded");
  stream_ = format->streams[error];
  for (unsigned i = 0; i < format->nb_streams; ++i) {
    if (format->streams[i] != stream_) format->streams[i]->discard = AVDISCARD_ALL;
  }
  codec_.reset(avcodec_alloc_context3(decoder));
  packet_.reset(av_packet_alloc());
  frame_.reset(av_frame_alloc());
  if (!codec_ || !packet_ || !frame_) return Wrong("out of memory");
  error = avcodec_parameters_to_context(codec_.get(), stream_->codecpar);
  if (error < 0) return Wrong(AvText(error));
  codec_->thread_count = 1;
  codec_->pkt_timebase = stream_->time_base;
  error = avcodec_open2(codec_.get(), decoder, nullptr);
  if (error < 0) return Wrong(AvText(error));
  return Status::Ok();
}

uint64_t Decoder::ClaimedFrames() const {
  if (stream_->nb_frames > 0) return static_cast<uint64_t>(stream_->nb_frames);
  const AVRational rate = stream_->avg_frame_rate;
  double seconds = 0;
  if (stream_->duration > 0) {
    seconds = static_cast<double>(stream_->duration) * av_q2d(stream_->time_base);
  } else if (format_->duration > 0) {
    seconds = static_cast<double>(format_->duration) / AV_TIME_BASE;
  }
  if (rate.num <= 0 || rate.den <= 0 || seconds <= 0) return 0;
  return static_cast<uint64_t>(std::llround(std::min(seconds * av_q2d(rate), 1e15)));
}

bool Decoder::Seek(uint64_t start) {
  const AVRational rate = stream_->avg_frame_rate;
  if (rate.num <= 0 || rate.den <= 0) return false;
  const int64_t first = stream_->start_time == AV_NOPTS_VALUE ? 0 : stream_->start_time;
  const AVRational frame_time = av_inv_q(rate);
  const int64_t target = first + av_rescale_q(static_cast<int64_t>(start), frame_time, stream_->time_base);
  const int64_t half = av_rescale_q(1, frame_time, stream_->time_base) / 2;
  if (av_seek_frame(format_.get(), stream_->index, target, AVSEEK_FLAG_BACKWARD) < 0) return false;
  avcodec_flush_buffers(codec_.get());
  draining_ = false;
  for (;;) {
    Result<bool> more = Advance();
    if (!more.ok() || !*more || frame_->best_effort_timestamp == AV_NOPTS_VALUE) return false;
    if (frame_->best_effort_timestamp > target + half + 1) return false;  // the frame was jumped over
    if (frame_->best_effort_timestamp >= target - half) break;
  }
  held_ = true;
  return true;
}

// One packet for the decoder; false when there is none left.
Result<bool> Decoder::Feed() {
  for (;;) {
    const int error = av_read_frame(format_.get(), packet_.get());
    if (Interrupted(const_cast<std::atomic<bool>*>(cancelled_)))
      return Status(Code::kInterrupted, "reading was stopped");
    if (error == AVERROR(EAGAIN)) continue;
    // A file cut in the middle ends in an error or in a packet marked corrupt: that is its end.
    if (error < 0) return false;
    const bool ours = packet_->stream_index == stream_->index;
    const bool corrupt = (packet_->flags & AV_PKT_FLAG_CORRUPT) != 0;
    if (!ours || corrupt) av_packet_unref(packet_.get());
    if (!ours) continue;
    if (corrupt) return false;
    if (refused_ < 0) {
      av_packet_unref(packet_.get());
      return Wrong(fmt::format("after {} frames: {}", delivered_, AvText(refused_)));
    }
    refused_ = avcodec_send_packet(codec_.get(), packet_.get());
    av_packet_unref(packet_.get());
    if (refused_ == AVERROR(EAGAIN)) refused_ = 0;  // cannot be: the decoder was emptied before
    return true;
  }
}

Result<bool> Decoder::Advance() {
  if (held_) {
    held_ = false;
    return true;
  }
  for (;;) {
    const int error = avcodec_receive_frame(codec_.get(), frame_.get());
    if (error == 0) {
      ++delivered_;
      return true;
    }
    if (error == AVERROR_EOF) return false;
    if (error != AVERROR(EAGAIN)) {
      if (refused_ == 0) refused_ = error;
      if (draining_) return false;
    } else if (draining_) {
      return false;
    }
    Result<bool> fed = Feed();
    if (!fed.ok()) return fed.status();
    if (!*fed) {
      draining_ = true;
      avcodec_send_packet(codec_.get(), nullptr);
    }
  }
}

Result<VideoFrame> Decoder::Convert() {
  if ((frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame_->decode_error_flags != 0) {
    return Wrong(fmt::format("damaged after {} frames", delivered_));
  }
  const int width = frame_->width;
  const int height = frame_->height;
  if (rgb_ && (rgb_->width != width || rgb_->height != height)) {
    return Wrong(fmt::format("frames of mixed size: {}x{}, then {}x{} after {} frames", rgb_->width, rgb_->height,
                             width, height, delivered_));
  }
  const auto pixels = static_cast<AVPixelFormat>(frame_->format);
  if (!rgb_) {
    rgb_.reset(av_frame_alloc());
    if (!rgb_) return Wrong("out of memory");
    rgb_->format = AV_PIX_FMT_RGB24;
    rgb_->width = width;
    rgb_->height = height;
    if (av_frame_get_buffer(rgb_.get(), 0) < 0) return Wrong("out of memory");
  }
  if (!scaler_ || pixels != scaler_takes_) {
    scaler_takes_ = pixels;
    scaler_.reset(sws_getContext(width, height, pixels, width, height, AV_PIX_FMT_RGB24,
                                 SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, nullptr, nullptr, nullptr));
    if (!scaler_) {
      const char* name = av_get_pix_fmt_name(pixels);
      return Wrong(fmt::format("pixels of format {} do not become RGB", name == nullptr ? "?" : name));
    }
    // Without a label: television's rule, by size.
    int matrix = frame_->colorspace;
    if (matrix == AVCOL_SPC_UNSPECIFIED) matrix = height >= 720 ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M;
    const bool full = frame_->color_range == AVCOL_RANGE_JPEG || pixels == AV_PIX_FMT_YUVJ420P ||
                      pixels == AV_PIX_FMT_YUVJ422P || pixels == AV_PIX_FMT_YUVJ444P;
    sws_setColorspaceDetails(scaler_.get(), sws_getCoefficients(matrix), full ? 1 : 0,
                             sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
  }
  if (sws_scale(scaler_.get(), frame_->data, frame_->linesize, 0, height, rgb_->data, rgb_->linesize) != height) {
    return Wrong("its pixels do not become RGB");
  }
  return VideoFrame{0, width, height, rgb_->data[0], static_cast<size_t>(rgb_->linesize[0])};
}

// The frames of a placed clip; false when the video ended first. `found` counts the frames seen from the start on.
Result<bool> ReadPlaced(Decoder* decoder, const Placed& placed, bool seek, int frames,
                        const std::function<Status(const VideoFrame&)>& take) {
  if (seek && !decoder->Seek(placed.start)) return false;
  const uint64_t skip = seek ? 0 : placed.start;
  for (uint64_t seen = 0, given = 0;; ++seen) {
    Result<bool> more = decoder->Advance();
    if (!more.ok()) return more.status();
    if (!*more) return false;
    if (seen < skip || (seen - skip) % placed.stride != 0) continue;
    Result<VideoFrame> frame = decoder->Convert();
    if (!frame.ok()) return frame.status();
    frame->number = static_cast<int>(given);
    LOCKSTEP_RETURN_IF_ERROR(take(*frame));
    if (++given == static_cast<uint64_t>(frames)) return true;
  }
}

Result<uint64_t> CountFrames(const std::string& path, const std::atomic<bool>* cancelled) {
  Decoder decoder(path, cancelled);
  LOCKSTEP_RETURN_IF_ERROR(decoder.Open());
  for (uint64_t count = 0;; ++count) {
    Result<bool> more = decoder.Advance();
    if (!more.ok()) return more.status();
    if (!*more) return count;
  }
}

}  // namespace

Status ReadVideoClip(const std::string& path, const Pace& pace, const std::atomic<bool>* cancelled,
                     const std::function<Status(const VideoFrame&)>& take) {
  uint64_t claimed = 0;
  {
    Decoder decoder(path, cancelled);
    LOCKSTEP_RETURN_IF_ERROR(decoder.Open());
    claimed = decoder.ClaimedFrames();
    if (const std::optional<Placed> placed = Place(pace, claimed)) {
      Result<bool> complete = ReadPlaced(&decoder, *placed, placed->start > 0, pace.frames, take);
      if (!complete.ok()) return complete.status();
      if (*complete) return Status::Ok();
    }
  }
  // The container was wrong, silent, or cannot be entered in the middle: count, then read from the start.
  Result<uint64_t> total = CountFrames(path, cancelled);
  if (!total.ok()) return total.status();
  const std::optional<Placed> placed = Place(pace, *total);
  if (!placed) {
    return Status(
        Code::kEnvironment,
        fmt::format("'{}' is too short: a clip needs {} frames, the video has {}{}", path, pace.frames, *total,
                    claimed > *total ? fmt::format(" (it promises {} and ends early)", claimed) : ""));
  }
  Decoder decoder(path, cancelled);
  LOCKSTEP_RETURN_IF_ERROR(decoder.Open());
  Result<bool> complete = ReadPlaced(&decoder, *placed, /*seek=*/false, pace.frames, take);
  if (!complete.ok()) return complete.status();
  if (!*complete) return Status(Code::kEnvironment, fmt::format("'{}' changed while it was read", path));
  return Status::Ok();
}

#endif

}  // namespace lockstep::data
