"""VRT from an option file of KAIR: a set of blurred clips with spikes, two phases, a freeze that ends in the middle, EMA,
any number of ranks, a killed rank."""

import json
import os
import pathlib
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

NET = {"net_type": "vrt", "in_chans": 4, "upscale": 1, "img_size": [2, 64, 64], "window_size": [2, 8, 8],
       "depths": [1] * 8, "indep_reconsts": [], "embed_dims": [8] * 8, "num_heads": [2] * 8, "spynet_path": None,
       "pa_frames": 2, "deformable_groups": 4, "use_checkpoint_attn": True, "use_checkpoint_ffn": True,
       "no_checkpoint_attn_blocks": [2, 3, 4], "no_checkpoint_ffn_blocks": [1, 2]}


def options(**changes):
    """An option file over the generated scenes; `changes`: "netG.in_chans" with __ for the dot."""
    roots = {"gt": "GOPRO_Large/{}_GT", "lq": "GOPRO_Large/{}_GT_blurred", "spike": "GOPRO_Large_spike_seq/{}"}
    sets = {split: {f"dataroot_{key}": "scenes/" + path.format(split) for key, path in roots.items()} for split in ("train", "test")}
    sets["train"] |= {"dataset_type": "VideoRecurrentTrainDatasetRGBSpike", "spike_h": 32, "spike_w": 32, "spike_channels": 1,
                      "num_frame": 2, "gt_size": 64, "dataloader_batch_size": 2}
    sets["test"] |= {"dataset_type": "VideoRecurrentTestDataset", "num_frame": -1}
    options = {"task": "deblur", "model": "vrt", "scale": 1, "n_channels": 3, "use_static_graph": True, "datasets": sets, "netG": dict(NET),
               "train": {"G_lossfn_type": "charbonnier", "E_decay": 0.9, "G_optimizer_type": "adam", "G_optimizer_lr": 4e-4,
                         "fix_iter": 1, "fix_lr_mul": 0.125, "fix_keys": ["spynet", "deform"], "total_iter": 3,
                         "G_scheduler_type": "CosineAnnealingWarmRestarts", "G_scheduler_periods": 3, "checkpoint_test": 3,
                         "checkpoint_save": 1, "checkpoint_print": 1, "manual_seed": 7},
               "val": {"num_frame_testing": 4, "num_frame_overlapping": 2, "size_patch_testing": 64}}
    for path, value in changes.items():
        *sections, key = path.split("__")
        at = options
        for section in sections:
            at = at[section]
        at[key] = value
    return "// written by hand\n" + json.dumps(options, indent=1)


def psnr(one, other):
    """Of two picture files, over all channels."""
    import numpy as np
    from PIL import Image
    difference = np.asarray(Image.open(one).convert("RGB"), float) - np.asarray(Image.open(other).convert("RGB"), float)
    return 10 * np.log10(255 ** 2 / (difference ** 2).mean())


