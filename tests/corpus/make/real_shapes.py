"""Further shapes of logs and launchers, really caused."""


import real_network
import real_slurm
from program import program
from register import ANY, USER, case, lockstep, log_folder, one_file_per_rank, plain, take_run, torchrun
from stage import LOCKSTEP, PYTHON

PY = "py-exception"
FROM_SLURM = real_slurm.FROM_SLURM


@case("key-error-rank1-of-2-torchrun-tee-prefixes", "torchrun", PY, ["'image_grid_thw'"], USER, "a batch of rank 1 lacks a field", rank=1)
def _(s):
    """torchrun --tee 3: every line begins with [default1]:."""
    s.write("train.py", program(batch="""
        batch = {"pixel_values": x, "image_grid_thw": y} if not (rank == 1 and global_step == 9) else {"pixel_values": x}
        grid = batch["image_grid_thw"]
        """))
    torchrun(s, 2, flags=["--standalone", "--tee", "3"])


@case("index-error-rank2-of-4-lockstep-console", "lockstep", PY, ["IndexError"], USER, "rank 2 reads beyond the end of its frames", rank=2)
def _(s):
    """What `lockstep run` shows on the console, kept in a file; no run directory."""
    s.write("train.py", program(batch="""
        frame = list(range(9 if rank == 2 and global_step == 7 else 16))[12]
        """))
    log_folder(s)
    s.run(f"{LOCKSTEP} run --nproc-per-node 4 --grace 5s --name train train.py >log/console.log 2>&1; exit 0")


@case("value-error-rank3-of-4-srun-file-per-task", "srun", PY, ["ValueError"], USER, "rank 3 got an empty share of the data", rank=3, node=["n1", None], bed="slurm")
def _(s, bed):
    """srun -o log/task-%t.out: a file per task; task 3 is the cause."""
    s.write("train.py", program(args=FROM_SLURM, epoch="""
    share = list(range(12))[rank * 4:rank * 4 + 4]
    logger.info("longest sample %d", max(share))
    """))
    bed.run(s, f"srun -N2 --ntasks-per-node=2 -o log/task-%t.out {PYTHON} train.py")


@case("type-error-rank1-of-2-lockstep-second-host", "lockstep", PY, ["TypeError"], USER, "rank 1 on the second host adds a number to text", rank=1, node=["gpu-12", None])
def _(s):
    """Two hosts; the run directory of the first, which holds the logs of both."""
    s.write("train.py", program(epoch="""
    total = 0
    if rank == 1:
        total = total + os.environ["LOCAL_RANK"]
    """))
    common = f"{LOCKSTEP} run --nnodes 2 --master-addr gpu-11 --master-port 29500 --nproc-per-node 1 --grace 2s --name train"
    hosts = real_network.Hosts(s, ["gpu-11", "gpu-12"])
    try:
        running = [hosts.start("gpu-11", f"{common} --node-rank 0 train.py >console.txt 2>&1"), hosts.start("gpu-12", f"{common} --node-rank 1 train.py >console1.txt 2>&1")]
        for process in running:
            process.wait(90)
    finally:
        hosts.net.close()
    take_run(s)


@case("zero-division-kubectl-prefix-and-timestamps-2-pods", "kubernetes", PY, ["ZeroDivisionError"], USER, "rank 1, in pod worker-0, divides by zero", rank=1, node=["train-worker-0", None])
def _(s):
    """Two really failed ranks, then the form of `kubectl logs --prefix --timestamps`."""
    s.write("train.py", program(batch="""
        ratio = 1 / (0 if rank == 1 and global_step == 8 else 1)
        """))
    one_file_per_rank(s, 2)
    lines = []
    for rank, pod in ((0, "train-master-0"), (1, "train-worker-0")):
        at = 1.0
        for line in (s.work / "log" / f"rank_{rank}.log").read_text().split("\n"):
            at += 0.07 if rank else 0.06
            if rank == 0 and "Traceback" in line:
                at += 3  # it noticed that much later than rank 1 failed
            if line:
                lines.append((at, f"[pod/{pod}/pytorch] 2026-03-14T02:11:{at:012.9f}Z {line}"))
    lines.sort(key=lambda pair: pair[0])
    for path in (s.work / "log").iterdir():
        path.unlink()
    (s.work / "log" / "kubectl.log").write_text("\n".join(text for _, text in lines) + "\n", newline="")


