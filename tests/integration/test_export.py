"""`lockstep export`: what it writes loads strictly into the module written from the description, and gives its outputs."""

import json
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
sys.path.append(str(harness.ROOT / "tests" / "golden"))
from beds import train  # noqa: E402


def export(*words):
    return harness.engine("export", *words)


class Export(harness.Case):
    TIMEOUT = 120

    def test_a_run_becomes_a_file_that_python_loads_strictly(self):
        import taehv
        import torch
        from safetensors import safe_open
        from safetensors.torch import load_file

        folder = harness.tmp_dir()
        done = train.train(name="short", sets={"train.steps": 3, "train.ema.decay": 0.5})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run = train.run_path("short")
        out = folder / "mine.safetensors"
        written = export("--weights", run, out, "--json")
        self.assertEqual(written.returncode, 0, written.stderr)
        summary = json.loads(written.stdout)
        self.assertEqual((summary["model"], summary["step"], summary["averaged"]), ("taehv-small", 3, True))
        model = taehv.Taehv(**taehv.VARIANTS["taehv-small"])
        model.load_state_dict(load_file(out), strict=True)
        averaged = load_file(run / "checkpoints" / "latest" / "ema.safetensors")
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, averaged[name]), name)
        with safe_open(out, "pt") as file:
            self.assertEqual(file.metadata()["format"], "pt")

        for number, word in enumerate(("short", "sho", "latest", "runs/latest")):
            named = export("--weights", word, folder / f"named-{number}.safetensors", "--json")
            self.assertEqual(named.returncode, 0, named.stderr)
            self.assertEqual(json.loads(named.stdout)["step"], 3, word)
        begun = train.train(name="next", sets={"train.steps": 2, "train.schedule.warmup": 0, "checkpoint.weights": "short"})
        self.assertEqual(begun.returncode, 0, begun.stdout + begun.stderr)
        resumed = train.train("--resume", "short", name="more", sets={"train.steps": 4, "train.ema.decay": 0.5})
        self.assertEqual(resumed.returncode, 0, resumed.stdout + resumed.stderr)
        self.assertRegex(resumed.stdout, r"resuming from \S*runs/short/checkpoints/step-3 at step 3")

        again = export("--weights", run, out)
        self.assertEqual(again.returncode, 2)
        self.assertIn("mine.safetensors", again.stderr)
        half = export("--weights", out, folder / "half.safetensors", "--precision", "fp16")
        self.assertEqual(half.returncode, 0, half.stderr)
        self.assertEqual({tensor.dtype for tensor in load_file(folder / "half.safetensors").values()}, {torch.float16})

    def test_what_cannot_be_exported_is_named_and_leaves_nothing(self):
        folder = harness.tmp_dir()
        missing = export("--weights", folder / "none.safetensors", folder / "out.safetensors")
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn("none.safetensors", missing.stderr)
        self.assertFalse((folder / "out.safetensors").exists())
        self.assertEqual(export(folder / "out.safetensors").returncode, 2)
        # Of weights that are not there nobody knows which ending theirs is.
        other = export("--weights", folder / "none.safetensors", folder / "out.pth")
        self.assertEqual(other.returncode, 3)
        self.assertIn("--weights: cannot open", other.stderr)
        (folder / "some.safetensors").write_bytes(b"no weights")
        other = export("--weights", folder / "some.safetensors", folder / "out.pth")
        self.assertEqual(other.returncode, 2)
        self.assertIn("the ending .safetensors", other.stderr)
