"""Restarts on one node: one budget, growing pauses, new ports, and no second chance for a failure that only repeats."""

import json
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402


class Restart(harness.Case):
    def test_job_that_fails_twice_with_progress_succeeds_on_the_third_attempt_with_a_new_port_each(self):
        marks = self.tmp / "marks"
        done = harness.lockstep("run", "--nproc-per-node", "2", "--max-restarts", "3", "--backoff", "50ms", "--grace", "1s",
                                *jobs.program("metric_then_fail.py", marks, 2))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(jobs.report(self.tmp)["attempts"], 3)
        ports = [jobs.marked(marks, f"attempt-{a}", 0) for a in range(3)]
        self.assertEqual(len(set(ports)), 3, ports)
        self.assertEqual([e["attempt"] for e in jobs.events(self.tmp, "attempt_started")], [0, 1, 2])
        self.assertEqual(len(jobs.events(self.tmp, "restart")), 2)
        for attempt in range(3):
            self.assertTrue((jobs.run_path(self.tmp) / f"logs/attempt-{attempt}/node-0").is_dir())

    def test_budget_is_spent_and_then_the_job_fails(self):
        marks = self.tmp / "marks"
        done = harness.lockstep("run", "--max-restarts", "2", "--backoff", "20ms",
                                *jobs.program("metric_then_fail.py", marks, 99))
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertEqual(jobs.report(self.tmp)["attempts"], 3)
        self.assertRegex(done.stderr, r"restart")

    def test_failure_that_repeats_itself_at_the_same_step_is_restarted_once(self):
        script = harness.write("train.py", """
for step in range(6):
    print(f"step {step}/10 | loss 1.0", flush=True)
raise RuntimeError("the batch of step 5 does not fit")
""")
        programs = {"log": ["--no-python", jobs.PYTHON3, "-u", script],
                    "metrics": jobs.program("metric_then_fail.py", self.tmp / "marks", 99, 7)}
        for name, program in programs.items():
            with self.subTest(name):
                done = harness.lockstep("run", "--name", name, "--max-restarts", "5", "--backoff", "20ms", *program)
                self.assertEqual(done.returncode, 5, done.stderr)
                report = jobs.report(self.tmp / "runs" / name)
                self.assertEqual(report["attempts"], 2, done.stderr)
                self.assertRegex(report["reason"], r"a second time, again at step [57]")

    def test_failure_before_progress_that_repeats_itself_is_not_restarted_again(self):
        done = harness.lockstep("run", "--max-restarts", "50", "--backoff", "20ms", "--no-python", "sh", "-c",
                                "echo 'cannot open dataset' >&2; exit 4")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertEqual(jobs.report(self.tmp)["attempts"], 2)
        self.assertRegex(done.stderr, r"same failure")

    def test_workers_learn_their_restart_count(self):
        folder = self.tmp / "envs"
        folder.mkdir()
        script = harness.write("count.sh", f"""#!/bin/sh
echo $TORCHELASTIC_RESTART_COUNT $LOCKSTEP_RESTART_COUNT $LOCKSTEP_ATTEMPT $TORCHELASTIC_MAX_RESTARTS > {folder}/a.$LOCKSTEP_ATTEMPT
[ $LOCKSTEP_ATTEMPT = 1 ]
""", 0o755)
        done = harness.lockstep("run", "--max-restarts", "4", "--backoff", "20ms", "--no-python", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([(folder / f"a.{a}").read_text().split() for a in (0, 1)],
                         [["0", "0", "0", "4"], ["1", "1", "1", "4"]])

    def test_exit_75_uses_no_budget_and_ends_the_job_with_75(self):
        done = harness.lockstep("run", "--max-restarts", "3", "--backoff", "20ms", "--no-python", "sh", "-c", "exit 75")
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertEqual(jobs.report(self.tmp)["attempts"], 1)

    def test_sigterm_during_the_pause_ends_the_job_without_another_attempt(self):
        run = harness.spawn_lockstep("run", "--max-restarts", "3", "--backoff", "300s", "--no-python", "false")
        harness.wait_until(lambda: jobs.events(self.tmp, "restart"))
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(20), 143, run.output)
        self.assertEqual(len(jobs.events(self.tmp, "attempt_started")), 1)

    def test_second_launch_of_a_name_continues_with_the_next_attempt(self):
        for _ in range(2):
            done = harness.lockstep("run", "--name", "job", "--no-python", "sh", "-c", "echo attempt $LOCKSTEP_ATTEMPT")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("attempt 1", jobs.logs(self.tmp, 0, attempt=1))
        self.assertTrue((self.tmp / "runs/job/report-attempt-0.json").exists())
        self.assertEqual(json.loads((self.tmp / "runs/job/run.json").read_text())["first_attempt"], 1)
