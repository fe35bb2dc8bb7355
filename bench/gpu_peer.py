#!/usr/bin/env python3
"""The peer of a training step on a GPU: TAEHV in PyTorch eager as upstream writes it (autocast, AdamW, clip_grad_norm_,
GradScaler for fp16), 16 clips of 12 x 64 x 64. One JSON line with the median of 30 steps per precision.

Ours beside it, a step's time from runs/<name>/metrics/rank-0.jsonl (`time/step`):
    lockstep train taehv --set train.batch=16 --set train.steps=60 --set train.precision=bf16 --set data.validation.fraction=0 \
        --set data.threads=6 --set checkpoint.every=0 --set train.schedule.warmup=20
"""

import json
import pathlib
import statistics
import sys
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "golden"))
import taehv  # noqa: E402


def memory(self, x, clips):
    """The tests' version loops over clips; upstream shifts all of them at once."""
    n, c, h, w = x.shape
    past = F.pad(x.view(clips, n // clips, c, h, w), (0, 0, 0, 0, 0, 0, 1, 0))[:, :n // clips].reshape(x.shape)
    return F.relu(x + self.conv(torch.cat([x, past], 1)))


def pool(self, x):
    n, c, h, w = x.shape
    return self.conv(x.reshape(n // self.frames, self.frames * c, h, w))


def grow(self, x):
    n, c, h, w = x.shape
    return self.conv(x).reshape(n * self.frames, c, h, w)


taehv.Memory.forward, taehv.Pool.forward, taehv.Grow.forward = memory, pool, grow
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def measure(precision, steps=40, warm=10):
    torch.manual_seed(0)
    model = taehv.Taehv().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95))
    scaler = torch.amp.GradScaler(enabled=precision == "fp16")
    batch = torch.randint(0, 256, (16, 12, 3, 64, 64), dtype=torch.uint8)
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        frames = batch.cuda().float() / 255
        with torch.autocast("cuda", TYPES[precision], enabled=precision != "fp32"):
            decoded = model.decode(model.encode(frames)).float()
            loss = F.mse_loss(decoded, frames[:, :decoded.shape[1]])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        loss.item()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return {"precision": precision, "ms": 1e3 * statistics.median(times[warm:]), "peak_gib": torch.cuda.max_memory_allocated() / 2**30}


if __name__ == "__main__":
    print(json.dumps([measure(precision) for precision in TYPES]))