@case("attribute-error-ansi-colours-rank0-of-2-torchrun", "torchrun", PY, ["AttributeError"], USER, "rank 0 asks None for an attribute", rank=0)
def _(s):
    """A coloured log: escape sequences around levels and in the excepthook's output."""
    s.write("train.py", program(imports="""
import traceback


def colourful(kind, value, trace):
    text = "".join(traceback.format_exception(kind, value, trace))
    sys.stderr.write("\\x1b[31;1m" + text.rstrip("\\n").replace("\\n", "\\x1b[0m\\n\\x1b[31m") + "\\x1b[0m\\n")


sys.excepthook = colourful
logging.addLevelName(logging.INFO, "\\x1b[32mINFO\\x1b[0m")
""", epoch="""
    best = None
    if rank == 0:
        logger.info("best score %.3f", best.score)
    """))
    torchrun(s, 2)


@case("error-as-json-lines-rank1-of-2-lockstep", "lockstep", [PY, "data-error"], ["UnidentifiedImageError", "cannot identify image"], USER, "an image of rank 1 cannot be read; the program logs JSON lines", rank=1)
def _(s):
    """logging as one JSON object a line, the traceback inside; exit code 1 without a traceback of its own."""
    s.write("train.py", program(imports="""
import io
import traceback
from PIL import Image


class Lines(logging.Formatter):
    def format(self, record):
        out = {"ts": round(record.created, 3), "level": record.levelname.lower(), "rank": int(os.environ["RANK"]), "msg": record.getMessage()}
        if record.exc_info:
            out["exc"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(out)
""", start="""
    logging.getLogger().handlers[0].setFormatter(Lines())
    """, batch="""
        try:
            if rank == 1 and global_step == 6:
                Image.open(io.BytesIO(b"<html>404</html>"))
        except Exception:
            logger.critical("sample 4711 is not readable", exc_info=True)
            os._exit(1)
        """))
    lockstep(s, 2)


@case("logged-critical-then-exit-1-rank1-of-2-torchrun", "torchrun", [PY, "error-line", "exit-code"], ["RuntimeError: teacher", "teacher weights"], USER, "rank 1 cannot find the teacher's weights; the program logs it and exits", rank=1)
def _(s):
    """logger.exception and sys.exit(1)."""
    s.write("train.py", program(imports="""
def load_teacher(rank):
    if rank == 1:
        raise RuntimeError("teacher weights have 812 tensors, expected 840")
""", build="""
    try:
        load_teacher(rank)
    except RuntimeError:
        logger.exception("cannot go on")
        sys.exit(1)
    """))
    torchrun(s, 2)


@case("two-different-errors-rank3-first-of-4-torchrun", "torchrun", PY, ["KeyError: 'mask'", "'mask'"], USER, "rank 3 lacks a field; rank 0 then fails on its own because of that (a time-out handler with a bug)", rank=3)
def _(s):
    """Rank 3 raises; rank 0 catches its lost connection and raises something else."""
    s.write("train.py", program(batch="""
        if rank == 3 and global_step == 5:
            item = {"image": 1}
            item["mask"]
        """).replace("        loss.backward()\n", """        try:
            loss.backward()
        except RuntimeError:
            if rank == 0:
                raise NameError("name 'save_emergency_checkpoint' is not defined") from None
            raise
"""))
    torchrun(s, 4)


@case("one-rank-terminated-by-sigterm-rank2-of-4-torchrun", "torchrun", ["preempted", "exit-sigterm"], ["SIGTERM", "-15", "Signal 15"], ANY, "somebody ended rank 2 with SIGTERM", rank=2)
def _(s):
    """kill PID from outside; the launcher then stops the others."""
    s.write("train.py", program(imports="import subprocess", batch="""
        if rank == 2 and global_step == 6:
            subprocess.Popen(["kill", str(os.getpid())])
            time.sleep(5)
        """))
    torchrun(s, 4)


