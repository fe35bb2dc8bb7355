"""What trackers show of a training: TensorBoard's reader, wandb's own uploader before a server of ours, CSV and metric lines
must tell the same story, also after a kill."""

import csv
import json
import os
import shutil
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402
from beds.wandb_server import WandbServer  # noqa: E402

WANDB = os.path.join(os.path.dirname(harness.PYTHON), "wandb")
EVERYTHING = {"track.csv": "true", "track.wandb": "offline", "track.histograms": 4, "train.steps": 12, "data.frames": 8}


def metric_lines(run, metric):
    """{step: value}; where an attempt goes back, what it repeats counts and what it does not reach is gone."""
    found, attempt = {}, 0
    for line in harness.read_jsonl(run / "metrics" / "rank-0.jsonl"):
        if line["attempt"] != attempt:
            found = {step: value for step, value in found.items() if step < line["step"]}
        attempt = line["attempt"]
        if metric in line["scalars"]:
            found[line["step"]] = line["scalars"][metric]
    return found


def csv_values(run, metric):
    """{step: value}; a step that comes twice fails."""
    found = {}
    if not (run / "metrics.csv").exists():
        return found
    with open(run / "metrics.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["name"] == metric:
                assert int(row["step"]) not in found, row
                found[int(row["step"])] = float(row["value"])
    return found


def tensorboard(run, *flags):
    done = harness.run([harness.PYTHON, harness.ROOT / "tests/track/read_events.py", *flags, run / "tensorboard"])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sync(server, run):
    """wandb's own command over all fragments of a run."""
    fragments = sorted((run / "wandb").glob("offline-run-*"))
    done = harness.run([WANDB, "sync", *fragments], env={**server.env, "WANDB_DIR": str(harness.tmp_dir()), "HOME": str(harness.tmp_dir())})
    assert done.returncode == 0, done.stderr
    return done


class Trackers(harness.Case):
    TIMEOUT = 120

    def close(self, one, other, what):
        self.assertEqual(sorted(one), list(other), what)
        for step, value in one.items():
            self.assertAlmostEqual(value, other[step], places=5, msg=(what, step))

    def test_after_a_kill_and_a_resume_every_tracker_tells_the_same(self):
        harness.require("torch")
        run = train.run_path()
        sets = {**EVERYTHING, "train.steps": 24, "checkpoint.every": 8, "checkpoint.keep_last": 100, "track.histograms": 12}
        first = train.spawn(sets={**sets, "train.steps": 4000})  # long enough, however late the kill comes
        # Past the checkpoint, which is written beside the training. One flush serves the trackers in turn, W&B after the CSV:
        # when the next one reaches the CSV, all of them have what this one brought.
        harness.wait_until(lambda: 8 in train.checkpoints(run) and max(csv_values(run, "loss"), default=0) > 8, 60, "step 9 in the CSV")
        seen = max(csv_values(run, "loss"))
        harness.wait_until(lambda: max(csv_values(run, "loss")) > seen, 60, "another flush")
        os.kill(train.rank_pids(run, 0)[0], signal.SIGKILL)
        self.assertNotEqual(first.wait(60), 0)
        for step, folder in train.checkpoints(run).items():  # whatever came later, it goes back to step 8
            if step > 8:
                shutil.rmtree(folder)
        second = train.train(sets=sets)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn("step-8 at step 8", second.stdout)

        loss = metric_lines(run, "loss")
        self.assertEqual(sorted(loss), list(range(1, 25)))
        self.close(loss, csv_values(run, "loss"), "CSV")
        for flags in (), ("--api",):  # TensorBoard's server, scripts
            events = tensorboard(run, *flags)
            self.close(loss, {step: float(value) for step, value in events["scalars"]["loss"]}, f"TensorBoard {flags}")
            histogram = events["histograms"]["gradients/decoder.1.weight"]
            self.assertEqual([step for step, _ in histogram], [12, 24])
            self.assertEqual(sum(count for _, _, count in histogram[0][1]), sum(count for _, _, count in histogram[1][1]))
            self.assertEqual(len(events["videos"]["reconstruction/clip"][-1][3]), 5, "frames of the clip")

        with WandbServer() as server:
            sync(server, run)
            found = server.only()
        self.close(loss, found.scalars("loss"), "W&B")
        self.assertIn(("rewind", "_step", 8.0), found.calls)
        self.assertEqual((found.display, found.project), ("run", "taehv"))
        self.assertEqual(found.config["train"]["batch"], 4)
        self.assertAlmostEqual(found.summary["loss"], loss[24], places=5)
        self.assertEqual((found.summary["_step"], found.history[-1]["_step"]), (24, 24), "a step has one row")
        self.assertEqual(found.exit_codes[-1], 0)
        self.assertIn("resuming from", "".join(found.console.values()))
        media = [name for name in found.files if name.startswith("media/")]
        self.assertEqual({name.rsplit(".", 1)[1] for name in media}, {"png", "gif"}, media)
        self.assertEqual(len(found.scalars("gradients/decoder.1.weight")), 2)

    def test_live_uploads_beside_the_training(self):
        harness.require("torch")
        with WandbServer() as server:
            env = {**train.ONE_THREAD, **server.env, "PATH": os.path.dirname(WANDB) + ":" + os.environ["PATH"]}
            done = harness.lockstep(*train.command(sets={**EVERYTHING, "track.wandb": "live"}), env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("W&B: uploaded", done.stdout)
            found = server.only()
        self.close(metric_lines(train.run_path(), "loss"), found.scalars("loss"), "W&B")
        self.assertEqual(found.exit_codes, [0])
        leaked = [str(path) for path in train.run_path().rglob("*") if path.is_file() and server.KEY.encode() in path.read_bytes()]
        self.assertEqual(leaked, [])

    def test_live_without_wandb_or_key_says_so_and_stays_offline(self):
        harness.require("torch")
        sets = {**EVERYTHING, "track.wandb": "live", "train.steps": 2}
        failing = harness.write("bin/wandb", "#!/bin/sh\necho no network >&2\nexit 7\n", 0o755)
        cases = {
            "missing": ({}, "there is no program 'wandb' in PATH"),
            "keyless": ({"PATH": f"{failing.parent}:/usr/bin:/bin"}, "no key"),
            "failing": ({"PATH": f"{failing.parent}:/usr/bin:/bin", "WANDB_API_KEY": "k" * 40}, "exit code 7"),
        }
        server = WandbServer(refuses=True)
        self.enterContext(server)
        cases["refused"] = ({"PATH": f"{os.path.dirname(WANDB)}:/usr/bin:/bin", **server.env}, "not uploaded.*user is not logged in")
        for name, (env, says) in cases.items():
            env = {**train.ONE_THREAD, "PATH": "/usr/bin:/bin", "HOME": str(self.tmp), "WANDB_API_KEY": None, **env}
            done = harness.lockstep(*train.command(name=name, ranks=1, sets=sets), env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout + done.stderr, says, name)
            self.assertIn("wandb sync", done.stdout + done.stderr, name)
            self.assertEqual(len(list((train.run_path(name) / "wandb").glob("offline-run-*/run-*.wandb"))), 1)

    def test_an_upload_that_hangs_holds_up_neither_the_other_ranks_nor_a_stop(self):
        harness.require("torch")
        hanging = harness.write("bin/wandb", "#!/bin/sh\nexec sleep 600\n", 0o755)
        env = {**train.ONE_THREAD, "PATH": f"{hanging.parent}:/usr/bin:/bin", "HOME": str(self.tmp), "WANDB_API_KEY": "k" * 40}
        sets = {**EVERYTHING, "track.wandb": "live", "train.steps": 100000, "run.max_time": "1s", "comm.timeout": "20s"}
        done = harness.lockstep(*train.command(sets=sets), env=env)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertIn("was not done after 5 s", done.stdout)
