// Owners of FFmpeg's objects and its error texts, for the files of data/ that read and write video. Only where the
// build has FFmpeg (LOCKSTEP_FFMPEG).
#pragma once

#ifdef LOCKSTEP_FFMPEG

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/parseutils.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <mutex>
#include <string>

namespace lockstep::data {

struct AvFree {
  void operator()(AVCodecContext* x) const { avcodec_free_context(&x); }
  void operator()(AVFrame* x) const { av_frame_free(&x); }
  void operator()(AVPacket* x) const { av_packet_free(&x); }
  void operator()(SwsContext* x) const { sws_freeContext(x); }
};
template <typename T>
using AvOwned = std::unique_ptr<T, AvFree>;

inline std::string AvText(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = "";
  av_strerror(error, text, sizeof(text));
  return text;
}

// Errors are values here; FFmpeg's own lines on the console would only repeat them.
inline void QuietAv() {
  static std::once_flag quiet;
  std::call_once(quiet, [] { av_log_set_level(AV_LOG_QUIET); });
}

// Without a label: television's rule, by size. The reader and the writer share it.
inline int MatrixOf(int labelled, int height) {
  if (labelled != AVCOL_SPC_UNSPECIFIED) return labelled;
  return height >= 720 ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M;
}

}  // namespace lockstep::data

#endif
