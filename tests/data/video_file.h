// Makes small video files with FFmpeg's own encoder. Frame i is a flat grey of level GreyOf(i), so that a decoded frame
// says which one it is.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <string>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
}

namespace lockstep::data {

inline int GreyOf(int frame) { return 30 + 4 * frame; }  // luma; up to frame 50

struct VideoSpec {
  int frames = 30;
  int width = 64;
  int height = 48;
  int gop = 5;
  int b_frames = 0;
  const char* movflags = "";
  int skip_packets = 0;      // so many of the first are not written: the file begins without a key frame
  int turn = 0;              // degrees clockwise that a player must turn the picture
  bool mirror = false;       // and then show it with left and right exchanged
  bool mark_corner = false;  // the top left quarter is white
  bool uneven = false;       // a pause after every sixth frame: no constant rate
};

// "" or what went wrong.
inline std::string WriteVideo(const std::string& path, const VideoSpec& spec) {
  const AVCodec* codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
  if (codec == nullptr) return "no MPEG-4 encoder";
  AVFormatContext* format = nullptr;
  if (avformat_alloc_output_context2(&format, nullptr, nullptr, path.c_str()) < 0) return "no container";
  AVCodecContext* context = avcodec_alloc_context3(codec);
  context->width = spec.width;
  context->height = spec.height;
  context->pix_fmt = AV_PIX_FMT_YUV420P;
  context->time_base = {1, 25};
  context->framerate = {25, 1};
  context->gop_size = spec.gop;
  context->max_b_frames = spec.b_frames;
  context->flags |= AV_CODEC_FLAG_QSCALE;
  context->global_quality = 2 * FF_QP2LAMBDA;
  if ((format->oformat->flags & AVFMT_GLOBALHEADER) != 0) context->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  av_opt_set_int(context->priv_data, "sc_threshold", 1000000000, 0);  // key frames where asked, nowhere else
  if (avcodec_open2(context, codec, nullptr) < 0) return "the encoder does not open";
  AVStream* stream = avformat_new_stream(format, nullptr);
  stream->time_base = context->time_base;
  stream->avg_frame_rate = context->framerate;
  avcodec_parameters_from_context(stream->codecpar, context);
  if (spec.turn != 0 || spec.mirror) {
#if LIBAVFORMAT_VERSION_MAJOR >= 61
    AVPacketSideData* side =
        av_packet_side_data_new(&stream->codecpar->coded_side_data, &stream->codecpar->nb_coded_side_data,
                                AV_PKT_DATA_DISPLAYMATRIX, 9 * sizeof(int32_t), 0);
    uint8_t* matrix = side->data;
#else
    uint8_t* matrix = av_stream_new_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, 9 * sizeof(int32_t));
#endif
    av_display_rotation_set(reinterpret_cast<int32_t*>(matrix), spec.turn);  // as a player would turn it, clockwise
    av_display_matrix_flip(reinterpret_cast<int32_t*>(matrix), spec.mirror ? 1 : 0, 0);
  }
  if (avio_open(&format->pb, path.c_str(), AVIO_FLAG_WRITE) < 0) return "cannot write " + path;
  AVDictionary* options = nullptr;
  if (spec.movflags[0] != '\0') av_dict_set(&options, "movflags", spec.movflags, 0);
  if (avformat_write_header(format, &options) < 0) return "no header";
  av_dict_free(&options);
  AVFrame* frame = av_frame_alloc();
  frame->format = AV_PIX_FMT_YUV420P;
  frame->width = spec.width;
  frame->height = spec.height;
  av_frame_get_buffer(frame, 0);
  AVPacket* packet = av_packet_alloc();
  int packets = 0;
  for (int i = 0; i <= spec.frames; ++i) {
    if (i < spec.frames) {
      av_frame_make_writable(frame);
      for (int y = 0; y < spec.height; ++y) std::fill_n(frame->data[0] + y * frame->linesize[0], spec.width, GreyOf(i));
      for (int y = 0; spec.mark_corner && y < spec.height / 2; ++y) {
        std::fill_n(frame->data[0] + y * frame->linesize[0], spec.width / 2, 235);
      }
      for (int plane : {1, 2}) {
        for (int y = 0; y < spec.height / 2; ++y) {
          std::fill_n(frame->data[plane] + y * frame->linesize[plane], spec.width / 2, 128);
        }
      }
      frame->pts = spec.uneven ? i + 5 * (i / 6) : i;
      frame->quality = context->global_quality;
    }
    avcodec_send_frame(context, i < spec.frames ? frame : nullptr);
    while (avcodec_receive_packet(context, packet) == 0) {
      if (packets++ < spec.skip_packets) {
        av_packet_unref(packet);
        continue;
      }
      av_packet_rescale_ts(packet, context->time_base, stream->time_base);
      packet->duration = av_rescale_q(1, context->time_base, stream->time_base);
      packet->stream_index = 0;
      av_interleaved_write_frame(format, packet);
    }
  }
  av_write_trailer(format);
  avio_closep(&format->pb);
  av_packet_free(&packet);
  av_frame_free(&frame);
  avcodec_free_context(&context);
  avformat_free_context(format);
  return "";
}

// Which frame a decoded grey belongs to: full-range RGB of a limited-range luma.
inline int FrameOfGrey(int rgb) { return static_cast<int>(std::lround((rgb * 219.0 / 255 + 16 - 30) / 4)); }

}  // namespace lockstep::data
