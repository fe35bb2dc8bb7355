"""hangs.py FOLDER: rank 0 waits in an all-reduce that rank 1 never enters, as a deadlocked training does."""

import sys
import time

import torch
import torch.distributed as dist

import ready

dist.init_process_group("gloo")
dist.barrier()
ready.mark(sys.argv[1])
if dist.get_rank() != 0:
    time.sleep(600)
dist.all_reduce(torch.ones(1))
