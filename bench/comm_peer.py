#!/usr/bin/env python3
"""The peer of comm_bench: torch.distributed's Gloo, two processes, one thread each, the same sizes and the same rules
(data rewritten before every call, outside of the timed part). One JSON line per size."""

import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def measure(count, seconds):
    data = torch.empty(count)
    times = []
    start = time.monotonic()
    more = torch.ones(1)
    while more.item():
        for k in range(20 if count < 1 << 20 else 5):
            data.fill_(k)
            dist.barrier()
            before = time.perf_counter()
            dist.all_reduce(data)
            times.append(time.perf_counter() - before)
        more.fill_(1.0 if time.monotonic() - start < seconds else 0.0)
        dist.all_reduce(more, op=dist.ReduceOp.MIN)
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]


def rank_main(rank, size, port, seconds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    for size_bytes in (4 << 10, 200 << 10, 4 << 20, 20 << 20):
        p50, p99 = measure(size_bytes // 4, seconds)
        if rank == 0:
            print(json.dumps({"bytes": size_bytes, "p50": p50, "p99": p99}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    mp.spawn(rank_main, args=(ranks, free, seconds), nprocs=ranks)
