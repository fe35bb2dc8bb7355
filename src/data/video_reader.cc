#include "data/video_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "data/ffmpeg.h"
#include "data/sources.h"
#include "data/yuv_to_rgb.h"

namespace lockstep::data {

Status NoVideoSupport() {
  return Status(
      Code::kUsage, "this build reads no video files: FFmpeg's libraries were not found when it was made",
      "install libavformat-dev libavcodec-dev libswscale-dev and build again, or unpack the videos into folders "
      "of PNG or JPEG frames (kind: frames)");
}

#ifndef LOCKSTEP_FFMPEG

bool HasVideo() { return false; }

Result<std::unique_ptr<VideoReader>> VideoReader::Open(const std::string&, const Options&) { return NoVideoSupport(); }

Result<KeyFrames> FindKeyFrames(const VideoPart&, const std::atomic<bool>*) { return NoVideoSupport(); }

#else

bool HasVideo() { return true; }

namespace {

std::string Frames(uint64_t count) { return Count(static_cast<int64_t>(count), "frame"); }

struct CloseInput {
  void operator()(AVFormatContext* x) const { avformat_close_input(&x); }
};

int Interrupted(void* cancelled) {
  return cancelled != nullptr && *static_cast<const std::atomic<bool>*>(cancelled) ? 1 : 0;
}

// MP4 and MOV keep their index at the end as a rule: what was cut off before has the head of one and cannot be opened.
bool HeadOfMp4(const std::string& path) {
  char head[8] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  return std::string_view(head + 4, 4) == "ftyp";
}

// How a player must turn the picture: a point (x, y) of it is shown at (a x + c y, b x + d y), y downwards. Of quarter
// turns and mirrors each is -1, 0 or 1; other angles are left as they are.
struct Turned {
  int a = 1, b = 0, c = 0, d = 1;
  bool Plain() const { return a == 1 && d == 1; }
  bool Upright() const { return a != 0; }
};

Turned TurnedOf(const AVStream* stream) {
#if LIBAVFORMAT_VERSION_MAJOR >= 61
  const AVPacketSideData* data = av_packet_side_data_get(
      stream->codecpar->coded_side_data, stream->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
  const auto* matrix = data == nullptr ? nullptr : reinterpret_cast<const int32_t*>(data->data);
#else
  const auto* matrix =
      reinterpret_cast<const int32_t*>(av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr));
#endif
  if (matrix == nullptr) return {};
  const double scale_x = std::hypot(matrix[0], matrix[3]), scale_y = std::hypot(matrix[1], matrix[4]);
  if (scale_x == 0 || scale_y == 0) return {};
  const double exact[4] = {matrix[0] / scale_x, matrix[1] / scale_y, matrix[3] / scale_x, matrix[4] / scale_y};
  for (const double part : exact) {
    if (std::abs(part - std::round(part)) > 0.01) return {};
  }
  const Turned turned = {static_cast<int>(std::lround(exact[0])), static_cast<int>(std::lround(exact[1])),
                         static_cast<int>(std::lround(exact[2])), static_cast<int>(std::lround(exact[3]))};
  if (turned.a * turned.d - turned.b * turned.c == 0) return {};
  return turned;
}

class AvReader : public VideoReader {
 public:
  AvReader(const std::string& path, const Options& options) : path_(path), options_(options) {
    if (options_.name.empty()) options_.name = path;
  }

  Status Start();
  const VideoInfo& info() const override { return info_; }
  Result<bool> Next(VideoFrame* frame) override;
  Result<bool> Skip() override;
  bool Seek(uint64_t start, uint64_t count) override;
  bool Seek(uint64_t start, uint64_t count, const KeyFrames& keys) override;
  Result<KeyFrames> Scan();
  std::vector<std::string> Notes() const override;

