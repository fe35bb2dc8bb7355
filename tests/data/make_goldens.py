#!/usr/bin/env python3
"""Writes transform_goldens.json: what resizing and colours must give, by PyTorch, Pillow and Python's colorsys."""
import colorsys
import json
import pathlib

import torch
import torch.nn.functional as F
from PIL import Image


def picture(width, height):
    """The pattern clip_transform_test.cc draws: channel c of pixel (x, y)."""
    y, x, c = torch.meshgrid(torch.arange(height), torch.arange(width), torch.arange(3), indexing="ij")
    return (x * 7 + y * 13 + c * 50 + x * y) % 256


def resize(width, height, box, target):
    x, y, w, h = box
    planes = picture(width, height)[y : y + h, x : x + w].permute(2, 0, 1).double()[None]
    out = F.interpolate(planes, size=(target[1], target[0]), mode="bilinear", antialias=True, align_corners=False)
    return {"frame": [width, height], "crop": box, "target": target, "planes": out[0].round().int().flatten().tolist()}


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def pillow(width, height, target, name):
    """Rows, then columns: up to Pillow 12 that is what one call does; 13 takes columns first in some cases."""
    image = Image.fromarray(picture(width, height).byte().numpy())
    for size in ((target[0], height), target):
        image = image.resize(size, getattr(Image.Resampling, name))
    out = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    planes = out.reshape(target[1], target[0], 3).permute(2, 0, 1).contiguous()
    return {"frame": [width, height], "target": target, "filter": name, "fnv": fnv(planes.flatten().tolist())}


SIZES = [(1280, 720, (224, 224)), (720, 576, (224, 224)), (640, 480, (644, 476)), (23, 17, (8, 6)), (10, 9, (33, 29)),
         (64, 48, (64, 48)), (64, 48, (64, 20)), (500, 3, (7, 200)), (1, 1, (5, 5)), (97, 101, (96, 100)),
         (3000, 2, (1, 2)), (20, 1500, (3, 1)), (33, 65, (21, 32)), (224, 224, (223, 225))]


def clamp(v):
    return min(1.0, max(0.0, v))


def grey(p):
    return 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2]


def colour(pixels, brightness, contrast, saturation, hue):
    p = [[clamp(v / 255 * brightness) for v in q] for q in pixels]
    mean = sum(grey(q) for q in p) / len(p)
    p = [[clamp(contrast * v + (1 - contrast) * mean) for v in q] for q in p]
    p = [[clamp(saturation * v + (1 - saturation) * grey(q)) for v in q] for q in p]
    out = []
    for q in p:
        h, s, v = colorsys.rgb_to_hsv(*q)
        out.append([round(255 * c) for c in colorsys.hsv_to_rgb((h + hue) % 1.0, s, v)])
    return {"settings": [brightness, contrast, saturation, hue], "in": pixels, "out": out}


pixels = [[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [12, 200, 99], [250, 240, 3], [128, 128, 128],
          [90, 30, 220], [33, 34, 35]]
goldens = {
    "resize": [
        resize(23, 17, [0, 0, 23, 17], [8, 6]),
        resize(64, 48, [0, 0, 64, 48], [32, 24]),
        resize(40, 30, [5, 2, 30, 20], [15, 10]),
        resize(40, 30, [1, 3, 33, 22], [12, 8]),
        resize(16, 16, [3, 4, 9, 9], [9, 9]),
    ],
    "pillow": [pillow(*size, name) for size in SIZES for name in ("BILINEAR", "BICUBIC")],
    "colour": [
        colour(pixels, 1.1, 1.0, 1.0, 0.0),
        colour(pixels, 1.0, 0.9, 1.0, 0.0),
        colour(pixels, 1.0, 1.0, 1.1, 0.0),
        colour(pixels, 1.0, 1.0, 1.0, 0.05),
        colour(pixels, 0.93, 1.08, 0.91, -0.04),
    ],
}
path = pathlib.Path(__file__).with_name("transform_goldens.json")
path.write_text(json.dumps(goldens, separators=(",", ":")) + "\n")
