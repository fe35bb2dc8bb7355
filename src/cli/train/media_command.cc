#include "cli/train/media_command.h"

#include <c10/core/Allocator.h>
#include <fmt/format.h>

#include <exception>

#include "base/arguments.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/train/rank_error.h"
#include "data/spike.h"
#include "media/pipe.h"

namespace lockstep::cli {
namespace {

Status FromException(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return Status(Code::kEnvironment, "out of memory",
                  "give less at a time: --chunk 4 (restore: --tile-batch 1, --frames, --tile), or --precision bf16");
  }
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return Status(Code::kEnvironment, torch != nullptr ? torch->what_without_backtrace() : error.what());
}

std::string TextOf(const nlohmann::json& summary, bool json) {
  if (json) return summary.dump(2) + "\n";
  if (summary.value("already", false)) {
    return fmt::format("{}: complete already, {}, by the same weights and settings\n",
                       summary["output"].get<std::string>(), Count(summary["frames"].get<int64_t>(), "frame"));
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
  return text + "\n";
}

// What the ranks' launcher shows of it.
Status Show(const media::MediaOptions& options, const nlohmann::json& summary) {
  const std::string text = TextOf(summary, options.json);
  if (!options.restore.summary.empty()) return WriteFileAtomic(options.restore.summary, text);
  fmt::print("{}", text);
  if (std::fflush(stdout) != 0) return Status(Code::kEnvironment, "cannot write to stdout");
  return Status::Ok();
}

// A rank among others says its error once, and leaves it for the launcher.
int FailRestore(const media::MediaOptions& options, const Status& status, bool began) {
  const bool main = options.restore.who.rank == 0;
  return FailRank("restore", status, /*say=*/main || began, /*refused=*/!began);
}

void DeclareRestore(Arguments& args, media::RestoreAsked* asked) {
  media::RestoreTiles& tiles = asked->tiles;
  args.Option("--frames", &tiles.frames, "of a window (18); 0: the whole clip at once").Between(0, 1 << 20);
  args.Option("--frame-overlap", &tiles.frame_overlap, "of two windows (2)").Between(0, 1 << 20);
  args.Option("--tile", &tiles.tile, "pixels of the input, a multiple of the model's windows (224); 0: whole frames")
      .Between(0, 1 << 20);
  args.Option("--tile-overlap", &tiles.tile_overlap, "of two tiles (20)").Between(0, 1 << 20);
  tiles.batch = 0;  // chosen
  args.Option("--tile-batch", &tiles.batch, "tiles at once (default: up to 4 by the GPU's memory, 1 on a CPU)")
      .Between(1, 1 << 20);
  args.Option("--spikes", &asked->spikes,
              "folder of the clip's spike files (.dat), one for each frame; for a folder of clips DIR/CLIP/spike/*.dat")
      .Named("DIR");
  args.Option("--spike-form", &asked->spike_form, "how spikes become channels (as in training, else tfp)")
      .OneOf(data::kSpikeKinds);
  args.Option("--sensor-height", &asked->sensor_height, "of the spike camera (as in training, else 360)")
      .Between(1, 1 << 20);
  args.Option("--sensor-width", &asked->sensor_width, "of the spike camera (as in training, else 640)")
      .Between(1, 1 << 20);
  args.Flag("--no-flip", &asked->no_flip, "the spike file's first row is the picture's first");
  args.Option("--noise", &asked->noise, "level of the noise, of 255, for models that ask for it").Between(0, 255);
  args.Option("--nproc-per-node", &asked->ranks,
              "ranks on this node, one for each GPU ('gpu'), that share clips and windows; any other flag of `lockstep "
              "run` as well")
      .Named("N|gpu");
  args.Option("--summary-file", &asked->summary, "the summary goes there instead of to stdout").Named("FILE");
  args.Flag("--allow-gaps", &asked->allow_gaps, "numbers of frames may leave some out");
}

// Flags by command: what a command does not know, it refuses.
void Declare(Arguments& args, media::MediaOptions* options) {
  const bool encode = options->command == "encode";
  const bool decode = options->command == "decode";
  const bool restore = options->command == "restore";
  args.Option("--weights", &options->weights,
              fmt::format("{} weights: .safetensors, a torch.save file, a checkpoint folder, or a run (name, 'latest', "
                          "directory)",
                          restore ? "VRT" : "TAEHV"))
      .Named("RUN|PATH")
      .Required();
  args.Option("--variant", &options->variant,
              restore ? "shape of a file that does not say its own: 001 to 009, as upstream names them"
                      : "take the weights as this variant (taehv, taew2_1, taecvx, ...)")
      .Named("NAME");
  args.Option("--device", &options->device, "auto (a GPU where there is one), cpu or cuda")
      .OneOf({"auto", "cpu", "cuda"});
  args.Option("--precision", &options->precision,
              restore ? "auto (fp32 on the CPU, bf16 on a GPU), fp32, fp16 or bf16"
                      : "auto (fp32 on the CPU, fp16 on a GPU), fp32, fp16 or bf16")
      .OneOf({"auto", "fp32", "fp16", "bf16"});
  if (restore) {
    DeclareRestore(args, &options->restore);
  } else {
    args.Option("--execution", &options->execution, "fast, or reference: upstream's operations one by one")
        .OneOf({"fast", "reference"});
    args.Option("--chunk", &options->chunk, "frames in memory at a time (default: by the size of the frames)")
        .Between(1, int64_t{1} << 20);
  }
  args.Option("--max-frames", &options->max_frames, "stop after this many").Between(1, int64_t{1} << 40);
  args.Option("--fps", &options->fps,
              decode ? "frame rate of the output (default: what the latents remember, else 25)"
                     : "constant rate (25, 29.97, 30000/1001): videos are resampled to it, folders and tensors are "
                       "taken at it")
      .Named("RATE");
  args.Flag("--overwrite", &options->out.overwrite,
            restore ? "replace OUTPUT if it exists, discard an unfinished restoration with other settings"
                    : "replace OUTPUT if it exists");
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
  args.Option(
          "INPUT", &options->input,
          decode ? ".safetensors file with a tensor 'latents'"
          : restore
              ? "video file, folder of PNG or JPEG frames, .safetensors file with a tensor 'frames', or a folder of "
                "clips (videos and folders of frames)"
              : "video file, folder of PNG or JPEG frames, or .safetensors file with a tensor 'frames'")
      .Required();
  args.Option("OUTPUT", &options->output,
              encode ? ".safetensors file"
              : restore
                  ? "video file (.mp4 .mkv .mov .webm .avi), folder (frames with their names in INPUT, else 000001.png "
                    "...), or .safetensors; for a folder of clips a folder, each goes to its name"
                  : "video file (.mp4 .mkv .mov .webm .avi), folder (frames as 000001.png ...), or .safetensors")
      .Required();
}

}  // namespace

int RunMediaCommand(int argc, char** argv, const std::string& about, const std::string& examples,
                    const std::function<Status(const media::MediaOptions&, nlohmann::json*)>& work,
                    const comm::Bootstrap& who) {
  media::MediaOptions options;
  options.command = argv[0];
  options.restore.who = who;
  Arguments args(about, "lockstep " + options.command);
  Declare(args, &options);
  args.Footer(examples);
  if (const auto code = args.Parse(argc, argv)) return *code;
  const std::map<std::string, Dtype> types = {
      {"f32", Dtype::kF32}, {"f16", Dtype::kF16}, {"bf16", Dtype::kBF16}, {"u8", Dtype::kU8}};
  options.out.dtype = types.at(options.dtype);
  if (!options.restore.ranks.empty()) {
    fmt::print(stderr, "lockstep {}: --nproc-per-node: ranks are started by `lockstep restore`\n", options.command);
    return kExitUsage;
  }
  media::ListenForStop();
  nlohmann::json summary = nlohmann::json::object();
  Status status;
  try {
    status = work(options, &summary);
  } catch (const std::exception& error) {
    status = FromException(error);
  }
  if (media::StopSignal() != 0 && !status.ok()) {
    fmt::print(stderr, "lockstep {}: stopped by a signal; {}\n", options.command,
               options.command == "restore" ? "the same command goes on where it stopped" : "nothing was written");
    return ExitOfSignal(media::StopSignal());
  }
  const bool began = summary.erase("began") > 0;
  if (status.ok() && options.restore.who.rank == 0) status = Show(options, summary);
  if (status.ok()) return kExitOk;
  if (options.restore.who.size > 1) return FailRestore(options, status, began);
  fmt::print(stderr, "lockstep {}: {}\n", options.command, status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
