// `lockstep encode`: frames to latents (docs/formats/latents.md).
#include "cli/train/commands.h"
#include "cli/train/media_command.h"

namespace lockstep::cli {

int EncodeMain(int argc, char** argv) {
  return RunMediaCommand(
      argc, argv,
      "Turns frames into the latents of a video autoencoder. Any length in constant memory. The file "
      "remembers size,\nnumber and rate of the frames, so that `lockstep decode` gives them back.",
      "examples:\n"
      "  lockstep encode --weights taew2_1.safetensors holiday.mp4 holiday.safetensors\n"
      "  lockstep encode --weights runs/night-1 frames/ latents.safetensors --dtype bf16\n",
      media::Encode);
}

}  // namespace lockstep::cli