@case("terminal-closed-sighup-2-ranks-torchrun", "torchrun", ["preempted", "interrupted", "signal"], ["SIGHUP", "signal: 1", "death signal"], ANY, "the terminal was closed: SIGHUP", rank=None)
def _(s):
    """SIGHUP to torchrun."""
    s.write("train.py", program())
    log_folder(s)
    s.run(f"""{PYTHON} -m torch.distributed.run --standalone --nproc-per-node 2 train.py --epochs 20 --pace 0.2 >log/train.log 2>&1 &
job=$!
for i in $(seq 600); do grep -q "'loss'" log/train.log && break; sleep 0.1; done
sleep 1
kill -HUP $job
wait $job
exit 0""")


@case("timeout-command-ends-hung-program-plain", "plain", ["preempted", "hang", "exit-code", "exit-sigterm", "timeout-command"], ["124", "Terminated", "timed out", "timeout"], ANY, "the program stood still until `timeout` ended it", rank=None)
def _(s):
    """timeout 4 python train.py; exit code 124."""
    s.write("train.py", '''import threading
for step in range(5):
    print(f"step {step}/1000 | loss {6.2 / (1 + step):.4f} | 12.1k tok/s", flush=True)
threading.Event().wait()
''')
    plain(s, "echo \"[run] limit 4 s\"\ntimeout --verbose 4 python train.py\ncode=$?\necho \"[run] train.py ended with code $code\"\nexit $code\n")


@case("script-path-wrong-2-ranks-torchrun", "torchrun", ["fs-enoent", "shell", "usage"], ["can't open file"], USER, "the script is not where the command says", rank=[0, 1])
def _(s):
    """train/main.py does not exist."""
    s.write("train.py", program())
    torchrun(s, 2, "train/main.py", "--epochs", "2")


@case("module-name-wrong-python-m-2-ranks-lockstep", "lockstep", ["py-nomodule", "py-import", "fs-enoent", "usage", "shell"], ["No module named"], USER, "the module to run does not exist", rank=[0, 1])
def _(s):
    """lockstep run -m trainer.main."""
    s.write("train.py", program())
    lockstep(s, 2, "trainer.main", flags=["-m"])


@case("program-not-found-4-tasks-srun", "srun", ["shell", "fs-enoent"], ["execve", "No such file"], USER, "the program is not installed on the nodes", rank=[0, 1, 2, 3, None], bed="slurm")
def _(s, bed):
    """srun of a program that is not there."""
    bed.run(s, "srun -N2 --ntasks-per-node=2 /opt/train/bin/trainer --config base.yaml >log/srun.log 2>&1")


@case("exec-format-error-sbatch", "sbatch", ["shell", "fs-enoent"], ["Exec format error", "cannot execute"], USER, "the program is not for this kind of machine", rank=None, bed="slurm")
def _(s, bed):
    """A file that is no program."""
    s.write("trainer", b"\x7fELF\x02\x01\x01" + b"\0" * 200, mode=0o755)
    bed.sbatch(s, "#!/bin/bash\necho \"job on $(hostname)\"\n./trainer --config base.yaml\necho \"exit code $?\"\n", "-N1")


@case("more-processors-than-permitted-srun", "srun", ["slurm-step", "slurm-config", "slurm-submit"], ["equested"], USER, "the step asks for more than the job has", rank=None, bed="slurm")
def _(s, bed):
    """A step of 64 tasks in a job of 2."""
    bed.sbatch(s, f"#!/bin/bash\necho \"starting\"\nsrun -n64 --cpus-per-task=4 {PYTHON} train.py\necho \"exit code $?\"\n", "-N1", "-n2")


@case("invalid-partition-sbatch", "sbatch", ["slurm-config", "slurm-submit"], ["invalid partition", "Invalid partition"], USER, "the partition does not exist", rank=None, bed="slurm")
def _(s, bed):
    """sbatch -p gpu."""
    s.write("job.sh", "#!/bin/bash\nsrun hostname\n")
    bed.run(s, "sbatch -p gpu job.sh >log/submit.log 2>&1")


