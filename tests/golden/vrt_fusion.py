#!/usr/bin/env python3
"""Golden values for the fusion of RGB and spikes (src/models/vrt_fusion.h), from functions written from the description of S-VRT's
operators: vrt_fusion.py writes tests/golden/data/vrt_fusion*, vrt_fusion.py --check compares.

Parameters are not stored: every one of the names and shapes below is drawn by formula (draw.py), larger than a model begins with.
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from draw import uniform  # noqa: E402
from make import differences, distance  # noqa: E402

SEED, SHAPE = 5, (1, 2, 8, 12)  # batch, frames, height, width


class Parameters:
    """Drawn when first asked for."""

    def __init__(self, dtype):
        self.dtype, self.named = dtype, {}

    def __call__(self, name, *shape):
        if name not in self.named:
            self.named[name] = (uniform(SEED, name, shape, 0.3) + (1 if ".norm" in name and name.endswith("weight") else 0)).to(self.dtype).requires_grad_()
        return self.named[name]

    def conv(self, name, x, out, kernel=3, stride=1):
        return F.conv2d(x, self(name + ".weight", out, x.shape[1], kernel, kernel), self(name + ".bias", out), stride, kernel // 2)

    def linear(self, name, x, out):
        return F.linear(x, self(name + ".weight", out, x.shape[-1]), self(name + ".bias", out))

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self(name + ".weight", x.shape[-1]), self(name + ".bias", x.shape[-1]))


def adaptive(p, x, out, hidden, k=3):
    n, s, h, w = x.shape
    y = F.relu(p.conv("pase.kernel_predictor.net.0", x, hidden))
    y = F.relu(p.conv("pase.kernel_predictor.net.2", y, hidden))
    kernels = p.conv("pase.kernel_predictor.net.4", y, out * s * k * k).view(n, out, s * k * k, h, w).softmax(2)
    padded = F.pad(x, [k // 2] * 4)
    patches = torch.stack([padded[:, c, i:i + h, j:j + w] for c in range(s) for i in range(k) for j in range(k)], 1)
    return (kernels * patches.unsqueeze(1)).sum(2)


def concat(p, rgb, spikes):
    return p.conv("proj", torch.cat([rgb, spikes], 1), 3, 1)


def gated(p, rgb, spikes):
    x = torch.cat([rgb, spikes], 1)

    def branch(name):
        return p.conv(name + ".2", F.relu(p.conv(name + ".0", x, 6)), 3, 1)
    return rgb + torch.sigmoid(branch("gate")) * branch("correction")


def pase(p, rgb, spikes):
    return p.conv("rgb_proj", rgb, 3, 1) + adaptive(p, spikes, 3, 6)


def written(p, rgb, x):
    def head(name):
        return F.interpolate(p.conv(f"fusion_writeback_head.{name}", x, 3, 1), size=rgb.shape[2:], mode="bilinear", align_corners=False)
    return rgb + p("alpha", 1, 3, 1, 1) * torch.sigmoid(head("gate")) * head("delta")


def pase_residual(p, rgb, spikes):
    x = F.relu(p.conv("rgb_context_encoder.2", F.relu(p.conv("rgb_context_encoder.0", rgb, 5)), 5))
    x = x + adaptive(p, spikes, 5, 6)
    x = F.relu(p.conv("fusion_body.2", F.relu(p.conv("fusion_body.0", x, 5)), 5))
    return written(p, rgb, x)


def attention(p, rgb, spikes, d=8, heads=2, layers=2, stride=4):
    n, bins = spikes.shape[:2]
    low = F.relu(p.conv("rgb_context_encoder.2", F.relu(p.conv("rgb_context_encoder.0", rgb, d, 3, stride)), d))
    tokens = p.conv("spike_token_encoder.2", F.relu(p.conv("spike_token_encoder.0", spikes.reshape(n * bins, 1, *spikes.shape[2:]), d, 3, stride)), d)
    h, w = low.shape[2:]
    x = (tokens.view(n, bins, d, h, w) + low.unsqueeze(1)).permute(0, 3, 4, 1, 2).reshape(-1, bins, d)
    for i in range(layers):
        name = f"attention_token_mixer.{i}"
        y = p.norm(name + ".norm1", x)
        q, k, v = F.linear(y, p(name + ".attn.in_proj_weight", 3 * d, d), p(name + ".attn.in_proj_bias", 3 * d)).chunk(3, -1)
        parts = []
        for a in range(heads):
            s = slice(a * d // heads, (a + 1) * d // heads)
            parts.append((q[..., s] @ k[..., s].transpose(1, 2) / (d // heads)**0.5).softmax(-1) @ v[..., s])
        x = x + p.linear(name + ".attn.out_proj", torch.cat(parts, -1), d)
        x = x + p.linear(name + ".mlp.3", F.gelu(p.linear(name + ".mlp.0", p.norm(name + ".norm2", x), 2 * d)), d)
    pooled = x.mean(1).view(n, h, w, d).permute(0, 3, 1, 2)
    return written(p, rgb, F.relu(p.conv("fusion_writeback_head.body.0", pooled + low, d)))


OPERATORS = {"concat": (concat, True), "gated": (gated, True), "pase": (pase, True), "pase_residual": (pase_residual, False), "attention": (attention, False)}
BINS = 3


def run(name, dtype):
    operator, expanded = OPERATORS[name]
    b, t, h, w = SHAPE
    rgb = (uniform(SEED, "rgb", (b, t, 3, h, w), 0.5) + 0.5).to(dtype)
    spikes = (uniform(SEED, "spikes", (b, t, BINS, h, w), 0.5) + 0.5).to(dtype)
    p = Parameters(dtype)
    if expanded:
        out = operator(p, rgb.repeat_interleave(BINS, 1).flatten(0, 1), spikes.view(b * t * BINS, 1, h, w))
    else:
        out = operator(p, rgb.flatten(0, 1), spikes.flatten(0, 1))
    (out * torch.cos(torch.arange(out.numel(), dtype=dtype)).view(out.shape)).sum().backward()
    return out.detach(), {n: q.grad for n, q in p.named.items()}


def make():
    doc, tensors = {}, {}
    for name in OPERATORS:
        (out, gradients), (out32, gradients32) = run(name, torch.float64), run(name, torch.float32)
        doc[name] = {"names": sorted(gradients), "output": distance(out32, out), "gradient": max(distance(gradients32[n], g) for n, g in gradients.items())}
        tensors[name + ".output"] = out
        tensors[name + ".norms"] = torch.stack([gradients[n].norm() for n in sorted(gradients)])
    return doc, {n: t.float().contiguous() for n, t in tensors.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare what is stored with what this machine computes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    doc, tensors = make()
    data = HERE / "data"
    if args.check:
        problems = differences(load_file(data / "vrt_fusion.safetensors"), tensors, "vrt_fusion.safetensors", 1e-6)
        print("\n".join(problems))
        return 1 if problems else 0
    (data / "vrt_fusion.json").write_text(json.dumps(doc) + "\n")
    save_file(tensors, data / "vrt_fusion.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
