#include "data/video_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "data/ffmpeg.h"
#include "data/publish.h"

namespace lockstep::data {

#ifndef LOCKSTEP_FFMPEG

Result<std::unique_ptr<VideoWriter>> VideoWriter::Create(const std::string&, const VideoWriterOptions&) {
  return NoVideoSupport();
}
Status VideoWriter::Check(const std::string&, const VideoWriterOptions&) { return NoVideoSupport(); }

#else

namespace {

constexpr int kDefaultCrf = 18;
constexpr int kTicks = 90000;       // per second, at least: fine enough for any variable rate
constexpr int kMpeg4Ticks = 65535;  // the most its header can say
constexpr double kOnTheGrid = 0.0015;

struct FreeOutput {
  void operator()(AVFormatContext* x) const {
    if (x->pb != nullptr) avio_closep(&x->pb);
    avformat_free_context(x);
  }
};

class AvWriter : public VideoWriter {
 public:
  AvWriter(const std::string& path, const VideoWriterOptions& options) : path_(path), options_(options) {}

  // Everything that can be wrong with the options; no file.
  Status SetUp();
  Status Start(Publication place);
  int width() const override { return width_; }
  int height() const override { return height_; }
  const std::string& codec() const override { return codec_name_; }
  Status Write(const uint8_t* rgb, size_t stride, std::optional<double> seconds) override;
  Status Finish() override;

 private:
  Status Wrong(const std::string& what, int error = 0) const {
    return Status(
        Code::kEnvironment, fmt::format("cannot write '{}': {}{}", path_, what, error == 0 ? "" : ": " + AvText(error)),
        error == AVERROR(ENOSPC) ? "the disk is full: free space there, or choose a folder on another disk" : "");
  }
  Status ChooseCodec();
  Status ChoosePixels();
  Status ChooseQuality();
  void ChooseClock();
  int64_t Tick(std::optional<double> seconds);
  Status Drain();

