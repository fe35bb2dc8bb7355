"""kill -9 anywhere leaves nothing: neither ranks, nor their daemons, nor the launcher's helper processes."""

import os
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402


def children(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    if int(stat.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found.append(int(entry))
            except OSError:
                continue
    return found


def is_lockstep(pid):
    try:
        return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(harness.PROGRAM)
    except OSError:
        return False


class KillMinusNine(harness.Case):
    def start(self, nproc=2):
        self.marks = self.tmp / "marks"
        self.run_ = harness.spawn_lockstep("run", "--nproc-per-node", str(nproc), "--grace", "2s",
                                           *jobs.program("grandchild.py", self.marks))
        ranks = [int(p) for p in jobs.wait_marks(self.marks, nproc, launcher=self.run_)]
        daemons = [int(p) for p in jobs.wait_marks(self.marks, nproc, "daemon")]
        self.assertTrue(all(jobs.alive(p) for p in ranks + daemons))
        return self.run_, ranks, daemons

    def guardian(self, ranks):
        """The other process of our program that belongs to this job: neither the launcher nor a rank."""
        found = [pid for pid in harness.leftovers() if is_lockstep(pid) and pid != self.run_.pid and pid not in ranks]
        self.assertEqual(len(found), 1, harness.leftovers())
        return found[0]

    def test_killed_launcher_leaves_no_rank_no_daemon_and_no_guardian(self):
        run, ranks, daemons = self.start()
        guardian = self.guardian(ranks)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        jobs.wait_gone(ranks + daemons + [guardian])

    def test_killed_guardian_leaves_nothing_and_the_job_either_goes_on_or_ends(self):
        run, ranks, daemons = self.start()
        os.kill(self.guardian(ranks), signal.SIGKILL)
        # Whatever it decides, a later end of the job must leave nothing.
        if run.alive():
            run.send_signal(signal.SIGTERM)
        run.wait(30)
        jobs.wait_gone(ranks + daemons)

    def test_job_that_lost_its_guardian_still_dies_with_its_launcher(self):
        # Not both at once: the launcher has time to replace the guardian, or ends the job itself.
        run, ranks, daemons = self.start()
        first = self.guardian(ranks)
        os.kill(first, signal.SIGKILL)

        def settled():
            if not run.alive():
                return True
            now = [p for p in harness.leftovers() if is_lockstep(p) and p not in (run.pid, first) and p not in ranks]
            return bool(now)

        harness.wait_until(settled, 20, "a new guardian, or the end of the job")
        if run.alive():
            os.kill(run.pid, signal.SIGKILL)
        run.wait(30)
        jobs.wait_gone(ranks + daemons)

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
        os.kill(run.pid, signal.SIGKILL)
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
        os.kill(run.pid, signal.SIGSTOP)
        try:
            self.assertTrue(all(jobs.alive(p) for p in ranks))
        finally:
            os.kill(run.pid, signal.SIGCONT)
        run.send_signal(signal.SIGTERM)
        run.wait(30)
        jobs.wait_gone(ranks + daemons)
