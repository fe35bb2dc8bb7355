#!/usr/bin/env python3
"""The PyTorch side of the training benchmarks, written as one would write it. One JSON line each; one thread per rank.

    train_peer.py ddp WIDTH LAYERS BATCH BLOCKS STEPS   what DistributedDataParallel on Gloo adds to a step, 2 processes
    train_peer.py first-step                            (under a launcher) a DDP job up to "step 1" of a small TAEHV
    train_peer.py step BATCH FRAMES SIZE STEPS THREADS  a training step of a small TAEHV: AdamW, clipping
    train_peer.py optimizer MILLIONS THREADS ROUNDS     AdamW alone
"""

import json
import os
import pathlib
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent


# --- what a step costs more on two ranks than alone ---
def perceptron(width, layers):
    torch.manual_seed(1)
    parts = []
    for i in range(layers):
        parts += [nn.ReLU()] if i else []
        parts.append(nn.Linear(width, width))
    return nn.Sequential(*parts)


def in_turns(models, width, batch, blocks, steps):
    """By model: the median step of every block, in seconds. All ranks."""
    x, y = torch.rand(batch, width), torch.rand(batch, width)
    medians = {name: [] for name in models}
    for block in range(-1, blocks):  # the first is for warming up
        for name, model in models.items():
            dist.barrier()
            times = []
            for _ in range(steps):
                start = time.perf_counter()
                model.zero_grad(set_to_none=True)
                F.mse_loss(model(x), y).backward()
                times.append(time.perf_counter() - start)
            if block >= 0:
                medians[name].append(statistics.median(times))
    return medians


def ddp_rank(rank, port, width, layers, batch, blocks, steps, ranks=2):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    wrap = nn.parallel.DistributedDataParallel
    models = {"alone": perceptron(width, layers), "ddp": wrap(perceptron(width, layers)),
              "ddp_view": wrap(perceptron(width, layers), gradient_as_bucket_view=True, static_graph=True)}
    medians = in_turns(models, width, batch, blocks, steps)
    if rank == 0:
        print(json.dumps(medians), flush=True)
    dist.destroy_process_group()


def ddp(width, layers, batch, blocks, steps):
    import torch.multiprocessing as mp
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(ddp_rank, args=(port, int(width), int(layers), int(batch), int(blocks), int(steps)), nprocs=2)


# --- a small TAEHV ---
def small_taehv():
    """The model of the parity tests, with the previous frame taken by a shift of the whole clip, as upstream does."""
    sys.path.insert(0, str(ROOT / "tests/golden"))
    import taehv

    def forward(self, x, clips):
        past = F.pad(x.unflatten(0, (clips, -1)), (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1].reshape(x.shape)
        return F.relu(x + self.conv(torch.cat([x, past], 1)))
    taehv.Memory.forward = forward

    class Joint(taehv.Taehv):
        def forward(self, frames):
            return self.decode(self.encode(frames))
    torch.manual_seed(42)
    model = Joint(**taehv.SMALL)
    model.start_near_identity()
    return model


def one_step(model, optimizer, frames):
    frames = frames.float().div(255)
    optimizer.zero_grad(set_to_none=True)
    output = model(frames)
    loss = F.mse_loss(output, frames[:, :output.shape[1]])
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item(), norm.item()


def clips(batch, frames, size):
    return torch.randint(0, 256, (batch, frames, 3, size, size), dtype=torch.uint8)


def first_step():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(small_taehv())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95))
    loss, _ = one_step(model, optimizer, clips(1, 12, 32))
    if dist.get_rank() == 0:
        print(f"step 1 loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


def step(batch, frames, size, steps, threads):
    torch.set_num_threads(int(threads))
    model = small_taehv()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    data = clips(int(batch), int(frames), int(size))
    times = []
    for _ in range(int(steps)):
        start = time.perf_counter()
        one_step(model, optimizer, data)
        times.append(time.perf_counter() - start)
    print(json.dumps({"step": statistics.median(times[2:])}))


# --- the optimizer ---
def optimizer(millions, threads, rounds):
    torch.set_num_threads(int(threads))
    parameters = [nn.Parameter(torch.rand(1000, 1000)) for _ in range(int(millions))]
    for p in parameters:
        p.grad = torch.rand_like(p)
    out = {}
    for name, options in (("fused", {"fused": True}), ("default", {})):
        adamw = torch.optim.AdamW(parameters, lr=1e-4, **options)
        plain, clipped = [], []
        for at in range(-2, int(rounds)):
            start = time.perf_counter()
            adamw.step()
            middle = time.perf_counter()
            nn.utils.clip_grad_norm_(parameters, 1e9)  # a norm never reached, so that gradients keep their values
            adamw.step()
            if at >= 0:
                plain.append(middle - start)
                clipped.append(time.perf_counter() - middle)
        out[name] = {"step": statistics.median(plain), "clip_and_step": statistics.median(clipped)}
    print(json.dumps(out))


if __name__ == "__main__":
    {"ddp": ddp, "first-step": first_step, "step": step, "optimizer": optimizer}[sys.argv[1]](*sys.argv[2:])
