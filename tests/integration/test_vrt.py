"""VRT from an option file of KAIR: a set of blurred clips with spikes, two ranks, a freeze that ends in the middle, EMA, a
killed rank; and what is refused before the first step."""

import json
import os
import pathlib
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

NET = {"net_type": "vrt", "in_chans": 4, "upscale": 1, "img_size": [2, 64, 64], "window_size": [2, 8, 8],
       "depths": [2] * 8, "indep_reconsts": [], "embed_dims": [8] * 8, "num_heads": [2] * 8, "spynet_path": None,
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
        made = harness.lockstep("data", "prepare", "generated-spike", "scenes", "--clips", "4", "--frames", "3", "--height", "64",
                              "--width", "64")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        (self.tmp / "opt.json").write_text(options())

    def train(self, name, *words, ranks=2):
        return harness.lockstep("train", "vrt", "--opt", "opt.json", "--nproc-per-node", str(ranks), "--name", name,
                                "--set", "train.threads=1", *words, env=train.ONE_THREAD, timeout=80)

    def test_a_killed_rank_and_a_freeze_that_ends_change_no_bit(self):
        shown = harness.lockstep("config", "vrt", "--opt", "opt.json", "--json")
        document = json.loads(shown.stdout)
        self.assertEqual(document["refused"], [])
        self.assertEqual({note["key"] for note in document["mapped"]} >= {"use_static_graph", "train.fix_iter"}, True)
        self.assertEqual([rule["freeze_until"] for rule in document["config"]["train"]["groups"]], [1, 1])
        whole = self.train("whole")
        self.assertEqual(whole.returncode, 0, whole.stdout + whole.stderr)
        run = train.run_path("whole")
        self.assertIn("global batch = 2", whole.stdout)
        self.assertGreater(train.values(run, "val/psnr")[-1][1], 5)
        self.assertEqual(len(train.values(run, "val/ssim_y")), 1)
        # SpyNet is frozen in the first step only.
        from safetensors.numpy import load_file
        states = {step: load_file(run / f"checkpoints/step-{step}/model.safetensors") for step in (1, 3)}
        spynet = next(name for name in states[1] if name.startswith("spynet.basic_module.5") and name.endswith("weight"))
        self.assertFalse((states[1][spynet] == states[3][spynet]).all())

        # What was validated is what restoring gives.
        given = [pathlib.Path("scenes", *parts, "scene_0004") for parts in (("GOPRO_Large", "test_GT"), ("GOPRO_Large", "test_GT_blurred"),
                                                                          ("GOPRO_Large_spike_seq", "test"))]
        spikes, sensor = ["--spikes", given[2] / "spike"], ["--sensor-height", "32", "--sensor-width", "32"]
        restored = harness.engine("restore", "--weights", run, given[1], "sharp", *spikes, *sensor, "--tile", "64", "--json")
        self.assertEqual(restored.returncode, 0, restored.stderr)
        self.assertEqual(json.loads(restored.stdout)["frames"], 3)
        self.assertTrue(json.loads(restored.stdout)["averaged"])
        scores = [psnr(a, b) for a, b in zip(sorted((self.tmp / given[0]).iterdir()), sorted((self.tmp / "sharp").iterdir()), strict=True)]
        self.assertAlmostEqual(sum(scores) / len(scores), train.values(run, "val/psnr")[-1][1], 1)
        for words, expected in [([], "--spikes"), ([*spikes, *sensor, "--tile", "60"], "multiple"),
                                ([*spikes, *sensor, "--noise", "5"], "--noise"), (spikes, "bytes")]:
            refused = harness.engine("restore", "--weights", run, given[1], "other", *words)
            self.assertIn(refused.returncode, (2, 3), refused.stdout)
            self.assertIn(expected, refused.stderr)
            self.assertFalse((self.tmp / "other").exists())

        killed = []

        def kill(line):
            if "checkpoint " in line and not killed:
                events = (train.run_path("killed") / "events.jsonl").read_text().splitlines()
                ranks = [e["pid"] for e in map(json.loads, events) if e["type"] == "rank_started"]
                os.kill(ranks[-1], signal.SIGKILL)
                killed.append(line)

        again = self.train_watching("killed", kill)
        self.assertTrue(killed and again, killed)
        last = [load_file(train.run_path(name) / "checkpoints/step-3/model.safetensors") for name in ("whole", "killed")]
        self.assertEqual(last[0].keys(), last[1].keys())
        for name, value in last[0].items():
            self.assertTrue((value == last[1][name]).all(), name)

    def train_watching(self, name, see):
        import subprocess
        command = [harness.BIN / "lockstep", "train", "vrt", "--opt", "opt.json", "--nproc-per-node", "2", "--name", name,
                   "--max-restarts", "1", "--set", "train.threads=1"]
        with subprocess.Popen(command, cwd=self.tmp, env={**os.environ, **train.ONE_THREAD}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as child:
            lines = []
            for line in child.stdout:
                lines.append(line)
                see(line)
        self.assertEqual(child.returncode, 0, "".join(lines))
        return any("resuming from" in line for line in lines)

    def test_refused_before_the_first_step(self):
        cases = [
            ({"netG__in_chans": 3}, [], ["in_chans", "36", "27"]),
            ({"netG__dcn_type": "DCNv4"}, [], ["dcn_type", "DCNv4"]),
            ({"netG__widow_size": [2, 8, 8]}, [], ["widow_size", "window_size"]),
            ({"datasets__train__spike_h": 250, "datasets__train__spike_w": 400}, [], ["11264 bytes", "250 x 400"]),
            ({"datasets__train__gt_size": 128}, [], ["128", "64"]),
            ({"netG__num_heads": [3] * 8}, [], ["heads"]),
            ({"datasets__train__dataloader_batch_size": 1}, [], ["ranks"]),
            ({"train__two_run": {"enable": True, "phase1": {"total_iter": 2}, "phase2": {"total_iter": 2}}}, [], ["phases"]),
            ({}, ["--config", "opt.json"], ["--config and --opt"]),
        ]
        for changes, words, expected in cases:
            with self.subTest(changes or words):
                (self.tmp / "opt.json").write_text(options(**changes))
                done = self.train("refused", *words)
                output = done.stdout + done.stderr
                self.assertIn(done.returncode, (2, 3), output)  # 3: a file is not what it should be
                for word in expected:
                    self.assertIn(word, output)
        other = harness.lockstep("train", "lm", "--opt", "opt.json")
        self.assertEqual(other.returncode, 2)
        self.assertIn("reads no option files", other.stdout + other.stderr)
