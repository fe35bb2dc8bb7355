"""A training that gets stuck: three good steps with a barrier each, then one rank does not come to the fourth.

usage: stuck.py MARKS RANK MODE    MODE: sleep, loader, worker, vfork, leave, none (for a signal from outside), once
"""

import ctypes
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 3:
            while True:
                time.sleep(0.05)  # a file that never comes
        return torch.zeros(1)


def read_all(workers):
    for _ in DataLoader(Clips(), batch_size=1, num_workers=workers):
        pass


def be_suspended():
    # The parent of a vfork sleeps uninterruptibly until its child is done: state D, as on a dead file system.
    if ctypes.CDLL(None).syscall(56, 0x4000 | 17, 0, 0, 0, 0) == 0:
        while True:
            time.sleep(1)


def wander():
    while True:
        time.sleep(0.2)


def main():
    marks, bad, mode = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(3):
        dist.barrier()
        print(f"step {step}/100 | loss 1.0", flush=True)
    marks.mkdir(parents=True, exist_ok=True)
    (marks / f"ready.{rank}").write_text(str(os.getpid()))
    if mode == "once" and os.environ["LOCKSTEP_ATTEMPT"] != "0":
        return
    if rank == bad:
        if mode in ("sleep", "once"):
            wander()
        elif mode == "loader":
            read_all(0)
        elif mode == "worker":
            read_all(1)
        elif mode == "vfork":
            be_suspended()
        elif mode == "leave":
            os._exit(0)
    while True:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.05)


main()
