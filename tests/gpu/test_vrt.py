"""VRT on a GPU: phases with a freeze that ends in the middle, under CUDA graphs, killed and resumed with the same bits; frame
interpolation trained on two NCCL ranks that share the GPU, and a clip at twice its rate by two ranks with the files of one.

    make test-gpu                              # on a machine with a GPU; LOCKSTEP_BIN names the programs
"""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin")).resolve()
LIMIT = 240  # seconds; ends what hangs
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-gpu-vrt-"))
ENV = dict(os.environ, CUDA_VISIBLE_DEVICES="0", OMP_NUM_THREADS="2", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")

# Windows of 8 x 8 and 48 channels: the blocks run on their kernels.
SHAPE = """recipe:
  model: small
  window: [4, 8, 8]
  embed_dims: [48, 48, 48, 48, 48, 48, 48, 48, 48]
  heads: [3, 3, 3, 3, 3, 3, 3, 3, 3]
  deformable_groups: 4
"""
PHASES = """train:
  precision: bf16
  deterministic: true
  batch: 2
  steps: 16
  ema: {decay: 0.9}
  groups: [{match: "*spynet*", lr_scale: 0.5, freeze_until: 5}]
data: {kind: generated, clips: 16, frames: 4, spikes: {use: true}, validation: {fraction: 0}}
checkpoint: {every: 4}
track: {every: 1, tensorboard: false}
phases:
  - {steps: 8, data: {crop: 64}}
  - {steps: 8, optimizer: keep, data: {crop: 80}}
""" + SHAPE


def tearDownModule():
    shutil.rmtree(SCRATCH, ignore_errors=True)


def start(*words, env=None):
    return subprocess.Popen([BIN / "lockstep", *map(str, words)], cwd=SCRATCH, env=dict(ENV, **(env or {})), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def lockstep(*words):
    child = start(*words)
    out = child.communicate(timeout=LIMIT)[0]
    if child.returncode != 0:
        raise AssertionError(f"{words}: {child.returncode}\n{out}")
    return out


def rows(name):
    """Of each step the last row."""
    lines = (SCRATCH / "runs" / name / "metrics/rank-0.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return {row["step"]: row["scalars"] for row in found if "loss" in row["scalars"]}


def weights(name):
    digest = hashlib.sha256()
    for file in sorted((SCRATCH / "runs" / name / "checkpoints/step-16").glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def files(folder):
    return {path.name: path.read_bytes() for path in sorted((SCRATCH / folder).iterdir())}


class Vrt(unittest.TestCase):
    def test_phases_and_the_end_of_a_freeze_killed_and_resumed_have_the_same_bits(self):
        (SCRATCH / "phases.yaml").write_text(PHASES)
        words = ("train", "vrt", "--config", "phases.yaml", "--nproc-per-node", 1)
        lockstep(*words, "--name", "whole")
        whole = rows("whole")
        self.assertEqual(sorted(whole), list(range(1, 17)))
        self.assertGreater(sum(row.get("rank/graph_replayed", 0) for row in whole.values()), 4)
        killed = start(*words, "--name", "killed", "--max-restarts", 0)
        until = time.monotonic() + LIMIT
        while not (SCRATCH / "runs/killed/checkpoints/step-12").exists() and killed.poll() is None and time.monotonic() < until:
            time.sleep(0.002)  # there is no event of another process's file to wait for
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        lockstep(*words, "--name", "killed")
        self.assertEqual({step: row["loss"] for step, row in rows("killed").items()}, {step: row["loss"] for step, row in whole.items()})
        self.assertEqual(weights("killed"), weights("whole"))

    def test_interpolation_on_two_ranks(self):
        programs = SCRATCH / "bin"
        programs.mkdir()
        shutil.copy(BIN / "lockstep", programs)
        # NCCL takes two ranks on one GPU for two hosts by this name.
        (programs / "lockstep-train").write_text(f'#!/bin/sh\nexport NCCL_HOSTID="rank-$RANK"\nexec "{BIN}/lockstep-train" "$@"\n')
        (programs / "lockstep-train").chmod(0o755)
        (SCRATCH / "between.yaml").write_text("train: {precision: bf16, batch: 2, steps: 4}\ndata: {kind: generated, clips: 8, frames: 4, crop: 64, "
                                              "validation: {fraction: 0}}\ncheckpoint: {every: 0}\n" + SHAPE + "  task: interpolate\n  pa_frames: 0\n")
        child = subprocess.Popen([programs / "lockstep", "train", "vrt", "--config", "between.yaml", "--nproc-per-node", "2", "--name", "between",
                                  "--set", "comm.backend=nccl"], cwd=SCRATCH, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        out = child.communicate(timeout=LIMIT)[0]
        self.assertEqual(child.returncode, 0, out)
        lockstep("data", "prepare", "generated-spike", "scenes", "--clips", 1, "--frames", 8, "--height", 64, "--width", 80)
        clip = "scenes/GOPRO_Large/train_GT/scene_0000"
        words = ("restore", "--weights", "runs/between", clip)
        one = lockstep(*words, "one", "--json")
        self.assertEqual(json.loads(one[one.index("{"):])["frames"], 15)
        lockstep(*words, "two", "--nproc-per-node", 2)
        self.assertEqual(files("two"), files("one"))


if __name__ == "__main__":
    unittest.main()
