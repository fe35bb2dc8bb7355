"""Processes that end by signals, limits, libraries and shells, really caused."""

import pathlib
import subprocess
import time

from forms import Log, keep
from program import program
from register import (AGAIN, ANY, USER, case, cc, dmesg_mark, dmesg_since, lockstep, log_folder, plain, torchrun)
from stage import LOCKSTEP, PYTHON

CRASH = """
void touch(char *p) { *p = 1; }
void scatter(long address) { touch((char *)address); }
"""


@case("segfault-ctypes-rank1-of-2-torchrun", "torchrun", ["exit-sigsegv"], ["SIGSEGV", "-11", "Signal 11"], ANY,
      "a native library of rank 1 writes to an invalid address", rank=1)
def _(s):
    """A C function called through ctypes writes to address 16; no faulthandler."""
    cc(s, "libkernels.so", CRASH)
    s.write("train.py", program(imports="import ctypes", batch="""
        if rank == 1 and global_step == 9:
            ctypes.CDLL("./libkernels.so").scatter(ctypes.c_long(16))
        """))
    torchrun(s, 2)


@case("segfault-faulthandler-rank3-of-4-lockstep", "lockstep", ["py-fatal", "exit-sigsegv"], ["Segmentation fault", "SIGSEGV"], ANY,
      "a native library of rank 3 writes to an invalid address", rank=3)
def _(s):
    """With PYTHONFAULTHANDLER=1: the interpreter prints its stacks."""
    cc(s, "libkernels.so", CRASH)
    s.write("train.py", program(imports="import ctypes", batch="""
        if rank == 3 and global_step == 5:
            ctypes.CDLL("./libkernels.so").scatter(ctypes.c_long(16))
        """))
    lockstep(s, 4, env={"PYTHONFAULTHANDLER": "1"})


@case("cxx-terminate-rank1-of-4-torchrun", "torchrun", ["cxx-terminate", "exit-sigabrt"], ["std::out_of_range", "terminate called", "_M_range_check"], ANY,
      "a C++ exception of a native library on rank 1 is caught by nobody", rank=1)
def _(s):
    """std::vector::at in a noexcept C++ function."""
    cc(s, "libindex.so", """
#include <vector>
extern "C" int lookup(int i) noexcept { std::vector<int> v(27); return v.at(i); }
""", compiler="g++")
    s.write("train.py", program(imports="import ctypes", batch="""
        if rank == 1 and global_step == 10:
            ctypes.CDLL("./libindex.so").lookup(31)
        """))
    torchrun(s, 4)


@case("cxx-exception-from-thread-rank2-of-4-torchrun", "torchrun", ["cxx-terminate", "exit-sigabrt"], ["std::system_error", "std::runtime_error", "decoder"], ANY,
      "a thread of a native library on rank 2 throws", rank=2)
def _(s):
    """A std::thread that throws."""
    cc(s, "libdecode.so", """
#include <stdexcept>
#include <thread>
extern "C" void decode() { std::thread t([] { throw std::runtime_error("decoder: invalid NAL unit size (1952867443 > 8137)"); }); t.join(); }
""", "-pthread", compiler="g++")
    s.write("train.py", program(imports="import ctypes", batch="""
        if rank == 2 and global_step == 7:
            ctypes.CDLL("./libdecode.so").decode()
        """))
    torchrun(s, 4)


@case("c-assertion-rank1-of-2-lockstep", "lockstep", ["c-assert", "exit-sigabrt", "cxx-terminate", "py-fatal"], ["Assertion"], ANY,
      "an assertion of a C library fails on rank 1", rank=1)
def _(s):
    """assert() in C."""
    cc(s, "libblocks.so", """
#include <assert.h>
int block(int rows, int size) { assert(rows % size == 0); return rows / size; }
""")
    s.write("train.py", program(imports="import ctypes", batch="""
        if rank == 1 and global_step == 11:
            ctypes.CDLL("./libblocks.so").block(1000, 64)
        """))
    lockstep(s, 2)


@case("double-free-rank0-of-2-torchrun", "torchrun", ["heap", "exit-sigabrt"], ["double free", "free(): "], ANY,
      "a native library of rank 0 frees memory twice", rank=0)
def _(s):
    """free() twice on one block."""
    cc(s, "libpool.so", "#include <stdlib.h>\nvoid release(void) { char *p = malloc(2000); char *q = malloc(2000); free(p); free(p); free(q); }\n")
    s.write("train.py", program(imports="import ctypes", batch="""
        if rank == 0 and global_step == 10:
            ctypes.CDLL("./libpool.so").release()
        """))
    torchrun(s, 2)


