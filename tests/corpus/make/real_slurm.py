"""Under a real SLURM of two nodes (n0, n1), really caused."""

import time

from program import program
from register import AGAIN, ANY, USER, case, cc
from stage import PYTHON

PY = "py-exception"
# As many users do it: ranks from SLURM's variables.
FROM_SLURM = """
os.environ.setdefault("RANK", os.environ["SLURM_PROCID"])
os.environ.setdefault("WORLD_SIZE", os.environ["SLURM_NTASKS"])
os.environ.setdefault("LOCAL_RANK", os.environ["SLURM_LOCALID"])
"""
SRUN4 = f"srun -N2 --ntasks-per-node=2 -l {PYTHON} train.py"


def wait_for(path, word, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and word in path.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise RuntimeError(f"no {word!r} in {path}")


def wait_for_job(bed, job, word, seconds=90):
    wait_for(bed.work / "log" / f"slurm-{job}.out", word, seconds)


@case("missing-module-second-node-srun-labelled", "srun", ["py-nomodule"], ["flash_attn"], USER, "a Python package is missing on the second node", rank=[2, 3], node=["n1", None], bed="slurm")
def _(s, bed):
    """srun -l; only node n0 has the folder with the package in its PYTHONPATH."""
    s.write("packages/flash_attn/__init__.py", "")
    s.write("train.py", program(imports='if os.environ["SLURM_NODEID"] == "0":\n    sys.path.append("packages")\nimport flash_attn', args=FROM_SLURM))
    bed.run(s, f"{SRUN4} --timeout 20 >log/srun.log 2>&1")


@case("traceback-rank3-of-4-second-node-srun-labelled", "srun", [PY], ["IndexError"], USER, "rank 3 asks for a frame that its clip does not have", rank=3, node=["n1", None], bed="slurm")
def _(s, bed):
    """srun -l: every line carries its task."""
    s.write("train.py", program(args=FROM_SLURM, batch="""
        frames = list(range(9 if rank == 3 and global_step == 10 else 12))
        last = frames[11]
        """))
    bed.run(s, f"{SRUN4} >log/srun.log 2>&1")


@case("traceback-rank1-interleaved-with-bars-srun", "srun", [PY], ["ValueError: Expected more than 1"], USER, "rank 1 computes a batch norm over one value", rank=1, bed="slurm")
def _(s, bed):
    """srun without labels: bars and tracebacks of four tasks in one stream."""
    s.write("train.py", program(args=FROM_SLURM, epoch="""
    if rank == 1:
        nn.BatchNorm1d(16)(torch.randn(1, 16))
    """).replace("disable=rank != 0", "position=rank").replace("init_process_group(\"gloo\"", "init_process_group(\"gloo\""))
    bed.run(s, f"srun -N2 --ntasks-per-node=2 {PYTHON} train.py >log/srun.log 2>&1")


@case("kill-9-rank3-of-4-srun", "srun", ["exit-sigkill"], ["Killed", "signal 9", "SIGKILL"], ANY, "task 3 was killed from outside", rank=3, node=["n1", None], bed="slurm")
def _(s, bed):
    """SIGKILL to task 3; SLURM ends the others (--kill-on-bad-exit)."""
    s.write("train.py", program(imports="import signal", args=FROM_SLURM, batch="""
        if rank == 3 and global_step == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        """))
    bed.run(s, f"srun -N2 --ntasks-per-node=2 --kill-on-bad-exit=1 {PYTHON} train.py >log/srun.log 2>&1")


@case("floating-point-exception-4-tasks-srun", "srun", ["exit-sigfpe", "signal"], ["Floating point exception", "SIGFPE"], ANY, "a native library divides by zero", rank=[0, 1, 2, 3], bed="slurm")
def _(s, bed):
    """An integer division by zero in C on every task."""
    cc(s, "libtiles.so", "int tiles(int n, int size) { return n / size; }\n")
    s.write("train.py", '''import ctypes
import os

print(f"task {os.environ['SLURM_PROCID']}: 1024 rows", flush=True)
print(ctypes.CDLL("./libtiles.so").tiles(1024, 0))
''')
    bed.run(s, f"srun -N2 --ntasks-per-node=2 {PYTHON} train.py >log/srun.log 2>&1")


@case("disk-full-copy-4-tasks-srun", "srun", ["fs-enospc"], ["No space left on device"], USER, "the node-local scratch is full", rank=[0, 1, 2, 3], bed="slurm")
def _(s, bed):
    """A file system of 1 MiB on each node; tasks copy their shard to it."""
    s.write("shard.bin", b"\\0" * (3 << 20))
    s.write("train.py", '''import os
import shutil

target = f"scratch/shard_{os.environ['SLURM_PROCID']}.bin"
print(f"copying shard.bin to {target}", flush=True)
shutil.copyfile("shard.bin", target)
print("copied")
''')
    s.write("scratch/.keep", "")
    bed.enter(s)
    for node in ("n0", "n1"):
        bed.slurm.net[node].run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", "/home/user/train/scratch"])
    bed.popen(f"srun -N2 --ntasks-per-node=2 -l {PYTHON} train.py >log/srun.log 2>&1").wait(60)
    for node in ("n0", "n1"):
        bed.slurm.net[node].run(["umount", "/home/user/train/scratch"])
    bed.leave(s)


@case("key-error-local-rank-4-tasks-srun", "srun", ["pt-keyerror-rank"], ["KeyError: 'LOCAL_RANK'", "LOCAL_RANK"], USER, "srun does not set LOCAL_RANK", rank=[0, 1, 2, 3], bed="slurm")
def _(s, bed):
    """A torchrun script started with srun."""
    s.write("train.py", 'import os\n\n\ndef setup():\n    local_rank = int(os.environ["LOCAL_RANK"])\n    print("device", local_rank)\n\n\nsetup()\n')
    bed.run(s, f"srun -N2 --ntasks-per-node=2 {PYTHON} train.py >log/srun.log 2>&1")


@case("env-rank-missing-2-tasks-srun", "srun", ["pt-env-missing"], ["RANK expected, but not set"], USER, "srun does not set RANK", rank=[0, 1], bed="slurm")
def _(s, bed):
    """init_process_group by env:// under srun."""
    s.write("train.py", program())
    bed.run(s, f"srun -N2 --ntasks-per-node=1 -l {PYTHON} train.py >log/srun.log 2>&1")


@case("scancel-4-tasks-srun", "srun", ["slurm-cancel"], ["CANCELLED"], ANY, "somebody cancelled the step", rank=None, bed="slurm")
def _(s, bed):
    """scancel while it trains."""
    s.write("train.py", program(args=FROM_SLURM))
    bed.enter(s)
    step = bed.popen(f"srun -J scan -N2 --ntasks-per-node=2 {PYTHON} train.py --steps 500 --pace 0.1 >log/srun.log 2>&1")
    wait_for(bed.work / "log" / "srun.log", "'loss'")
    time.sleep(2)
    bed.popen("scancel --name=scan").wait(30)
    step.wait(60)
    bed.leave(s)


@case("time-limit-sbatch-2-nodes", "sbatch", ["slurm-time"], ["TIME LIMIT"], AGAIN, "the job reached its time limit", rank=None, bed="slurm")
def _(s, bed):
    """--time=1 and a run that needs longer."""
    s.write("train.py", program(args=FROM_SLURM))
    bed.sbatch(s, f"#!/bin/bash\nsrun {PYTHON} train.py --epochs 60 --pace 0.5\n", "-N2", "--ntasks-per-node=2", "--time=1", timeout=200)


@case("node-down-during-step-srun", "sbatch", ["slurm-nodefail", "node-lost"], ["NODE FAILURE", "NODE_FAIL", "node failure"], ["yes", "after-fix"], "a node went down during the job", rank=None, node=["n0", "n1", None], bed="slurm")
def _(s, bed):
    """The controller sets n1 DOWN while the step runs."""
    s.write("train.py", program(args=FROM_SLURM))

    def down(job):
        wait_for_job(bed, job, "'loss'")
        time.sleep(2)
        bed.popen("scontrol update nodename=n1 state=down reason=power").wait(30)

    try:
        bed.sbatch(s, f"#!/bin/bash\nsrun {PYTHON} train.py --steps 500 --pace 0.2\n", "-N2", "--ntasks-per-node=2", "--no-requeue", during=down)
    finally:
        bed.popen("scontrol update nodename=n1 state=resume").wait(30)
        time.sleep(2)


@case("bash-unbound-variable-sbatch", "sbatch", ["shell", "exit-code"], ["unbound variable"], USER, "a script with set -u uses a variable nobody set", rank=None, bed="slurm")
def _(s, bed):
    """set -eu and a misspelt variable."""
    bed.sbatch(s, """#!/bin/bash
set -euo pipefail
echo "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OUTPUT_DIR=/home/user/results/$SLURM_JOB_ID
echo "warning: no config given, using defaults"
srun python train.py --output "$OUTPUT_DIR" --data "$DATA_ROOT"
""", "-N2")


@case("bash-conda-not-found-sbatch", "sbatch", ["conda", "shell", "py-nomodule"], ["conda", "torch"], ["after-fix", "no"], "conda is not set up in the batch shell; the program then runs with the wrong Python", rank=None, bed="slurm")
def _(s, bed):
    """conda activate in a batch script; the system's python3 has no torch."""
    s.write("train.py", "import torch\nprint(torch.__version__)\n")
    bed.sbatch(s, """#!/bin/bash
echo "starting on $(hostname)"
module load cuda/12.4
conda activate train
srun -N1 -n1 /usr/bin/python3 train.py
""", "-N1")
