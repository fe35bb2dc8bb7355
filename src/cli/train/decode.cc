// `lockstep decode`: latents (docs/formats/latents.md) to frames.
#include "cli/train/commands.h"
#include "cli/train/media_command.h"

namespace lockstep::cli {

int DecodeMain(int argc, char** argv) {
  return RunMediaCommand(
      argc, argv,
      "Turns latents into frames. Any length in constant memory. Size, number and rate are those that "
      "`lockstep encode`\nwrote down; latents from elsewhere give all frames the model makes of them.",
      "examples:\n"
      "  lockstep decode --weights taew2_1.safetensors holiday.safetensors again.mp4\n"
      "  lockstep decode --weights taew2_1.pth latents.safetensors frames/ --fps 16\n",
      media::Decode);
}

}  // namespace lockstep::cli
