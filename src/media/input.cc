#include <fmt/format.h>
#include <strings.h>
#include <sys/stat.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"
#include "data/frame_folder.h"
#include "data/listing.h"
#include "data/tensor_stream.h"
#include "media/files.h"

namespace lockstep::media {
namespace {

// Values this far outside of [0, 1] are rounding; further out they are something else, for example [-1, 1].
constexpr double kSlack = 1e-3;
constexpr int kDecoderThreads = 4;

at::Tensor EmptyPictures(int64_t count, int64_t height, int64_t width) {
  return at::empty({1, count, height, width, 3}, at::kByte);
}
// The layout of pictures as the model counts dimensions; no copy.
at::Tensor AsFrames(const at::Tensor& pictures) { return pictures.permute({0, 1, 4, 2, 3}); }

class VideoInput : public MediaInput {
 public:
  VideoInput(std::unique_ptr<data::VideoReader> video, std::optional<data::Ratio> rate)
      : video_(std::move(video)), resample_(rate) {}

  Status Start(const std::string& path) {
    Result<bool> first = Advance();
    if (!first.ok()) return first.status();
    if (!*first) return Status(Code::kEnvironment, fmt::format("'{}' has not one frame", path));
    shape_.height = next_.height;
    shape_.width = next_.width;
    const data::VideoInfo& info = video_->info();
    shape_.pixel_aspect = info.pixel_aspect;
    shape_.count = info.frames;
    if (info.rate.num > 0) shape_.rate = info.rate;
    shape_.rate_known = info.rate.num > 0 || resample_.has_value();
    if (resample_) {
      if (info.rate.num > 0) {
        shape_.count = static_cast<uint64_t>(
            std::llround(static_cast<double>(info.frames) / info.rate.value() * resample_->value()));
      }
      shape_.rate = *resample_;
    }
    return Status::Ok();
  }

  Result<Piece> Read(int64_t count) override {
    at::Tensor pictures = EmptyPictures(count, shape_.height, shape_.width);
    const size_t bytes = static_cast<size_t>(shape_.height * shape_.width * 3);
    uint8_t* to = pictures.data_ptr<uint8_t>();
    Piece piece;
    int64_t filled = 0;
    for (; filled < count; ++filled, to += bytes) {
      Result<bool> more = resample_ ? Sample(to) : Copy(to, &piece.seconds);
      if (!more.ok()) return more.status();
      if (!*more) break;
    }
    if (filled > 0) piece.data = AsFrames(pictures.narrow(1, 0, filled));
    return piece;
  }
  std::vector<std::string> Notes() const override { return video_->Notes(); }

 private:
  Result<bool> Advance() {
    Result<bool> more = video_->Next(&next_);
    have_next_ = more.ok() && *more;
    ahead_ = more.status();
    return more;
  }
  void Pack(uint8_t* to) const {
    const size_t row = static_cast<size_t>(next_.width) * 3;
    for (int y = 0; y < next_.height; ++y) std::copy_n(next_.rgb + y * next_.stride, row, to + y * row);
  }
  Result<bool> Copy(uint8_t* to, std::vector<double>* seconds) {
    if (!ahead_.ok()) return ahead_;
    if (!have_next_) return false;
    Pack(to);
    seconds->push_back(next_.seconds);
    (void)Advance();
    return true;
  }
  // The frame that is on the screen at the time of the next frame of the constant rate. The last one stays for as long
  // as one frame of the video does.
  Result<bool> Sample(uint8_t* to) {
    const double time = static_cast<double>(sampled_) / resample_->value() + 1e-6;
    while (have_next_ && next_.seconds <= time) {
      shown_.resize(static_cast<size_t>(next_.width) * next_.height * 3);
      Pack(shown_.data());
      shown_at_ = next_.seconds;
      (void)Advance();
    }
    if (!ahead_.ok()) return ahead_;
    const data::Ratio rate = video_->info().rate;
    if (!have_next_ && sampled_ > 0 && time >= shown_at_ + (rate.num > 0 ? 1 / rate.value() : 0)) return false;
    std::copy(shown_.begin(), shown_.end(), to);
    ++sampled_;
    return true;
  }

  std::unique_ptr<data::VideoReader> video_;
  std::optional<data::Ratio> resample_;
  data::VideoFrame next_;  // read ahead by one: the size is known before the first piece
  bool have_next_ = false;
  Status ahead_;  // of that: an error counts when the frame is asked for
  std::vector<uint8_t> shown_;
  double shown_at_ = 0;
  int64_t sampled_ = 0;
};

class FolderInput : public MediaInput {
 public:
  explicit FolderInput(data::FrameFolderReader folder) : folder_(std::move(folder)) {}