@case("illegal-instruction-rank1-of-2-torchrun", "torchrun", ["illegal-insn", "exit-sigill"], ["SIGILL", "-4", "Signal 4", "llegal instruction"], USER,
      "a native library of rank 1 uses an instruction this processor does not have", rank=1)
def _(s):
    """ud2."""
    cc(s, "libfast.so", 'void kernel(void) { __asm__ volatile("ud2"); }\n')
    s.write("train.py", program(imports="import ctypes", start="""
    if rank == 1:
        ctypes.CDLL("./libfast.so").kernel()
    """))
    torchrun(s, 2)


@case("bus-error-truncated-mmap-plain", "plain", ["exit-sigbus", "shm-bus"], ["Bus error", "SIGBUS"], ANY,
      "a mapped file got shorter under a reader", rank=None)
def _(s):
    """mmap of a file that is truncated afterwards; bash reports the signal."""
    s.write("train.py", '''import mmap
import os

with open("tokens.bin", "wb") as file:
    file.write(b"\\1" * (1 << 20))
data = open("tokens.bin", "r+b")
view = mmap.mmap(data.fileno(), 0)
print("tokens 1048576, sequence length 2048", flush=True)
for step in range(0, 300, 100):
    print(f"iter {step}: loss {4.5 - step / 200:.4f}, time 12.31ms", flush=True)
os.truncate("tokens.bin", 0)
print(sum(view[:4096]))
''')
    plain(s, "set -x\npython prepare.py 2>/dev/null\npython train.py\necho \"exit code $?\"\n")


@case("kill-9-bash-line-plain", "plain", ["exit-sigkill", "oom-kernel", "oom-cgroup"], ["Killed", "SIGKILL"], ANY,
      "somebody killed the program with SIGKILL; bash's line is all there is", rank=None)
def _(s):
    """kill -9 from outside while it trains."""
    s.write("train.py", '''import os, signal, threading, time
threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
for step in range(1000):
    print(f"step {step}/1000 | loss {6.2 / (1 + step / 50):.4f} | lr 3.0e-04 | 12.1k tok/s", flush=True)
    time.sleep(0.05)
''')
    plain(s, "echo \"job 88123 on $(hostname)\"\npython train.py\ncode=$?\necho \"train.py ended with code $code\"\nexit $code\n")


@case("kill-9-rank0-of-2-torchrun", "torchrun", ["exit-sigkill"], ["SIGKILL", "-9", "Signal 9"], ANY,
      "rank 0 was killed with SIGKILL from outside", rank=0)
def _(s):
    """A helper sends SIGKILL to rank 0 in epoch 0."""
    s.write("train.py", program(imports="import signal\nimport subprocess", batch="""
        if rank == 0 and global_step == 6:
            subprocess.Popen(["kill", "-9", str(os.getpid())])
            time.sleep(5)
        """))
    torchrun(s, 2)


@case("rank0-killed-others-lose-store-torchrun", "torchrun", ["exit-sigkill"], ["SIGKILL", "-9", "Signal 9"], ANY,
      "rank 0, which also serves the store, was killed; the others talk of lost connections first", rank=0)
def _(s):
    """Four ranks, the store inside rank 0; SIGKILL to rank 0 while the others wait in a store barrier."""
    s.write("train.py", program(imports="import signal", epoch="""
    store = dist.distributed_c10d._get_default_store()
    store.add("arrived", 1)
    if rank == 0:
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        store.wait(["go"], datetime.timedelta(seconds=30))
    except Exception:
        logger.exception("rank %d lost the store", rank)
        time.sleep(1)
        raise
    """))
    torchrun(s, 4, flags=["--master-addr", "127.0.0.1", "--master-port", "29511", "--rdzv-backend", "static", "--nnodes", "1", "--node-rank", "0"],
             env={"TORCHELASTIC_USE_AGENT_STORE": None})


@case("cgroup-memory-limit-rank2-of-4-torchrun-with-dmesg", "torchrun", ["oom-cgroup"], ["Memory cgroup out of memory", "Killed process", "oom"], USER,
      "rank 2 grew beyond the memory limit of its control group; the kernel killed it", rank=2)
