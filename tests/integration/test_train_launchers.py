"""One training, many ways to start it: torchrun, srun and mpirun start the engine's ranks themselves, and two hosts do it
with the launcher. All give what `lockstep train` gives on one host."""

import os
import pathlib
import re
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, mpi, netns, slurm, train  # noqa: E402

SETS = {"train.steps": 6, "checkpoint.every": 3}


def engine(name, *flags, sets=SETS):
    """The command line of one rank."""
    return [train.ENGINE, "train", "taehv", "--name", name, *map(str, flags), *train.settings(sets)]


class Launchers(harness.Case):
    TIMEOUT = 150

    def expect_like_lockstep(self, run, text=""):
        """A finished training of two ranks on one host, with the bits of `lockstep train`."""
        self.assertEqual(train.problems_of_lineage(run, 6), "", text)
        self.assertEqual({p.name for p in (run / "samples").iterdir()}, {"rank-0.jsonl", "rank-1.jsonl"})
        self.assertEqual({p.name for p in (run / "metrics").iterdir()}, {"rank-0.jsonl", "rank-1.jsonl"})
        done = train.train(name="like", sets=SETS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(train.differences(train.last(run), train.last(train.run_path("like"))), [])

    def test_alone_it_is_a_world_of_one(self):
        done = harness.run(engine("alone"), env=train.ONE_THREAD)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 rank on CPU", done.stdout)
        self.assertEqual(list(train.checkpoints(train.run_path("alone"))), [3, 6])
        self.assertRegex(harness.lockstep("runs").stdout, r"alone +succeeded")
        again = harness.run(engine("alone", sets={**SETS, "train.steps": 8}), env=train.ONE_THREAD)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual({line["attempt"] for line in train.metrics(train.run_path("alone"))}, {0, 1})

    def test_torchrun(self):
        harness.require("torch")
        done = harness.run([harness.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python",
                            *engine("torchrun")], env=train.ONE_THREAD, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_like_lockstep(train.run_path("torchrun"), done.stdout)

    def test_torchrun_restarts_a_killed_rank_and_it_goes_on(self):
        harness.require("torch")
        sets = {"train.steps": 40, "checkpoint.every": 3}
        job = harness.spawn(harness.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
                            "--monitor-interval", "0.1", "--no-python", *engine("torchrun", sets=sets), env=train.ONE_THREAD)
        run = train.run_path("torchrun")
        train.wait_step(run, 7, job)
        ranks = [pid for pid, command in harness.leftovers().items() if command.startswith(train.ENGINE)]
        self.assertEqual(len(ranks), 2, harness.leftovers())
        os.kill(ranks[1], signal.SIGKILL)
        self.assertEqual(job.wait(90), 0, job.output)
        self.assertRegex(job.output, r"resuming from \S+ at step \d")
        self.assertEqual(train.problems_of_lineage(run, 40), "")

    def test_mpirun(self):
        harness.require("mpirun")
        done = harness.run(mpi.command(2, engine("mpirun"), forward=["MASTER_PORT"]), timeout=100,
                           env={**train.ONE_THREAD, "MASTER_PORT": harness.free_port()})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 ranks on CPU", done.stdout)
        self.expect_like_lockstep(train.run_path("mpirun"), done.stdout)

    def test_mpirun_with_bad_input_says_it_once(self):
        harness.require("mpirun")
        done = harness.run(mpi.command(2, engine("mpirun", "--set", "train.bach=1"), forward=["MASTER_PORT"]), timeout=100,
                           env={**train.ONE_THREAD, "MASTER_PORT": harness.free_port()})
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual((done.stdout + done.stderr).count("unknown key"), 1, done.stdout + done.stderr)


class Slurm(harness.Case):
    TIMEOUT = 150

    def setUp(self):
        harness.require("slurm", "netns")
        self.bed = slurm.Slurm()
        self.addCleanup(self.bed.close)

    def test_srun_with_one_task_per_node(self):
        done = self.bed.run(["srun", "-N2", "--ntasks-per-node=1", f"--chdir={self.tmp}", *engine("srun")], env=train.ONE_THREAD, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 ranks on CPU", done.stdout)
        run = train.run_path("srun")
        self.assertEqual(train.problems_of_lineage(run, 6), "")
        self.assertGreater(train.values(run, "rank/comm/tcp_bytes", 1)[-1][1], 0)
        self.assertEqual({value for _, value in train.values(run, "rank/comm/shm_bytes", 1)}, {0})

    def test_srun_with_two_tasks_per_node(self):
        done = self.bed.run(["srun", "-N2", "--ntasks-per-node=2", f"--chdir={self.tmp}", *engine("srun")], env=train.ONE_THREAD, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("4 ranks on CPU, 1 thread each, exchange: shm+tcp", done.stdout)
        self.assertEqual(train.problems_of_lineage(train.run_path("srun"), 6), "")

    def test_lockstep_train_in_a_batch_script_uses_all_nodes(self):
        command = [harness.PROGRAM, "train", "taehv", "--nproc-per-node=1", "--join-timeout=30s", "--name=batch", *train.settings(SETS)]
        job = self.bed.sbatch(f"#!/bin/sh\nexport OMP_NUM_THREADS=1\ncd {self.tmp}\nexec {' '.join(map(str, command))}\n", "-N2", "--ntasks-per-node=1")
        self.assertEqual(self.bed.wait(job, 100)["ExitCode"], "0:0", self.bed.output(job))
        self.assertIn("2 ranks on CPU", self.bed.output(job))
        self.assertEqual(list(train.checkpoints(train.run_path("batch"))), [3, 6])

    def test_warned_batch_job_saves_and_ends_with_75(self):
        """SLURM's own warning before the time limit, --signal=B:USR1@..., sent by hand."""
        command = [harness.PROGRAM, "train", "taehv", "--nproc-per-node=1", "--join-timeout=30s", "--name=batch",
                   *train.settings({**SETS, "train.steps": 2000, "checkpoint.every": 0})]
        job = self.bed.sbatch(f"#!/bin/sh\nexport OMP_NUM_THREADS=1\ncd {self.tmp}\nexec {' '.join(map(str, command))}\n", "-N2", "--ntasks-per-node=1")
        run = train.run_path("batch")
        harness.wait_until(lambda: train.steps_done(run) >= 3, 60, "step 3")
        self.bed.run(["scancel", "--batch", "--signal=USR1", job])
        self.assertEqual(self.bed.wait(job, 60)["ExitCode"], "75:0", self.bed.output(job))
        self.assertEqual(len(train.checkpoints(run)), 1)


class Hosts(harness.Case):
    """Two hosts: network namespaces with addresses, names and folders of their own."""

    TIMEOUT = 150

    def setUp(self):
        harness.require("netns")
        self.net = netns.Net(["a", "b"])
        self.addCleanup(self.net.close)

    def start(self, *flags, sets=SETS, shared=True, name="two"):
        """One launcher per host; {host: Process}. Unshared: each writes below its own folder."""
        launchers = {}
        for rank, host in enumerate("ab"):
            command = [harness.PROGRAM, "train", "taehv", "--nnodes=2", f"--node-rank={rank}", "--master-addr=a", "--master-port=29500",
                       "--nproc-per-node=1", "--join-timeout=30s", "--grace=2s", f"--name={name}", *map(str, flags), *train.settings(sets)]
            folder = self.tmp if shared else self.net[host].folder
            launchers[host] = harness.Process(self.net[host].command(command), cwd=folder, env=train.ONE_THREAD)
        return launchers

    def test_tcp_carries_the_gradients_and_shared_memory_none_and_the_result_is_that_of_one_host(self):
        launchers = self.start()
        for host, launcher in launchers.items():
            self.assertEqual(launcher.wait(90), 0, f"{host}: {launcher.output}")
        run = train.run_path("two")
        gradients = 717667 * 4
        for rank in range(2):
            self.assertEqual({value for _, value in train.values(run, "rank/comm/shm_bytes", rank)}, {0})
            # Two ranks: each sends what a ring would, (N - 1) / N of the data in each of two phases.
            for step, sent in train.values(run, "rank/comm/tcp_bytes", rank):
                self.assertGreaterEqual(sent, gradients, f"rank {rank}, step {step}")
        self.assertIn("exchange: tcp", launchers["a"].stdout)
        done = train.train(name="one", sets=SETS)
        self.assertEqual(done.returncode, 0, done.stderr)
        one = train.run_path("one")
        self.assertEqual({value for _, value in train.values(one, "rank/comm/tcp_bytes", 0)}, {0})
        for (_, a), (_, b) in zip(train.values(run, "loss"), train.values(one, "loss"), strict=True):
            self.assertAlmostEqual(a / b, 1, places=4)
        self.close(train.last(run), train.last(one))

    def close(self, one, other):
        import numpy
        from safetensors.numpy import load_file

        a, b = (load_file(pathlib.Path(p) / "model.safetensors") for p in (one, other))
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            self.assertTrue(numpy.allclose(a[name], b[name], rtol=1e-3, atol=2e-4), f"{name}: {abs(a[name] - b[name]).max()}")

    def test_folders_that_are_not_shared_need_only_rank_0_s_checkpoints_to_resume(self):
        for steps in (3, 6):
            # The schedule must not know: a constant rate.
            sets = {"train.steps": steps, "checkpoint.every": 0, "train.schedule.kind": "constant", "train.schedule.warmup": 0}
            launchers = self.start(sets=sets, shared=False)
            for host, launcher in launchers.items():
                self.assertEqual(launcher.wait(90), 0, f"{host}: {launcher.output}")
        self.assertIn("at step 3", launchers["a"].stdout)
        self.assertIn("checkpoints are written by rank 0, which sees the folder; the others send their part", launchers["a"].stdout)
        self.assertEqual(train.checkpoints(pathlib.Path(self.net["b"].folder) / "runs" / "two"), {})

    def test_killed_rank_of_the_other_host_is_named_and_both_hosts_end(self):
        launchers = self.start(sets={**SETS, "train.steps": 3000, "checkpoint.every": 0})
        run = train.run_path("two")
        train.wait_step(run, 2, launchers["a"])
        (victim,) = [pid for pid in self.net["b"].processes() if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(train.ENGINE)]
        os.kill(victim, signal.SIGKILL)
        for host, launcher in launchers.items():
            self.assertEqual(launcher.wait(60), 5, f"{host}: {launcher.output}")
        report = jobs.report(run)
        self.assertEqual(report["first_failure"]["rank"], 1, report)
        self.assertRegex(report["reason"], r"rank 1 .*SIGKILL")

    def test_lost_host_is_named_by_the_ranks_that_stay(self):
        """The ranks themselves, without a launcher that could tell: the one that stays must find out by its own deadline."""
        sets = {**SETS, "train.steps": 3000, "checkpoint.every": 0, "comm.timeout": "5s"}
        ranks = {}
        for rank, host in enumerate("ab"):
            env = {**train.ONE_THREAD, "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "a", "MASTER_PORT": 29500}
            ranks[host] = harness.Process(self.net[host].command(engine("two", sets=sets)), cwd=self.tmp, env=env)
        train.wait_step(train.run_path("two"), 2, ranks["a"])
        self.net["b"].cut()
        code = ranks["a"].wait(60)
        self.assertEqual(code, 7, ranks["a"].output)
        self.assertRegex(ranks["a"].stderr, r"rank 1\b")
        self.assertEqual(ranks["b"].wait(60), code, ranks["b"].output)
        self.assertRegex(ranks["b"].stderr, r"rank 0\b")

    def test_data_that_differ_between_hosts_are_refused_by_both(self):
        from PIL import Image

        for host in "ab":
            for number in range(4):
                folder = pathlib.Path(self.net[host].folder) / "videos" / f"v{number}"
                folder.mkdir(parents=True)
                for frame in range(4):
                    Image.new("RGB", (32, 32), (number * 40, frame * 20, 7)).save(folder / f"{frame}.png")
        (pathlib.Path(self.net["b"].folder) / "videos" / "v3" / "3.png").rename(pathlib.Path(self.net["b"].folder) / "videos" / "v3" / "4.png")
        sets = {**SETS, "data.kind": "frames", "data.path": "videos", "data.clips": None, "train.batch": 2, "data.validation.fraction": 0}
        launchers = self.start(sets=sets, shared=False)
        for host, launcher in launchers.items():
            self.assertEqual(launcher.wait(60), 3, f"{host}: {launcher.output}")
        text = launchers["a"].output
        self.assertRegex(text, r"videos/v3/3.png' is listed by rank 0 but cannot be read here")
        for host in "ab":  # refused before it began: nothing is kept
            self.assertFalse((pathlib.Path(self.net[host].folder) / "runs" / "two").exists(), launchers[host].output)
