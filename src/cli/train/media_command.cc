#include "cli/train/media_command.h"

#include <c10/core/Allocator.h>
#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <exception>

#include "base/arguments.h"
#include "base/exit_codes.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/train/media_pipe.h"
#include "engine/devices.h"

namespace lockstep::cli {
namespace {

// Pixels of one piece: what the widest layer needs for them is some 3 GB in float32 on a CPU; GPUs want more at once.
constexpr int64_t kPixelsOnCpu = 4 * 1280 * 720;
constexpr int64_t kPixelsOnGpu = 16 * 1280 * 720;
constexpr int64_t kMostFrames = 64;

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

Status FromException(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return Status(Code::kEnvironment, "out of memory", "give fewer frames at a time: --chunk 4, or --precision bf16");
  }
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return Status(Code::kEnvironment, torch != nullptr ? torch->what_without_backtrace() : error.what());
}

void Print(const nlohmann::json& summary, bool json) {
  if (json) {
    fmt::print("{}\n", summary.dump(2));
    return;
  }
  std::string text =
      fmt::format("{}: {}", summary["output"].get<std::string>(), Count(summary["frames"].get<int64_t>(), "frame"));
  if (summary["clips"] != 1) text += fmt::format(" of {} clips", summary["clips"].dump());
  text += fmt::format(", {}x{}", summary["width"].dump(), summary["height"].dump());
  if (summary.contains("latents")) text += ", " + Count(summary["latents"].get<int64_t>(), "latent");
  if (summary.contains("psnr") && summary["psnr"].is_number())
    text += fmt::format(", PSNR {:.2f} dB", summary["psnr"].get<double>());
  text += fmt::format(", {:.1f} s, {:.1f} frames/s ({}, {}, {})", summary["seconds"].get<double>(),
                      summary["frames_per_second"].get<double>(), summary["variant"].get<std::string>(),
                      summary["device"].get<std::string>(), summary["precision"].get<std::string>());
  fmt::print("{}\n", text);
}

// Flags by command: what a command does not know, it refuses.
void Declare(Arguments& args, MediaOptions* options) {
  const bool encode = options->command == "encode";
  const bool decode = options->command == "decode";
  args.Option(
          "--weights", &options->weights,
          "TAEHV weights: .safetensors, a torch.save file, a checkpoint folder, or a run (name, 'latest', directory)")
      .Named("RUN|PATH")
      .Required();
  args.Option("--variant", &options->variant, "take the weights as this variant (taehv, taew2_1, taecvx, ...)")
      .Named("NAME");
  args.Option("--device", &options->device, "auto (a GPU where there is one), cpu or cuda")
      .OneOf({"auto", "cpu", "cuda"});
  args.Option("--precision", &options->precision, "auto (fp32 on the CPU, fp16 on a GPU), fp32, fp16 or bf16")
      .OneOf({"auto", "fp32", "fp16", "bf16"});
  args.Option("--execution", &options->execution, "fast, or reference: upstream's operations one by one")
      .OneOf({"fast", "reference"});
  args.Option("--chunk", &options->chunk, "frames in memory at a time (default: by the size of the frames)")
      .Between(1, int64_t{1} << 20);
  args.Option("--max-frames", &options->max_frames, "stop after this many").Between(1, int64_t{1} << 40);
  args.Option("--fps", &options->fps,
              decode ? "frame rate of the output (default: what the latents remember, else 25)"
                     : "constant rate (25, 29.97, 30000/1001): videos are resampled to it, folders and tensors are "
                       "taken at it")
      .Named("RATE");
  args.Flag("--overwrite", &options->out.overwrite, "replace OUTPUT if it exists");
  args.Flag("--json", &options->json, "the summary as JSON on stdout");
  args.Option("--dtype", &options->dtype,
              encode ? "of the latents: f32, f16 or bf16" : "of a .safetensors output: f32, f16, bf16 or u8")
      .OneOf(encode ? std::vector<std::string>{"f32", "f16", "bf16"}
                    : std::vector<std::string>{"f32", "f16", "bf16", "u8"});
  if (encode) {
    args.Flag("--no-tail", &options->no_tail,
              "only whole latents of the frames there are, as upstream's encode gives: decoding returns fewer frames");
  } else {
    args.Option("--codec", &options->out.codec, "of a video output: auto, h264, mpeg4, libvpx-vp9, ffv1, ...")
        .Named("NAME");
    args.Option("--crf", &options->out.crf, "quality of a video output, 0 (best) to 51 (default 18)").Between(0, 63);
    args.Option("--pixels", &options->out.pixels,
                "pixel format of a video output (default yuv420p, which holds even sizes only; yuv444p holds all)")
        .Named("FORMAT");
  }
  args.Option("INPUT", &options->input,
              decode ? ".safetensors file with a tensor 'latents'"
                     : "video file, folder of PNG or JPEG frames, or .safetensors file with a tensor 'frames'")
      .Required();
  args.Option("OUTPUT", &options->output,
              encode ? ".safetensors file"
                     : "video file (.mp4 .mkv .mov .webm .avi), folder (frames as 000001.png ...), or .safetensors")
      .Required();
}

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

Result<MediaModel> MediaModel::Load(const MediaOptions& options) {
  MediaModel model;
  Result<LoadedTaehv> loaded = LoadTaehv(options.weights, options.variant);
  if (!loaded.ok()) return loaded.status().Context("--weights");
  model.loaded_ = std::move(*loaded);
  const bool gpu = engine::VisibleGpus() > 0;
  if (options.device == "cuda" && !gpu) return engine::NoGpuFor("--device cuda");
  const bool cuda = options.device == "cuda" || (options.device == "auto" && gpu);
  model.device_ = cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  if (options.precision == "fp16" || (options.precision == "auto" && cuda)) model.type_ = at::kHalf;
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

void Summarize(const MediaOptions& options, const MediaModel& model, const MediaShape& frames,
               const MediaProgress& progress, const std::vector<std::string>& notes, nlohmann::json* summary) {
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
  all["variant"] = model.config().name;
  all["weights"] = model.loaded().path;
  all["averaged"] = model.loaded().averaged;
  if (model.loaded().step) all["step"] = *model.loaded().step;
  all["device"] = model.device().str();
  all["precision"] = model.precision();
  all["execution"] = options.execution;
  all["notes"] = notes;
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

int RunMediaCommand(int argc, char** argv, const std::string& about, const std::string& examples,
                    const std::function<Status(const MediaOptions&, nlohmann::json*)>& work) {
  MediaOptions options;
  options.command = argv[0];
  Arguments args(about, "lockstep " + options.command);
  Declare(args, &options);
  args.Footer(examples);
  if (const auto code = args.Parse(argc, argv)) return *code;
  const std::map<std::string, Dtype> types = {
      {"f32", Dtype::kF32}, {"f16", Dtype::kF16}, {"bf16", Dtype::kBF16}, {"u8", Dtype::kU8}};
  options.out.dtype = types.at(options.dtype);
  ListenForStop();
  nlohmann::json summary;
  Status status;
  try {
    status = work(options, &summary);
  } catch (const std::exception& error) {
    status = FromException(error);
  }
  if (StopSignal() != 0 && !status.ok()) {
    fmt::print(stderr, "lockstep {}: stopped by a signal; nothing was written\n", options.command);
    return ExitOfSignal(StopSignal());
  }
  if (!status.ok()) {
    fmt::print(stderr, "lockstep {}: {}\n", options.command, status.ToString());
    return ExitCode(status);
  }
  Print(summary, options.json);
  return std::fflush(stdout) == 0 ? kExitOk : kExitEnvironment;
}

}  // namespace lockstep::cli
