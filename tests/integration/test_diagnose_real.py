"""Failures that really happen, under `lockstep run` and under torchrun, and what `lockstep doctor diagnose` says of them.

Each program is an ordinary DDP loop on Gloo (tests/corpus/make/program.py) with one fault on one rank, on a machine of
its own (tests/corpus/make/stage.py: own network, mounts and processes). The cause and the rank must be named from the
logs as they are, and again with noise mixed into every stream."""

import pathlib
import sys

import harness

CORPUS = harness.ROOT / "tests" / "corpus"
sys.path[:0] = [str(CORPUS), str(CORPUS / "make"), str(harness.ROOT / "tests")]
import noise  # noqa: E402
import register  # noqa: E402
import score  # noqa: E402
import stage  # noqa: E402
from program import program  # noqa: E402

SMALL_SHM = "mount -t tmpfs -o size=2m none /dev/shm\n"
HELD_PORT = "python -c 'import socket,time; s=socket.socket(); s.bind((\"\", 29511)); s.listen(); time.sleep(60)' &\nsleep 0.3"


class Real(harness.Case):
    TIMEOUT = 150

    def setUp(self):
        harness.require("torch", "netns")
        self.stage = stage.Stage(self.id())
        self.addCleanup(self.stage.close)

    def cause(self, launcher, ranks, arguments=(), env=None, **kwargs):
        """Runs train.py under a launcher until it has failed."""
        start = {"lockstep": register.lockstep, "torchrun": register.torchrun}[launcher]
        start(self.stage, ranks, "train.py", *arguments, env={"LOCKSTEP_TEST_ID": harness.TEST_ID, **(env or {})}, timeout=120, **kwargs)

    def check(self, signature, names, rank):
        """What is wrong and on which rank, from the plain logs and from noisy ones."""
        wanted = {"verdict": "failure", "signature": signature, "names": names, "rank": rank, "node": None, "restart": []}
        log = self.stage.work / "log"
        noisy = pathlib.Path(self.tmp) / self.id()
        noise.copy(log, noisy, seed=self.id().rsplit(".", 1)[1])
        for kind, path in (("plain", log), ("noisy", noisy)):
            found = score.diagnose(path, harness.PROGRAM)
            result = score.judge(found, wanted)
            said = {key: found.get(key) for key in ("verdict", "signature", "rank", "cause", "evidence", "error")}
            self.assertTrue(result["signature"], f"{kind}: wanted {signature} with one of {names}, found {said}\n{self.logs()}")
            self.assertTrue(result["rank"], f"{kind}: wanted rank {rank}, found {said}\n{self.logs()}")

    def logs(self):
        files = [p for p in sorted((self.stage.work / "log").rglob("*")) if p.suffix in (".log", ".json")]
        return "".join(f"--- {p.name}\n{p.read_text(errors='replace')[-1500:]}\n" for p in files)


class Python(Real):
    def test_division_by_zero_on_rank_1_of_2_under_torchrun(self):
        self.stage.write("train.py", program(batch="""
        weight = 1 / (0 if rank == 1 and global_step == 5 else 1)
        """))
        self.cause("torchrun", 2)
        self.check(["py-exception"], ["ZeroDivisionError"], 1)

    def test_missing_module_on_rank_1_of_2_under_lockstep(self):
        self.stage.write("train.py", program(build="""
    if rank == 1:
        import xformers_ops
        """))
        self.cause("lockstep", 2)
        self.check(["py-nomodule"], ["xformers_ops"], 1)


class Collectives(Real):
    def deadlock(self, launcher, ranks, rank):
        self.stage.write("train.py", program(epoch=f"""
    if rank == {rank}:
        time.sleep(15)
    dist.barrier()
        """))
        self.cause(launcher, ranks, ["--timeout", "3"])
        self.check(["gloo-timeout", "hang"], ["imed out"], rank)

    def test_barrier_that_rank_1_of_2_never_enters_under_lockstep(self):
        self.deadlock("lockstep", 2, 1)

    def test_barrier_that_rank_1_of_3_never_enters_under_torchrun(self):
        self.deadlock("torchrun", 3, 1)  # three: who is missing is not just "the other"

    def test_port_that_somebody_holds_2_ranks_under_lockstep(self):
        self.stage.write("train.py", program().replace('init_process_group("gloo"', 'init_process_group("gloo", init_method="tcp://127.0.0.1:29511", '
                                                       'rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])'))
        self.cause("lockstep", 2, ["--timeout", "10"], before=HELD_PORT, flags=["--agent-store", "off"])
        self.check(["pt-store-inuse"], ["EADDRINUSE", "address already in use"], 0)

    def test_port_that_somebody_holds_2_ranks_under_torchrun(self):
        self.stage.write("train.py", program())
        self.cause("torchrun", 2, before=HELD_PORT, flags=["--nnodes", "1", "--master-addr", "127.0.0.1", "--master-port", "29511"])
        self.check(["pt-store-inuse"], ["EADDRINUSE", "address already in use"], [0, None])  # torchrun itself listens there


