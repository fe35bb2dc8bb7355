"""`lockstep config taehv --gpus N`: one configuration, any number of GPUs; `lockstep train --preset` trains with it."""

import json
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

PRODUCTION = str(harness.ROOT / "examples" / "taehv-production.yaml")


def config(*flags):
    return harness.engine("config", "taehv", *flags)


def derived(*flags):
    done = config("--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class ConfigGpus(harness.Case):
    TOGETHER = True  # one engine for all

    def test_documented_numbers_of_gpus(self):
        page = (harness.ROOT / "docs" / "presets.md").read_text()
        rows = [line.split("|")[1:-1] for line in page.split("| GPUs |")[1].splitlines()[2:] if line.startswith("|")]
        self.assertEqual([int(row[0]) for row in rows], [1, 2, 3, 8, 12, 16, 24, 48, 64])
        for gpus, batch, lr, warmup, every in ([cell.strip() for cell in row] for row in rows):
            found = derived("--config", PRODUCTION, "--gpus", gpus)
            settings = found["config"]
            self.assertEqual(int(batch.replace(",", "").split()[0]), settings["train"]["batch"], gpus)
            if "=" in batch:
                parts = [int(part) for part in batch.split("=")[1].split("x")]
                self.assertEqual(parts, [found["batch"]["micro"], int(gpus), found["batch"]["passes"]])
            self.assertAlmostEqual(float(lr), settings["train"]["optimizer"]["lr"], places=9)
            self.assertEqual(int(warmup), settings["train"]["schedule"]["warmup"])
            self.assertEqual(int(every), settings["checkpoint"]["every"])
            self.assertEqual(settings["data"]["validation"]["every"], 1000)
            self.assertEqual((settings["data"]["height"], settings["data"]["width"]), (480, 720))

    def test_the_output_is_a_configuration_file_that_shows_its_derivation(self):
        done = config("--config", PRODUCTION, "--gpus", "48", "--cores", "96")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("effective batch: 5 samples x 48 ranks x 1 pass = 240", done.stdout)
        self.assertRegex(done.stdout, r"# +train\.batch +128 +240 +one pass of 5 on every rank")
        self.assertRegex(done.stdout, r"# +data\.threads +8 +11 +96 cores / 8 ranks")
        file = self.tmp / "48.yaml"
        file.write_text(done.stdout)
        self.assertEqual(derived("--config", str(file))["config"],
                         derived("--config", PRODUCTION, "--gpus", "48", "--cores", "96")["config"])

    def test_what_is_set_stays(self):
        found = derived("--config", PRODUCTION, "--gpus", "64", "--set", "train.batch=128", "--set", "train.optimizer.lr=5e-5")
        self.assertEqual(found["config"]["train"]["batch"], 128)
        self.assertEqual(found["config"]["train"]["optimizer"]["lr"], 5e-5)
        self.assertEqual(found["config"]["train"]["schedule"]["warmup"], 2000)
        why = {line["key"]: line["why"] for line in found["derived"]}
        self.assertEqual(why["train.batch"], "as set on the command line")

    def test_without_gpus_nothing_is_derived(self):
        found = derived("--config", PRODUCTION)
        self.assertNotIn("derived", found)
        self.assertEqual(found["config"]["train"]["batch"], 128)
        self.assertNotIn("effective batch", config().stdout)

    def test_numbers_that_are_none_are_usage_errors(self):
        for gpus in ("0", "-3", "many", ""):
            self.assertEqual(config("--gpus", gpus).returncode, 2, gpus)
        done = config("--gpus", "200", "--set", "train.reproducible=true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("use at most 128 GPUs", done.stderr)


class TrainPreset(harness.Case):
    def test_a_preset_is_derived_announced_and_trained_with(self):
        done = train.train("--preset", "auto", ranks=2, sets={"train.steps": 2}, cwd=self.tmp)
        text = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, text)
        self.assertIn("for 2 GPUs, derived from", text)
        self.assertIn("effective batch: 2 samples x 2 ranks x 1 pass = 4", text)
