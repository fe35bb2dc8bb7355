#!/usr/bin/env python3
"""The CPU's part of an offloaded optimizer step, as others do it: scale the float32 gradients in place, AdamW, copy the
parameters to bf16. One JSON line with median seconds, each also with the norm of the gradients before it.

    offload_peer.py torch MILLIONS THREADS ROUNDS        torch.optim.AdamW(fused=True)
    offload_peer.py deepspeed MILLIONS THREADS ROUNDS    DeepSpeedCPUAdam; in a Python that has it. It is compiled at its
                                                         first use, in about a minute
"""

import json
import os
import statistics
import sys
import time


def main():
    kind, millions, threads, rounds = sys.argv[1], *map(int, sys.argv[2:])
    os.environ.update(OMP_NUM_THREADS=str(threads), DS_ACCELERATOR="cpu")
    import torch
    torch.set_num_threads(threads)
    parameters = [torch.nn.Parameter(torch.rand(1000, 1000)) for _ in range(millions)]
    if kind == "deepspeed":
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        optimizer = DeepSpeedCPUAdam(parameters, lr=1e-4, adamw_mode=True)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    copies = [torch.empty_like(p, dtype=torch.bfloat16) for p in parameters]
    for p in parameters:
        p.grad = torch.rand_like(p)
    gradients = [p.grad for p in parameters]

    @torch.no_grad()
    def step(with_norm):
        if with_norm:
            torch.nn.utils.get_total_norm(gradients)
        for gradient in gradients:
            gradient.mul_(0.9999)
        optimizer.step()
        for copy, p in zip(copies, parameters):
            copy.copy_(p)
    seconds = {"step": [], "norm_and_step": []}
    for at in range(-2, rounds):
        for name, times in seconds.items():
            start = time.perf_counter()
            step(name != "step")
            if at >= 0:
                times.append(time.perf_counter() - start)
    print(json.dumps({name: statistics.median(times) for name, times in seconds.items()}))


if __name__ == "__main__":
    main()
