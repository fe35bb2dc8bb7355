#!/usr/bin/env python3
"""LPIPS v0.1 on AlexNet as its paper and README describe it, on PyTorch alone: lpips.py writes data/lpips.json, lpips.py --check compares.

The published weights cannot be part of this tree. The weights here come from a formula that the C++ test computes too, so that
only the distances are stored. Computed in float64.
"""
import argparse
import json
import math
import pathlib
import sys

import torch
from torch import nn

FILE = pathlib.Path(__file__).resolve().parent / "data" / "lpips.json"
CHANNELS = (64, 192, 384, 256, 256)


def numbers(count, salt):
    """Values in [-0.5, 0.5) that look random and are the same everywhere."""
    x = torch.sin(torch.arange(count, dtype=torch.float64) * 12.9898 + salt) * 43758.5453
    return x - x.floor() - 0.5


class Lpips(nn.Module):
    def __init__(self):
        super().__init__()
        relu = nn.ReLU()
        pool = nn.MaxPool2d(kernel_size=3, stride=2)
        self.slices = nn.ModuleList([
            nn.Sequential(nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2), relu),
            nn.Sequential(pool, nn.Conv2d(64, 192, kernel_size=5, padding=2), relu),
            nn.Sequential(pool, nn.Conv2d(192, 384, kernel_size=3, padding=1), relu),
            nn.Sequential(nn.Conv2d(384, 256, kernel_size=3, padding=1), relu),
            nn.Sequential(nn.Conv2d(256, 256, kernel_size=3, padding=1), relu)])
        self.lin = nn.ModuleList(nn.Conv2d(c, 1, kernel_size=1, bias=False) for c in CHANNELS)
        self.mean = torch.tensor([-.030, -.088, -.188], dtype=torch.float64)[:, None, None]
        self.spread = torch.tensor([.458, .448, .450], dtype=torch.float64)[:, None, None]

    def forward(self, a, b):
        """Pictures NCHW in [-1, 1] -> N distances."""
        a, b = ((x - self.mean) / self.spread for x in (a, b))
        total = 0
        for part, lin in zip(self.slices, self.lin):
            a, b = part(a), part(b)
            first, second = (x / (x.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-10) for x in (a, b))
            total = total + lin((first - second) ** 2).mean(dim=(1, 2, 3))
        return total


def model():
    net = Lpips().double()
    for k, part in enumerate(net.slices):
        conv = next(m for m in part if isinstance(m, nn.Conv2d))
        fan = conv.weight[0].numel()
        conv.weight.data = (numbers(conv.weight.numel(), k + 1) * math.sqrt(24 / fan)).float().double().view_as(conv.weight)
        conv.bias.data = (numbers(len(conv.bias), k + 11) * 0.2).float().double()
    for k, lin in enumerate(net.lin):
        lin.weight.data = (numbers(lin.weight.numel(), k + 21) + 0.5).float().double().view_as(lin.weight)
    return net


def levels(shape, salt):
    """Pictures of whole 8-bit levels."""
    return ((numbers(math.prod(shape), salt) + 0.5) * 255).round().view(shape)


def distances():
    net = model()
    found = []
    for n, (height, width) in enumerate([(64, 64), (31, 40), (72, 48), (97, 65)]):
        a = levels((3, 3, height, width), 31 + n)
        b = (a + levels(a.shape, 41 + n) * 0.2 - 25).round().clamp(0, 255)
        with torch.no_grad():
            found.append({"height": height, "width": width, "distance": net(a / 127.5 - 1, b / 127.5 - 1).tolist()})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    found = distances()
    if not parser.parse_args().check:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        return
    for old, new in zip(json.loads(FILE.read_text()), found, strict=True):
        for x, y in zip(old["distance"], new["distance"], strict=True):
            if abs(x - y) > 1e-9 * abs(y):
                sys.exit(f"{old['height']} x {old['width']}: stored {x}, computed {y}")


if __name__ == "__main__":
    main()
