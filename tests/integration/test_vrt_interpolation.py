"""Frame interpolation from KAIR's option file 009, with a small model: septuplets as Vimeo90K has them, training, evaluating, and
a clip at twice its rate."""

import json
import shutil
import sys

import harness
from test_vrt import NET, psnr

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

NAMES = [f"00001/{i:04}" for i in range(1, 6)]


def options():
    sets = {split: {"dataroot_gt": "vimeo/sequences", "dataroot_lq": "vimeo/sequences", "num_frame": 7, "temporal_scale": 2,
                    "meta_info_file": f"vimeo/sep_{split}list.txt"} for split in ("train", "test")}
    sets["train"] |= {"dataset_type": "VideoRecurrentTrainVimeoVFIDataset", "gt_size": 64, "interval_list": [1], "random_reverse": True,
                      "use_hflip": True, "use_rot": True, "color_jitter": True, "dataloader_batch_size": 2}
    sets["test"] |= {"dataset_type": "VideoTestVimeo90KDataset", "pad_sequence": False, "cache_data": False}
    net = {key: value for key, value in NET.items() if key not in ("in_chans", "spynet_path", "deformable_groups")}
    net |= {"img_size": [4, 64, 64], "window_size": [4, 8, 8], "pa_frames": 0}
    return {"task": "009", "model": "vrt", "scale": 1, "n_channels": 3, "datasets": sets, "netG": net,
            "train": {"G_lossfn_type": "charbonnier", "G_optimizer_type": "adam", "G_optimizer_lr": 4e-4, "fix_iter": -1, "fix_lr_mul": 0,
                      "fix_keys": [], "total_iter": 1, "checkpoint_test": 1, "checkpoint_save": 1},
            "val": {"num_frame_testing": 0, "num_frame_overlapping": 0, "size_patch_testing": 0}}


class VrtInterpolation(harness.Case):
    TIMEOUT = 60

    def test_septuplets_are_trained_on_evaluated_and_doubled(self):
        made = harness.engine("data", "prepare", "generated-spike", "scenes", "--clips", "4", "--frames", "7", "--height", "64",
                              "--width", "80")
        self.assertEqual(made.returncode, 0, made.stderr)
        clips = sorted((self.tmp / "scenes/GOPRO_Large").glob("*_GT/*"))
        for name, clip in zip(NAMES, clips, strict=True):
            folder = self.tmp / "vimeo/sequences" / name
            folder.mkdir(parents=True)
            for number, frame in enumerate(sorted(clip.iterdir()), 1):
                shutil.copy(frame, folder / f"im{number}.png")
        harness.write("vimeo/sep_trainlist.txt", "\n".join(NAMES[:-1]) + "\n")
        harness.write("vimeo/sep_testlist.txt", NAMES[-1] + "\n")
        harness.write("opt.json", json.dumps(options()))
        done = harness.lockstep("train", "vrt", "--opt", "opt.json", "--nproc-per-node", "2", "--name", "between", "--set",
                                "train.threads=1", env=train.ONE_THREAD)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("first batch input Byte [1, 4, 3, 64, 64]", done.stdout)
        self.assertIn("first batch target Byte [1, 1, 3, 64, 64]", done.stdout)
        run = train.run_path("between")
        measured = harness.engine("eval", "vrt", "--weights", run, "--json")
        self.assertEqual(measured.returncode, 0, measured.stderr)
        clip, = json.loads(measured.stdout)["clips"]
        self.assertEqual((clip["name"], clip["frames"]), (NAMES[-1] + "/im4", 1))
        self.assertAlmostEqual(clip["psnr"], train.values(run, "val/psnr")[-1][1], 4)
        # Every second frame in, all seven out: those that went in as they were, the fourth as validated.
        septuplet = self.tmp / "vimeo/sequences" / NAMES[-1]
        (self.tmp / "slow").mkdir()
        for number in (1, 3, 5, 7):
            shutil.copy(septuplet / f"im{number}.png", self.tmp / "slow")
        # Frames as validation had them: whole, padded.
        restored = harness.engine("restore", "--weights", run, "slow", "double", "--tile", "0", "--fps", "24", "--json")
        self.assertEqual(restored.returncode, 0, restored.stdout + restored.stderr)
        summary = json.loads(restored.stdout)
        self.assertEqual((summary["frames"], summary["rate"]), (7, "48"))
        frames = sorted((self.tmp / "double").iterdir())
        self.assertEqual([frame.name for frame in frames], [f"{i:06}.png" for i in range(1, 8)])
        for number in (1, 3, 5, 7):
            self.assertEqual(psnr_or_equal(frames[number - 1], septuplet / f"im{number}.png"), "equal")
        self.assertAlmostEqual(psnr(frames[3], septuplet / "im4.png"), clip["psnr"], 1)


def psnr_or_equal(one, other):
    import numpy as np
    from PIL import Image
    same = np.array_equal(np.asarray(Image.open(one).convert("RGB")), np.asarray(Image.open(other).convert("RGB")))
    return "equal" if same else psnr(one, other)