def _(s):
    """A real memory control group of 700 MB around rank 2; train.log and the kernel's lines."""
    group = s.group("memory", memory__limit_in_bytes=700 << 20)
    s.write("train.py", program(start=f"""
    if rank == 2:
        with open("{group}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    cache = []
    """, batch="""
        if rank == 2 and global_step > 5:
            for _ in range(60):
                CACHE.append(torch.ones(1 << 20))
        """, imports="CACHE = []").replace("    cache = []\n", ""))
    mark = dmesg_mark()
    torchrun(s, 4, pids=False)
    kernel = [line for line in dmesg_since(mark) if "br0" not in line and "veth" not in line]
    name = pathlib.Path(group).name
    text = "\n".join(kernel).replace("/" + name, "/kubepods/burstable/pod6c1e0f52")
    (s.work / "log" / "dmesg.txt").write_text(text + "\n")
    train = s.work / "log" / "train.log"
    train.write_text(train.read_text().replace(group, "/sys/fs/cgroup/memory/job"))


@case("cgroup-memory-limit-rank1-of-2-lockstep", "lockstep", ["oom-cgroup", "exit-sigkill", "oom-kernel"], ["SIGKILL", "memory", "oom"], ANY,
      "rank 1 grew beyond the memory limit of its control group", rank=1)
def _(s):
    """The run directory only; what the launcher found out about the kill is in its report."""
    group = s.group("memory", memory__limit_in_bytes=700 << 20)
    s.write("train.py", program(imports="CACHE = []", start=f"""
    if rank == 1:
        with open("{group}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    """, batch="""
        if rank == 1 and global_step > 8:
            for _ in range(60):
                CACHE.append(torch.ones(1 << 20))
        """))
    lockstep(s, 2, pids=False)
    for path in (s.work / "log").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(pathlib.Path(group).name.encode(), b"job-4711"))


@case("too-many-open-files-rank1-of-2-torchrun", "torchrun", ["emfile"], ["Too many open files"], ["after-fix", "no", "yes"],
      "rank 1 never closes its files and reaches the limit", rank=1)
def _(s):
    """RLIMIT_NOFILE 256 and a list of open files."""
    s.write("train.py", program(imports="import resource\nHANDLES = []", start="""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    """, batch="""
        if rank == 1:
            HANDLES.extend(open("train.py") for _ in range(30))
        """))
    torchrun(s, 2)


@case("cant-start-thread-pids-limit-rank0-of-2-torchrun", "torchrun", ["eagain-threads"], ["can't start new thread"], ["after-fix", "no", "yes"],
      "rank 0 may not start more threads: the limit of its control group is reached", rank=0)
def _(s):
    """A real pids control group of 40 around rank 0."""
    group = s.group("pids", pids__max=40)
    s.write("train.py", program(imports="import threading", start=f"""
    if rank == 0:
        with open("{group}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    """, batch="""
        if rank == 0 and global_step > 3:
            for _ in range(12):
                threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        """))
    torchrun(s, 2, pids=False)
    train = s.work / "log" / "train.log"
    train.write_text(train.read_text().replace(group, "/sys/fs/cgroup/pids/job"))


@case("libgomp-thread-creation-pids-limit-lockstep", "lockstep", ["eagain-threads"], ["libgomp", "Thread creation failed", "Resource temporarily unavailable"],
      ["after-fix", "no", "yes"], "OpenMP may not start more threads: the limit of its control group is reached", rank=1)
def _(s):
    """A pids control group around rank 1, which then asks for 64 OpenMP threads."""
    group = s.group("pids", pids__max=24)
    s.write("train.py", program(start=f"""
    if rank == 1:
        with open("{group}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    """, epoch="""
    if rank == 1:
        torch.set_num_threads(64)
        torch.randn(4096, 4096).sin_().sum()
        cov = torch.randn(2048, 2048) @ torch.randn(2048, 2048)
    """))
    lockstep(s, 2, pids=False)


@case("sigterm-preemption-2-ranks-torchrun", "torchrun", ["preempted", "exit-sigterm"], ["SIGTERM", "Signal 15", "got signal: 15"], AGAIN,
      "the launcher itself was told to stop with SIGTERM (preemption)", rank=None)
def _(s):
    """SIGTERM to torchrun in the middle of an epoch."""
    s.write("train.py", program())
    log_folder(s)
    s.run(f"""{PYTHON} -m torch.distributed.run --standalone --nproc-per-node 2 train.py --steps 60 --pace 0.5 >log/train.log 2>&1 &
job=$!
for i in $(seq 600); do grep -q "'loss'" log/train.log && break; sleep 0.1; done
sleep 2
kill -TERM $job
wait $job
exit 0""")


@case("sigterm-preemption-2-ranks-lockstep", "lockstep", ["preempted", "exit-sigterm"], ["SIGTERM", "signal 15", "stopped"], AGAIN,
      "the launcher was told to stop with SIGTERM (preemption)", rank=None)
