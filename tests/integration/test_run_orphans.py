"""kill -9 anywhere leaves nothing: neither ranks, nor their daemons, nor the launcher's helper processes."""

import os
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402


class KillMinusNine(harness.Case):
    def start(self, nproc=2):
        self.marks = self.tmp / "marks"
        self.run_ = harness.spawn_lockstep("run", "--nproc-per-node", str(nproc), "--grace", "2s",
                                           *jobs.program("grandchild.py", self.marks))
        ranks = [int(p) for p in jobs.wait_marks(self.marks, nproc, launcher=self.run_)]
        daemons = [int(p) for p in jobs.wait_marks(self.marks, nproc, "daemon")]
        self.assertTrue(all(jobs.alive(p) for p in ranks + daemons))
        return self.run_, ranks, daemons

    def test_killed_launcher_leaves_no_rank_no_daemon_and_no_guardian(self):
        run, ranks, daemons = self.start()
        os.kill(jobs.launcher_pid(run.pid), signal.SIGKILL)
        self.assertNotEqual(run.wait(30), 0)
        self.assertRegex(run.stderr, r"killed by SIGKILL")
        jobs.wait_gone(ranks + daemons)

    def test_killed_guardian_leaves_no_rank_no_daemon_and_no_launcher(self):
        run, ranks, daemons = self.start()
        launcher = jobs.launcher_pid(run.pid)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        jobs.wait_gone([launcher, *ranks, *daemons])
        self.assertEqual(jobs.report(self.tmp)["outcome"], "stopped")

    def test_deaf_ranks_do_not_outlive_a_killed_launcher(self):
        marks = self.tmp / "marks"
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", "--grace", "1s", *jobs.program("ignore_term.py", marks))
        ranks = [int(p) for p in jobs.wait_marks(marks, 2, launcher=run)]
        os.kill(jobs.launcher_pid(run.pid), signal.SIGKILL)
        run.wait(30)
        jobs.wait_gone(ranks)

    def test_stopped_ranks_do_not_outlive_a_killed_guardian(self):
        marks = self.tmp / "marks"
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", "--grace", "1s", *jobs.program("ignore_term.py", marks))
        ranks = [int(p) for p in jobs.wait_marks(marks, 2, launcher=run)]
        launcher = jobs.launcher_pid(run.pid)
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        jobs.wait_gone([launcher, *ranks])

    def test_killed_worker_takes_its_daemon_and_the_other_ranks_with_it(self):
        run, ranks, daemons = self.start()
        os.kill(ranks[1], signal.SIGKILL)
        self.assertEqual(run.wait(), 5, run.output)
        jobs.wait_gone(ranks + daemons)
        first = jobs.report(self.tmp)["first_failure"]
        self.assertEqual(first["rank"], 1)

    def test_whole_process_group_of_the_launcher_killed_leaves_nothing(self):
        self.marks = self.tmp / "marks"
        self.run_ = harness.spawn_lockstep("run", "--nproc-per-node", "2", *jobs.program("grandchild.py", self.marks),
                                           start_new_session=True)
        ranks = [int(p) for p in jobs.wait_marks(self.marks, 2, launcher=self.run_)]
        daemons = [int(p) for p in jobs.wait_marks(self.marks, 2, "daemon")]
        os.killpg(self.run_.pid, signal.SIGKILL)
        self.run_.wait()
        jobs.wait_gone(ranks + daemons)

    def test_state_after_a_killed_launcher_is_lost_and_its_name_can_be_used_again(self):
        run, ranks, daemons = self.start()
        os.kill(jobs.launcher_pid(run.pid), signal.SIGKILL)
        run.wait()
        jobs.wait_gone(ranks + daemons)
        name = jobs.run_path(self.tmp).name
        listed = harness.lockstep("runs")
        self.assertRegex(listed.stdout, rf"{name}\s.*lost|lost.*{name}")
        again = harness.lockstep("run", "--name", name, "--no-python", "true")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertRegex(again.stderr + again.stdout, r"stale|taken over|continues")

    def test_stopped_launcher_does_not_end_the_job(self):
        run, ranks, daemons = self.start()
        for pid in (run.pid, jobs.launcher_pid(run.pid)):
            os.kill(pid, signal.SIGSTOP)
        self.assertTrue(all(jobs.alive(p) for p in ranks + daemons))
        for pid in (run.pid, jobs.launcher_pid(run.pid)):
            os.kill(pid, signal.SIGCONT)
        run.send_signal(signal.SIGTERM)
        run.wait(30)
        jobs.wait_gone(ranks + daemons)

    def test_rank_that_fails_while_forking_daemons_leaves_none(self):
        marks = self.tmp / "marks"
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", "--grace", "0s", *jobs.program("fork_storm.py", marks))
        jobs.wait_marks(marks, 2, launcher=run)
        (marks / "go.0").touch()
        self.assertEqual(run.wait(), 5, run.output)
        harness.wait_until(lambda: not harness.leftovers(), 10, "no daemon")

    def test_launcher_killed_while_ranks_fork_daemons_leaves_none(self):
        marks = self.tmp / "marks"
        run = harness.spawn_lockstep("run", "--nproc-per-node", "2", "--grace", "1s", *jobs.program("fork_storm.py", marks))
        jobs.wait_marks(marks, 2, launcher=run)
        os.kill(jobs.launcher_pid(run.pid), signal.SIGKILL)
        run.wait()
        harness.wait_until(lambda: not harness.leftovers(), 10, "no daemon")

    def test_ended_daemons_of_a_running_rank_do_not_pile_up_as_zombies(self):
        marks = self.tmp / "marks"
        script = harness.write("many.sh", f"""#!/bin/sh
i=0
while [ $i -lt 50 ]; do (setsid true &) ; i=$((i+1)); done
mkdir -p {marks}; echo $$ > {marks}/ready.$RANK
exec sleep 600
""", 0o755)
        run = harness.spawn_lockstep("run", "--grace", "1s", "--no-python", script)
        jobs.wait_marks(marks, 1, launcher=run)
        launcher = jobs.launcher_pid(run.pid)

        def zombies():
            found = []
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{entry}/stat") as stat:
                        state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
                except OSError:
                    continue
                if state == "Z" and int(parent) in (launcher, run.pid):
                    found.append(entry)
            return found

        harness.wait_until(lambda: not zombies(), 10, "no zombie")
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 143)