class Vrt(harness.Case):
    TIMEOUT = 90

    def setUp(self):
        super().setUp()
        made = harness.engine("data", "prepare", "generated-spike", "scenes", "--clips", "4", "--frames", "3", "--height", "64",
                              "--width", "64")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        (self.tmp / "opt.json").write_text(options())

    def command(self, name, *words, ranks=2):
        return ("train", "vrt", "--opt", "opt.json", "--nproc-per-node", str(ranks), "--name", name, "--set", "train.threads=1",
                *words)

    def train(self, name, *words, ranks=2):
        """One rank is a fork of the engine that prepared the scenes."""
        if ranks == 1:
            return harness.engine("train", "vrt", "--opt", "opt.json", "--name", name, "--set", "train.threads=1", *words)
        return harness.lockstep(*self.command(name, *words, ranks=ranks), env=train.ONE_THREAD, timeout=80)

    def assert_same(self, one, other):
        self.assertEqual(train.differences(train.last(train.run_path(one)), train.last(train.run_path(other))), [])

    def test_two_phases_and_a_killed_rank_give_the_bits_of_one_rank(self):
        """Phase 1: SpyNet is frozen in its first step; phase 2: another learning rate, a fresh optimizer. Rank 1 is killed
        when the checkpoint between them is there."""
        small = {"netG__img_size": [2, 32, 32], "netG__window_size": [2, 4, 4], "datasets__train__gt_size": 32}
        (self.tmp / "opt.json").write_text(options(**small, train__two_run={
            "enable": True, "phase1": {"total_iter": 2, "fix_iter": 1},
            "phase2": {"total_iter": 1, "fix_iter": 0, "G_optimizer_lr": 1e-4}}))
        same = ("--set", "train.reproducible=true", "--set", "train.shards=2")
        killed = harness.spawn_lockstep(*self.command("killed", *same, "--max-restarts", "1"), env=train.ONE_THREAD)
        killed.wait_for("step-2 (", timeout=80)
        os.kill(train.rank_pids(train.run_path("killed"), 0)[1], signal.SIGKILL)
        self.assertEqual(killed.wait(80), 0, killed.output)
        self.assertRegex(killed.output, "going on from .*step-2 at step 2")
        whole = self.train("whole", *same, ranks=1)
        self.assertEqual(whole.returncode, 0, whole.stdout + whole.stderr)
        self.assert_same("whole", "killed")
        run = train.run_path("whole")
        self.assertIn("phase       2 of 2: steps 3 to 3 of 3, with a fresh optimizer", whole.stdout)
        self.assertEqual([round(rate, 7) for _, rate in train.values(run, "lr")], [4e-4, 3e-4, 1e-4])
        self.assertEqual([step for step, _ in train.values(run, "val/ssim_y")], [2, 3])
        states = {step: json.loads((run / f"checkpoints/step-{step}/manifest.json").read_text())["state"] for step in (1, 2, 3)}
        spynet = [states[step]["optimizer_steps"]["spynet.basic_module.5.basic_module.8.weight"] for step in (1, 2, 3)]
        self.assertEqual(spynet, [0, 1, 1])
        self.assertEqual([states[step]["ema_updates"] for step in (1, 2, 3)], [1, 2, 3])

    def test_four_ranks_give_the_bits_of_one(self):
        (self.tmp / "opt.json").write_text(options(datasets__train__dataloader_batch_size=4, train__total_iter=1))
        same = ("--set", "train.reproducible=true", "--set", "train.shards=4", "--set", "data.test.target=")
        for name, ranks in [("one", 1), ("four", 4)]:
            done = self.train(name, *same, "--set", "data.validation.fraction=0", ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assert_same("one", "four")

    def test_what_validated_is_what_restoring_gives(self):
        shown = harness.lockstep("config", "vrt", "--opt", "opt.json", "--json")
        document = json.loads(shown.stdout)
        self.assertEqual(document["refused"], [])
        self.assertEqual({note["key"] for note in document["mapped"]} >= {"use_static_graph", "train.fix_iter"}, True)
        self.assertEqual([rule["freeze_until"] for rule in document["config"]["train"]["groups"]], [1, 1])
        whole = self.train("whole", "--set", "train.steps=1", ranks=1)
        self.assertEqual(whole.returncode, 0, whole.stdout + whole.stderr)
        run = train.run_path("whole")
        self.assertIn("global batch = 2", whole.stdout)
        self.assertGreater(train.values(run, "val/psnr")[-1][1], 5)
        given = [pathlib.Path("scenes", *parts, "scene_0004") for parts in (("GOPRO_Large", "test_GT"), ("GOPRO_Large", "test_GT_blurred"),
                                                                          ("GOPRO_Large_spike_seq", "test"))]
        spikes, sensor = ["--spikes", given[2] / "spike"], ["--sensor-height", "32", "--sensor-width", "32"]
        restored = harness.engine("restore", "--weights", run, given[1], "sharp", *spikes, "--tile", "64", "--json")
        self.assertEqual(restored.returncode, 0, restored.stderr)
        self.assertEqual(json.loads(restored.stdout)["frames"], 3)
        self.assertTrue(json.loads(restored.stdout)["averaged"])
        scores = [psnr(a, b) for a, b in zip(sorted((self.tmp / given[0]).iterdir()), sorted((self.tmp / "sharp").iterdir()), strict=True)]
        self.assertAlmostEqual(sum(scores) / len(scores), train.values(run, "val/psnr")[-1][1], 1)
        # So does evaluating, and the run keeps the scores of every clip.
        rows = harness.read_jsonl(run / "validation.jsonl")
        measured = harness.engine("eval", "vrt", "--weights", run, "--json", "--picture", "worst.png")
        self.assertEqual(measured.returncode, 0, measured.stderr)
        clip, = json.loads(measured.stdout)["clips"]
        self.assertEqual([(row["sample"], row["step"]) for row in rows], [(clip["name"], 1)])
        for score in ("psnr", "ssim", "psnr_y", "ssim_y", "psnr_input"):
            self.assertAlmostEqual(clip[score], rows[0][score], 6)
        self.assertEqual((self.tmp / "worst.png").read_bytes()[:4], b"\x89PNG")
        refused = harness.engine("eval", "vrt", "--weights", "runs/none")
        self.assertIn("--weights: cannot open 'runs/none'", refused.stderr)
        # A picture that cannot be written is said before clips are measured.
        refused = harness.engine("eval", "vrt", "--weights", run, "--picture", "nowhere/worst.png")
        self.assertEqual((refused.returncode, refused.stdout), (3, ""))
        self.assertIn("--picture: cannot create 'nowhere/worst.png'", refused.stderr)
        self.assertNotIn("clip 1", refused.stderr)
        # An export says its shape; clips are named.
        exported = harness.engine("export", "--weights", run, "whole.safetensors")
        self.assertEqual(exported.returncode, 0, exported.stderr)
        folders = [flag for name, folder in zip(("--target", "--input", "--spikes"), given) for flag in (name, folder.parent)]
        again = harness.engine("eval", "vrt", "--weights", "whole.safetensors", *folders, *sensor, "--set", "recipe.test.tile=64", "--json")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertAlmostEqual(json.loads(again.stdout)["clips"][0]["psnr"], clip["psnr"], 4)
        for words, expected in [([], "--spikes"), ([*spikes, "--tile", "60"], "multiple"), ([*spikes, "--sensor-width", "50"], "bytes")]:
            refused = harness.engine("restore", "--weights", run, given[1], "other", *words)
            self.assertIn(refused.returncode, (2, 3), refused.stdout)
            self.assertIn(expected, refused.stderr)
            self.assertFalse((self.tmp / "other").exists())

    def test_an_option_file_is_for_vrt_and_instead_of_a_configuration(self):
        for words, expected in [(["vrt", "--config", "opt.json"], "--config and --opt"), (["lm"], "reads no option files")]:
            refused = harness.engine("train", *words, "--opt", "opt.json")
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn(expected, refused.stderr)


class Smoke(harness.Case):
    def test_a_batch_of_two_grows_to_the_ranks(self):
        done = harness.lockstep("train", "vrt", "--smoke=4", "--nproc-per-node", "3", "--set", "train.batch=4", "--name", "small",
                                env=train.ONE_THREAD)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"batch +3 samples|= 3\n")
        self.assertIn("ready: 4 steps", done.stdout)