 private:
  bool SeekTo(int64_t entry, int64_t low, int64_t high);
  Status Wrong(const std::string& what) const {
    return Status(Code::kEnvironment, fmt::format("'{}' cannot be decoded: {}", options_.name, what));
  }
  bool Cancelled() const { return options_.cancelled != nullptr && *options_.cancelled; }
  Result<bool> ReadPacket(AVPacket* to);
  Result<bool> Feed();
  Result<bool> Decode();
  double MissingSeconds() const;
  Status Convert(VideoFrame* frame);
  Status MakeScaler(AVPixelFormat pixels);
  Window PartOf(AVPixelFormat pixels) const;
  void Turn(VideoFrame* frame);
  double Seconds();

  std::string path_;
  Options options_;
  VideoInfo info_;
  std::unique_ptr<AVFormatContext, CloseInput> format_;
  AvOwned<AVCodecContext> codec_;
  AvOwned<AVPacket> packet_;
  AvOwned<AVPacket> ahead_;  // read to see whether packet_ was the last
  AvOwned<AVFrame> frame_;
  AvOwned<AVFrame> rgb_;
  // One of them makes RGB of the pixels that it takes.
  AvOwned<SwsContext> scaler_;
  std::optional<YuvToRgb> yuv_;
  AVPixelFormat scaler_takes_ = AV_PIX_FMT_NONE;
  Window part_;  // of the frame, what is converted
  // After Seek: frames that are shown before or after these times are decoded only as far as others need them.
  int64_t wanted_from_ = AV_NOPTS_VALUE;
  int64_t wanted_to_ = AV_NOPTS_VALUE;
  Turned turned_by_;
  std::vector<uint8_t> turned_;
  AVStream* stream_ = nullptr;
  bool draining_ = false;
  bool held_ = false;    // frame_ was found by Seek and not yet given out
  bool at_key_ = false;  // a key frame was seen: what follows can be decoded
  bool ended_in_error_ = false;
  int refused_ = 0;  // the decoder's complaint about the packet before, fatal unless it was the last
  uint64_t delivered_ = 0;
  uint64_t packets_ = 0;
  uint64_t before_key_ = 0;
  int64_t first_time_ = AV_NOPTS_VALUE;
  double last_seconds_ = 0;
};

uint64_t ClaimedFrames(const AVFormatContext* format, const AVStream* stream) {
  if (stream->nb_frames > 0) return static_cast<uint64_t>(stream->nb_frames);
  const AVRational rate = stream->avg_frame_rate;
  double seconds = 0;
  if (stream->duration > 0) {
    seconds = static_cast<double>(stream->duration) * av_q2d(stream->time_base);
  } else if (format->duration > 0) {
    seconds = static_cast<double>(format->duration) / AV_TIME_BASE;
  }
  if (rate.num <= 0 || rate.den <= 0 || seconds <= 0) return 0;
  return static_cast<uint64_t>(std::llround(std::min(seconds * av_q2d(rate), 1e15)));
}

Status AvReader::Start() {
  QuietAv();
  AVFormatContext* format = avformat_alloc_context();
  if (format == nullptr) return Wrong("out of memory");
  format->interrupt_callback = {Interrupted, const_cast<std::atomic<bool>*>(options_.cancelled)};
  // A file can name others to be opened in its place (playlists): only files, nothing of the network.
  AVDictionary* options = nullptr;
  const bool part = options_.bytes > 0;
  av_dict_set(&options, "protocol_whitelist", part ? "file,subfile" : "file", 0);
  std::string place = "file:" + path_;
  if (part)
    place = fmt::format("subfile,,start,{},end,{},,:{}", options_.offset, options_.offset + options_.bytes, place);
  int error = avformat_open_input(&format, place.c_str(), nullptr, &options);
  av_dict_free(&options);
  if (error == AVERROR(EIO)) return Wrong("it ends within its header, or the disk cannot be read");
  if (error == AVERROR_INVALIDDATA && !part && HeadOfMp4(path_)) {
    return Wrong("its index ('moov') is missing or damaged")
        .WithHint("the copy or the recording ended too early: fetch the file again");
  }
  if (error < 0) return Wrong(AvText(error));
  format_.reset(format);
  const int known = options_.streams == nullptr ? -1 : options_.streams->Restore(path_, options_.offset, format);
  if (known < 0 && (error = avformat_find_stream_info(format, nullptr)) < 0) return Wrong(AvText(error));
  const AVCodec* decoder = nullptr;
  const int index = av_find_best_stream(format, AVMEDIA_TYPE_VIDEO, known, -1, &decoder, 0);
  if (index < 0 || decoder == nullptr) return Wrong("it has no video stream that can be decoded");
  if (known < 0 && options_.streams != nullptr) options_.streams->Keep(path_, options_.offset, format, index);
  stream_ = format->streams[index];
  for (unsigned i = 0; i < format->nb_streams; ++i) {
    if (format->streams[i] != stream_) format->streams[i]->discard = AVDISCARD_ALL;
  }
  codec_.reset(avcodec_alloc_context3(decoder));
  packet_.reset(av_packet_alloc());
  ahead_.reset(av_packet_alloc());
  frame_.reset(av_frame_alloc());
  if (!codec_ || !packet_ || !ahead_ || !frame_) return Wrong("out of memory");
  error = avcodec_parameters_to_context(codec_.get(), stream_->codecpar);
  if (error < 0) return Wrong(AvText(error));
  codec_->thread_count = options_.threads;
  codec_->pkt_timebase = stream_->time_base;
  error = avcodec_open2(codec_.get(), decoder, nullptr);
  if (error < 0) return Wrong(AvText(error));
  AVRational rate = stream_->avg_frame_rate;
  if (rate.num <= 0 || rate.den <= 0) rate = stream_->r_frame_rate;
  if (rate.num > 0 && rate.den > 0) info_.rate = {rate.num, rate.den};
  info_.frames = ClaimedFrames(format_.get(), stream_);
  turned_by_ = TurnedOf(stream_);
  AVRational aspect =
      stream_->sample_aspect_ratio.num > 0 ? stream_->sample_aspect_ratio : stream_->codecpar->sample_aspect_ratio;
  if (!turned_by_.Upright()) std::swap(aspect.num, aspect.den);
  if (aspect.num > 0 && aspect.den > 0) info_.pixel_aspect = {aspect.num, aspect.den};
  info_.width = stream_->codecpar->width, info_.height = stream_->codecpar->height;
  if (!turned_by_.Upright()) std::swap(info_.width, info_.height);
  return Status::Ok();
}

bool AvReader::Seek(uint64_t start, uint64_t count) {
  const AVRational rate = stream_->avg_frame_rate;
  if (rate.num <= 0 || rate.den <= 0) return false;
  const int64_t first = stream_->start_time == AV_NOPTS_VALUE ? 0 : stream_->start_time;
  const AVRational frame_time = av_inv_q(rate);
  const int64_t target = first + av_rescale_q(static_cast<int64_t>(start), frame_time, stream_->time_base);
  const int64_t half = av_rescale_q(1, frame_time, stream_->time_base) / 2;
  first_time_ = first;
  wanted_to_ = target + av_rescale_q(static_cast<int64_t>(count) - 1, frame_time, stream_->time_base) + half;
  return SeekTo(target, target - half, target + half + 1);
}

bool AvReader::Seek(uint64_t start, uint64_t count, const KeyFrames& keys) {
  const KeyFrames::Key& key = keys.Before(start);
  // A container without an index of its own (a transport stream) gets this one.
  for (const KeyFrames::Key& one : keys.keys) {
    if (avformat_index_get_entries_count(stream_) >= static_cast<int>(keys.keys.size()) || one.place < 0) break;
    av_add_index_entry(stream_, one.place, one.time, 0, 0, AVINDEX_KEYFRAME);
  }
  first_time_ = keys.first;
  const int64_t target = keys.TimeOf(start);
  wanted_to_ = keys.TimeOf(start + count - 1);
  return SeekTo(key.time, target, target);
}

// Enters the file at or before `entry`, and decodes up to the first frame whose time is in [low, high].
bool AvReader::SeekTo(int64_t entry, int64_t low, int64_t high) {
  if (av_seek_frame(format_.get(), stream_->index, entry, AVSEEK_FLAG_BACKWARD) < 0) return false;
  avcodec_flush_buffers(codec_.get());
  av_packet_unref(ahead_.get());
  draining_ = false;
  at_key_ = false;
  wanted_from_ = low;
  for (;;) {
    Result<bool> more = Skip();
    if (!more.ok() || !*more || frame_->best_effort_timestamp == AV_NOPTS_VALUE) return false;
    if (frame_->best_effort_timestamp > high) return false;  // the frame was jumped over
    if (frame_->best_effort_timestamp >= low) break;
  }
  wanted_from_ = AV_NOPTS_VALUE;
  held_ = true;
  return true;
}

Result<KeyFrames> AvReader::Scan() {
  // Some packets of VP8 are never shown.
  if (stream_->codecpar->codec_id == AV_CODEC_ID_VP8) return Wrong("its packets are not its frames");
  struct Seen {
    int64_t shown, decoded, place;
    bool key;
  };
  std::vector<Seen> all;
  for (;;) {
    Result<bool> more = ReadPacket(packet_.get());
    if (!more.ok()) return more.status();
    if (!*more) break;
    const AVPacket& p = *packet_;
    const bool timed = p.pts != AV_NOPTS_VALUE, shown = (p.flags & AV_PKT_FLAG_DISCARD) == 0;
    if (shown && timed) {
      all.push_back({p.pts, p.dts == AV_NOPTS_VALUE ? p.pts : p.dts, p.pos, (p.flags & AV_PKT_FLAG_KEY) != 0});
    }
    av_packet_unref(packet_.get());
    if (shown && !timed) return Wrong("its packets have no times");
  }
  if (ended_in_error_ || all.empty()) return Wrong("it ends before its end");
  std::ranges::sort(all, {}, &Seen::shown);
  KeyFrames found;
  found.first = all.front().shown;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].key) found.keys.push_back({i, all[i].decoded, all[i].place});
    if (i == 0) continue;
    const int64_t step = all[i].shown - all[i - 1].shown;
    if (step == 0) return Wrong("two of its frames have one time");
    if (found.runs.empty() || found.runs.back().step != step) found.runs.push_back({step, 0});
    ++found.runs.back().count;
  }
  return found;
}

