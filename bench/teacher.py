#!/usr/bin/env python3
"""A stand-in for the encoder of a reference video VAE, of its size (about 50 M parameters, 3-D convolutions, time /4, space /8, 16 channels),
with random weights: teacher.py OUT.pt [cpu|cuda] writes it as TorchScript. What it computes means nothing; what it costs does."""

import sys

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.first = nn.Conv3d(before, after, 3, padding=1)
        self.second = nn.Conv3d(after, after, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(32, before), nn.GroupNorm(32, after)])
        self.skip = nn.Conv3d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x):
        y = self.first(F.silu(self.norms[0](x)))
        return self.skip(x) + self.second(F.silu(self.norms[1](y)))


class Teacher(nn.Module):
    def __init__(self, widths=(96, 192, 384, 384), latent=16):
        super().__init__()
        layers = [nn.Conv3d(3, widths[0], 3, padding=1)]
        before = widths[0]
        for i, width in enumerate(widths):
            layers += [Residual(before, width), Residual(width, width)]
            if i < 3:
                layers.append(nn.Conv3d(width, width, 3, padding=1, stride=(2 if i > 0 else 1, 2, 2)))
            before = width
        layers += [Residual(before, before), Residual(before, before), nn.Conv3d(before, 2 * latent, 3, padding=1)]
        self.layers = nn.Sequential(*layers)
        self.latent = latent

    def forward(self, frames):
        """Frames N T 3 H W in [-1, 1] -> mean and deviation of latents N T/4 16 H/8 W/8."""
        moments = self.layers(frames.transpose(1, 2)).transpose(1, 2)
        return moments[:, :, :self.latent], torch.exp(0.5 * moments[:, :, self.latent:].clamp(-30, 20))


def make(device="cpu", dtype=torch.bfloat16):
    torch.manual_seed(0)
    teacher = Teacher().to(device, dtype).eval().requires_grad_(False)
    return torch.jit.trace(teacher, torch.zeros(1, 12, 3, 64, 64, device=device, dtype=dtype), check_trace=False)


if __name__ == "__main__":
    traced = make(sys.argv[2] if len(sys.argv) > 2 else "cpu")
    print(sum(p.numel() for p in traced.parameters()), "parameters")
    traced.save(sys.argv[1])