@case("not-enough-slots-mpirun", "mpirun", ["mpi-slots", "usage"], ["not enough slots"], USER, "mpirun has fewer slots than ranks", rank=None)
def _(s):
    """-np 64 without oversubscription."""
    s.write("train.py", "print(1)\n")
    log_folder(s)
    s.run("mpirun --allow-run-as-root -np 640 python train.py >log/mpi.log 2>&1; exit 0")


@case("process-group-not-initialised-rank1-of-2-lockstep", "lockstep", PY, ["process group has not been initialized", "not been initialized"], USER, "rank 1 leaves the process group and then uses it", rank=1)
def _(s):
    """destroy_process_group too early on rank 1."""
    s.write("train.py", program(epoch="""
    if rank == 1 and epoch == 1:
        dist.destroy_process_group()
        dist.all_reduce(torch.ones(1))
    """))
    lockstep(s, 2)


@case("rank-beyond-world-size-one-file-per-rank", "plain, one file per rank", [PY, "pt-env-missing", "usage", "config", "pt-store-wait"], ["rank", "imed out", "imeout"], ANY, "a rank has a number that the world does not have", rank=[2, 0, None])
def _(s):
    """WORLD_SIZE 2 with ranks 0 and 2."""
    s.write("train.py", program())
    one_file_per_rank(s, 2, script="train.py --timeout 8", ranks=[0, 2])


@case("two-programs-with-rank-0-one-file-per-rank", "plain, one file per rank", ["pt-store-inuse"], ["EADDRINUSE", "address already in use"], ["after-fix", "yes", "no"], "two programs were started as rank 0", rank=[0, 1, None])
def _(s):
    """The second program was meant to be rank 1; its file is rank_1.log."""
    s.write("train.py", program())
    one_file_per_rank(s, 2, script="train.py --timeout 8", per_rank={1: {"RANK": 0}})


@case("file-size-limit-rank0-of-2-torchrun", "torchrun", ["fs-efbig", "fs-enospc", "signal-25", PY, "ckpt-write"], ["File too large", "SIGXFSZ", "file write failed", "unexpected pos", "Signal 25", "-25", "disk is full"], ANY, "rank 0 may not write files this large", rank=0)
def _(s):
    """ulimit -f 64 (KiB) and a checkpoint of 480 KB."""
    s.write("train.py", program(model="self.memory = nn.Parameter(torch.zeros(400, 100))", forward="x = x + self.memory.sum() * 0"))
    torchrun(s, 2, before="ulimit -S -f 64")


@case("cpu-time-limit-plain", "plain", ["signal-24", "exit-sigxcpu", "exit-code", "slurm-time", "signal"], ["CPU time limit", "SIGXCPU", "152"], ANY, "the program used up its processor time (ulimit -t)", rank=None)
def _(s):
    """ulimit -t 2."""
    s.write("train.py", "step = 0\nwhile True:\n    step += 1\n    if step % 3000000 == 0:\n        print(f'iter {step // 3000000}: loss {9e6 / step:.4f}, time 91.20ms', flush=True)\n")
    plain(s, "ulimit -S -t 2\npython train.py\necho \"exit code $?\"\n")


@case("gzip-shard-damaged-rank1-of-2-torchrun", "torchrun", [PY, "data-error"], ["BadGzipFile", "CRC check failed", "Error -3 while decompressing", "Compressed file ended"], USER, "a compressed shard of rank 1 is damaged", rank=1)
def _(s):
    """A byte of the gzip file is changed."""
    s.write("train.py", program(imports="import gzip", start='''
    path = f"shard-{rank}.jsonl.gz"
    data = bytearray(gzip.compress(b'{"a": 1}\\n' * 5000))
    if rank == 1:
        data[-6] ^= 255
    open(path, "wb").write(data)
    with gzip.open(path, "rt") as file:
        records = [json.loads(line) for line in file]
    '''))
    torchrun(s, 2)


