// `lockstep restore`: frames through VRT, deblurred, denoised or enlarged.
#include "cli/train/commands.h"
#include "cli/train/media_command.h"

namespace lockstep::cli {

int RestoreMain(int argc, char** argv) {
  return RunMediaCommand(
      argc, argv,
      "Restores video with VRT: deblurring, super-resolution, denoising, with spikes where the model takes some. "
      "Windows of "
      "frames\nand tiles of pixels overlap and are blended as in KAIR's test; any length in constant memory.",
      "examples:\n"
      "  lockstep restore --weights runs/deblur blurred/ sharp/\n"
      "  lockstep restore --weights 006_VRT_videodeblurring_GoPro.pth --variant 006 blurred.mp4 sharp.mp4 --tile-batch "
      "4\n"
      "  lockstep restore --weights runs/spikes clip/blur/ sharp/ --spikes clip/spike --sensor-height 360 "
      "--sensor-width "
      "640\n",
      media::Restore);
}

}  // namespace lockstep::cli
