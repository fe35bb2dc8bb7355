"""Under a real mpirun: one launcher per rank."""

import json
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, mpi  # noqa: E402


class OpenMpi(harness.Case):
    def setUp(self):
        harness.require("mpirun")
        self.marks = self.tmp / "marks"
        self.port = harness.free_port()

    def mpirun(self, processes, *flags, program):
        endpoint = f"--master-addr=127.0.0.1 --master-port={self.port}".split()
        return harness.run(mpi.command(processes, [harness.PROGRAM, "run", *endpoint, "--join-timeout=30s", "--grace=2s",
                                                   *flags, *map(str, program)]))

    def test_each_process_of_mpirun_is_one_rank(self):
        done = self.mpirun(2, program=jobs.program("show_env.py", self.marks))
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = [json.loads(jobs.marked(self.marks, "env", rank))["env"] for rank in range(2)]
        self.assertEqual([(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"]) for e in seen],
                         [("0", "0", "2", "2"), ("1", "1", "2", "2")])

    def test_failing_rank_ends_mpirun_with_our_code_and_is_named(self):
        done = self.mpirun(2, program=jobs.program("fail.py", self.marks, 1, "9"))
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stdout + done.stderr, r"rank 1\b.*exit code 9|rank 1\b[\s\S]*exit code 9")

    def test_explain_recognises_mpirun(self):
        done = harness.run(mpi.command(2, ["sh", "-c", f"{harness.PROGRAM} explain --json > {self.tmp}/$OMPI_COMM_WORLD_RANK"]))
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads((self.tmp / "1").read_text())
        self.assertEqual((seen["level"], seen["world_size"], seen["rank"], seen["local_rank"]), ("process", 2, 1, 1))
