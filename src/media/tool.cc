#include "media/tool.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "engine/devices.h"
#include "media/pipe.h"

namespace lockstep::media {
namespace {

// Pixels of one piece: what the widest layer needs for them is some 3 GB in float32 on a CPU; GPUs want more at once.
constexpr int64_t kPixelsOnCpu = 4 * 1280 * 720;
constexpr int64_t kPixelsOnGpu = 16 * 1280 * 720;
constexpr int64_t kMostFrames = 64;

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Result<AskedFrames> OpenAsked(const MediaOptions& options) {
  InputOptions how{.cancelled = StopFlag()};
  if (!options.fps.empty()) {
    Result<data::Ratio> rate = ParseRate(options.fps);
    if (!rate.ok()) return rate.status().Context("--fps");
    how.rate = *rate;
  }
  auto input = OpenFrames(options.input, how);
  if (!input.ok()) return input.status();
  AskedFrames asked{std::move(*input), {}};
  asked.shape = asked.input->shape();
  if (options.max_frames > 0 && (asked.shape.count == 0 || asked.shape.count > options.max_frames)) {
    asked.shape.count = options.max_frames;
  }
  return asked;
}

Result<at::Device> DeviceFor(const MediaOptions& options) {
  const bool gpu = engine::VisibleGpus() > 0;
  if (options.device == "cuda" && !gpu) return engine::NoGpuFor("--device cuda");
  return gpu && options.device != "cpu" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

Result<MediaModel> MediaModel::Load(const MediaOptions& options) {
  MediaModel model;
  Result<LoadedTaehv> loaded = LoadTaehv(options.weights, options.variant);
  if (!loaded.ok()) return loaded.status().Context("--weights");
  model.loaded_ = std::move(*loaded);
  Result<at::Device> device = DeviceFor(options);
  if (!device.ok()) return device.status();
  model.device_ = *device;
  if (options.precision == "fp16" || (options.precision == "auto" && device->is_cuda())) model.type_ = at::kHalf;
  if (options.precision == "bf16") model.type_ = at::kBFloat16;
  model.taehv().to(model.device_, model.type_);
  model.taehv().SetExecution(options.execution == "fast" ? models::Execution::kFast : models::Execution::kReference);
  return model;
}

const char* MediaModel::precision() const {
  return type_ == at::kHalf ? "fp16" : type_ == at::kBFloat16 ? "bf16" : "fp32";
}

int64_t MediaModel::PieceOf(const MediaOptions& options, const MediaShape& frames) const {
  const int64_t step = config().TimeDown();
  const int64_t pixels = std::max<int64_t>(1, frames.clips * frames.height * frames.width);
  const int64_t fit = (device_.is_cuda() ? kPixelsOnGpu : kPixelsOnCpu) / pixels;
  const int64_t wanted = options.chunk > 0 ? options.chunk : std::clamp(fit, step, kMostFrames);
  return RoundUp(wanted, step);
}

at::Tensor MediaModel::Take(const at::Tensor& frames) const {
  const at::NoGradGuard no_grad;
  at::Tensor x = frames.to(device_);
  x = x.scalar_type() == at::kByte ? x.to(at::kFloat).div_(255) : x.clamp(0, 1);
  x = x.to(type_);
  // Pictures come with their channels last, which GPUs like. On the CPU every kind of file must give the same bits.
  if (!device_.is_cuda()) x = x.contiguous();
  const int64_t multiple = config().SpaceDown();
  const int64_t down = RoundUp(x.size(3), multiple) - x.size(3);
  const int64_t right = RoundUp(x.size(4), multiple) - x.size(4);
  if (down == 0 && right == 0) return x;
  const int64_t clips = x.size(0);
  return at::replication_pad2d(x.flatten(0, 1), {0, right, 0, down}).unflatten(0, {clips, -1});
}

Result<at::Tensor> MediaModel::Give(const at::Tensor& frames, int64_t height, int64_t width, bool bytes) const {
  const at::NoGradGuard no_grad;
  at::Tensor x = frames.narrow(3, 0, height).narrow(4, 0, width).to(at::kFloat);
  if (x.isnan().any().item<bool>()) {
    return Status(Code::kEnvironment, fmt::format("the model gave values that are not numbers in {}", precision()),
                  type_ == at::kHalf ? "use --precision bf16 or fp32" : "check the weights and the latents");
  }
  x = x.clamp(0, 1);
  return bytes ? x.mul(255).round_().to(at::kByte) : x;
}

at::Tensor MediaModel::ToHost(const at::Tensor& frames, bool planes) {
  // A GPU turns pictures round faster than the writer would, and copies several times faster into pinned memory.
  const at::Tensor x = planes ? frames.contiguous() : frames;
  if (!x.is_cuda()) return x;
  return at::empty_like(x, x.options().device(at::kCPU).pinned_memory(true)).copy_(x);
}

Result<at::Tensor> MediaModel::GiveLatents(const at::Tensor& latents) const {
  const at::NoGradGuard no_grad;
  at::Tensor x = latents.to(at::kFloat);
  if (!x.isfinite().all().item<bool>()) {
    return Status(Code::kEnvironment, fmt::format("the model gave latents that are not finite in {}", precision()),
                  type_ == at::kHalf ? "use --precision bf16 or fp32" : "check the weights");
  }
  return x.cpu();
}

int64_t MediaModel::Complete(int64_t frames) const {
  if (config().TimeDown() != config().TimeUp()) return frames;
  int64_t all = frames;
  // CogVideoX' variant shifts its output when the number of latents is even: an odd one keeps frame i at place i.
  while (config().FramesOut(all) < frames || (config().cogvideox && config().Latents(all) % 2 == 0)) ++all;
  return all;
}

MediaProgress::MediaProgress(uint64_t total) : line_({.unit = "frame", .total = total, .fd = 2}), began_(Now()) {}

void MediaProgress::Done(int64_t frames) {
  frames_ += static_cast<uint64_t>(frames);
  if (frames > 0) line_.Update({.step = frames_});
}

double MediaProgress::seconds() const { return std::chrono::duration<double>(Now() - began_).count(); }

std::string RateText(const data::Ratio& rate) {
  return rate.den == 1 ? fmt::format("{}", rate.num) : fmt::format("{}/{}", rate.num, rate.den);
}

void SummarizeFrames(const MediaOptions& options, const MediaShape& frames, const MediaProgress& progress,
                     const std::vector<std::string>& notes, nlohmann::json* summary) {
  nlohmann::json& all = *summary;
  const double seconds = progress.seconds();
  all["command"] = options.command;
  all["input"] = options.input;
  all["output"] = options.output;
  all["clips"] = frames.clips;
  all["frames"] = progress.frames();
  all["width"] = frames.width;
  all["height"] = frames.height;
  all["rate"] = RateText(frames.rate);
  all["seconds"] = seconds;
  all["frames_per_second"] = seconds > 0 ? static_cast<double>(progress.frames()) * frames.clips / seconds : 0;
  all["notes"] = notes;
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

void Summarize(const MediaOptions& options, const MediaModel& model, const MediaShape& frames,
               const MediaProgress& progress, const std::vector<std::string>& notes, nlohmann::json* summary) {
  SummarizeFrames(options, frames, progress, notes, summary);
  nlohmann::json& all = *summary;
  all["variant"] = model.config().name;
  all["weights"] = model.loaded().path;
  all["averaged"] = model.loaded().averaged;
  if (model.loaded().step) all["step"] = *model.loaded().step;
  all["device"] = model.device().str();
  all["precision"] = model.precision();
  all["execution"] = options.execution;
}

}  // namespace lockstep::media
