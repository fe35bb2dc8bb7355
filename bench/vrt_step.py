#!/usr/bin/env python3
"""CPU: one training step of VRT against upstream's PyTorch module, and the deformable convolution against one that gathers.

    vrt_step.py network_vrt.py vrt_bench [--threads 2] [--repeats 3]

Both sides in one go, in turns, with the same threads, fp32, without recomputation. Steps: of 009's shape (interpolation: no SpyNet and no
deformable convolution) and of 006's (with both; on PyTorch's side the deformable convolution gathers, since torchvision has no CPU build for
this torch).
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

import torch

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden")]
from gpu_vrt_peer import stand_ins  # noqa: E402
from vrt import deform  # noqa: E402
from vrt_upstream import load_upstream  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("upstream")
parser.add_argument("bench")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--repeats", type=int, default=3)
args = parser.parse_args()
torch.set_num_threads(args.threads)


def best(work):
    work()
    times = []
    for _ in range(args.repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


stand_ins()
Upstream = load_upstream(args.upstream)
clips = torch.rand(1, 4, 3, 64, 64)


def step_of(**options):
    model = Upstream(upscale=1, img_size=[4, 64, 64], window_size=[4, 8, 8], depths=[2] * 11, mul_attn_ratio=0.5, embed_dims=[96] * 7 + [120] * 4,
                     num_heads=[6] * 11, drop_path_rate=0.0, **options)
    for module in model.modules():  # upstream recomputes this attention always; here neither side does
        if hasattr(module, "use_checkpoint_attn"):
            module.use_checkpoint_attn = False
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        (model(clips).square() + 1e-6).sqrt().mean().backward()
        optimizer.step()
    return step


step, deblur = step_of(pa_frames=0, indep_reconsts=[]), step_of(pa_frames=2, indep_reconsts=[9, 10], deformable_groups=16)
inputs = [(torch.randn(s) * k).requires_grad_() for s, k in
          (((4, 96, 64, 64), 1), ((4, 288, 64, 64), 3), ((4, 144, 64, 64), 1), ((96, 96, 3, 3), 0.03), ((96,), 1))]
ours = []
theirs = []
for _ in range(2):
    ours.append(json.loads(subprocess.run([args.bench, str(args.threads), str(args.repeats)], capture_output=True, check=True, text=True).stdout))
    theirs.append({"step_ms": best(step), "deblur_ms": best(deblur), "deformable_ms": best(lambda: deform(*inputs).sum().backward())})
for key in ("step_ms", "deblur_ms", "deformable_ms"):
    own, other = min(o[key] for o in ours), min(t[key] for t in theirs)
    print(f"{key}: ours {own:.0f}, PyTorch {other:.0f}, {other / own:.2f}x ({args.threads} threads)")
