"""One launcher per rank, as SLURM and MPI start them: they join, report and fail as one job."""

import json
import os
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs  # noqa: E402


class ProcessLevel(harness.Case):
    def setUp(self):
        self.marks = self.tmp / "marks"
        self.port = harness.free_port()

    def start(self, program, world=4, flags=("--grace=2s", "--join-timeout=20s"), only=None):
        launchers = []
        for rank in range(world) if only is None else only:
            env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": self.port}
            folder = self.tmp / f"rank{rank}"
            folder.mkdir(exist_ok=True)
            launchers.append(harness.spawn_lockstep("run", *flags, *program, env=env, cwd=folder))
        return launchers

    def text(self, launchers):
        return "\n".join(p.output for p in launchers)

    def test_each_launcher_stays_the_parent_of_its_rank(self):
        launchers = self.start(jobs.program("signals.py", self.marks), world=2)
        pids = jobs.wait_marks(self.marks, 2, launcher=launchers[0])
        for pid, launcher in zip(pids, launchers):
            with open(f"/proc/{pid}/stat") as stat:
                self.assertEqual(int(stat.read().rsplit(")", 1)[1].split()[1]), jobs.launcher_pid(launcher.pid))
        launchers[1].send_signal(signal.SIGTERM)
        self.assertEqual([p.wait() for p in launchers], [143, 143], self.text(launchers))

    def test_four_launchers_join_with_the_ranks_they_were_given(self):
        launchers = self.start(jobs.program("show_env.py", self.marks))
        self.assertEqual([p.wait() for p in launchers], [0] * 4, self.text(launchers))
        for rank in range(4):
            seen = json.loads(jobs.marked(self.marks, "env", rank))
            env = seen["env"]
            self.assertEqual((env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]),
                             (str(rank), str(rank), "4", "4"))
            self.assertEqual(env["MASTER_PORT"], str(self.port))
        report = jobs.report(self.tmp / "rank0")
        self.assertEqual((report["world_size"], report["exit_code"]), (4, 0))

    def test_failing_rank_stops_all_and_is_in_the_first_ones_report(self):
        launchers = self.start(jobs.program("fail.py", self.marks, 3, "9"))
        self.assertEqual([p.wait() for p in launchers], [5] * 4, self.text(launchers))
        first = jobs.report(self.tmp / "rank0")["first_failure"]
        self.assertEqual((first["rank"], first["exit_code"]), (3, 9))
        self.assertIn("rank 3 is about to fail", json.dumps(first))

    def test_missing_rank_is_named(self):
        launchers = self.start(["--no-python", "true"], flags=("--join-timeout=3s",), only=(0, 1, 3))
        self.assertEqual([p.wait() for p in launchers], [4] * 3, self.text(launchers))
        self.assertRegex(launchers[0].stderr, r"rank 2\b")

    def test_killed_launcher_ends_the_job_with_6_and_leaves_no_rank(self):
        launchers = self.start(jobs.program("grandchild.py", self.marks))
        pids = [int(p) for p in jobs.wait_marks(self.marks, 4)] + [int(p) for p in jobs.wait_marks(self.marks, 4, "daemon")]
        os.kill(jobs.launcher_pid(launchers[2].pid), signal.SIGKILL)
        self.assertEqual([p.wait() for i, p in enumerate(launchers) if i != 2], [6] * 3, self.text(launchers))
        launchers[2].wait()
        jobs.wait_gone(pids)

    def test_exec_becomes_the_program(self):
        (self.tmp / "rank0").mkdir()
        launcher = harness.spawn_lockstep(
            "run", "--exec", *jobs.program("show_env.py", self.marks), cwd=self.tmp / "rank0",
            env={"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port})
        self.assertEqual(launcher.wait(), 0, launcher.output)
        self.assertEqual(json.loads(jobs.marked(self.marks, "env", 0))["ppid"], os.getpid())