class Processes(Real):
    def test_segmentation_fault_on_rank_0_of_2_under_torchrun(self):
        self.stage.write("train.py", program(imports="import ctypes", batch="""
        if rank == 0 and global_step == 4:
            ctypes.string_at(8)
        """))
        self.cause("torchrun", 2)
        self.check(["exit-sigsegv", "py-fatal"], ["SIGSEGV", "Segmentation fault"], 0)

    def test_memory_limit_of_rank_1_of_2_under_lockstep(self):
        """A control group around one rank where this machine has them, else a limit of its address space."""
        try:
            group = self.stage.group("memory", memory__limit_in_bytes=700 << 20)
            enter = f'open("{group}/cgroup.procs", "w").write(str(os.getpid()))'
            signature, names = ["oom-cgroup", "oom-kernel", "exit-sigkill"], ["SIGKILL", "memory", "oom", "Killed"]
        except OSError:
            enter = "import resource; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))"
            signature, names = ["py-memory", "enomem", "py-exception"], ["memory"]
        self.stage.write("train.py", program(imports="CACHE = []", start=f"""
    if rank == 1:
        {enter}
        """, batch="""
        if rank == 1 and global_step > 3:
            CACHE.extend(torch.ones(1 << 22) for _ in range(200))
        """))
        self.cause("lockstep", 2, pids=False)
        self.check(signature, names, 1)

    def test_full_dev_shm_of_rank_0_of_2_under_torchrun(self):
        self.stage.write("train.py", program(item="x = torch.cat([x, torch.zeros(131072 - self.width)])", args='args.workers = 1 if os.environ["RANK"] == "0" else 0')
                         .replace("logits = model(x)", "logits = model(x[:, :16])"))
        self.cause("torchrun", 2, extra=SMALL_SHM)
        self.check(["shm-bus", "shm-file", "dl-worker-killed", "exit-sigbus", "fs-enospc"], ["shared memory", "bus error", "No space left", "SIGBUS"], 0)


class LostNode(Real):
    def setUp(self):
        super().setUp()
        import real_network

        self.hosts = real_network.Hosts(self.stage, ["gpu-11", "gpu-12"])
        self.addCleanup(self.hosts.net.close)
        register.log_folder(self.stage)
        self.stage.write("train.py", program())

    def lose(self, shells, ready):
        env = {"LOCKSTEP_TEST_ID": harness.TEST_ID}
        running = [self.hosts.start(name, shell, env) for name, shell in zip(("gpu-11", "gpu-12"), shells)]
        try:
            harness.wait_until(ready, 90, "the first steps")
            self.hosts.net["gpu-12"].drop()
            running[0].wait(60)
        finally:
            self.hosts.net.close()
            for process in running:
                process.wait(30)

    def test_second_host_falls_silent_under_lockstep(self):
        common = f"{stage.LOCKSTEP} run --nnodes 2 --master-addr gpu-11 --master-port 29500 --nproc-per-node 1 --node-timeout 3s --grace 1s"
        tail = "train.py --epochs 50 --pace 0.1 --timeout 60"
        console = self.stage.work / "console.txt"
        self.lose([f"{common} --node-rank 0 --name train --log-dir runs {tail} >console.txt 2>&1", f"{common} --node-rank 1 --name train --log-dir other {tail} >other.txt 2>&1"],
                  lambda: console.exists() and "'loss'" in console.read_text())
        register.take_run(self.stage)
        self.check(["node-lost"], ["lost", "silent", "gpu-12"], [1, None])

    def test_second_host_falls_silent_under_torchrun(self):
        common = f"{stage.PYTHON} -m torch.distributed.run --nnodes 2 --master-addr gpu-11 --master-port 29500 --nproc-per-node 1"
        tail = "train.py --epochs 50 --pace 0.1 --timeout 3"
        log = self.stage.work / "log" / "gpu-11.log"
        self.lose([f"{common} --node-rank 0 {tail} >log/gpu-11.log 2>&1", f"{common} --node-rank 1 {tail} >other.txt 2>&1"],
                  lambda: log.exists() and "'loss'" in log.read_text())
        # Only the first host's log is there: its rank waited in vain for the other.
        self.check(["gloo-timeout", "node-lost", "hang"], ["imed out"], [1, None])


