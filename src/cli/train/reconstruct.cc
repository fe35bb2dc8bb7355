// `lockstep reconstruct`: frames through the autoencoder and back, as many as came in, each in its place.
#include "cli/train/commands.h"
#include "cli/train/media_command.h"

namespace lockstep::cli {

int ReconstructMain(int argc, char** argv) {
  return RunMediaCommand(
      argc, argv,
      "Sends frames through a video autoencoder and back: the same number, size and rate come out. Any length in "
      "constant\nmemory. Sizes the model cannot have are padded and cropped back.",
      "examples:\n"
      "  lockstep reconstruct --weights taew2_1.safetensors holiday.mp4 again.mp4\n"
      "  lockstep reconstruct --weights runs/night-1 frames/ again/ --fps 24\n"
      "  lockstep reconstruct --weights runs/night-1/checkpoints/best clip.mkv again.safetensors --json\n",
      media::Reconstruct);
}

}  // namespace lockstep::cli
