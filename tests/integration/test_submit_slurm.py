"""`lockstep submit` on a real SLURM of two nodes: a training that is stopped, saved, queued again, resumed and finished."""

import json
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, slurm, train  # noqa: E402


class _Cluster(harness.Case):
    TIMEOUT = 90

    def setUp(self):
        harness.require("slurm", "netns")
        self.bed = slurm.Slurm()
        self.addCleanup(self.bed.close)
        self.env = {**{k: v for k, v in harness.clean_env().items() if k.startswith("LOCKSTEP_")},
                    "XDG_STATE_HOME": str(self.tmp / "state"), "USER": "root"}

    def lockstep(self, *args, code=0):
        done = self.bed.run([harness.PROGRAM, *map(str, args)], env=self.env, cwd=self.tmp)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def description(self, job):
        (self.tmp / "job.yaml").write_text(json.dumps(job))

    def submit(self, *args):
        return json.loads(self.lockstep("submit", "--platform", "slurm", "--json", "job.yaml", *args).stdout)["id"]

    def state(self, name):
        return next(one for one in json.loads(self.lockstep("jobs", "--json").stdout)["jobs"] if one["name"] == name)

    def output(self, name, job):
        path = self.tmp / f"{name}-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def ranks(self, count):
        return [json.loads(jobs.marked(self.tmp / "marks", "env", rank))["env"] for rank in range(count)]


class Submit(_Cluster):
    def test_words_and_variables_arrive_and_the_job_is_seen_to_its_end(self):
        show = jobs.program("show_env.py", self.tmp / "marks")
        self.description({"name": "seen", "program": show, "nodes": 2, "ranks": 2, "time": "5m", "grace": "5s",
                                     "env": {"ODD": "it's\n$HOME \"x\""}})
        self.assertIn("Job", self.lockstep("submit", "--check", "--platform", "slurm", "job.yaml").stdout)
        job = self.submit()
        done = self.lockstep("logs", "-f", "seen")
        self.assertIn("job 'seen' has ended: succeeded", done.stderr)
        self.assertIn("all 4 ranks succeeded", done.stdout)
        self.assertEqual([(e["RANK"], e["WORLD_SIZE"], e["SLURMD_NODENAME"], e["ODD"]) for e in self.ranks(4)],
                         [(str(i), "4", f"n{i // 2}", "it's\n$HOME \"x\"") for i in range(4)])
        found = self.state("seen")
        self.assertEqual((found["id"], found["state"], found["exit_code"]), (job, "succeeded", 0))
        self.assertNotIn("\x1b[", self.output("seen", job), "colours in a file")
        self.env["XDG_STATE_HOME"] = str(self.tmp / "elsewhere")  # where nobody submitted it: SLURM says where it writes
        self.assertIn("all 4 ranks succeeded", self.lockstep("logs", "--platform", "slurm", job).stdout)
        self.env["XDG_STATE_HOME"] = str(self.tmp / "state")
        # A job that this SLURM, which has no accounting, does not know: sacct refuses, and how it ended stays open.
        kept = next((self.tmp / "state" / "lockstep" / "jobs").glob("*.json"))
        kept.with_name("old.json").write_text(json.dumps({**json.loads(kept.read_text()), "name": "old", "id": "99999"}))
        found = self.state("old")
        self.assertEqual((found["state"], found["detail"]), ("ended", "the platform no longer knows it"))

    def test_array_runs_under_names_of_its_indices(self):
        self.description({"name": "sweep", "program": jobs.program("show_env.py", self.tmp / "marks"), "nodes": 1, "array": "3-4",
                          "native": ["--export=NONE"], "env": {"KEPT": "1"}})  # which srun takes over, unless it is told otherwise
        job = self.submit()
        harness.wait_until(lambda: all((self.tmp / "runs" / f"sweep-{i}" / "report.json").exists() for i in (3, 4)), 30, "both runs")
        self.assertEqual(self.ranks(1)[0]["KEPT"], "1")
        self.assertEqual(self.lockstep("logs", "sweep", code=2).stdout, "")
        self.bed.wait(f"{job}_4")

    def test_stopped_job_of_an_array_is_queued_again_alone(self):
        """The last job of an array has the array's own id."""
        self.description({"name": "sweep", "program": ["--no-python", "bash", "-c", f"echo > {self.tmp}/up-$SLURM_ARRAY_TASK_ID; trap 'exit 75' TERM; "
                          "while :; do sleep 0.05; done"], "nodes": 1, "array": "3-4", "grace": "5s"})
        job = self.submit()
        harness.wait_until(lambda: all((self.tmp / f"up-{i}").exists() for i in (3, 4)), 60, "both jobs")
        last = next(i for i in (3, 4) if self.bed.run(["scontrol", "-o", "show", "job", f"{job}_{i}"]).stdout.startswith(f"JobId={job} "))
        first = 7 - last
        self.bed.run(["scancel", "--signal=TERM", f"{job}_{last}"], check=True)
        harness.wait_until(lambda: "Restarts=1" in self.bed.run(["scontrol", "-o", "show", "job", f"{job}_{last}"]).stdout, 60, "it is queued again")
        other = self.bed.run(["scontrol", "-o", "show", "job", f"{job}_{first}"]).stdout
        self.assertRegex(other, "JobState=RUNNING.* Restarts=0 ")
        self.lockstep("cancel", job)
        harness.wait_until(lambda: not self.bed.job_processes(), 30, "no process of a job on the nodes")

    def test_cancelled_job_is_not_queued_again(self):
        self.description({"name": "gone", "program": jobs.program("signals.py", self.tmp / "marks", "75"), "nodes": 2, "grace": "5s"})
        job = self.submit()
        jobs.wait_marks(self.tmp / "marks", 2)
        self.assertEqual(self.state("gone")["state"], "running")
        self.lockstep("cancel", "gone")
        self.assertEqual(self.bed.wait(job)["JobState"], "CANCELLED")
        harness.wait_until(lambda: not self.bed.job_processes(), 20, "no process of a job on the nodes")
        self.assertEqual(self.bed.job(job)["Restarts"], "0")
        self.assertEqual(self.state("gone")["state"], "cancelled")


