#include <fmt/format.h>
#include <sys/stat.h>
#include <torch/types.h>

#include "base/files.h"
#include "data/frame_folder.h"
#include "data/listing.h"
#include "data/publish.h"
#include "data/sources.h"
#include "data/tensor_stream.h"
#include "data/video_writer.h"
#include "media/files.h"

namespace lockstep::media {
namespace {

// [T, H, W, 3] bytes of the only clip.
at::Tensor AsPictures(const at::Tensor& frames) {
  at::Tensor clip = frames[0];
  if (clip.scalar_type() != at::kByte) clip = clip.to(at::kFloat).clamp(0, 1).mul(255).round().to(at::kByte);
  return clip.permute({0, 2, 3, 1}).contiguous();
}

class VideoOutput : public MediaOutput {
 public:
  VideoOutput(std::unique_ptr<data::VideoWriter> video, const MediaShape& shape)
      : video_(std::move(video)), width_(shape.width), height_(shape.height) {}
  Status Write(const Piece& piece) override {
    const at::Tensor pictures = AsPictures(piece.data);
    const size_t row = static_cast<size_t>(width_) * 3;
    const uint8_t* rgb = pictures.data_ptr<uint8_t>();
    for (int64_t i = 0; i < pictures.size(0); ++i, rgb += row * height_) {
      const auto at = piece.seconds.empty() ? std::nullopt : std::optional<double>(piece.seconds[i]);
      LOCKSTEP_RETURN_IF_ERROR(video_->Write(rgb, row, at));
    }
    return Status::Ok();
  }
  Status Finish(const std::map<std::string, std::string>&) override { return video_->Finish(); }
  std::string Describe() const override {
    return fmt::format("{} {}x{}", video_->codec(), video_->width(), video_->height());
  }
  std::vector<std::string> Notes() const override {
    if (video_->width() == width_ && video_->height() == height_) return {};
    return {
        fmt::format("its pixel format holds even sizes only: {}x{} was written as {}x{} (--pixels yuv444p keeps it)",
                    width_, height_, video_->width(), video_->height())};
  }

 private:
  std::unique_ptr<data::VideoWriter> video_;
  int64_t width_, height_;
};

class FolderOutput : public MediaOutput {
 public:
  explicit FolderOutput(data::FrameFolderWriter folder) : folder_(std::move(folder)) {}
  Status Write(const Piece& piece) override {
    const at::Tensor pictures = AsPictures(piece.data);
    for (int64_t i = 0; i < pictures.size(0); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(folder_.Write(pictures[i].data_ptr<uint8_t>(), static_cast<int>(pictures.size(2)),
                                             static_cast<int>(pictures.size(1))));
    }
    return Status::Ok();
  }
  Status Finish(const std::map<std::string, std::string>&) override { return folder_.Finish(); }
  std::string Describe() const override { return "PNG"; }

 private:
  data::FrameFolderWriter folder_;
};

class TensorOutput : public MediaOutput {
 public:
  TensorOutput(data::TensorStreamWriter file, Dtype dtype) : file_(std::move(file)), dtype_(dtype) {}
  Status Write(const Piece& piece) override {
    at::Tensor data = piece.data;
    if (dtype_ == Dtype::kU8) {
      if (data.scalar_type() != at::kByte) data = data.to(at::kFloat).clamp(0, 1).mul(255).round().to(at::kByte);
    } else {
      if (data.scalar_type() == at::kByte) data = data.to(at::kFloat).div(255);
      data = data.to(dtype_ == Dtype::kF16 ? at::kHalf : dtype_ == Dtype::kBF16 ? at::kBFloat16 : at::kFloat);
    }
    data = data.contiguous();
    return file_.Write(data.data_ptr(), data.size(1));
  }
  Status Finish(const std::map<std::string, std::string>& metadata) override { return file_.Finish(metadata); }
  std::string Describe() const override { return std::string(DtypeName(dtype_)); }