def _(s):
    """SIGTERM to `lockstep run` in the middle of an epoch."""
    from register import take_run
    s.write("train.py", program())
    s.run(f"""{LOCKSTEP} run --nproc-per-node 2 --grace 3s --name train train.py --steps 60 --pace 0.5 >console.txt 2>&1 &
job=$!
for i in $(seq 600); do grep -q "'loss'" console.txt && break; sleep 0.1; done
sleep 2
kill -TERM $job
wait $job
exit 0""")
    take_run(s)


@case("glibcxx-missing-2-ranks-torchrun", "torchrun", ["py-glibc"], ["GLIBCXX_3.4.99"], USER,
      "an extension needs a newer libstdc++ than this system has", rank=[0, 1])
def _(s):
    """An extension linked against a stub libstdc++ that offers GLIBCXX_3.4.99."""
    top = s.top
    (top / "stub.c").write_text("void newest(void) {}\n")
    (top / "stub.map").write_text("GLIBCXX_3.4.99 { newest; };\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libstdc++.so.6", "-Wl,--version-script=stub.map", "-o", "libstub.so", "stub.c"], cwd=top, check=True)
    (top / "ext.c").write_text("void newest(void);\nvoid *PyInit__spconv(void) { newest(); return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(s.work / "_spconv.so"), "ext.c", "./libstub.so"], cwd=top, check=True)
    s.write("train.py", program(imports="import _spconv"))
    torchrun(s, 2)


@case("undefined-symbol-extension-2-ranks-lockstep", "lockstep", ["py-undef"], ["undefined symbol"], USER,
      "an extension was built against another version of a library", rank=[0, 1])
def _(s):
    """An extension with a symbol that no library has."""
    s.write("ext.c", "void _ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEE(void);\n"
            "void *PyInit_selective_scan_cuda(void) { _ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEE(); return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-z,now", "-o", str(s.work / "selective_scan_cuda.so"), str(s.work / "ext.c")], check=True)
    s.write("train.py", program(build="import selective_scan_cuda"))
    lockstep(s, 2)


@case("missing-shared-library-plain", "plain", ["py-solib"], ["cannot open shared object file"], USER, "a shared library is not installed or not found", rank=None)
def _(s):
    """ctypes loads libcudart."""
    s.write("train.py", '''import ctypes
import logging

logging.basicConfig(level=logging.INFO)
logging.info("looking for the CUDA runtime")


def load_runtime():
    return ctypes.CDLL("libcudart.so.12")


load_runtime()
''')
    plain(s, "python train.py\n")


@case("bash-python-not-found-plain", "plain", ["shell", "exit-code"], ["command not found"], USER, "the interpreter is not in PATH", rank=None)
def _(s):
    """A script that calls python3.12, which is not installed."""
    s.write("train.py", "print('x')\n")
    plain(s, "export OMP_NUM_THREADS=4\necho \"[run] start\"\nnproc\npython3.12 -u train.py --config configs/base.yaml\necho \"[run] exit code $?\"\n")


@case("mpirun-traceback-rank2-of-4", "mpirun", ["py-exception"], ["IndexError"], USER, "rank 2 reads beyond the end of a list", rank=2)
def _(s):
    """Open MPI starts four Python programs with --tag-output; rank 2 fails."""
    s.write("train.py", '''import os
import time

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
files = [f"part-{i}.bin" for i in range(16)][rank * 4:rank * 4 + 4]


def read(step):
    if rank == 2 and step == 6:
        del files[2:]
    return files[step % 4]


for step in range(12):
    print(f"step {step} file {read(step)} loss {2.0 / (step + 1):.3f}", flush=True)
    time.sleep(0.1)
time.sleep(2)
''')
    log_folder(s)
    s.run("mpirun --allow-run-as-root --oversubscribe --tag-output -np 4 python train.py >log/mpi.log 2>&1; exit 0")


@case("mpirun-segfault-rank1-of-2", "mpirun", ["exit-sigsegv"], ["signal 11", "Segmentation fault", "SIGSEGV"], ANY,
      "a native library of rank 1 writes to an invalid address", rank=1)
