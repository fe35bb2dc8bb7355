#!/usr/bin/env python3
"""TAEHV's joint training step on two CPU cores in float32 against PyTorch: as upstream writes it, and channels-last with
fused AdamW. Ours runs between the rounds as a program of its own (two threads too); medians over rounds.

    python3 bench/cpu_taehv.py --ours build/release/bench/taehv_bench [--clips 2] [--frames 12] [--side 64] [--rounds 5]
"""

import argparse
import json
import statistics
import subprocess
import time

import gpu_peer
import torch
from torch.nn import functional as F


class Step:
    def __init__(self, way, shape):
        torch.manual_seed(0)
        self.model = gpu_peer.taehv.Taehv()
        self.model.start_near_identity()
        self.frames = torch.rand(shape)
        if way == "channels_last":
            self.model.to(memory_format=torch.channels_last)
            clip, frame = shape[:2], shape[2:]
            self.frames = self.frames.flatten(0, 1).to(memory_format=torch.channels_last).unflatten(0, clip)
            assert self.frames.shape[2:] == frame
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=way != "upstream")
        self.run(1)

    def run(self, times):
        start = time.perf_counter()
        for _ in range(times):
            decoded = self.model.decode(self.model.encode(self.frames))
            F.mse_loss(decoded, self.frames[:, :decoded.shape[1]]).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return 1e3 * (time.perf_counter() - start) / times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--clips", type=int, default=2)
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    shape = (arguments.clips, arguments.frames, 3, arguments.side, arguments.side)
    ways = {way: Step(way, shape) for way in ("upstream", "channels_last")}
    measured = {way: [] for way in (*ways, "lockstep", "lockstep reference")}
    for _ in range(arguments.rounds):
        for way, step in ways.items():
            measured[way].append(step.run(2))
        for way, execution in (("lockstep", "fast"), ("lockstep reference", "reference")):
            command = [arguments.ours, "step", "cpu", "fp32", execution, *(str(n) for n in (*shape[:2], *shape[3:], 3))]
            measured[way].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["ms"])
    for way, ms in measured.items():
        print(json.dumps({"way": way, "size": "x".join(map(str, shape)), "ms": round(statistics.median(ms), 1), "from": round(min(ms), 1), "to": round(max(ms), 1)}))


if __name__ == "__main__":
    main()