 private:
  data::TensorStreamWriter file_;
  Dtype dtype_;
};

Result<std::unique_ptr<MediaOutput>> CreateTensor(const std::string& path, const std::string& name,
                                                  const MediaShape& shape, const OutputOptions& options) {
  const int64_t count = shape.count_certain ? static_cast<int64_t>(shape.count) : -1;
  auto file = data::TensorStreamWriter::Create(
      path, name, options.dtype, {shape.clips, count, shape.channels, shape.height, shape.width}, options.overwrite);
  if (!file.ok()) return file.status();
  return std::unique_ptr<MediaOutput>(std::make_unique<TensorOutput>(std::move(*file), options.dtype));
}

data::VideoWriterOptions VideoOptionsOf(const MediaShape& shape, const OutputOptions& options) {
  data::VideoWriterOptions video;
  video.width = static_cast<int>(shape.width);
  video.height = static_cast<int>(shape.height);
  video.rate = shape.rate;
  video.pixel_aspect = shape.pixel_aspect;
  video.codec = options.codec;
  video.pixels = options.pixels;
  video.crf = options.crf;
  video.overwrite = options.overwrite;
  return video;
}

bool EndsLikeAFile(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return name.find('.') != std::string::npos && name != "." && name != "..";
}

}  // namespace

Status CheckFolderName(const std::string& path) {
  struct stat info{};
  const bool folder = ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (!EndsLikeAFile(path) || folder || path.back() == '/') return Status::Ok();
  return Status(Code::kUsage,
                fmt::format("'{}': its ending is not one of a video ({}) or .safetensors", path, data::kVideoNames),
                "for a folder of PNG frames end the name with '/'");
}

Status CheckOutput(const std::string& path, bool latents, bool overwrite) {
  if (latents) {
    if (!IsTensorName(path)) {
      return Status(Code::kUsage, fmt::format("'{}': latents are written to .safetensors files", path),
                    "give OUTPUT that ending");
    }
    return data::Publication::File(path, overwrite).status();
  }
  if (IsTensorName(path)) return data::Publication::File(path, overwrite).status();
  struct stat info{};
  const bool folder = ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (data::IsVideoName(path) && !folder) {
    if (!data::HasVideo()) return data::NoVideoSupport();
    return data::Publication::File(path, overwrite).status();
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckFolderName(path));
  return data::Publication::Folder(path, overwrite).status();
}

Status CheckVideo(const std::string& path, const MediaShape& shape, const OutputOptions& options) {
  return data::VideoWriter::Check(path, VideoOptionsOf(shape, options));
}

Result<std::unique_ptr<MediaOutput>> CreateFrames(const std::string& path, const MediaShape& shape,
                                                  const OutputOptions& options) {
  if (IsTensorName(path)) return CreateTensor(path, "frames", shape, options);
  if (shape.clips != 1) {
    return Status(Code::kUsage, fmt::format("'{}': {} clips do not fit into one video", path, shape.clips),
                  "write them to a .safetensors file");
  }
  struct stat info{};
  const bool folder = ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (data::IsVideoName(path) && !folder) {
    auto writer = data::VideoWriter::Create(path, VideoOptionsOf(shape, options));
    if (!writer.ok()) return writer.status();
    return std::unique_ptr<MediaOutput>(std::make_unique<VideoOutput>(std::move(*writer), shape));
  }
  auto writer = data::FrameFolderWriter::Create(path, options.overwrite);
  if (!writer.ok()) return writer.status();
  return std::unique_ptr<MediaOutput>(std::make_unique<FolderOutput>(std::move(*writer)));
}

Result<std::unique_ptr<MediaOutput>> CreateLatents(const std::string& path, const MediaShape& shape,
                                                   const OutputOptions& options) {
  return CreateTensor(path, "latents", shape, options);
}

}  // namespace lockstep::media
