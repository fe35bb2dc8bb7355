"""TAEHV with a teacher and a discriminator, as docs/taehv.md tells it: the page's own Python and configuration are run, with a tiny VAE in place of
the large one."""

import os
import re
import signal
import sys
import textwrap

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

PAGE = (harness.ROOT / "docs" / "taehv.md").read_text()

# Stands for diffusers: a VAE of one layer with the same interface.
DIFFUSERS = """
import types

import torch

class AutoencoderKLWan(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Conv3d(3, 32, (4, 8, 8), stride=(4, 8, 8))

    @classmethod
    def from_pretrained(cls, name, subfolder):
        return cls()

    def encode(self, frames):
        mean, spread = self.layer(frames).chunk(2, dim=1)
        return types.SimpleNamespace(latent_dist=types.SimpleNamespace(mean=mean, std=0.1 * torch.sigmoid(spread)))
"""


def indented(first):
    """The indented block of the page that begins with this line."""
    lines = PAGE[PAGE.index("    " + first):].splitlines()
    block = []
    for line in lines:
        if line and not line.startswith("    "):
            break
        block.append(line)
    return textwrap.dedent("\n".join(block)) + "\n"


class Modes(harness.Case):
    TIMEOUT = 240

    def teacher(self):
        """The file the page's Python makes."""
        harness.require("torch")
        harness.write("diffusers.py", DIFFUSERS)
        script = harness.write("make_teacher.py", indented("import torch"))
        done = harness.run([harness.PYTHON, script], cwd=self.tmp, env={"PYTHONPATH": str(self.tmp)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.tmp / "wan.pt").exists(), done.stdout + done.stderr)

    def sets(self, **more):
        """What makes the page's configuration small enough for a test."""
        return {"recipe.model": "taehv-small", "train.steps": 4, "train.batch": 2, "train.precision": "fp32", "train.schedule.warmup": None, "data.clips": 20,
                "data.frames": 12, "data.height": 16, "data.width": 16, "checkpoint.every": 2, "data.validation.every": 2, "data.validation.samples": 2,
                "recipe.seraena.replay": 16, **more}

    def test_the_pages_teacher_and_configuration_train_all_losses_and_a_killed_rank_changes_no_bit(self):
        self.teacher()
        config = harness.write("page.yaml", indented("recipe:"))
        done = train.train("--config", config, name="whole", sets=self.sets(), timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"discriminator seraena: 7491456 parameters")
        run = train.run_path("whole")
        for name in ("loss", "loss/reconstruction", "loss/encoder", "loss/adversarial", "seraena/loss"):
            self.assertEqual([step for step, _ in train.values(run, name)], list(range(1, 5)), name)
        for (_, whole), *parts in zip(*(train.values(run, n) for n in ("loss", "loss/reconstruction", "loss/encoder", "loss/adversarial"))):
            self.assertAlmostEqual(whole, sum(value for _, value in parts), places=5)
        for name in ("val/psnr", "val/ssim", "val/latent_mse", "val/loss"):
            self.assertEqual([step for step, _ in train.values(run, name)], [2, 4], name)
        job = train.spawn("--config", config, "--max-restarts", "1", name="killed", sets=self.sets())
        run = train.run_path("killed")
        train.wait_step(run, 3, job, seconds=120)
        os.kill(train.rank_pids(run, 0)[1], signal.SIGKILL)
        self.assertEqual(job.wait(200), 0, job.output)
        self.assertEqual(train.differences(train.last(train.run_path("whole")), train.last(run)), [])

    def test_a_teacher_that_does_not_fit_ends_the_run_before_its_first_step(self):
        self.teacher()
        config = harness.write("page.yaml", indented("recipe:"))
        cases = {
            "there is no such file": {"recipe.teacher.path": "nowhere.pt"},
            "not a TorchScript module": {"recipe.teacher.path": config},
            "the teacher failed on frames": {"recipe.teacher.layout": "NTCHW"},
            "needs a teacher": {"recipe.teacher": "{kind: none}"},
        }
        for words, wrong in cases.items():
            with self.subTest(words):
                done = train.train("--config", config, name=re.sub(r"\W", "-", words), sets=self.sets(**wrong))
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(words, done.stdout + done.stderr)

    def test_the_table_of_weights_is_what_the_program_has(self):
        for mode, column in (("joint", 1), ("distill", 2)):
            shown = harness.engine("config", "taehv", "--plain", "--set", f"recipe.mode={mode}", "--set", "recipe.teacher={kind: torchscript, path: x}")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            for part in ("reconstruction", "encoder", "adversarial"):
                told = re.search(rf"^\| `recipe.loss.{part}` \|(.*)\|$", PAGE, re.M).group(1).split("|")[column - 1].strip()
                self.assertRegex(shown.stdout, rf"\n    {part}: {told}\n")
