"""Bad input of VRT: one message before the first step that says what, where and what to do; all ranks leave with one code, the
launcher starts nothing again, and no run directory is left. Each row is a case; tests/data/paired_clips_test.cc has more of the
data's, tests/recipes/vrt_test.cc and kair_options_test.cc of the settings'."""

import shutil
import sys

import harness
from test_vrt import options

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

CLIPS = "scenes/GOPRO_Large/train_GT"
SPIKES = "scenes/GOPRO_Large_spike_seq/train"
LMDB = {"datasets__train__dataroot_gt": CLIPS + ".lmdb", "datasets__train__dataroot_lq": CLIPS + "_blurred.lmdb",
        "datasets__train__io_backend": {"type": "lmdb"}}


def at(path):
    return harness.tmp_dir() / path


def remove(path):
    return lambda: shutil.rmtree(at(path)) if at(path).is_dir() else at(path).unlink()


def cut(path, size):
    return lambda: at(path).write_bytes(at(path).read_bytes()[:size])


def resize(path):
    def apply():
        from PIL import Image
        Image.open(at(path)).resize((48, 64)).save(at(path))
    return apply


def lmdb():
    made = harness.engine("data", "prepare", "gopro-spike", "scenes", "--lmdb", "--sensor-height", "32", "--sensor-width", "32")
    assert made.returncode == 0, made.stdout + made.stderr
    at(CLIPS + ".lmdb/meta_info.txt").unlink()


def weights(channels):
    def apply():
        import numpy as np
        import safetensors.numpy
        safetensors.numpy.save_file({"conv_first.weight": np.zeros((8, 9 * channels, 1, 3, 3), "float32")}, at("w.safetensors"))
    return apply


def nothing():
    pass


# What is done to the files, what is changed in the option file, exit code, words of the message.
DATA = [
    (remove(SPIKES + "/scene_0000"), {}, 2, ["1 of 4 clips without spikes", SPIKES + "/scene_0000/spike", "do: check data.spikes.path"]),
    (remove(SPIKES + "/scene_0001/spike/000002.dat"), {}, 2, ["1 of 12 frames without spikes", "scene_0001/spike/000002.dat"]),
    (cut(SPIKES + "/scene_0002/spike/000003.dat", 11000), {}, 3, ["scene_0002/spike/000003.dat' has 11000 bytes", "32 x 32"]),
    (nothing, {"datasets__train__spike_h": 250, "datasets__train__spike_w": 400}, 3, ["11264 bytes", "250 x 400"]),
    (remove(CLIPS + "_blurred/scene_0001/000002.png"), {}, 2, ["clip 'scene_0001' has no frame 2", "1 to 3 without a gap"]),
    (resize(CLIPS + "/scene_0003/000003.png"), {}, 2, ["mixed size in clip 'scene_0003'", "'000003.png' is 48x64", "one size"]),
    (lmdb, LMDB, 2, [CLIPS + ".lmdb' has no meta_info.txt", "lockstep data prepare"]),
    (nothing, {"datasets__train__gt_size": 128}, 2, ["crop of 128", "64x64", "crop at most 64"]),
]
SETTINGS = [
    (nothing, {"datasets__train__gt_size": 60}, 2, ["height 60", "multiple of 8", "use 64 or more"]),
    (nothing, {"netG__window_size": [2, 16, 16]}, 2, ["less than the window's 16", "use 128 or more"]),
    (nothing, {"val__size_patch_testing": 60}, 2, ["recipe.test.tile: expected a multiple of 8 x 8", "use 56 or 64"]),
    (nothing, {"netG__in_chans": 3}, 2, ["opt.json:", "netG.in_chans = 3", "36 instead of 27 channels"]),
    (weights(3), {"path": {"pretrained_netG": "w.safetensors"}}, 2, ["w.safetensors", "[8, 27, 1, 3, 3], expected [8, 36, 1, 3, 3]", "made for RGB"]),
    (nothing, {"path": {"pretrained_netG": "absent.pth"}}, 3, ["checkpoint.weights", "absent.pth"]),
    (nothing, {"train__G_optimizer_lr": -1}, 2, ["opt.json:", "train.optimizer.lr", "found the number -1"]),
    (nothing, {"datasets__train__dataloader_batch_size": 1}, 2, ["train.batch is 1", "2 ranks", "at most 1 rank"]),
    (nothing, {"train__two_run": {"enable": True, "phase1": {"total_iter": 2}, "phase2": {"total_iter": 2, "G_lossfn_type": "ssim"}}},
     2, ["G_lossfn_type", "ssim"]),
]


class VrtBadInput(harness.Case):
    TIMEOUT = 60

    def setUp(self):
        super().setUp()
        made = harness.engine("data", "prepare", "generated-spike", "whole", "--clips", "4", "--frames", "3", "--height", "64",
                              "--width", "64")
        self.assertEqual(made.returncode, 0, made.stderr)

    def refuse(self, rows):
        for make, changes, code, words in rows:
            with self.subTest(words=words):
                shutil.rmtree(at("scenes"), ignore_errors=True)
                shutil.copytree(at("whole"), at("scenes"))
                make()
                at("opt.json").write_text(options(**changes))
                two = harness.lockstep("train", "vrt", "--opt", "opt.json", "--nproc-per-node", "2", "--max-restarts", "2", "--name", "bad",
                                       env=train.ONE_THREAD)
                output = two.stdout + two.stderr
                self.assertEqual(two.returncode, code, output)
                self.assertEqual(output.count("not started after"), 1, output)
                self.assertNotIn("step 1/", output)
                for word in [*words, "  do: "]:
                    self.assertIn(word, output)
                self.assertEqual(output.count("  do: "), 1, output)
                self.assertFalse(at("runs/bad").exists(), output)
                if "2 ranks" in words:
                    continue
                # One rank, and our own form of the file.
                yaml = harness.engine("config", "vrt", "--opt", "opt.json")
                if yaml.returncode == 0:
                    at("vrt.yaml").write_text(yaml.stdout)
                    one = harness.engine("train", "vrt", "--config", "vrt.yaml", "--name", "bad")
                else:
                    one = harness.engine("train", "vrt", "--opt", "opt.json", "--name", "bad")
                self.assertEqual(one.returncode, code, one.stdout + one.stderr)
                for word in words:
                    self.assertIn(word, one.stderr)
                self.assertFalse(at("runs/bad").exists(), one.stdout + one.stderr)

    def test_data(self):
        self.refuse(DATA)

    def test_settings(self):
        self.refuse(SETTINGS)