// The next packet of the video into `to`; false when there is none left.
Result<bool> AvReader::ReadPacket(AVPacket* to) {
  for (;;) {
    const int error = av_read_frame(format_.get(), to);
    if (Cancelled()) return Status(Code::kInterrupted, "reading was stopped");
    if (error == AVERROR(EAGAIN)) continue;
    if (error < 0) {
      ended_in_error_ = error != AVERROR_EOF;
      return false;
    }
    const bool ours = to->stream_index == stream_->index;
    if (ours) ++packets_;
    // Pictures before the first key frame refer to what is not there: a decoder would make them up.
    at_key_ = at_key_ || (ours && (to->flags & AV_PKT_FLAG_KEY) != 0);
    if (ours && at_key_) return true;
    if (ours) ++before_key_;
    av_packet_unref(to);
  }
}

// One packet for the decoder; false when there is none left.
Result<bool> AvReader::Feed() {
  if (ahead_->data != nullptr) {
    av_packet_move_ref(packet_.get(), ahead_.get());
  } else {
    Result<bool> more = ReadPacket(packet_.get());
    if (!more.ok() || !*more) return more;
  }
  if ((packet_->flags & AV_PKT_FLAG_CORRUPT) != 0) {
    // The last one: the file was cut there. Others (joined transport streams) are the decoder's to judge.
    Result<bool> more = ReadPacket(ahead_.get());
    if (!more.ok()) return more.status();
    if (!*more) {
      av_packet_unref(packet_.get());
      ended_in_error_ = true;
      return false;
    }
  }
  if (refused_ < 0) {
    av_packet_unref(packet_.get());
    return Wrong(fmt::format("after {}: {}", Frames(delivered_), AvText(refused_)));
  }
  // Frames are shown after they are decoded: those that follow come too late, all of them.
  if (wanted_to_ != AV_NOPTS_VALUE && packet_->dts != AV_NOPTS_VALUE && packet_->dts > wanted_to_) {
    av_packet_unref(packet_.get());
    return false;
  }
  // No other frame refers to those that are skipped.
  const bool timed = packet_->pts != AV_NOPTS_VALUE;
  const bool early = timed && wanted_from_ != AV_NOPTS_VALUE && packet_->pts < wanted_from_;
  const bool late = timed && wanted_to_ != AV_NOPTS_VALUE && packet_->pts > wanted_to_;
  codec_->skip_frame = early || late ? AVDISCARD_NONREF : AVDISCARD_DEFAULT;
  refused_ = avcodec_send_packet(codec_.get(), packet_.get());
  av_packet_unref(packet_.get());
  if (refused_ == AVERROR(EAGAIN)) refused_ = 0;  // cannot be: the decoder was emptied before
  return true;
}

