"""A full disk under the checkpoints: training goes on, the older checkpoint stays, and the run says what it could not save."""

import pathlib
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, train  # noqa: E402


class FullDisk(harness.Case):
    TIMEOUT = 120

    def start(self, size, ballast=0, **sets):
        """A training whose checkpoint folder is a file system of that many MiB, some of it taken. One checkpoint has 8.2."""
        harness.require("netns")  # root, to mount
        folder = train.run_path() / "checkpoints"
        folder.mkdir(parents=True)
        take = f"head -c {ballast}M /dev/zero > {folder}/ballast" if ballast else "true"
        script = (f"mount -t tmpfs -o size={size}m tmpfs {folder} && {take} && exec "
                  + " ".join(map(str, [harness.PROGRAM, *train.command(sets=sets)])))
        job = harness.spawn("unshare", "--mount", "sh", "-c", script, env=train.ONE_THREAD)
        # The launcher, and with it this view of the folder, is gone at the end of the job: somebody must hold it.
        harness.wait_until(lambda: "tmpfs " + str(folder) in self.mounts(job) or not job.alive(), 20, "the mount")
        self.keeper = harness.spawn("nsenter", "--mount", "-t", str(job.pid), "sleep", "600")
        self.addCleanup(self.keeper.wait)
        self.addCleanup(self.keeper.kill)
        return job

    def mounts(self, job):
        try:
            return pathlib.Path(f"/proc/{job.pid}/mounts").read_text()
        except OSError:
            return ""

    def seen(self):
        """The run directory as the job saw it."""
        return pathlib.Path(f"/proc/{self.keeper.pid}/root{train.run_path()}")

    def test_training_goes_on_and_the_older_checkpoint_stays(self):
        job = self.start(size=12, **{"train.steps": 16, "checkpoint.every": 4})
        code = job.wait(60)
        run = self.seen()
        self.assertEqual(list(train.lineage(run)), list(range(1, 17)), job.output)
        # 8, or later where the first took more than four steps to write
        self.assertRegex(job.stdout, r"checkpoint at step \d+ was not written: .*(No space|ENOSPC).*training goes on")
        self.assertEqual(list(train.checkpoints(run)), [4])
        self.assertEqual(train.stray(run), [])
        with self.subTest("the end says that the last state is not on disk"):
            self.assertEqual(code, 3, job.output)
            self.assertEqual(train.exit_codes(self.tmp), {0: 3, 1: 3})
            self.assertEqual(train.said(run, "the last checkpoint"), 1, job.output)
            report = jobs.report(train.run_path())
            self.assertRegex(report["reason"], r"the last checkpoint.*No space")
            self.assertEqual((report["end"], report["first_failure"]["exit_code"]), ("failed", 3))
        with self.subTest("the older checkpoint is whole"):
            whole = train.train(name="whole", sets={"train.steps": 16, "checkpoint.every": 4, "checkpoint.keep_last": 9})
            self.assertEqual(whole.returncode, 0, whole.stderr)
            self.assertEqual(train.differences(run / "checkpoints" / "step-4", train.run_path("whole") / "checkpoints" / "step-4"), [])

    def test_room_made_meanwhile_is_used(self):
        job = self.start(size=32, ballast=26, **{"train.steps": 30, "checkpoint.every": 3, "checkpoint.keep_last": 1})
        job.wait_for("training goes on")
        (self.seen() / "checkpoints" / "ballast").unlink()
        self.assertEqual(job.wait(60), 0, job.output)
        self.assertEqual(list(train.checkpoints(self.seen()))[-1], 30)
        self.assertEqual(train.stray(self.seen()), [])
