"""Jobs that stop moving: the rank that holds the others up is named, its stack is kept, and only then the job is ended."""

import json
import os
import shutil
import signal
import sys
import time

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns  # noqa: E402


# Three times this is the start-up a rank is allowed, the import of torch among it, and a busy machine is slow.
STALL = "6s"


def stuck(marks, rank, mode):
    return [str(jobs.PROGRAMS / "stuck.py"), str(marks), str(rank), mode]


def hang_folder(folder):
    found = sorted(jobs.run_path(folder).glob("hang-*"))
    if not found:
        raise AssertionError("no hang-<time> folder")
    return found[-1]


class Gloo(harness.Case):
    """Real torch.distributed programs on Gloo."""

    TIMEOUT = 180

    def setUp(self):
        harness.require("torch")
        self.marks = self.tmp / "marks"

    def run_stuck(self, rank, mode, nproc=2, *flags):
        done = harness.lockstep("run", "--nproc-per-node", nproc, "--grace", "2s", "--stall-timeout", STALL, *flags,
                                *stuck(self.marks, rank, mode), env=jobs.torch_env(), timeout=150)
        self.assertEqual(done.returncode, 7, done.stderr)
        report = jobs.report(self.tmp)
        self.assertEqual((report["outcome"], report["end"], report["exit_code"]), ("failed", "stalled", 7))
        return done, report["stall"], report

    def test_rank_that_never_enters_the_collective_is_named_among_four_and_all_stacks_are_kept(self):
        done, stall, report = self.run_stuck(2, "sleep", 4)
        self.assertEqual(stall["ranks"], [2], stall)
        self.assertRegex(done.stderr, r"rank 2 sleeps at stuck\.py:\d+ \(wander\)")
        self.assertRegex(done.stderr, r"3 ranks wait in all_reduce at stuck\.py:\d+")
        self.assertEqual((report["diagnosis"]["signature"], report["diagnosis"]["rank"]), ("stalled", 2))
        folder = hang_folder(self.tmp)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["hang.json"] + [f"rank-{r}.txt" for r in range(4)])
        self.assertRegex((folder / "rank-2.txt").read_text(), r"wander \(.*stuck\.py:\d+\)")
        self.assertIn("all_reduce", (folder / "rank-0.txt").read_text())

    def test_rank_in_an_endless_dataset_is_in_the_data_loader(self):
        done, stall, _ = self.run_stuck(1, "loader")
        self.assertEqual(stall["ranks"], [1], stall)
        self.assertRegex(done.stderr, r"rank 1 is in the data loader at stuck\.py:\d+ \(Clips\.__getitem__\)")

    def test_worker_of_the_data_loader_is_looked_into(self):
        done, stall, _ = self.run_stuck(0, "worker")
        self.assertEqual(stall["ranks"], [0], stall)
        self.assertRegex(done.stderr, r"rank 0 is in the data loader at stuck\.py:\d+ \(Clips\.__getitem__\), in its worker pid")

    def test_rank_in_uninterruptible_sleep_is_named(self):
        _, stall, _ = self.run_stuck(1, "vfork")
        self.assertEqual(stall["ranks"], [1], stall)
        self.assertEqual(stall["places"][1]["where"], "uninterruptible")

    def test_rank_that_was_stopped_is_named_although_it_waits_like_the_other(self):
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", "--grace", "2s", "--stall-timeout", STALL,
                                     *stuck(self.marks, -1, "none"), env=jobs.torch_env())
        pids = jobs.wait_marks(self.marks, 2, seconds=120, launcher=run)
        os.kill(int(pids[1]), signal.SIGSTOP)
        self.assertEqual(run.wait(100), 7, run.output)
        self.assertEqual(jobs.report(self.tmp)["stall"]["ranks"], [1])
        self.assertIn("rank 1 is stopped (SIGSTOP", run.stderr)
        jobs.wait_gone(pids)

    def test_stalled_attempt_is_restarted_within_the_budget(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--grace", "2s", "--stall-timeout", STALL, "--max-restarts", "2",
                                "--backoff", "50ms", *stuck(self.marks, 1, "once"), env=jobs.torch_env(), timeout=150)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("restart 2", done.stderr)
        self.assertRegex(done.stderr, r"restart 1 of 2")
        self.assertEqual(len(jobs.events(self.tmp, "stalled")), 1)


