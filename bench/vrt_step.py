#!/usr/bin/env python3
"""CPU: one training step of VRT against upstream's PyTorch module, and the deformable convolution against one that gathers.

    vrt_step.py network_vrt.py vrt_bench [--threads 2] [--repeats 3]

Both sides in one go, in turns, with the same threads. The step is that of 009's shape (interpolation: no SpyNet and no deformable
convolution, since torchvision has no CPU build for this torch), fp32, without recomputation. Needs `pip install einops`.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"))
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


model = load_upstream(args.upstream)(
    upscale=1, img_size=[4, 64, 64], window_size=[4, 8, 8], depths=[2] * 11, mul_attn_ratio=0.5, indep_reconsts=[], embed_dims=[96] * 7 + [120] * 4,
    num_heads=[6] * 11, pa_frames=0, drop_path_rate=0.0)
for module in model.modules():  # upstream recomputes this attention always; here neither side does
    if hasattr(module, "use_checkpoint_attn"):
        module.use_checkpoint_attn = False
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
clips = torch.rand(1, 4, 3, 64, 64)


def step():
    optimizer.zero_grad()
    (model(clips).square() + 1e-6).sqrt().mean().backward()
    optimizer.step()


inputs = [(torch.randn(s) * k).requires_grad_() for s, k in
          (((4, 96, 64, 64), 1), ((4, 288, 64, 64), 3), ((4, 144, 64, 64), 1), ((96, 96, 3, 3), 0.03), ((96,), 1))]
ours = []
theirs = []
for _ in range(2):
    ours.append(json.loads(subprocess.run([args.bench, str(args.threads), str(args.repeats)], capture_output=True, check=True, text=True).stdout))
    theirs.append({"step_ms": best(step), "deformable_ms": best(lambda: deform(*inputs).sum().backward())})
for key in ("step_ms", "deformable_ms"):
    own, other = min(o[key] for o in ours), min(t[key] for t in theirs)
    print(f"{key}: ours {own:.0f}, PyTorch {other:.0f}, {other / own:.2f}x ({args.threads} threads)")