def _(s):
    """Open MPI reports the signal; nothing else is printed."""
    cc(s, "libkernels.so", CRASH)
    s.write("train.py", '''import ctypes, os, time
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
for step in range(10):
    if rank == 0:
        print(f"iter {step}: loss {4.5 - step / 9:.4f}, time 101.20ms, mfu 0.00%", flush=True)
    if rank == 1 and step == 5:
        ctypes.CDLL("./libkernels.so").scatter(ctypes.c_long(8))
    time.sleep(0.1)
time.sleep(2)
''')
    log_folder(s)
    s.run("mpirun --allow-run-as-root --oversubscribe -np 2 python train.py >log/mpi.log 2>&1; exit 0")


@case("exit-code-3-silent-rank2-of-4-torchrun", "torchrun", ["exit-code"], ["exitcode  : 3", "exitcode: 3", "code 3"], ANY,
      "rank 2 ended with code 3 and said nothing", rank=2)
def _(s):
    """os._exit(3)."""
    s.write("train.py", program(batch="""
        if rank == 2 and global_step == 12:
            os._exit(3)
        """))
    torchrun(s, 4)


@case("exit-code-only-rank1-of-2-lockstep", "lockstep", ["exit-code"], ["code 42"], ANY, "rank 1 ended with code 42 and said nothing", rank=1)
def _(s):
    """os._exit(42) while rank 0 waits."""
    s.write("train.py", program(epoch="""
    if rank == 1:
        os._exit(42)
    """))
    lockstep(s, 2)


@case("restart-budget-spent-same-error-2-ranks-torchrun", "torchrun", ["fs-enoent"], ["vocab.json"], USER,
      "a file is missing; every restart fails the same way", rank=[0, 1])
def _(s):
    """--max-restarts 2 and a file that is not there."""
    s.write("train.py", program(start='vocabulary = json.load(open("/data/tokenizer/vocab.json"))'))
    torchrun(s, 2, flags=["--standalone", "--max-restarts", "2"])


@case("restart-budget-spent-same-error-2-ranks-lockstep", "lockstep", ["py-exception"], ["UnboundLocalError", "best"], USER,
      "the same programming error in every attempt", rank=0)
def _(s):
    """--max-restarts 1; rank 0 uses a name before it is set."""
    s.write("train.py", program(epoch="""
    if rank == 0:
        if epoch > 5:
            best = 0.0
        logger.info("best so far %.3f", best)
    """))
    lockstep(s, 2, flags=["--max-restarts", "1", "--backoff", "100ms"])


@case("accelerate-port-in-use", "accelerate", ["acc-port", "pt-store-inuse"], ["29500"], ["after-fix", "yes", "no"],
      "another program listens on the port", rank=None, made="after the form")
def _(s):
    """accelerate before 1.10, which gave up where newer ones take another port."""
    frames = [("/opt/conda/bin/accelerate", 8, "<module>", "sys.exit(main())"), ("/opt/conda/lib/python3.10/site-packages/accelerate/commands/launch.py", 1165, "launch_command", "multi_gpu_launcher(args)"),
              ("/opt/conda/lib/python3.10/site-packages/accelerate/utils/launch.py", 198, "prepare_multi_gpu_env", "raise ConnectionError(")]
    log = Log(71, ranks=2)
    log.say("The following values were not passed to `accelerate launch` and had defaults used instead:", "\t`--num_machines` was set to a value of `1`", "\t`--mixed_precision` was set to a value of `'no'`",
            "To avoid this warning pass in values for each of the problematic parameters or run `accelerate config`.",
            *log.trace(0, frames, "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it. Please specify a different port (such as using the `--main_process_port` flag or specifying a different `main_process_port` in your config file) and rerun your script. To automatically use the next open port (on a single node), you can set this to `0`.", tag=False))
    keep(s, train_log=log)


@case("accelerate-exception-rank1-of-2", "accelerate", ["py-exception"], ["ValueError: Unsupported"], USER,
      "rank 1 meets a scheduler name nobody knows", rank=1)
def _(s):
    """accelerate launch on two CPU processes, Accelerator() in the program."""
    s.write("train.py", '''import time

from accelerate import Accelerator
from accelerate.logging import get_logger
import torch

accelerator = Accelerator(cpu=True)
logger = get_logger(__name__)


def build_scheduler(name, optimizer):
    if name == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    raise ValueError(f"Unsupported scheduler {name!r}: expected one of cosine, linear")


model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(6):
    loss = model(torch.randn(4, 8)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.print(f"step {step} loss {loss.item():.4f}")
scheduler = build_scheduler("cosine" if accelerator.process_index == 0 else "constant_with_warmup", optimizer)
accelerator.wait_for_everyone()
accelerator.end_training()
''')
    log_folder(s)
    s.run(f"{PYTHON} -m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no train.py >log/train.log 2>&1; exit 0")


_ = time
