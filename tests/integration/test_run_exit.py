"""How a job on one node ends: exit codes, the first failing rank, its last words, and what happens to the others."""

import json
import os
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402


class ExitCodes(harness.Case):
    def test_all_ranks_succeed_exits_0_and_reports_success(self):
        done = harness.lockstep("run", "--nproc-per-node", "2", "--no-python", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = jobs.report(self.tmp)
        self.assertEqual((report["outcome"], report["exit_code"], report["world_size"]), ("succeeded", 0, 2))
        self.assertIsNone(report["first_failure"])

    def failing(self, how, rank=1, nproc=3, *flags):
        return harness.lockstep("run", "--nproc-per-node", str(nproc), "--grace", "2s", *flags,
                                *jobs.program("fail.py", self.tmp / "marks", rank, how))

    def test_failing_rank_exits_5_and_is_named_with_its_code_and_last_lines(self):
        done = self.failing("17")
        self.assertEqual(done.returncode, 5, done.stderr)
        first = jobs.report(self.tmp)["first_failure"]
        self.assertEqual((first["rank"], first["node"], first["exit_code"]), (1, 0, 17))
        self.assertIn("rank 1 is about to fail: 17", first["last_lines"])
        self.assertRegex(done.stderr, r"rank 1\b")
        self.assertRegex(done.stderr, r"exit code 17|code 17")
        self.assertIn("about to fail", done.stdout + done.stderr)

    def test_rank_killed_by_a_signal_is_reported_by_its_name(self):
        for name in ("SIGSEGV", "SIGKILL", "SIGABRT"):
            with self.subTest(name):
                folder = self.tmp / name
                folder.mkdir()
                done = harness.lockstep("run", "--nproc-per-node", "2", "--grace", "2s",
                                        *jobs.program("fail.py", folder / "marks", 0, name), cwd=folder)
                self.assertEqual(done.returncode, 5, done.stderr)
                first = jobs.report(folder)["first_failure"]
                self.assertEqual(first["rank"], 0)
                self.assertIn(name, json.dumps(first))
                self.assertIn(name, done.stderr)

    def test_python_traceback_reaches_the_report(self):
        done = self.failing("raise")
        self.assertEqual(done.returncode, 5)
        self.assertIn("ValueError: the loss is not a number", json.dumps(jobs.report(self.tmp)["first_failure"]))
        self.assertIn("ValueError: the loss is not a number", done.stderr)

    def test_rank_that_fails_first_is_named_although_others_fail_while_being_stopped(self):
        marks = self.tmp / "marks"
        script = harness.write("both.py", f"""
import sys, time, signal, os
sys.path.insert(0, {str(jobs.PROGRAMS)!r})
import ready
signal.signal(signal.SIGTERM, lambda *_: os._exit(99))
ready.mark({str(marks)!r}); ready.wait_for_all({str(marks)!r})
if ready.RANK == 2: os._exit(42)
time.sleep(600)
""")
        done = harness.lockstep("run", "--nproc-per-node", "3", "--no-python", jobs.PYTHON3, script)
        self.assertEqual(done.returncode, 5)
        first = jobs.report(self.tmp)["first_failure"]
        self.assertEqual((first["rank"], first["exit_code"]), (2, 42))

    def test_other_ranks_are_asked_then_killed_after_the_grace(self):
        marks = self.tmp / "marks"
        script = harness.write("deaf.sh", f"""#!/bin/sh
trap '' TERM INT HUP
if [ $RANK = 1 ]; then while [ ! -e {marks}/ready.0 ]; do sleep 0.02; done; exit 3; fi
exec {jobs.PYTHON3} {jobs.PROGRAMS}/ignore_term.py {marks}
""", 0o755)
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", "--grace", "1s", "--no-python", script)
        pids = jobs.wait_marks(marks, 1)
        self.assertEqual(run.wait(), 5, run.output)
        jobs.wait_gone(pids, 1)
        self.assertEqual(jobs.report(self.tmp)["first_failure"]["rank"], 1)

    def test_daemon_left_by_a_successful_rank_is_ended_with_the_job(self):
        marks = self.tmp / "marks"
        done = harness.lockstep("run", "--nproc-per-node", "2", "--grace", "1s",
                                *jobs.program("grandchild.py", marks, "LEAVES"))
        self.assertEqual(done.returncode, 0, done.stderr)
        jobs.wait_gone([int(jobs.marked(marks, "daemon", rank)) for rank in range(2)], 5)

    def test_rank_that_closes_its_output_is_still_running(self):
        script = harness.write("closes.sh", "#!/bin/sh\nexec >&- 2>&- </dev/null\nsleep 0.3\nexit 9\n", 0o755)
        done = harness.lockstep("run", "--no-python", script)
        self.assertEqual(done.returncode, 5)
        self.assertEqual(jobs.report(self.tmp)["first_failure"]["exit_code"], 9)

    def test_child_that_keeps_the_output_open_does_not_delay_the_end(self):
        done = harness.lockstep("run", "--grace", "1s", "--no-python", "sh", "-c", "sleep 500 & exit 0", timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)


class OutOfMemory(harness.Case):
    def test_kernel_kill_is_told_from_a_plain_one(self):
        for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
            group = os.path.join(root, f"lockstep-oom-{os.getpid()}")
            try:
                os.mkdir(group)
                limit = os.path.join(group, "memory.max" if root == "/sys/fs/cgroup" else "memory.limit_in_bytes")
                with open(limit, "w") as out:
                    out.write(str(64 << 20))
                break
            except OSError:
                if os.path.isdir(group):
                    os.rmdir(group)
        else:
            self.fail("no memory control group can be made on this machine")
        self.addCleanup(os.rmdir, group)
        done = harness.lockstep("run", "--nproc-per-node", "1",
                                *jobs.program("eat_memory.py", self.tmp / "marks", group))
        self.assertEqual(done.returncode, 5, done.stderr)
        first = jobs.report(self.tmp)["first_failure"]
        self.assertIn("SIGKILL", json.dumps(first))
        self.assertRegex(done.stderr.lower(), r"out of memory|oom|memory limit")


class Interruption(harness.Case):
    def start(self, name, *args, nproc=2, flags=()):
        self.marks = self.tmp / "marks"
        run = harness.spawn_lockstep("run", "--nproc-per-node", str(nproc), *flags, *jobs.program(name, self.marks, *args))
        self.pids = [int(p) for p in jobs.wait_marks(self.marks, nproc, launcher=run)]
        return run

    def test_sigterm_reaches_every_rank_and_the_job_ends_with_143(self):
        run = self.start("signals.py")
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 143, run.output)
        for rank in range(2):
            self.assertIn("SIGTERM", jobs.marked(self.marks, "signals", rank))
        self.assertEqual(jobs.report(self.tmp)["outcome"], "stopped")

    def test_sigint_ends_with_130(self):
        run = self.start("signals.py")
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(), 130, run.output)
        self.assertIn("SIGINT", jobs.marked(self.marks, "signals", 0))

    def test_ranks_that_save_and_exit_75_make_the_job_exit_75(self):
        run = self.start("exit75.py")
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 75, run.output)
        self.assertEqual([jobs.marked(self.marks, "state", r) for r in range(2)], ["saved", "saved"])
        self.assertEqual(jobs.report(self.tmp)["exit_code"], 75)

    def test_one_rank_that_could_not_save_forbids_75(self):
        run = self.start("exit75.py", 1)
        run.send_signal(signal.SIGTERM)
        self.assertNotIn(run.wait(), (0, 75), run.output)

    def test_deaf_ranks_are_killed_after_the_grace_of_a_sigterm(self):
        run = self.start("ignore_term.py", flags=("--grace", "1s"))
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 143, run.output)
        jobs.wait_gone(self.pids, 1)
        self.assertIn("ranks 0-1 did not end within 1s (--grace): killed", run.stderr)
        self.assertEqual(jobs.report(self.tmp)["killed_after_grace"], [0, 1])

    def test_second_ctrl_c_kills_at_once(self):
        run = self.start("ignore_term.py", flags=("--grace", "300s"))
        run.send_signal(signal.SIGINT)
        run.wait_for("SIGINT: stopping all 2 ranks, waiting up to 5m (--grace) for the end; a second Ctrl-C kills")
        self.assertTrue(all(jobs.alive(pid) for pid in self.pids))

        def pressed_again():  # the first repetition may come too soon to be a second press of the key
            if run.alive():
                run.send_signal(signal.SIGINT)
            return not run.alive()

        harness.wait_until(pressed_again, 30, "the end by repeated Ctrl-C")
        self.assertEqual(run.wait(), 130, run.output)
        jobs.wait_gone(self.pids, 1)

    def test_other_signals_are_forwarded_and_the_job_goes_on(self):
        run = self.start("signals.py")
        for name in ("SIGUSR1", "SIGUSR2", "SIGALRM"):
            run.send_signal(getattr(signal, name))
            harness.wait_until(lambda: all(name in (jobs.marked(self.marks, "signals", r) or "") for r in range(2)),
                               what=f"{name} at both ranks")
        self.assertTrue(run.alive())
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 143)

    def test_hangup_and_quit_stop_the_job_as_they_do_under_torchrun(self):
        run = self.start("signals.py", flags=("--grace", "1s"))  # which notes SIGHUP and goes on
        run.send_signal(signal.SIGHUP)
        self.assertEqual(run.wait(), 128 + signal.SIGHUP, run.output)
        self.assertIn("SIGHUP", jobs.marked(self.marks, "signals", 1))

    def test_signals_named_by_the_user_are_the_only_ones_that_stop(self):
        run = self.start("signals.py", flags=("--signals-to-handle", "SIGTERM,SIGINT"))
        run.send_signal(signal.SIGHUP)
        harness.wait_until(lambda: "SIGHUP" in (jobs.marked(self.marks, "signals", 1) or ""), what="SIGHUP at rank 1")
        self.assertTrue(run.alive())
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 143)

    def test_ctrl_c_on_a_terminal_reaches_ranks_once(self):
        # The terminal signals the whole foreground group: here the group of the command that was started.
        self.marks = self.tmp / "marks"
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", *jobs.program("signals.py", self.marks),
                                     start_new_session=True)
        jobs.wait_marks(self.marks, 2, launcher=run)
        os.killpg(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(), 130, run.output)
        self.assertEqual(jobs.marked(self.marks, "signals", 0).count("SIGINT"), 1)