class TwoNodes(harness.Case):
    TIMEOUT = 180

    def test_question_and_stall_reach_the_ranks_of_the_other_node(self):
        harness.require("netns", "torch")
        net = netns.Net(["a", "b"])
        self.addCleanup(net.close)
        marks = self.tmp / "marks"
        launchers = jobs.over(net, ["a", "b"], ["--nproc-per-node=1", "--grace=2s", "--stall-timeout=8s"],
                              stuck(marks, 1, "sleep"), env=jobs.torch_env())
        jobs.wait_marks(marks, 2, seconds=120, launcher=launchers["a"])
        name = jobs.run_path(net["a"].folder).name

        def asked():
            done = harness.run(net["a"].command([harness.PROGRAM, "doctor", "hang", name, "--json"]), cwd=net["a"].folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = json.loads(done.stdout)
            return answer if answer["ranks"] else None

        answer = harness.wait_until(asked, 8, "rank 1 to be named")
        self.assertEqual(answer["ranks"], [1], answer)
        self.assertEqual([p["host"] for p in answer["places"]], ["a", "b"])
        self.assertTrue(all(p.alive() for p in launchers.values()), "looking must change nothing")
        self.assertEqual([p.wait(100) for p in launchers.values()], [7, 7], launchers["a"].output)
        self.assertIn("rank 1 sleeps", launchers["b"].stderr)
        self.assertTrue((hang_folder(net["a"].folder) / "rank-1.txt").exists())


class Plain(harness.Case):
    """Programs without torch."""

    def run_pauses(self, kind, seconds, limit, *flags):
        return harness.lockstep("run", "--nproc-per-node", "2", "--stall-timeout", limit, "--grace", "2s", *flags,
                                *jobs.program("pauses.py", kind, seconds))

    def test_slow_program_that_makes_a_step_now_and_then_is_left_alone(self):
        done = self.run_pauses("slow", 4, "2s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(jobs.events(self.tmp, "stalled"), [])

    def test_program_that_writes_a_checkpoint_is_left_alone_and_one_that_does_nothing_is_not(self):
        done = self.run_pauses("write", 3, "2s", "--name", "writes")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_pauses("sleep", 60, "2s", "--name", "sleeps")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertRegex(done.stderr, r"all 2 ranks sleep at pauses\.py:\d+ \(pause\)")
        # It has ended, but where its ranks stood was kept.
        done = harness.lockstep("doctor", "hang", "sleeps", "--stacks")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^run 'sleeps' is not running \(failed: .*\); stacks of its ranks, taken at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(")
        self.assertRegex(done.stdout, r"(?m)^all 2 ranks sleep at pauses\.py:\d+ \(pause\)")
        self.assertRegex(done.stdout, r"pause \(.*pauses\.py:\d+\)")
        kept = json.loads(harness.lockstep("doctor", "hang", "sleeps", "--json").stdout)
        self.assertTrue(kept["ended"])
        self.assertEqual([place["rank"] for place in kept["places"]], [0, 1])

    def test_job_whose_steps_advance_is_healthy_wherever_its_ranks_stand(self):
        run = harness.spawn_lockstep("run", "--name", "slow", "--nproc-per-node", "2", *jobs.program("pauses.py", "slow", 90))
        run.wait_for("/999")
        done = harness.lockstep("doctor", "hang", "slow")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^healthy: steps advance \(\d+ -> \d+\) in ")
        self.assertNotIn("do:", done.stdout)
        answer = json.loads(harness.lockstep("doctor", "hang", "slow", "--json").stdout)
        self.assertEqual((answer["healthy"], answer["ranks"]), (True, []))
        self.assertEqual(list((self.tmp / "runs/slow").glob("hang-*")), [], "nothing to keep of a healthy job")
        run.popen.terminate()
        self.assertEqual(run.wait(), 143)

    def test_full_bar_before_the_first_step_is_no_step_and_buys_the_time_of_the_start(self):
        done = self.run_pauses("loaded", 3, "2s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(jobs.events(self.tmp, "stalled"), [])

    def test_program_that_never_speaks_is_given_three_times_the_limit(self):
        start = time.monotonic()
        done = harness.lockstep("run", "--stall-timeout", "1s", "--grace", "1s", "--no-python", "sleep", "60")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertGreaterEqual(time.monotonic() - start, 3)
        self.assertIn("no sign of life", done.stderr)
        self.assertIn("no step was seen so far: if it was still starting, give a longer --stall-timeout", done.stderr)

    def test_off_and_the_default_stop_nothing(self):
        for flag in (["--stall-timeout", "off"], ["--stall-timeout", "auto"], []):
            done = harness.lockstep("run", *flag, "--no-python", "sleep", "1")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_python_that_cannot_be_looked_into_tells_by_its_fault_handler(self):
        # An interpreter under another name is not recognised from outside.
        folder = self.tmp / "python-copy"
        folder.mkdir()
        shutil.copy(os.path.realpath(jobs.PYTHON3), folder / "snake")
        done = harness.lockstep("run", "--stall-timeout", "2s", "--grace", "5s", "--env", "PYTHONHOME=/usr", "--no-python",
                                folder / "snake", jobs.PROGRAMS / "pauses.py", "sleep", "60",
                                env={"PATH": "/nowhere"})
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertRegex(done.stderr, r"Python's own stacks say: rank 0 \S+.* at pauses\.py:\d+ \(pause\)")
        self.assertIn("Fatal Python error: Aborted", jobs.logs(self.tmp, 0))

    def test_doctor_hang_looks_at_plain_processes(self):
        program = harness.spawn(jobs.PYTHON3, jobs.PROGRAMS / "pauses.py", "sleep", "60")
        program.wait_for("step 2/9")

        def asked():
            done = harness.lockstep("doctor", "hang", "--pid", program.pid, "--no-pause")
            self.assertEqual(done.returncode, 0, done.stderr)
            return "(pause)" in done.stdout and done.stdout

        self.assertRegex(harness.wait_until(asked), r"rank 0 \S+.* at pauses\.py:\d+ \(pause\)")
        program.kill()
        program.wait()

    def test_doctor_hang_says_what_it_cannot_do(self):
        done = harness.lockstep("doctor", "hang")
        self.assertEqual(done.returncode, 2)
        done = harness.lockstep("run", "--name", "over", "--no-python", "true")
        self.assertEqual(done.returncode, 0)
        done = harness.lockstep("doctor", "hang", "over")
        self.assertEqual(done.returncode, 3)
        self.assertIn("not running", done.stderr)
        done = harness.lockstep("doctor", "hang", "--pid", "999999999")
        self.assertEqual(done.returncode, 3)

    def test_bad_limit_is_refused(self):
        for word in ("never", "0", "10ms"):
            done = harness.lockstep("run", "--stall-timeout", word, "--no-python", "true")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--stall-timeout", done.stderr)
