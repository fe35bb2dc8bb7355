#!/usr/bin/env python3
"""Writes float_resample_goldens.json: what torch's interpolate(antialias=True) gives on float32, as bits."""
import json
import pathlib
import struct

import torch
import torch.nn.functional as F

SIZES = [(23, 17, 8, 6), (10, 9, 33, 29), (64, 48, 64, 20), (97, 31, 40, 31), (9, 11, 30, 8), (100, 90, 9, 7),
         (45, 31, 13, 17), (50, 3, 7, 20), (1, 1, 5, 5), (224, 224, 223, 225), (640, 480, 224, 224), (1280, 720, 256, 144)]
MOST = 400  # values kept of each picture


def picture(width, height):
    """The pattern float_resample_test.cc draws."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return ((x * 7 + y * 13 + x * y) % 251).float() / 251


def golden(width, height, to_width, to_height, mode):
    out = F.interpolate(picture(width, height)[None, None], size=(to_height, to_width), mode=mode, antialias=True, align_corners=False)
    every = max(1, out.numel() // MOST)
    bits = [struct.unpack("<I", struct.pack("<f", value))[0] for value in out.flatten()[::every].tolist()]
    return {"from": [width, height], "to": [to_width, to_height], "mode": mode, "every": every, "bits": bits}


if __name__ == "__main__":
    torch.set_num_threads(1)
    goldens = {"torch": torch.__version__, "kernels": torch.backends.cpu.get_cpu_capability(),
               "pictures": [golden(*size, mode) for mode in ("bilinear", "bicubic") for size in SIZES]}
    (pathlib.Path(__file__).parent / "float_resample_goldens.json").write_text(json.dumps(goldens, separators=(",", ":")) + "\n")