  Status Start() {
    Result<bool> first = folder_.Next(&next_);
    if (!first.ok()) return first.status();
    have_next_ = *first;
    shape_.height = next_.height;
    shape_.width = next_.width;
    shape_.count = folder_.frames();
    shape_.count_certain = true;
    return Status::Ok();
  }
  Result<Piece> Read(int64_t count) override {
    at::Tensor pictures = EmptyPictures(count, shape_.height, shape_.width);
    uint8_t* to = pictures.data_ptr<uint8_t>();
    int64_t filled = 0;
    for (; filled < count && have_next_; ++filled) {
      to = std::copy(next_.rgb.begin(), next_.rgb.end(), to);
      Result<bool> more = folder_.Next(&next_);
      have_next_ = more.ok() && *more;
      ahead_ = more.status();
    }
    if (filled < count && !ahead_.ok()) return ahead_;
    Piece piece;
    if (filled > 0) piece.data = AsFrames(pictures.narrow(1, 0, filled));
    return piece;
  }

 private:
  data::FrameFolderReader folder_;
  data::Image next_;
  bool have_next_ = false;
  Status ahead_;  // of reading next_: an error counts when that is asked for
};

std::optional<at::ScalarType> TypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kBF16:
      return at::kBFloat16;
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kU8:
      return at::kByte;
    default:
      return std::nullopt;
  }
}

class TensorInput : public MediaInput {
 public:
  TensorInput(data::TensorStreamReader file, std::string path, bool latents)
      : file_(std::move(file)), path_(std::move(path)), latents_(latents) {}

  Status Start() {
    const TensorInfo& info = file_.tensor();
    const std::optional<at::ScalarType> type = TypeOf(info.dtype);
    if (!type || (latents_ && *type == at::kByte)) {
      return Status(Code::kUsage, fmt::format("'{}': tensor '{}' holds {}, expected F32, F16, BF16{}", path_, info.name,
                                              DtypeName(info.dtype), latents_ ? " or F64" : ", F64 or U8"));
    }
    type_ = *type;
    if (!latents_ && info.shape[2] != 3) {
      return Status(Code::kUsage,
                    fmt::format("'{}': tensor 'frames' is {}, expected 3 channels (clips, time, 3, height, width)",
                                path_, DescribeTensor(info.dtype, info.shape)),
                    info.shape[1] == 3   ? "it looks like (clips, channels, time, ...): swap the two"
                    : info.shape[4] == 3 ? "its channels come last: move them before height and width"
                    : info.shape[2] == 4 ? "leave out the fourth channel (alpha)"
                                         : "");
    }
    shape_.clips = info.shape[0];
    shape_.count = static_cast<uint64_t>(info.shape[1]);
    shape_.count_certain = true;
    shape_.channels = info.shape[2];
    shape_.height = info.shape[3];
    shape_.width = info.shape[4];
    metadata_ = file_.metadata();
    if (const auto rate = metadata_.find("rate"); rate != metadata_.end()) {
      Result<data::Ratio> parsed = ParseRate(rate->second);
      if (!parsed.ok()) return parsed.status().Context(fmt::format("'{}': its metadata", path_));
      shape_.rate = *parsed;
      shape_.rate_known = true;
    }
    return Status::Ok();
  }

  Result<Piece> Read(int64_t count) override {
    const int64_t at = file_.position();
    count = std::min(count, static_cast<int64_t>(shape_.count) - at);
    if (count <= 0) return Piece{};
    at::Tensor data = at::empty({shape_.clips, count, shape_.channels, shape_.height, shape_.width}, type_);
    Result<int64_t> read = file_.Next(count, data.data_ptr());
    if (!read.ok()) return read.status();
    if (type_ != at::kByte) {
      data = data.to(at::kFloat);
      LOCKSTEP_RETURN_IF_ERROR(CheckValues(data, at));
    }
    return Piece{data, {}};
  }

 private:
  Status CheckValues(const at::Tensor& data, int64_t at) const {
    const char* name = latents_ ? "latents" : "frames";
    const auto [low, high] = at::aminmax(data);
    const double least = low.item<double>();
    const double most = high.item<double>();
    if (!std::isfinite(least) || !std::isfinite(most)) {
      const at::Tensor bad = at::isfinite(data).logical_not().nonzero()[0];
      return Status(Code::kUsage,
                    fmt::format("'{}': tensor '{}' has a value that is not finite: {} at clip {}, time {}, channel {}",
                                path_, name, std::isnan(least) || std::isnan(most) ? "NaN" : "infinity",
                                bad[0].item<int64_t>(), at + bad[1].item<int64_t>(), bad[2].item<int64_t>()));
    }
    if (!latents_ && (least < -kSlack || most > 1 + kSlack)) {
      return Status(Code::kUsage,
                    fmt::format("'{}': tensor 'frames' has values from {:.4g} to {:.4g} (time {} on), expected 0 to 1",
                                path_, least, most, at),
                    least < -kSlack ? "for values in [-1, 1] store (x + 1) / 2"
                                    : "for values in [0, 255] store them as U8, or divide by 255");
    }
    return Status::Ok();
  }

