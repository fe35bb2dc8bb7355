// `lockstep restore`: frames through VRT, deblurred, denoised or enlarged.
#include "cli/train/commands.h"
#include "cli/train/media_command.h"
#include "cli/train/place.h"
#include "cli/train/rank_error.h"

namespace lockstep::cli {

int RestoreMain(int argc, char** argv) {
  const Result<comm::Bootstrap> who = FindIdentity();
  if (!who.ok()) return FailRank("restore", who.status(), /*say=*/true, /*refused=*/true);
  return RunMediaCommand(
      argc, argv,
      "Restores video with VRT: deblurring, super-resolution, denoising, with spikes where the model takes some. "
      "Windows of frames\nand tiles of pixels overlap and are blended as in KAIR's test; any length in constant "
      "memory. "
      "Ranks share clips and windows.\nOne that was killed goes on where it stopped when it is started again, and "
      "gives "
      "the same files.",
      "examples:\n"
      "  lockstep restore --weights runs/deblur blurred/ sharp/\n"
      "  lockstep restore --weights runs/deblur clips/ sharp/ --nproc-per-node gpu\n"
      "  lockstep restore --weights 006_VRT_videodeblurring_GoPro.pth --variant 006 blurred.mp4 sharp.mp4 --tile-batch "
      "4\n"
      "  lockstep restore --weights runs/spikes clip/blur/ sharp/ --spikes clip/spike --sensor-height 360 "
      "--sensor-width 640\n",
      media::Restore, *who);
}

}  // namespace lockstep::cli
