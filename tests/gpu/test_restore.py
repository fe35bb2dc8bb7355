"""`lockstep restore` on a GPU: two ranks that share it, and a process that was killed, give the files of one; in float32 they
are those of the CPU but for rounding.

    make test-gpu                              # on a machine with a GPU; LOCKSTEP_BIN names the programs
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin")).resolve()
DEVICE = os.environ.get("LOCKSTEP_RESTORE_DEVICE", "cuda")
LIMIT = 240  # seconds; ends what hangs
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-gpu-restore-"))
ENV = dict(os.environ, CUDA_VISIBLE_DEVICES="0", OMP_NUM_THREADS="2")


def tearDownModule():
    shutil.rmtree(SCRATCH, ignore_errors=True)


def lockstep(*words):
    done = subprocess.run([BIN / "lockstep", *map(str, words)], cwd=SCRATCH, env=ENV, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def files(folder):
    return {path.name: path.read_bytes() for path in sorted((SCRATCH / folder).iterdir())}


class Restore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lockstep("data", "prepare", "generated-spike", "scenes", "--clips", 4, "--frames", 8, "--height", 64, "--width", 96)
        lockstep("train", "vrt", "--name", "run", "--nproc-per-node", 1, "--set", f"train.device={DEVICE}", "--set", "train.steps=1",
                 "--set", "data.frames=2", "--set", "data.crop=64", "--set", "data.validation.fraction=0")

    def words(self, output, *more, device=DEVICE):
        return ("restore", "--weights", "runs/run", "scenes/GOPRO_Large/train_GT_blurred/scene_0000", output, "--device", device,
                "--frames", 4, "--tile", 64, "--json", *more)

    def test_ranks_a_killed_process_and_the_cpu_give_the_same_frames(self):
        one = json.loads(lockstep(*self.words("one")).stdout)
        self.assertEqual((one["frames"], one["ranks"]), (8, 1))
        two = json.loads(lockstep(*self.words("two", "--nproc-per-node", 2)).stdout)
        self.assertEqual((two["frames"], two["ranks"]), (8, 2))
        self.assertEqual(files("two"), files("one"))
        killed = subprocess.Popen([BIN / "lockstep", *map(str, self.words("killed"))], cwd=SCRATCH, env=ENV, stdout=subprocess.DEVNULL)
        mark, until = SCRATCH / "killed.restoring/clip-00000/windows/000000", time.monotonic() + LIMIT
        while not mark.exists() and killed.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        killed.kill()
        killed.wait()
        lockstep(*self.words("killed"))
        self.assertEqual(files("killed"), files("one"))
        lockstep(*self.words("gpu32", "--precision", "fp32"))
        lockstep(*self.words("cpu32", device="cpu"))
        import numpy
        from PIL import Image
        for name in files("cpu32"):
            a, b = (numpy.asarray(Image.open(SCRATCH / folder / name), int) for folder in ("gpu32", "cpu32"))
            self.assertLessEqual(abs(a - b).max(), 2, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