class Resume(_Cluster):
    """The real time limit, and SLURM's wait before a job that was queued again may start: tests/soak/submit_limit.py."""

    def test_stopped_training_is_saved_and_queued_again_and_the_same_description_resumes_it(self):
        steps = 24
        program = ["lockstep", "train", "taehv", *train.settings({"train.steps": steps, "checkpoint.every": 0})]
        self.description({"name": "night", "program": program, "lockstep": harness.PROGRAM, "nodes": 2, "time": "10m", "grace": "30s",
                          "env": train.ONE_THREAD})
        job = self.submit()
        run = self.tmp / "runs" / "night"
        harness.wait_until(lambda: train.steps_done(run) > 1, 60, "some steps")
        # What --signal does before the time limit: SIGTERM to the launchers, not to the script.
        self.bed.run(["scancel", "--signal=TERM", job], check=True)
        harness.wait_until(lambda: self.bed.job(job).get("Restarts") == "1", 60, "the job to be queued again")
        harness.wait_until(lambda: self.state("night")["state"] == "pending", 30, "the job to wait")
        self.assertIn("state saved", self.output("night", job))
        stopped = train.steps_done(run)
        self.assertTrue(0 < stopped < steps, stopped)
        self.lockstep("cancel", job)
        job = self.submit()
        self.assertEqual(self.bed.wait(job)["ExitCode"], "0:0", self.output("night", job))
        done = [(line["attempt"], line["step"]) for line in harness.read_jsonl(run / "samples" / "rank-0.jsonl")]
        self.assertEqual(done, [(int(step > stopped), step) for step in range(1, steps + 1)], "each step once, in order")
        self.assertEqual(json.loads((run / "report.json").read_text())["exit_code"], 0)
