"""A small language model on one GPU: captured and eager steps, micro-batches and recomputed layers give the training of the
CPU, although every batch has another number of labels. Run by `make test-gpu`."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin")).resolve()
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-gpu-lm-"))
LIMIT = 240  # seconds; ends what hangs
SETS = {"recipe.width": 128, "recipe.layers": 2, "recipe.heads": 4, "recipe.kv_heads": 2, "recipe.mlp": 256,
        "data.path": "short.jsonl", "data.length": 64, "data.validation.samples": 16, "train.batch": 16, "train.steps": 30,
        "train.schedule.warmup": 3, "train.precision": "fp32", "checkpoint.every": 0}


def setUpModule():
    random.seed(1)
    with open(SCRATCH / "short.jsonl", "w") as file:
        for number in range(2000):
            size = random.randint(1, 4) if number % 3 else random.randint(40, 400)
            file.write(json.dumps({"text": "".join(random.choice("abcdefgh ") for _ in range(size))}) + "\n")


def tearDownModule():
    shutil.rmtree(SCRATCH, ignore_errors=True)


def trained(name, **sets):
    """Metrics by name, in order of the steps."""
    flags = [word for key, value in {**SETS, **sets}.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run([BIN / "lockstep-train", "train", "lm", "--name", name, *flags], cwd=SCRATCH, timeout=LIMIT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}")
    found = {}
    for line in (SCRATCH / "runs" / name / "metrics" / "rank-0.jsonl").read_text().splitlines():
        for key, value in json.loads(line).get("scalars", {}).items():
            found.setdefault(key, []).append(value)
    return found


def rank_of(name):
    """The process of the one rank, by the launcher's events."""
    events = (SCRATCH / "runs" / name / "events.jsonl").read_text().splitlines()
    return [event["pid"] for event in map(json.loads, events) if event["type"] == "rank_started"][-1]


class OneGpu(unittest.TestCase):
    def close(self, one, other, within):
        self.assertEqual(len(one["loss"]), SETS["train.steps"])
        for a, b in zip(one["loss"] + one["val/loss"], other["loss"] + other["val/loss"], strict=True):
            self.assertAlmostEqual(a, b, delta=within)

    def test_captured_steps_weigh_labels_as_eager_ones_do(self):
        eager = trained("eager", **{"train.graph": "off"})
        captured = trained("captured", **{"train.graph": "require"})
        self.assertGreater(sum(captured["rank/graph_replayed"]), 20)
        self.close(captured, eager, 1e-4)
        # Sums of another order from here on.
        self.close(trained("micro", **{"train.graph": "require", "train.micro_batch": 4}), eager, 5e-3)
        self.close(trained("recomputed", **{"train.graph": "require", "train.recompute": "true"}), eager, 5e-3)
        self.close(trained("cpu", **{"train.device": "cpu"}), eager, 5e-3)
        self.close(trained("bf16", **{"train.precision": "bf16"}), eager, 0.1)
        self.assertLess(eager["loss"][-1], eager["loss"][0] - 1)

    def test_fused_layers_learn_as_composed_ones_and_repeat_their_bits(self):
        fused = {"train.precision": "bf16", "train.graph": "require", "train.deterministic": "true"}
        once = trained("once", **fused)
        self.assertEqual(trained("again", **fused)["loss"], once["loss"])
        self.close(trained("bf16-micro", **fused, **{"train.micro_batch": 4}), once, 0.1)
        self.close(trained("bf16-parameters", **{"train.precision": "bf16", "train.parameters": "bf16"}), once, 0.1)

    def test_a_rank_killed_at_stage_3_with_offload_changes_no_bit(self):
        sets = {"train.precision": "bf16", "train.deterministic": "true", "train.zero.stage": 3,
                "train.offload.optimizer": "true", "train.steps": 400, "checkpoint.every": 10}
        whole = trained("whole", **sets)
        flags = [word for key, value in {**SETS, **sets}.items() for word in ("--set", f"{key}={value}")]
        command = [BIN / "lockstep", "train", "lm", "--name", "killed", "--max-restarts", "1", *flags]
        metrics = SCRATCH / "runs" / "killed" / "metrics" / "rank-0.jsonl"
        with subprocess.Popen(command, cwd=SCRATCH, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
            for line in child.stdout:
                if "checkpoint" in line and metrics.exists() and len(metrics.read_text().splitlines()) > 20:
                    os.kill(rank_of("killed"), signal.SIGKILL)
                    break
            rest = child.stdout.read()
        self.assertEqual(child.returncode, 0, rest)
        self.assertIn("resuming from", rest)
        weights = [(SCRATCH / "runs" / name / "checkpoints" / "latest" / "model.safetensors").read_bytes()
                   for name in ("whole", "killed")]
        self.assertEqual(weights[0], weights[1])
        self.assertTrue(whole["loss"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
