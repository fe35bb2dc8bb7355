"""`lockstep restore`: ranks and a killed process give the files of one that ran through; what is refused before anything is
written; videos, folders of frames and folders of clips."""

import json
import os
import shutil
import signal
import subprocess
import sys

import harness
import test_vrt
from PIL import Image

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

SENSOR = ("--sensor-height", "32", "--sensor-width", "32")
BLURRED, SPIKES = "scenes/GOPRO_Large/train_GT_blurred", "scenes/GOPRO_Large_spike_seq/train"


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Restore(harness.Case):
    TIMEOUT = 60

    def setUp(self):
        super().setUp()
        made = harness.engine("data", "prepare", "generated-spike", "scenes", "--clips", "4", "--frames", "5", "--height", "64",
                              "--width", "64")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        for clip in ("scene_0002", "scene_0003"):
            shutil.rmtree(self.tmp / BLURRED / clip)
            shutil.rmtree(self.tmp / "scenes/GOPRO_Large/train_GT" / clip)
        (self.tmp / "opt.json").write_text(test_vrt.options())

    def train(self, *words):
        run = harness.lockstep("train", "vrt", "--opt", "opt.json", "--name", "run", "--set", "train.threads=1", "--set", "train.steps=1",
                               *words, env=train.ONE_THREAD)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def train_blindly(self):
        self.train("--set", "data.test.target=", "--set", "data.validation.fraction=0")

    def words(self, output, *more, given=BLURRED, spikes=SPIKES):
        return ("restore", "--weights", "runs/run", given, output, "--spikes", spikes, *SENSOR, "--tile", "64", "--frames", "2",
                "--frame-overlap", "1", *more)

    def clips(self, name):
        return {clip: files(self.tmp / name / clip) for clip in ("scene_0000", "scene_0001")}

    def test_ranks_and_a_killed_process_give_the_bits_of_one(self):
        self.train_blindly()
        killed = harness.spawn_lockstep(*self.words("killed"), env=train.ONE_THREAD)
        mark = self.tmp / "killed.restoring/clip-00000/windows/000001"
        harness.wait_until(lambda: mark.exists() or not killed.alive(), what="two windows")
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        for clip in ("scene_0000", "scene_0001"):  # whole or not at all
            self.assertIn(len(list((self.tmp / "killed" / clip).glob("*"))), (0, 5))
        other = harness.engine(*self.words("killed", "--tile-overlap", "8"))
        self.assertEqual(other.returncode, 2, other.stderr)
        self.assertIn("unfinished restoration with other settings: --tile-overlap (8, was 20)", other.stderr)
        # It goes on with two ranks.
        two = harness.lockstep(*self.words("killed", "--nproc-per-node", "2", "--json"), env=train.ONE_THREAD)
        self.assertEqual(two.returncode, 0, two.stdout + two.stderr)
        self.assertRegex(two.stderr, r"goes on with 'killed.restoring': [2-7] of 8 windows are there")
        summary = json.loads(two.stdout)
        self.assertEqual((summary["ranks"], summary["frames"], summary["clips"], summary["already"]), (2, 10, 2, False))
        self.assertGreaterEqual(summary["windows_kept"], 2)
        one = harness.engine(*self.words("one"))
        self.assertEqual(one.returncode, 0, one.stderr)
        self.assertEqual(self.clips("killed"), self.clips("one"))
        self.assertEqual(sorted(path.name for path in self.tmp.glob("*.restoring")), [])
        again = harness.engine(*self.words("one"))
        self.assertEqual((again.returncode, again.stdout), (0, "one: complete already, 10 frames, by the same weights and settings\n"))

    def test_videos_go_in_and_out_and_what_is_refused_writes_nothing(self):
        self.train_blindly()
        clip, spikes = BLURRED + "/scene_0000", SPIKES + "/scene_0000"
        video = harness.engine(*self.words("sharp.mkv", "--codec", "ffv1", "--max-frames", "3", given=clip, spikes=spikes))
        self.assertEqual(video.returncode, 0, video.stderr)
        shown = harness.engine(*self.words("frames", given="sharp.mkv", spikes=spikes))  # its spikes by their order
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertEqual(sorted(files(self.tmp / "frames")), ["000001.png", "000002.png", "000003.png"])
        # A copy that was cut: what is there, and a note of what is not.
        whole = (self.tmp / "sharp.mkv").read_bytes()
        (self.tmp / "cut.mkv").write_bytes(whole[: len(whole) // 2])
        cut = harness.engine(*self.words("whole.mkv", "--json", given="cut.mkv", spikes=spikes))
        self.assertEqual(cut.returncode, 0, cut.stderr)
        summary = json.loads(cut.stdout)
        self.assertLess(summary["frames"], 3)
        self.assertIn("'cut.mkv'", summary["notes"][0])
        self.assertIn("note: " + summary["notes"][0], cut.stderr)
        # Two clips of odd size, each put together by a rank: what is said of both.
        (self.tmp / "odd").mkdir()
        Image.new("RGB", (33, 31), (9, 200, 70)).save(self.tmp / "odd/1.png")
        for name in ("one", "two"):
            shutil.copytree(self.tmp / spikes, self.tmp / "odd-spikes" / name)
        (self.tmp / "pair").mkdir()
        lossless = harness.engine(*self.words("pair/one.mkv", "--codec", "ffv1", "--pixels", "bgr0", given="odd", spikes=spikes))
        self.assertEqual(lossless.returncode, 0, lossless.stderr)
        shutil.copy(self.tmp / "pair/one.mkv", self.tmp / "pair/two.mkv")
        both = harness.lockstep(*self.words("even", "--nproc-per-node", "2", "--json", given="pair", spikes="odd-spikes"),
                                env=train.ONE_THREAD)
        self.assertEqual(both.returncode, 0, both.stdout + both.stderr)
        self.assertEqual([note.split(": ")[1] for note in json.loads(both.stdout)["notes"]],
                         ["33x31 was written as 34x32 (--pixels yuv444p keeps it)"] * 2)
        for name, change in [("gap", lambda to: (to / "000003.png").unlink()),
                             ("mixed", lambda to: shutil.copy(harness.ROOT / "docs/images/vrt-small.png", to / "000003.png"))]:
            shutil.copytree(self.tmp / clip, self.tmp / name)
            change(self.tmp / name)
        (self.tmp / "few").mkdir()
        shutil.copy(self.tmp / spikes / "spike/000001.dat", self.tmp / "few")
        (self.tmp / "link").symlink_to("nowhere")
        before = sorted(path.name for path in self.tmp.iterdir())
        weights = ("restore", "--weights", "runs/run")
        for words, expected in [
            (self.words("out", given="gap", spikes=spikes), "a frame is missing between '000002.png' and '000004.png'"),
            (self.words("out", given="mixed", spikes=spikes), "mixed size"),
            (self.words("out", given=clip, spikes="few"), "frame '000002.png' of"),
            (self.words("out", given="sharp.mkv", spikes="few"), "1 files for the 3 frames"),
            ((*weights, clip, "out", "--spikes", spikes, "--tile", "64", "--sensor-width", "50"), "bytes"),  # that of the training is 32
            (self.words(clip + "/out", given=clip, spikes=spikes), "inside INPUT"),
            (self.words("out.mp4"), "has 2 clips, and OUTPUT 'out.mp4' is one file"),
            (self.words("none/out", given=clip, spikes=spikes), "none/out"),
            (self.words("link", given=clip, spikes=spikes), "'link' is a link to nowhere"),
            ((*weights, clip, "out"), "takes 4 channels: RGB and 1 of spikes"),
            ((*weights, clip, "out", "--noise", "10", "--spikes", spikes), "takes no level of noise"),
            (("restore", "--weights", "opt.json", clip, "out"), "opt.json"),
            (self.words("out", "--variant", "006", given=clip, spikes=spikes), "a checkpoint, which says its own shape"),
        ]:
            with self.subTest(expected):
                refused = harness.engine(*words)
                self.assertIn(refused.returncode, (2, 3), refused.stdout + refused.stderr)
                self.assertIn(expected, refused.stderr)
        ranks = harness.lockstep(*self.words("out", "--nproc-per-node", "2", given="gap", spikes=spikes), env=train.ONE_THREAD)
        self.assertEqual(ranks.returncode, 2, ranks.stdout + ranks.stderr)
        self.assertIn("a frame is missing between", ranks.stdout + ranks.stderr)
        self.assertEqual(sorted(path.name for path in self.tmp.iterdir()), before)

    def test_an_adapter_with_lora_is_measured_from_lmdb_and_restored_as_it_validated(self):
        self.train("--set", "recipe.fusion.operator=gated", "--set", "recipe.in_channels=3", "--set", "recipe.lora.rank=2", "--set",
                   'recipe.lora.targets=["*qkv*", "*proj*"]', "--set", "data.spikes.form=voxel")
        row, = harness.read_jsonl(train.run_path("run") / "validation.jsonl")
        ready = harness.engine("data", "prepare", "gopro-spike", "scenes", "--split", "test", "--lmdb", *SENSOR)
        self.assertEqual(ready.returncode, 0, ready.stdout + ready.stderr)
        sides = {side: f"scenes/GOPRO_Large/test_{name}" for side, name in (("target", "GT"), ("input", "GT_blurred"))}
        spikes = "scenes/GOPRO_Large_spike_seq/test"
        measured = harness.engine("eval", "vrt", "--weights", "runs/run", "--target", sides["target"] + ".lmdb", "--input",
                                  sides["input"] + ".lmdb", "--spikes", spikes, "--json")
        self.assertEqual(measured.returncode, 0, measured.stderr)
        document = json.loads(measured.stdout)
        self.assertIn("lmdb: 1 clip", document["data"])
        clip, = document["clips"]
        self.assertEqual(clip["name"], row["sample"])
        for score in ("psnr", "ssim", "psnr_y", "ssim_y", "psnr_input"):
            self.assertAlmostEqual(clip[score], row[score], 6)
        self.assertIn("'nowhere' is neither a file nor a run", harness.engine("export", "--weights", "nowhere", "merged.pth").stderr)
        written = harness.engine("export", "--weights", "runs/run", "merged.pth")
        self.assertEqual(written.returncode, 0, written.stderr)
        names = subprocess.run([harness.PYTHON, "-c", "import torch; print(*torch.load('merged.pth', weights_only=True)['params'])"],
                               cwd=self.tmp, capture_output=True, text=True, check=True).stdout
        self.assertIn("stage1.residual_group2.blocks.0.attn.qkv_self.weight", names)
        self.assertNotIn("lora", names)
        # LoRA is merged here, and spikes are not rounded to bytes; their form and sensor are those of the training.
        restored = harness.engine("restore", "--weights", "runs/run", sides["input"], "sharp", "--spikes", spikes, "--tile", "64",
                                  "--frames", "4", "--json")
        self.assertEqual(restored.returncode, 0, restored.stderr)
        self.assertEqual(json.loads(restored.stdout)["spikes"], "voxel_b1")
        other = harness.engine("restore", "--weights", "runs/run", sides["input"], "other", "--spikes", spikes, "--spike-form", "tfp")
        self.assertEqual(other.returncode, 2, other.stdout)
        self.assertIn("was trained with spikes as voxel_b1", other.stderr)
        pairs = zip(sorted((self.tmp / sides["target"] / clip["name"]).iterdir()), sorted((self.tmp / "sharp" / clip["name"]).iterdir()),
                    strict=True)
        scores = [test_vrt.psnr(*pair) for pair in pairs]
        self.assertAlmostEqual(sum(scores) / len(scores), clip["psnr"], 1)
        # A file of model and adapter is read again; .pth has no place for the adapter's operator.
        for source, copy in (("runs/run", "merged.safetensors"), ("merged.safetensors", "again.safetensors")):
            written = harness.engine("export", "--weights", source, copy)
            self.assertEqual(written.returncode, 0, written.stderr)
        self.assertEqual((self.tmp / "merged.safetensors").read_bytes(), (self.tmp / "again.safetensors").read_bytes())
        said = harness.engine("eval", "vrt", "--weights", "merged.safetensors", "--target", sides["target"], "--input", sides["input"],
                              "--spikes", spikes, "--set", "recipe.test.tile=64", "--set", "recipe.test.frames=4", "--json")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertAlmostEqual(json.loads(said.stdout)["clips"][0]["psnr"], clip["psnr"], 4)
        refused = harness.engine("restore", "--weights", "merged.pth", "--variant", "tiny", sides["input"], "again", "--spikes", spikes)
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("has a fusion adapter and does not say its operator", refused.stderr)
