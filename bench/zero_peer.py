#!/usr/bin/env python3
"""What PyTorch's FSDP2 on Gloo adds to a step, 2 processes of one thread each. One JSON line.

    zero_peer.py WIDTH LAYERS BATCH BLOCKS STEPS

Every layer and the root are sharded. `fsdp2` keeps parameters between forward and backward (reshard_after_forward=False,
ZeRO-2), `fsdp3` gathers them again (ZeRO-3). No optimizer: parameters are gathered in every step all the same.
"""

import json
import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from train_peer import in_turns, perceptron


def sharded(mesh, width, layers, again):
    model = perceptron(width, layers)
    for part in model:
        if isinstance(part, nn.Linear):
            fully_shard(part, mesh=mesh, reshard_after_forward=again)
    return fully_shard(model, mesh=mesh, reshard_after_forward=again)


def one_rank(rank, port, width, layers, batch, blocks, steps, ranks=2):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    models = {"alone": perceptron(width, layers), "fsdp2": sharded(mesh, width, layers, False),
              "fsdp3": sharded(mesh, width, layers, True)}
    medians = in_turns(models, width, batch, blocks, steps)
    if rank == 0:
        print(json.dumps(medians), flush=True)
    dist.destroy_process_group()


def main():
    import torch.multiprocessing as mp
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(one_rank, args=(port, *map(int, sys.argv[1:])), nprocs=2)


if __name__ == "__main__":
    main()
