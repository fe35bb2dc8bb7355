"""A torch without CUDA that is asked for a GPU, and Gloo: sizes that differ, aborts and waits at the exit. Really caused."""

import shutil

from program import program
from register import ANY, USER, case, lockstep, torchrun

NO_CUDA = ["cuda-not-compiled"]
SIZE = ["gloo-size"]
LEAVING = ["pt-teardown-abort"]


@case("cuda-set-device-cpu-torch-2-ranks-torchrun", "torchrun", NO_CUDA, ["_cuda_setDevice"], USER,
      "torch.cuda.set_device with a torch that is built without CUDA", rank=[0, 1])
def _(s):
    """torch.cuda.set_device(local_rank) with the CPU package of torch."""
    s.write("train.py", program(model="torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"))
    torchrun(s, 2)


@case("cuda-module-cpu-torch-rank1-of-2-lockstep", "lockstep", NO_CUDA, ["not compiled with CUDA"], USER,
      "rank 1 moves a module to a GPU, and torch is built without CUDA", rank=1)
def _(s):
    """.to("cuda") on rank 1 with the CPU package of torch."""
    s.write("train.py", program(batch="""
        if rank == 1 and global_step == 2:
            torch.nn.Linear(4, 4).to("cuda")
        """))
    lockstep(s, 2)


UNEQUAL = """
        if global_step == 7:
            torch.distributed.all_reduce(torch.ones(4 if rank == 0 else 1000))
        """


@case("gloo-size-differs-rank1-of-2-torchrun", "torchrun", SIZE, ["op.preamble.length"], USER,
      "rank 1 gives a larger tensor to an all_reduce than rank 0", rank=[0, 1, None])
def _(s):
    """all_reduce of 4 numbers on rank 0 and of 1,000 on rank 1."""
    s.write("train.py", program(batch=UNEQUAL))
    torchrun(s, 2)


@case("gloo-size-differs-rank1-of-2-lockstep", "lockstep", SIZE, ["op.preamble.length"], USER,
      "rank 1 gives a larger tensor to an all_reduce than rank 0", rank=[0, 1, None])
def _(s):
    """all_reduce of 4 numbers on rank 0 and of 1,000 on rank 1."""
    s.write("train.py", program(batch=UNEQUAL))
    lockstep(s, 2)


# The worker threads of Gloo still hold tensors of these collectives when the interpreter goes down.
NOT_DESTROYED = """import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 31):
    loss = torch.ones(10) / step
    dist.all_reduce(loss)
    print(f"step {step} loss {loss[0].item():.3f}", flush=True)
for _ in range(300):
    if rank == 0:
        dist.all_reduce(torch.ones(100), async_op=True)
    else:
        time.sleep(0.003)
        dist.all_reduce(torch.ones(100))
print("done", flush=True)
"""


def until_it_aborts(stage, run):
    """A race at the exit: it happens in one run of a few."""
    stage.write("train.py", NOT_DESTROYED)
    for _ in range(25):
        shutil.rmtree(stage.work / "runs", ignore_errors=True)
        run()
        text = "".join(p.read_text(errors="replace") for p in (stage.work / "log").rglob("*.log"))
        if "terminate called without an active exception" in text:
            return
    raise RuntimeError("it ended well every time")


@case("gloo-abort-at-exit-2-ranks-torchrun", "torchrun", LEAVING, ["terminate called"], ANY,
      "the program ends without destroy_process_group, and torch aborts while it goes down", rank=[0, 1, None])
def _(s):
    """Asynchronous collectives that nobody waits for, no destroy_process_group; repeated until it happened."""
    until_it_aborts(s, lambda: torchrun(s, 2))


@case("gloo-teardown-abort-2-ranks-lockstep", "lockstep", LEAVING, ["terminate called"], ANY,
      "the program ends without destroy_process_group, and torch aborts while it goes down", rank=[0, 1])
def _(s):
    """Asynchronous collectives that nobody waits for, no destroy_process_group; repeated until it happened."""
    until_it_aborts(s, lambda: lockstep(s, 2))


@case("gloo-teardown-stuck-rank0-of-2-lockstep", "lockstep", ["pt-teardown-stuck"], ["has ended (exit code 0)"], ANY,
      "rank 0 waits at its exit for a collective that rank 1, which has left, will never join", rank=[0, None])
def _(s):
    """Rank 1 leaves; a child of it keeps its connections open. Rank 0 ends with an asynchronous all_reduce under way."""
    s.write("train.py", """import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 31):
    loss = torch.ones(10) / step
    dist.all_reduce(loss)
    print(f"step {step} loss {loss[0].item():.3f}", flush=True)
if rank == 1:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
dist.all_reduce(torch.ones(100), async_op=True)
print("done", flush=True)
""")
    lockstep(s, 2, flags=["--stall-timeout", "10s"])
