"""Under a real SLURM of two nodes: steps in both styles, batch body, allocation shell, cancellation."""

import json
import os
import pathlib
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, slurm  # noqa: E402


class Slurm(harness.Case):
    TIMEOUT = 120

    def setUp(self):
        harness.require("slurm", "netns")
        self.bed = slurm.Slurm()
        self.addCleanup(self.bed.close)
        self.marks = self.tmp / "marks"
        self.env = {k: v for k, v in harness.clean_env().items() if k.startswith("LOCKSTEP_")}

    def ranks(self, count):
        return [json.loads(jobs.marked(self.marks, "env", rank))["env"] for rank in range(count)]

    def placements(self, count):
        return [(e["RANK"], e["LOCAL_RANK"], e["GROUP_RANK"], e["WORLD_SIZE"], e["SLURMD_NODENAME"])
                for e in self.ranks(count)]

    FOUR = [("0", "0", "0", "4", "n0"), ("1", "1", "0", "4", "n0"), ("2", "0", "1", "4", "n1"), ("3", "1", "1", "4", "n1")]

    def run_command(self, *flags, program=None):
        return [harness.PROGRAM, "run", "--join-timeout=30s", "--grace=2s", *flags,
                *(program or jobs.program("show_env.py", self.marks))]

    def nothing_left(self):
        harness.wait_until(lambda: not self.bed.job_processes(), 20, "no process of a job on the nodes")

    def test_step_with_one_task_per_node_fans_out_on_each(self):
        done = self.bed.run(["srun", "-N2", "--ntasks-per-node=1", *self.run_command("--nproc-per-node=2")])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.placements(4), self.FOUR)
        self.assertIn(self.ranks(4)[3]["MASTER_ADDR"], ("n0", "10.77.0.2"))
        self.nothing_left()

    def test_step_with_two_tasks_per_node_is_one_rank_each(self):
        done = self.bed.run(["srun", "-N2", "--ntasks-per-node=2", *self.run_command()])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.placements(4), self.FOUR)
        self.nothing_left()

    def test_batch_body_starts_itself_on_all_nodes(self):
        script = "#!/bin/sh\nexec " + " ".join(map(str, self.run_command("--nproc-per-node=2"))) + "\n"
        job = self.bed.sbatch(script, "-N2", "--ntasks-per-node=1")
        self.assertEqual(self.bed.wait(job)["ExitCode"], "0:0", self.bed.output(job))
        self.assertEqual(self.placements(4), self.FOUR)
        self.nothing_left()

    def test_batch_body_with_unequal_tasks_per_node_starts_that_many_ranks_on_each(self):
        script = "#!/bin/sh\nexec " + " ".join(map(str, self.run_command())) + "\n"
        job = self.bed.sbatch(script, "-N2", "-n3")
        self.assertEqual(self.bed.wait(job)["ExitCode"], "0:0", self.bed.output(job))
        self.assertEqual(self.placements(3), [("0", "0", "0", "3", "n0"), ("1", "1", "0", "3", "n0"), ("2", "0", "1", "3", "n1")])
        self.assertNotIn("\x1b[", self.bed.output(job), "colours in a file")
        self.nothing_left()

    def test_batch_body_that_calls_srun_itself_works_the_same(self):
        script = "#!/bin/sh\nsrun --ntasks-per-node=1 " + " ".join(map(str, self.run_command("--nproc-per-node=2"))) + "\n"
        job = self.bed.sbatch(script, "-N2")
        self.assertEqual(self.bed.wait(job)["ExitCode"], "0:0", self.bed.output(job))
        self.assertEqual(self.placements(4), self.FOUR)

    def test_allocation_shell_on_the_login_host_starts_on_the_nodes_only(self):
        done = self.bed.run(["salloc", "-N2", "--ntasks-per-node=1", *self.run_command("--nproc-per-node=2")])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.placements(4), self.FOUR)
        self.nothing_left()

    def test_failing_rank_makes_the_batch_job_fail_with_our_code_and_names_the_node(self):
        program = jobs.program("fail.py", self.marks, 3, "9")
        script = "#!/bin/sh\nexec " + " ".join(map(str, self.run_command("--nproc-per-node=2", program=program))) + "\n"
        job = self.bed.sbatch(script, "-N2", "--ntasks-per-node=1")
        self.assertEqual(self.bed.wait(job)["ExitCode"], "5:0", self.bed.output(job))
        text = self.bed.output(job)
        self.assertRegex(text, r"rank 3\b")
        self.assertRegex(text, r"\bn1\b")
        self.assertIn("rank 3 is about to fail", text)
        self.nothing_left()

    def test_cancelled_job_gives_ranks_their_signal_and_leaves_nothing(self):
        program = jobs.program("signals.py", self.marks)
        script = "#!/bin/sh\nexec " + " ".join(map(str, self.run_command("--nproc-per-node=1", program=program))) + "\n"
        job = self.bed.sbatch(script, "-N2", "--ntasks-per-node=1")
        jobs.wait_marks(self.marks, 2)
        self.bed.run(["scancel", job])
        self.bed.wait(job)
        self.nothing_left()
        for rank in range(2):
            self.assertIn("SIGTERM", jobs.marked(self.marks, "signals", rank) or "")

    def test_cancelled_step_of_one_rank_per_task_leaves_nothing(self):
        step = self.bed.popen(["srun", "-N2", "--ntasks-per-node=2", "--job-name=step",
                               *map(str, self.run_command(program=jobs.program("grandchild.py", self.marks)))],
                              stdout=-3, stderr=-3)
        jobs.wait_marks(self.marks, 4)
        self.bed.run(["scancel", "--name=step"])
        step.wait(60)
        self.nothing_left()

    def test_missing_node_is_named_by_its_host(self):
        step = "[ $SLURM_PROCID = 1 ] && exec sleep 600; exec " + " ".join(
            [harness.PROGRAM, "run", "--join-timeout=3s", "--no-python", "true"])
        done = self.bed.run(["srun", "-N2", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "sh", "-c", step])
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"missing: node 1 \(n1\)")

    def test_signal_to_the_command_in_an_allocation_shell_reaches_the_ranks(self):
        command = " ".join(map(str, self.run_command("--nproc-per-node=1", program=jobs.program("signals.py", self.marks))))
        shell = self.bed.popen(["salloc", "-N2", "sh", "-c", f"{command} & echo $! > {self.tmp}/pid; wait $!; "
                                f"echo $? > {self.tmp}/code; sleep 600"], stdout=-3, stderr=-3)
        jobs.wait_marks(self.marks, 2)
        os.kill(int((self.tmp / "pid").read_text()), signal.SIGTERM)
        harness.wait_until(lambda: (self.tmp / "code").exists() and (self.tmp / "code").read_text(), 60, "its end")
        self.assertEqual((self.tmp / "code").read_text().strip(), "143")
        for rank in range(2):
            self.assertIn("SIGTERM", jobs.marked(self.marks, "signals", rank) or "")
        self.nothing_left()
        shell.kill()
        shell.wait()

    def test_killed_command_in_an_allocation_shell_leaves_no_rank(self):
        command = " ".join(map(str, self.run_command("--nproc-per-node=1", program=jobs.program("grandchild.py", self.marks))))
        shell = self.bed.popen(["salloc", "-N2", "sh", "-c", f"{command} & echo $! > {self.tmp}/pid; wait; sleep 600"],
                               stdout=-3, stderr=-3)
        jobs.wait_marks(self.marks, 2)
        os.kill(int((self.tmp / "pid").read_text()), signal.SIGKILL)
        self.nothing_left()
        shell.kill()
        shell.wait()

    def test_explain_in_every_place_of_slurm_says_how_it_was_started(self):
        explain = f"{harness.PROGRAM} explain --json --assume-gpus 2"
        out = pathlib.Path(self.tmp)
        script = (f"#!/bin/sh\n{explain} > {out}/body\n"
                  f"srun -N2 -n2 --ntasks-per-node=1 sh -c '{explain} > {out}/node.$SLURM_PROCID'\n"
                  f"srun -N2 -n4 --ntasks-per-node=2 sh -c '{explain} > {out}/task.$SLURM_PROCID'\n")
        job = self.bed.sbatch(script, "-N2", "--ntasks-per-node=2")
        self.assertEqual(self.bed.wait(job)["ExitCode"], "0:0", self.bed.output(job))
        body = json.loads((out / "body").read_text())
        self.assertEqual((body["starts"], body["nnodes"]), ("once", 2))
        node = json.loads((out / "node.1").read_text())
        self.assertEqual((node["level"], node["nnodes"], node["node_rank"], node["nproc_per_node"]), ("node", 2, 1, 2))
        task = json.loads((out / "task.3").read_text())
        self.assertEqual((task["level"], task["world_size"], task["rank"], task["local_rank"]), ("process", 4, 3, 1))