  data::TensorStreamReader file_;
  std::string path_;
  bool latents_;
  at::ScalarType type_ = at::kFloat;
};

Result<std::unique_ptr<MediaInput>> OpenTensor(const std::string& path, bool latents) {
  Result<data::TensorStreamReader> file = data::TensorStreamReader::Open(path, latents ? "latents" : "frames");
  if (!file.ok()) return file.status();
  auto input = std::make_unique<TensorInput>(std::move(*file), path, latents);
  LOCKSTEP_RETURN_IF_ERROR(input->Start());
  return std::unique_ptr<MediaInput>(std::move(input));
}

// Folders and tensors have no clock of their own.
class AtRate : public MediaInput {
 public:
  AtRate(std::unique_ptr<MediaInput> inner, data::Ratio rate) : inner_(std::move(inner)) {
    shape_ = inner_->shape();
    metadata_ = inner_->metadata();
    shape_.rate = rate;
    shape_.rate_known = true;
  }
  Result<Piece> Read(int64_t count) override { return inner_->Read(count); }

 private:
  std::unique_ptr<MediaInput> inner_;
};

}  // namespace

bool IsTensorName(const std::string& path) {
  constexpr std::string_view kEnding = ".safetensors";
  return path.size() >= kEnding.size() &&
         ::strcasecmp(path.c_str() + path.size() - kEnding.size(), kEnding.data()) == 0;
}

Result<std::unique_ptr<MediaInput>> OpenFrames(const std::string& path, const InputOptions& options) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return FileError("open", path, errno);
  std::unique_ptr<MediaInput> input;
  if (S_ISDIR(info.st_mode)) {
    Result<data::FrameFolderReader> folder = data::FrameFolderReader::Open(path);
    if (!folder.ok()) return folder.status();
    auto frames = std::make_unique<FolderInput>(std::move(*folder));
    LOCKSTEP_RETURN_IF_ERROR(frames->Start());
    input = std::move(frames);
  } else if (IsTensorName(path)) {
    Result<std::unique_ptr<MediaInput>> tensor = OpenTensor(path, false);
    if (!tensor.ok()) return tensor.status();
    input = std::move(*tensor);
  } else {
    if (info.st_size == 0) {
      return Status(Code::kEnvironment, fmt::format("'{}' is empty: expected a video", path));
    }
    auto video = data::VideoReader::Open(path, {.cancelled = options.cancelled, .threads = kDecoderThreads});
    if (!video.ok()) {
      return video.status().hint().empty()
                 ? video.status().WithHint(
                       "INPUT is a video file, a folder of PNG or JPEG frames, or a .safetensors file")
                 : video.status();
    }
    auto frames = std::make_unique<VideoInput>(std::move(*video), options.rate);
    LOCKSTEP_RETURN_IF_ERROR(frames->Start(path));
    return std::unique_ptr<MediaInput>(std::move(frames));
  }
  if (options.rate) input = std::make_unique<AtRate>(std::move(input), *options.rate);
  return input;
}

Result<std::unique_ptr<MediaInput>> OpenLatents(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return FileError("open", path, errno);
  if (!IsTensorName(path) || S_ISDIR(info.st_mode)) {
    return Status(Code::kUsage, fmt::format("'{}': latents are read from .safetensors files", path),
                  "make them with `lockstep encode`");
  }
  return OpenTensor(path, true);
}

Result<data::Ratio> ParseRate(const std::string& text) {
  const Status wrong(Code::kUsage,
                     fmt::format("expected a frame rate such as 25, 29.97 or 30000/1001, found '{}'", text));
  if (const size_t slash = text.find('/'); slash != std::string::npos) {
    const int num = ParseDigits(text.substr(0, slash)).value_or(0);
    const int den = ParseDigits(text.substr(slash + 1)).value_or(0);
    if (num < 1 || den < 1 || num > 100'000'000 || den > 100'000'000) return wrong;
    const int common = std::gcd(num, den);
    return data::Ratio{num / common, den / common};
  }
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0.001) || value > 10000) return wrong;
  // Television's rates are 1000/1001 of whole ones and written short.
  const double whole = std::round(value * 1.001);
  if (std::abs(value - std::round(value)) > 1e-9 && std::abs(whole / 1.001 - value) < 0.005) {
    return data::Ratio{static_cast<int>(whole) * 1000, 1001};
  }
  const long num = std::lround(value * 1000);
  const long common = std::gcd(num, 1000L);
  return data::Ratio{static_cast<int>(num / common), static_cast<int>(1000 / common)};
}

}  // namespace lockstep::media
