"""`lockstep runs clean`: what goes, what stays, and that nothing goes unasked."""

import json
import os
import shutil
import signal

import harness


class RunsClean(harness.Case):
    def clean(self, *flags):
        done = harness.lockstep("runs", "clean", *flags, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {run["name"]: run for run in json.loads(done.stdout)["runs"]}

    def goes(self, *flags):
        return sorted(name for name, run in self.clean(*flags).items() if run["goes"])

    def make(self, name, code=0, loss=None, age=0, padding=0):
        done = harness.lockstep("run", "--nproc-per-node", "1", "--name", name, "--no-python", "sh", "-c", f"exit {code}")
        self.assertEqual(done.returncode == 0, code == 0, done.stderr)
        run = self.tmp / "runs" / name
        if loss is not None:
            line = {"t": 1, "attempt": 0, "rank": 0, "step": 1, "scalars": {"val/loss": loss}}
            (run / "metrics").mkdir(exist_ok=True)
            (run / "metrics/rank-0.jsonl").write_text(json.dumps(line) + "\n")
        (run / "padding").write_bytes(b"x" * padding)
        for file in ("run.json", "report.json"):
            record = json.loads((run / file).read_text())
            for key in ("started", "ended", "created"):
                if key in record:
                    record[key] -= age
            (run / file).write_text(json.dumps(record))
        return run

    def test_rules_choose_and_only_yes_removes(self):
        self.make("old-good", loss=0.1, age=40 * 86400)
        self.make("old-bad", loss=0.9, age=35 * 86400, padding=5 << 20)
        self.make("failed", code=1, age=3600)
        self.make("fresh", loss=0.5)
        photos = self.tmp / "runs/photos"
        photos.mkdir()
        (photos / "cat.png").write_bytes(b"cat")
        (self.tmp / "runs/foreign/logs").mkdir(parents=True)  # looks like a part of a run
        os.symlink(self.tmp / "runs/old-bad", self.tmp / "runs/linked")
        (self.tmp / "runs/torn").mkdir()
        (self.tmp / "runs/torn/run.json").write_text('{"format": 1, "na')  # the disk was full
        (self.tmp / "runs/tracker/logs").mkdir(parents=True)
        (self.tmp / "runs/tracker/run.json").write_text('{"experiment": 7}')  # another program's
        (self.tmp / "runs/begun").mkdir()
        (self.tmp / "runs/begun/run.json").write_text('{"format": 1, "name": "begun"}')  # says not when
        (self.tmp / "runs/.removing-gone-1").mkdir()
        (self.tmp / "runs/.removing-gone-1/part").write_bytes(b"x")
        self.addCleanup(lambda: live.alive() and live.kill())
        live = harness.spawn_lockstep("run", "--nproc-per-node", "1", "--name", "live", "--no-python", "sleep", "600")
        harness.wait_until(lambda: (self.tmp / "runs/live/run.json").exists() and (self.tmp / "runs/live/lock").exists(), 30, "live")

        self.assertEqual(self.goes("--older-than", "30d"), ["old-bad", "old-good"])
        self.assertEqual(self.goes("--older-than", "30d", "--keep-best", "1"), ["old-bad"])
        self.assertEqual(self.goes("--older-than", "30d", "--keep-best", "1", "--highest"), ["old-good"])
        self.assertEqual(self.goes("--older-than", "0s", "--keep-last", "3"), ["begun", "old-bad", "old-good"])
        self.assertEqual(self.goes("--larger-than", "4MiB"), ["old-bad"])
        self.assertEqual(self.goes("--state", "failed,lost"), ["begun", "failed"])
        self.assertEqual(self.goes("--state", "failed", "--older-than", "1d"), [])
        self.assertEqual(self.goes("--total", "6MiB"), [])
        self.assertEqual(self.goes("--total", "5MiB"), ["begun", "old-bad", "old-good"], "oldest first")
        everything = self.clean("--older-than", "0s")
        self.assertEqual({name for name, run in everything.items() if not run["goes"]}, {"live", "foreign", "linked", "torn", "tracker"}, everything)
        self.assertIn("of another program", everything["tracker"]["why"])
        self.assertIn("run.json cannot be read", everything["torn"]["why"])
        self.assertIn("it runs", everything["live"]["why"])
        self.assertNotIn("photos", everything)
        self.assertEqual([run["name"] for run in self.clean("--larger-than", "1TiB").values() if not run["why"]], [])

        said = harness.lockstep("runs", "clean", "--older-than", "30d")
        self.assertIn("nothing was removed: add --yes", said.stdout)
        self.assertTrue((self.tmp / "runs/old-bad/padding").exists())
        self.assertTrue((self.tmp / "runs/.removing-gone-1/part").exists())
        done = harness.lockstep("runs", "clean", "--older-than", "0s", "--yes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.tmp / "runs")), ["foreign", "linked", "live", "photos", "torn", "tracker"])
        self.assertTrue((photos / "cat.png").exists())
        self.assertTrue(live.alive())
        live.send_signal(signal.SIGTERM)
        live.wait(30)

    def test_mistakes_are_named(self):
        self.make("some", loss=0.5, age=86400)
        done = harness.lockstep("runs", "clean", "--older-than", "1h", "--keep-best", "1", "--metric", "val/los", "--yes")
        self.assertEqual((done.returncode, "no run has the metric 'val/los'" in done.stderr), (2, True), done.stderr)
        self.assertTrue((self.tmp / "runs/some").exists())
        for flags, says in {(): "nothing says which runs may go", ("--older-than", "soon"): "--older-than",
                            ("--state", "running"): "never removed", ("--total", "5K"): "--total"}.items():
            done = harness.lockstep("runs", "clean", *flags)
            self.assertEqual((done.returncode, says in done.stderr), (2, True), done.stderr)
        shutil.rmtree(self.tmp / "runs", ignore_errors=True)
        self.assertEqual(harness.lockstep("runs", "clean", "--older-than", "1d").returncode, 0)