// The next frame as the decoder gives it.
Result<bool> AvReader::Decode() {
  for (;;) {
    const int error = avcodec_receive_frame(codec_.get(), frame_.get());
    if (error == 0) {
      ++delivered_;
      return true;
    }
    if (error != AVERROR_EOF && error != AVERROR(EAGAIN) && refused_ == 0) refused_ = error;
    if (error == AVERROR_EOF || draining_) {
      if (delivered_ == 0 && !at_key_ && packets_ > 0) return Wrong("it has no key frame to begin with");
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

Result<bool> AvReader::Skip() {
  if (held_) {
    held_ = false;
    return true;
  }
  Result<bool> more = Decode();
  if (!more.ok() || !*more) return more;
  if ((frame_->flags & AV_FRAME_FLAG_CORRUPT) == 0 && frame_->decode_error_flags == 0) return true;
  // The last frame of a file that was cut is as good as not there. What follows it are at most those that the decoder
  // puts into another order; after more of them it is damage in the middle.
  const uint64_t whole = delivered_ - 1;
  for (int i = 0; i <= codec_->has_b_frames && whole > 0; ++i) {
    more = Decode();
    if (!more.ok()) return more;
    if (*more) continue;
    delivered_ = whole;
    ended_in_error_ = true;
    return false;
  }
  return Wrong("damaged after " + Frames(whole));
}

Result<bool> AvReader::Next(VideoFrame* frame) {
  Result<bool> more = Skip();
  if (!more.ok() || !*more) return more;
  LOCKSTEP_RETURN_IF_ERROR(Convert(frame));
  frame->number = static_cast<int>(delivered_ - 1);
  frame->seconds = last_seconds_ = Seconds();
  return true;
}

double AvReader::Seconds() {
  const int64_t time = frame_->best_effort_timestamp;
  if (time == AV_NOPTS_VALUE) {
    return info_.rate.num > 0 ? static_cast<double>(delivered_ - 1) / info_.rate.value() : 0;
  }
  if (first_time_ == AV_NOPTS_VALUE) first_time_ = time;
  return static_cast<double>(time - first_time_) * av_q2d(stream_->time_base);
}

// What is converted of a frame: the window with a margin, in which each pixel becomes what it is in the whole frame.
// Turned pictures and unusual formats: everything.
Window AvReader::PartOf(AVPixelFormat pixels) const {
  const int width = frame_->width, height = frame_->height;
  const Window whole{0, 0, width, height};
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(pixels);
  if (!options_.window || !turned_by_.Plain() || format == nullptr || (format->flags & AV_PIX_FMT_FLAG_PLANAR) == 0 ||
      format->nb_components != 3 || format->comp[0].depth != 8 || format->comp[1].step != 1) {
    return whole;
  }
  const Window wanted = options_.window(width, height);
  if (yuv_) {  // looks beyond the part by itself
    const int x = std::clamp(wanted.x, 0, width) / 2 * 2, y = std::clamp(wanted.y, 0, height);
    const int right = std::min(width, wanted.x + wanted.width), bottom = std::min(height, wanted.y + wanted.height);
    return right <= x || bottom <= y ? whole : Window{x, y, right - x, bottom - y};
  }
  constexpr int kMargin = 16, kColumns = 64;  // the latter keeps rows aligned for vector instructions
  const int x = std::max(0, wanted.x - kMargin) / kColumns * kColumns, y = std::max(0, wanted.y - kMargin) / 8 * 8;
  // Whole pairs of columns and rows, that colour of half the size ends where it does in the whole frame.
  const int right = std::min(width, (wanted.x + wanted.width + kMargin + 1) / 2 * 2);
  const int bottom = std::min(height, (wanted.y + wanted.height + kMargin + 1) / 2 * 2);
  if (right <= x || bottom <= y) return whole;
  return {x, y, right - x, bottom - y};
}

Status AvReader::MakeScaler(AVPixelFormat pixels) {
  const int width = frame_->width, height = frame_->height;
  const bool full = frame_->color_range == AVCOL_RANGE_JPEG || pixels == AV_PIX_FMT_YUVJ420P ||
                    pixels == AV_PIX_FMT_YUVJ422P || pixels == AV_PIX_FMT_YUVJ444P;
  const int* matrix = sws_getCoefficients(MatrixOf(frame_->colorspace, height));
  scaler_takes_ = pixels;
  scaler_.reset();
  yuv_.reset();
  constexpr int kSmall = 8;  // below it libswscale uses filters of another length
  if ((pixels == AV_PIX_FMT_YUV420P || pixels == AV_PIX_FMT_YUVJ420P) && width % 2 == 0 && height % 2 == 0 &&
      width >= kSmall && height >= kSmall) {
    yuv_.emplace(width, height, YuvMatrix{matrix[0], matrix[1], matrix[2], matrix[3]}, full);
    part_ = PartOf(pixels);
    return Status::Ok();
  }
  part_ = PartOf(pixels);
  scaler_.reset(sws_getContext(part_.width, part_.height, pixels, part_.width, part_.height, AV_PIX_FMT_RGB24,
                               SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, nullptr, nullptr, nullptr));
  if (!scaler_) {
    const char* name = av_get_pix_fmt_name(pixels);
    return Wrong(fmt::format("pixels of format {} do not become RGB", name == nullptr ? "?" : name));
  }
  sws_setColorspaceDetails(scaler_.get(), matrix, full ? 1 : 0, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16,
                           1 << 16);
  return Status::Ok();
}

Status AvReader::Convert(VideoFrame* frame) {
  const int width = frame_->width;
  const int height = frame_->height;
  if (rgb_ && (rgb_->width != width || rgb_->height != height)) {
    return Wrong(fmt::format("frames of mixed size: {}x{}, then {}x{} after {}", rgb_->width, rgb_->height, width,
                             height, Frames(delivered_ - 1)))
        .WithHint("cut the video where its size changes, or read only its first " + Frames(delivered_ - 1));
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
  if ((!scaler_ && !yuv_) || pixels != scaler_takes_) LOCKSTEP_RETURN_IF_ERROR(MakeScaler(pixels));
  *frame = VideoFrame{0, width, height, rgb_->data[0], static_cast<size_t>(rgb_->linesize[0]), 0};
  uint8_t* const to[4] = {rgb_->data[0] + static_cast<ptrdiff_t>(part_.y) * rgb_->linesize[0] + part_.x * 3};
  if (yuv_) {
    const int* rows = frame_->linesize;
    yuv_->Apply({frame_->data[0], frame_->data[1], frame_->data[2]}, {rows[0], rows[1], rows[2]}, part_, to[0],
                frame->stride);
    if (!turned_by_.Plain()) Turn(frame);
    return Status::Ok();
  }
  const uint8_t* from[4] = {frame_->data[0], frame_->data[1], frame_->data[2], frame_->data[3]};
  if (part_.x > 0 || part_.y > 0) {
    const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(pixels);
    for (int plane = 0; plane < 3; ++plane) {
      const int down = plane == 0 ? 0 : format->log2_chroma_h, across = plane == 0 ? 0 : format->log2_chroma_w;
      from[plane] += static_cast<ptrdiff_t>(part_.y >> down) * frame_->linesize[plane] + (part_.x >> across);
    }
  }
  if (sws_scale(scaler_.get(), from, frame_->linesize, 0, part_.height, to, rgb_->linesize) != part_.height) {
    return Wrong("its pixels do not become RGB");
  }
  if (!turned_by_.Plain()) Turn(frame);
  return Status::Ok();
}

void AvReader::Turn(VideoFrame* frame) {
  const auto [a, b, c, d] = turned_by_;
  const int width = a != 0 ? frame->width : frame->height;
  const int height = a != 0 ? frame->height : frame->width;
  turned_.resize(static_cast<size_t>(width) * height * 3);
  // Of the two each point comes from, one is used: along it, or against it from its end.
  const auto along = [&](int by_x, int by_y, int x, int y) {
    if (by_x != 0) return by_x > 0 ? x : width - 1 - x;
    return by_y > 0 ? y : height - 1 - y;
  };
  uint8_t* to = turned_.data();
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x, to += 3) {
      const uint8_t* from = frame->rgb + along(c, d, x, y) * frame->stride + static_cast<size_t>(along(a, b, x, y)) * 3;
      std::copy_n(from, 3, to);
    }
  }
  frame->width = width;
  frame->height = height;
  frame->rgb = turned_.data();
  frame->stride = static_cast<size_t>(width) * 3;
}

// How much earlier the video ends than its container says; 0 where that says nothing that could be held against it.
double AvReader::MissingSeconds() const {
  double promised = 0;
  const AVDictionaryEntry* tag = av_dict_get(stream_->metadata, "DURATION", nullptr, 0);  // Matroska, of each stream
  int64_t time = 0;
  if (tag != nullptr && av_parse_time(&time, tag->value, 1) == 0) {
    promised = static_cast<double>(time) / AV_TIME_BASE;
  } else if (format_->nb_streams == 1 && format_->duration > 0 &&
             format_->duration_estimation_method == AVFMT_DURATION_FROM_STREAM) {
    promised = static_cast<double>(format_->duration) / AV_TIME_BASE;
  }
  // Some count from zero, some from the first frame.
  const double first =
      first_time_ == AV_NOPTS_VALUE ? 0 : static_cast<double>(first_time_) * av_q2d(stream_->time_base);
  const double frame = info_.rate.num > 0 ? 1 / info_.rate.value() : 0.5;
  const double missing = promised - (last_seconds_ + frame) - std::max(0.0, first);
  return missing > 1.5 * frame ? missing : 0;
}

std::vector<std::string> AvReader::Notes() const {
  std::vector<std::string> notes;
  if (before_key_ > 0) {
    notes.push_back(fmt::format("'{}' begins without a key frame: {} of its frames cannot be decoded and were left out",
                                options_.name, before_key_));
  }
  if (!draining_) return notes;
  if (stream_->nb_frames > 0 && packets_ < static_cast<uint64_t>(stream_->nb_frames)) {
    notes.push_back(
        fmt::format("'{}' promises {} frames and ends after {}", options_.name, stream_->nb_frames, delivered_));
  } else if (ended_in_error_ || refused_ < 0) {
    notes.push_back(fmt::format("'{}' was cut: it ends in the middle of a frame, after {}", options_.name, delivered_));
  } else if (const double missing = MissingSeconds(); missing > 0) {
    notes.push_back(fmt::format("'{}' promises {:.2f} s more than it has: it ends after {}", options_.name, missing,
                                Frames(delivered_)));
  }
  return notes;
}

}  // namespace

Result<std::unique_ptr<VideoReader>> VideoReader::Open(const std::string& path, const Options& options) {
  auto reader = std::make_unique<AvReader>(path, options);
  LOCKSTEP_RETURN_IF_ERROR(reader->Start());
  return std::unique_ptr<VideoReader>(std::move(reader));
}

Result<KeyFrames> FindKeyFrames(const VideoPart& part, const std::atomic<bool>* cancelled) {
  const FileStamp stamp = StampOf(part.path);
  AvReader reader(part.path, {.cancelled = cancelled, .name = part.name, .offset = part.offset, .bytes = part.bytes});
  LOCKSTEP_RETURN_IF_ERROR(reader.Start());
  Result<KeyFrames> found = reader.Scan();
  if (found.ok()) found->stamp = stamp;
  return found;
}

#endif

}  // namespace lockstep::data
