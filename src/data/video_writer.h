// 8-bit RGB frames into a video file, through FFmpeg's libraries where the build has them. The container follows from
// the name (.mp4 .mkv .mov .webm .avi ...), the file appears under it at Finish and not before; destroyed earlier, the
// writer leaves nothing. Owned by one thread.
//
//   Result<std::unique_ptr<VideoWriter>> video = VideoWriter::Create("a.mp4", {.width = 64, .height = 48});
//   for (...) LOCKSTEP_RETURN_IF_ERROR((*video)->Write(rgb, stride));
//   LOCKSTEP_RETURN_IF_ERROR((*video)->Finish());
//
// Formats with half-size chroma (yuv420p) hold even sizes only: an odd frame gets its last column or row once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "data/video_reader.h"

namespace lockstep::data {

struct VideoWriterOptions {
  int width = 0;
  int height = 0;
  Ratio rate{25, 1};
  Ratio pixel_aspect{1, 1};
  // "auto": VP9 for .webm, MPEG-4 for .avi, else H.264 where the build's FFmpeg has it, else MPEG-4. Or the name of one
  // of FFmpeg's encoders ("libx264", "mpeg4", "ffv1", ...); "h264" is libx264.
  std::string codec = "auto";
  std::string pixels;      // FFmpeg's name; "": yuv420p, or the encoder's first where it has no such
  std::optional<int> crf;  // 0 (best) .. 51 (63 for VP9); default 18. MPEG-4 spreads it over its own scale of 1..31
  bool overwrite = false;
};

class VideoWriter {
 public:
  static Result<std::unique_ptr<VideoWriter>> Create(const std::string& path, const VideoWriterOptions& options);
  // Whether Create would take these options for this name; no file is made or looked at.
  static Status Check(const std::string& path, const VideoWriterOptions& options);
  virtual ~VideoWriter() = default;

  virtual int width() const = 0;  // as written
  virtual int height() const = 0;
  virtual const std::string& codec() const = 0;  // FFmpeg's name
  // The frame at `seconds` since the start; without: at the constant rate. Times within a few milliseconds of the
  // constant rate are put onto it, so that rounded timestamps do not become a variable rate. .avi knows only the rate.
  virtual Status Write(const uint8_t* rgb, size_t stride, std::optional<double> seconds = std::nullopt) = 0;
  // Publishes the file. An error if no frame was written.
  virtual Status Finish() = 0;
};

}  // namespace lockstep::data