@case("yaml-syntax-error-plain", "plain", [PY, "config", "data-error"], ["yaml", "mapping values are not allowed", "ScannerError"], USER, "the configuration is not valid YAML", rank=None)
def _(s):
    """A colon too many."""
    s.write("config.yaml", "model:\n  width: 64\n  name: vla: large\n")
    s.write("train.py", "import yaml\n\n\ndef read(path):\n    with open(path) as file:\n        return yaml.safe_load(file)\n\n\nprint('reading config.yaml', flush=True)\nread('config.yaml')\n")
    plain(s, "python train.py\n")


@case("environment-variable-not-a-number-2-ranks-lockstep", "lockstep", PY, ["invalid literal for int()"], USER, "GRAD_ACCUM is no number", rank=[0, 1])
def _(s):
    """int(os.environ[...])."""
    s.write("train.py", program(args='accumulation = int(os.environ["GRAD_ACCUM"])'))
    lockstep(s, 2, env={"GRAD_ACCUM": "auto"})


@case("assertion-in-loader-worker-rank0-of-2-torchrun", "torchrun", PY, ["AssertionError", "frames"], USER, "a check of the data set fails in a loader worker of rank 0", rank=0)
def _(s):
    """Raised in a worker, re-raised in the main process."""
    s.write("train.py", program(item='''
        assert not (os.environ["RANK"] == "0" and index % 32 == 9), f"clip {index}: 9 frames, expected 12"
        '''))
    torchrun(s, 2, "train.py", "--workers", "2")


@case("system-exit-with-message-rank1-of-2-lockstep", "lockstep", ["error-line", "exit-code", PY, "usage", "config"], ["no GPU in", "code 1"], ANY, "rank 1 stops itself with a message", rank=1)
def _(s):
    """sys.exit("...") on rank 1."""
    s.write("train.py", program(build='''
    if rank == 1:
        sys.exit("error: no GPU in this node is free, 7 of 8 are used by others")
    '''))
    lockstep(s, 2)


@case("object-not-picklable-broadcast-rank0-of-2-torchrun", "torchrun", [PY, "py-pickle"], ["pickle"], USER, "rank 0 broadcasts an object that cannot be pickled", rank=0)
def _(s):
    """broadcast_object_list with a lock."""
    s.write("train.py", program(imports="import threading", start='''
    state = [{"lock": threading.Lock()} if rank == 0 else None]
    dist.broadcast_object_list(state, src=0)
    '''))
    torchrun(s, 2)


@case("gather-shapes-differ-gloo-rank1-of-2-torchrun", "torchrun", [PY, "gloo-io", "pt-coll-mismatch", "gloo-timeout", "cxx-terminate"], ["gloo", "Gloo", "nbytes", "length", "op.preamble"], ANY, "rank 1 gives a tensor of another size to an all_reduce", rank=[0, 1])
def _(s):
    """all_reduce of 4 and of 1000 elements."""
    s.write("train.py", program(epoch="""
    value = torch.ones(4 if rank == 0 else 1000)
    dist.all_reduce(value)
    """))
    torchrun(s, 2, "train.py", "--timeout", "8")


@case("memory-eaten-in-loader-worker-cgroup-rank1-of-2-torchrun", "torchrun", ["dl-worker-killed", "oom-cgroup", "exit-sigkill", "mem-usage-limit"], ["DataLoader worker", "SIGKILL", "killed by signal: Killed"], ANY, "a loader worker of rank 1 grew beyond the memory limit", rank=1)
def _(s):
    """A memory control group around the loader workers of rank 1; no kernel log at hand."""
    group = s.group("memory", memory__limit_in_bytes=500 << 20)
    s.write("train.py", program(imports="CACHE = []", item=f'''
        if os.environ["RANK"] == "1" and index % 4 == 1:
            if not CACHE:
                open("{group}/cgroup.procs", "w").write(str(os.getpid()))
            CACHE.extend(torch.ones(1 << 22) for _ in range(20))
        '''))
    torchrun(s, 2, "train.py", "--workers", "1", pids=False)