  std::string path_;
  std::optional<Publication> place_;  // once started
  VideoWriterOptions options_;
  int width_ = 0;
  int height_ = 0;
  std::string codec_name_;
  const AVCodec* encoder_ = nullptr;
  AVPixelFormat pixels_ = AV_PIX_FMT_NONE;
  std::unique_ptr<AVFormatContext, FreeOutput> format_;
  AvOwned<AVCodecContext> context_;
  AvOwned<AVFrame> frame_;
  AvOwned<AVPacket> packet_;
  AvOwned<SwsContext> scaler_;
  AVStream* stream_ = nullptr;
  std::vector<uint8_t> padded_;  // an odd frame with its last row and column doubled
  int64_t ticks_per_frame_ = 1;
  bool constant_ = true;  // every frame so far was on the grid of the rate
  bool rate_only_ = false;
  int64_t last_tick_ = -1;
  uint64_t frames_ = 0;
};

Status AvWriter::ChooseCodec() {
  const AVOutputFormat* container = format_->oformat;
  const std::string kind = container->name;
  rate_only_ = kind == "avi";
  if (options_.codec == "auto") {
    std::vector<const char*> names = {"libx264", "mpeg4"};
    if (kind == "webm") names = {"libvpx-vp9", "libvpx"};
    if (kind == "avi") names = {"mpeg4"};
    for (const char* name : names) {
      if (encoder_ == nullptr) encoder_ = avcodec_find_encoder_by_name(name);
    }
    if (encoder_ == nullptr) {
      return Status(Code::kEnvironment, fmt::format("this build's FFmpeg has none of {}", fmt::join(names, ", ")),
                    "give --codec with an encoder it has, or write a folder of frames");
    }
  } else {
    encoder_ = avcodec_find_encoder_by_name(options_.codec == "h264" ? "libx264" : options_.codec.c_str());
    if (encoder_ == nullptr || encoder_->type != AVMEDIA_TYPE_VIDEO) {
      return Status(Code::kUsage, fmt::format("this build's FFmpeg has no video encoder '{}'", options_.codec),
                    "use auto, h264, mpeg4, libvpx-vp9 or ffv1");
    }
  }
  codec_name_ = encoder_->name;
  rate_only_ = rate_only_ || encoder_->id == AV_CODEC_ID_MPEG1VIDEO || encoder_->id == AV_CODEC_ID_MPEG2VIDEO;
  if (avformat_query_codec(container, encoder_->id, FF_COMPLIANCE_NORMAL) == 0) {
    return Status(Code::kUsage, fmt::format("'{}': {} files do not hold {}", path_, kind, codec_name_),
                  "choose another --codec, or .mkv, which holds everything");
  }
  return Status::Ok();
}

// The list ends with AV_PIX_FMT_NONE; null: anything goes.
const AVPixelFormat* PixelsOf(const AVCodec* encoder) {
#if LIBAVCODEC_VERSION_MAJOR > 61 || (LIBAVCODEC_VERSION_MAJOR == 61 && LIBAVCODEC_VERSION_MINOR >= 13)
  const void* list = nullptr;
  avcodec_get_supported_config(nullptr, encoder, AV_CODEC_CONFIG_PIX_FORMAT, 0, &list, nullptr);
  return static_cast<const AVPixelFormat*>(list);
#else
  return encoder->pix_fmts;
#endif
}

Status AvWriter::ChoosePixels() {
  const AVPixelFormat wanted = options_.pixels.empty() ? AV_PIX_FMT_YUV420P : av_get_pix_fmt(options_.pixels.c_str());
  std::vector<std::string> names;
  const AVPixelFormat* known = PixelsOf(encoder_);
  for (const AVPixelFormat* each = known; each != nullptr && *each != AV_PIX_FMT_NONE; ++each) {
    if (*each == wanted) pixels_ = wanted;
    names.emplace_back(av_get_pix_fmt_name(*each));
  }
  if (known == nullptr) pixels_ = wanted;
  if (pixels_ == AV_PIX_FMT_NONE && options_.pixels.empty() && !names.empty()) pixels_ = known[0];
  if (pixels_ != AV_PIX_FMT_NONE && sws_isSupportedOutput(pixels_) != 0) return Status::Ok();
  return Status(Code::kUsage, fmt::format("{} does not take pixels '{}'", codec_name_, options_.pixels),
                fmt::format("use one of {}", fmt::join(names, ", ")));
}

Status AvWriter::ChooseQuality() {
  const int crf = options_.crf.value_or(kDefaultCrf);
  if (av_opt_set_int(context_->priv_data, "crf", crf, 0) >= 0) {
    if (codec_name_ == "libvpx-vp9") context_->bit_rate = 0;  // constant quality, not constrained by a rate
    return Status::Ok();
  }
  const bool in_range = crf >= 0 && crf <= 51;
  if (encoder_->id == AV_CODEC_ID_MPEG4 && in_range) {
    context_->flags |= AV_CODEC_FLAG_QSCALE;
    context_->global_quality = FF_QP2LAMBDA * (1 + crf * 30 / 51);
    return Status::Ok();
  }
  if (!options_.crf) return Status::Ok();  // lossless encoders have no such scale
  if (!in_range) return Status(Code::kUsage, fmt::format("--crf {}: {} takes 0 to 51", crf, codec_name_));
  return Status(Code::kUsage, fmt::format("{} has no --crf", codec_name_), "leave it out");
}

void AvWriter::ChooseClock() {
  AVRational rate = {options_.rate.num, options_.rate.den};
  const int most = encoder_->id == AV_CODEC_ID_MPEG4 ? kMpeg4Ticks : 1 << 30;
  av_reduce(&rate.num, &rate.den, rate.num, rate.den, most);
  const int factor = rate_only_ ? 1 : std::clamp((kTicks + rate.num - 1) / rate.num, 1, std::max(1, most / rate.num));
  // A frame of the constant rate is a whole number of ticks.
  context_->framerate = rate;
  if (rate_only_) {
    context_->time_base = av_inv_q(rate);
  } else {
    context_->time_base = {1, rate.num * factor};
    ticks_per_frame_ = int64_t{rate.den} * factor;
  }
  stream_->time_base = context_->time_base;
  stream_->avg_frame_rate = rate;
}

Status AvWriter::SetUp() {
  QuietAv();
  if (options_.width < 1 || options_.height < 1 || options_.rate.num < 1 || options_.rate.den < 1) {
    return Status(Code::kInternal, fmt::format("'{}': {}x{} pixels at {}/{} frames a second are no video", path_,
                                               options_.width, options_.height, options_.rate.num, options_.rate.den));
  }
  // The temporary name says nothing about the container; the final one does.
  const AVOutputFormat* container = av_guess_format(nullptr, path_.c_str(), nullptr);
  if (container == nullptr || container->video_codec == AV_CODEC_ID_NONE || (container->flags & AVFMT_NOFILE) != 0) {
    return Status(Code::kUsage, fmt::format("'{}': its ending names no video container", path_),
                  "use .mp4, .mkv, .mov, .webm or .avi");
  }
  AVFormatContext* format = nullptr;
  if (avformat_alloc_output_context2(&format, container, nullptr, nullptr) < 0) return Wrong("out of memory");
  format_.reset(format);
  format->flags |= AVFMT_FLAG_BITEXACT;  // Matroska draws random numbers for a file; the same frames are the same bytes
  LOCKSTEP_RETURN_IF_ERROR(ChooseCodec());
  LOCKSTEP_RETURN_IF_ERROR(ChoosePixels());
  const AVPixFmtDescriptor* shape = av_pix_fmt_desc_get(pixels_);
  const auto round_up = [](int size, int shift) { return ((size + (1 << shift) - 1) >> shift) << shift; };
  width_ = round_up(options_.width, shape->log2_chroma_w);
  height_ = round_up(options_.height, shape->log2_chroma_h);

  context_.reset(avcodec_alloc_context3(encoder_));
  frame_.reset(av_frame_alloc());
  packet_.reset(av_packet_alloc());
  stream_ = avformat_new_stream(format, nullptr);
  if (!context_ || !frame_ || !packet_ || stream_ == nullptr) return Wrong("out of memory");
  context_->width = width_;
  context_->height = height_;
  context_->pix_fmt = pixels_;
  context_->sample_aspect_ratio = {options_.pixel_aspect.num, options_.pixel_aspect.den};
  context_->thread_count = 0;
  const bool rgb = (shape->flags & AV_PIX_FMT_FLAG_RGB) != 0;
  const int matrix = MatrixOf(AVCOL_SPC_UNSPECIFIED, height_);
  context_->colorspace = rgb ? AVCOL_SPC_RGB : static_cast<AVColorSpace>(matrix);
  context_->color_range = rgb ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
  if ((format->oformat->flags & AVFMT_GLOBALHEADER) != 0) context_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  ChooseClock();
  LOCKSTEP_RETURN_IF_ERROR(ChooseQuality());
  int error = avcodec_open2(context_.get(), encoder_, nullptr);
  if (error < 0) {
    return Wrong(fmt::format("{} does not take {}x{} frames at {}/{} a second", codec_name_, width_, height_,
                             context_->framerate.num, context_->framerate.den),
                 error);
  }
  avcodec_parameters_from_context(stream_->codecpar, context_.get());
  stream_->sample_aspect_ratio = context_->sample_aspect_ratio;

  frame_->format = pixels_;
  frame_->width = width_;
  frame_->height = height_;
  frame_->colorspace = context_->colorspace;
  frame_->color_range = context_->color_range;
  error = av_frame_get_buffer(frame_.get(), 0);
  if (error < 0) return Wrong("no frame", error);
  scaler_.reset(sws_getContext(width_, height_, AV_PIX_FMT_RGB24, width_, height_, pixels_,
                               SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP, nullptr, nullptr, nullptr));
  if (!scaler_) return Wrong(fmt::format("RGB does not become {}", av_get_pix_fmt_name(pixels_)));
  const int* table = sws_getCoefficients(matrix);
  sws_setColorspaceDetails(scaler_.get(), table, 1, table, rgb ? 1 : 0, 0, 1 << 16, 1 << 16);
  return Status::Ok();
}

Status AvWriter::Start(Publication place) {
  LOCKSTEP_RETURN_IF_ERROR(SetUp());
  place_.emplace(std::move(place));
  AVFormatContext* format = format_.get();
  int error = avio_open(&format->pb, ("file:" + place_->temporary()).c_str(), AVIO_FLAG_WRITE);
  if (error < 0) return Wrong("it does not open", error);
  error = avformat_write_header(format, nullptr);
  return error < 0 ? Wrong("its header", error) : Status::Ok();
}

int64_t AvWriter::Tick(std::optional<double> seconds) {
  const int64_t grid = static_cast<int64_t>(frames_) * ticks_per_frame_;
  if (rate_only_) return grid;
  if (seconds) {
    constant_ = constant_ && std::abs(*seconds - static_cast<double>(grid) * av_q2d(context_->time_base)) < kOnTheGrid;
    if (!constant_) return std::max(last_tick_ + 1, int64_t{std::llround(*seconds / av_q2d(context_->time_base))});
  }
  return std::max(last_tick_ + 1, grid);
}

Status AvWriter::Write(const uint8_t* rgb, size_t stride, std::optional<double> seconds) {
  if (width_ != options_.width || height_ != options_.height) {
    const size_t row = static_cast<size_t>(width_) * 3;
    padded_.resize(row * height_);
    for (int y = 0; y < height_; ++y) {
      const uint8_t* from = rgb + stride * std::min(y, options_.height - 1);
      uint8_t* to = std::copy_n(from, static_cast<size_t>(options_.width) * 3, padded_.data() + y * row);
      for (int x = options_.width; x < width_; ++x, to += 3) std::copy_n(to - 3, 3, to);
    }
    rgb = padded_.data();
    stride = row;
  }
  int error = av_frame_make_writable(frame_.get());
  if (error < 0) return Wrong("no frame", error);
  const int line = static_cast<int>(stride);
  if (sws_scale(scaler_.get(), &rgb, &line, 0, height_, frame_->data, frame_->linesize) != height_) {
    return Wrong("the pixels of a frame were not converted");
  }
  frame_->pts = last_tick_ = Tick(seconds);
  frame_->quality = context_->global_quality;
  error = avcodec_send_frame(context_.get(), frame_.get());
  if (error < 0) return Wrong(fmt::format("frame {} was not encoded", frames_), error);
  ++frames_;
  return Drain();
}

Status AvWriter::Drain() {
  for (;;) {
    int error = avcodec_receive_packet(context_.get(), packet_.get());
    if (error == AVERROR(EAGAIN) || error == AVERROR_EOF) return Status::Ok();
    if (error < 0) return Wrong("encoding", error);
    av_packet_rescale_ts(packet_.get(), context_->time_base, stream_->time_base);
    packet_->duration = av_rescale_q(ticks_per_frame_, context_->time_base, stream_->time_base);
    packet_->stream_index = stream_->index;
    error = av_interleaved_write_frame(format_.get(), packet_.get());
    if (error >= 0 && format_->pb->error < 0) error = format_->pb->error;
    if (error < 0) return Wrong("writing", error);
  }
}

Status AvWriter::Finish() {
  if (frames_ == 0) return Wrong("there is not one frame");
  int error = avcodec_send_frame(context_.get(), nullptr);
  if (error < 0) return Wrong("encoding", error);
  LOCKSTEP_RETURN_IF_ERROR(Drain());
  error = av_write_trailer(format_.get());
  if (error >= 0 && format_->pb->error < 0) error = format_->pb->error;
  const int closed = avio_closep(&format_->pb);  // a full disk may show only here
  if (error >= 0) error = closed;
  if (error < 0) return Wrong("its end", error);
  return place_->Publish();
}

}  // namespace

Result<std::unique_ptr<VideoWriter>> VideoWriter::Create(const std::string& path, const VideoWriterOptions& options) {
  Result<Publication> place = Publication::File(path, options.overwrite);
  if (!place.ok()) return place.status();
  auto writer = std::make_unique<AvWriter>(place->path(), options);
  LOCKSTEP_RETURN_IF_ERROR(writer->Start(std::move(*place)));
  return std::unique_ptr<VideoWriter>(std::move(writer));
}

Status VideoWriter::Check(const std::string& path, const VideoWriterOptions& options) {
  return AvWriter(path, options).SetUp();
}

#endif

}  // namespace lockstep::data
