#!/usr/bin/env python3
"""Samples a second of the paired loader with spikes against torch's DataLoader with KAIR's way of reading: PNG frames of
1280x720, blurred and sharp, spike files of 88 x 360 x 640, six frames a sample, a crop of 224, TFP of one channel.

    LOCKSTEP_PROGRAM=build/bin/lockstep-train python bench/vrt_data.py [--frames 24] [--samples 24] [--rounds 3]

Needs numpy, torch and OpenCV (or Pillow, then said so). Both sides have two workers (our threads, DataLoader's processes)
and read the same files from the page cache. The peer is written from the description of KAIR's and S-VRT's data set: each
frame is decoded whole, made float32 and RGB, then cropped; each spike file is unpacked whole, TFP is the mean of 41 steps
times 255 as a byte; the box of the crop is resized. It is kinder than theirs in one place: bits are unpacked by
numpy.unpackbits instead of one shift for each of eight bits."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch

try:
    import cv2
    cv2.setNumThreads(0)
except ImportError:
    cv2 = None
from PIL import Image

CROP, T, WORKERS, BATCH, HEIGHT, WIDTH, STEPS = 224, 6, 2, 2, 720, 1280, 88


def photograph(random):
    picture = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    for size in (6, 12, 24, 48, 96, 180, 360, 720):
        noise = (random.normal(size=(size, size * 16 // 9, 3)) * (720 / size) ** 0.9).astype(np.float32)
        planes = [np.asarray(Image.fromarray(noise[..., c]).resize((WIDTH, HEIGHT), Image.BICUBIC)) for c in range(3)]
        picture += np.stack(planes, -1)
    return (128 + 45 * picture / picture.std()).clip(0, 255).astype(np.uint8)


def make(root, frames):
    random = np.random.default_rng(3)
    folders = {side: root / "GOPRO_Large" / f"train_{side}" / "clip" for side in ("GT", "GT_blurred")}
    spikes = root / "GOPRO_Large_spike_seq" / "train" / "clip" / "spike"
    for folder in (*folders.values(), spikes):
        folder.mkdir(parents=True)
    base = photograph(random)
    for i in range(1, frames + 1):
        picture = np.roll(base, 7 * i, 1)
        for folder in folders.values():
            Image.fromarray(picture).save(folder / f"{i:06d}.png", compress_level=3)
        random.integers(0, 256, STEPS * 360 * 640 // 8, np.uint8).tofile(spikes / f"{i:06d}.dat")
    return folders["GT"], folders["GT_blurred"], spikes


def read_picture(path):
    if cv2 is None:
        return np.asarray(Image.open(path).convert("RGB")).astype(np.float32) / 255
    picture = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR).astype(np.float32) / 255
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)


def resize(plane, size):
    if cv2 is not None:
        return cv2.resize(plane, size, interpolation=cv2.INTER_LINEAR)
    return np.asarray(Image.fromarray(plane).resize(size, Image.BILINEAR))


class Kair(torch.utils.data.Dataset):
    def __init__(self, folders, samples):
        self.folders, self.samples = folders, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        random = np.random.default_rng(index)
        gt, lq, spikes = self.folders
        total = len(list(gt.iterdir()))
        start = int(random.integers(1, total - T + 2))
        top, left = int(random.integers(0, HEIGHT - CROP + 1)), int(random.integers(0, WIDTH - CROP + 1))
        inputs, targets = [], []
        for i in range(start, start + T):
            picture = read_picture(lq / f"{i:06d}.png")[top:top + CROP, left:left + CROP]
            target = read_picture(gt / f"{i:06d}.png")[top:top + CROP, left:left + CROP]
            bits = np.unpackbits(np.fromfile(spikes / f"{i:06d}.dat", np.uint8), bitorder="little").reshape(-1, 360, 640)[:, ::-1]
            window = torch.from_numpy(np.ascontiguousarray(bits[24:65])).float()
            tfp = (window.mean(0) * 255).numpy().astype(np.uint8).astype(np.float32) / 255
            box = tfp[round(top / 2):round(top / 2) + CROP // 2, round(left / 2):round(left / 2) + CROP // 2]
            inputs.append(np.concatenate([picture, resize(box, (CROP, CROP))[..., None]], 2))
            targets.append(target)
        pictures = inputs + targets
        if random.random() < 0.5:
            pictures = [p[:, ::-1] for p in pictures]
        if random.random() < 0.5:
            pictures = [p[::-1] for p in pictures]
        if random.random() < 0.5:
            pictures = [p.transpose(1, 0, 2) for p in pictures]
        tensors = [torch.from_numpy(np.ascontiguousarray(p.transpose(2, 0, 1))).float() for p in pictures]
        return torch.stack(tensors[:T]), torch.stack(tensors[T:])


def peer(folders, samples):
    loader = torch.utils.data.DataLoader(Kair(folders, samples), BATCH, num_workers=WORKERS, prefetch_factor=2)
    it = iter(loader)
    next(it)  # workers are up
    start, count = time.monotonic(), 0
    for batch, _ in it:
        count += len(batch)
    return count / (time.monotonic() - start)


def ours(program, root, seconds):
    command = [program, "data", "bench", root, "--kind", "gopro-spike", "--threads", WORKERS, "--batch", BATCH, "--frames", T,
               "--height", CROP, "--width", CROP, "--augment", "--seconds", seconds, "--json"]
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["samples_per_second"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    program = os.environ.get("LOCKSTEP_PROGRAM", "build/bin/lockstep-train")
    with tempfile.TemporaryDirectory() as tmp:
        root = pathlib.Path(tmp)
        folders = make(root, args.frames)
        rows = {"ours": [], "kair": []}
        for _ in range(args.rounds):
            rows["ours"].append(ours(program, root, args.seconds))
            rows["kair"].append(peer(folders, args.samples))
        a, b = (statistics.median(rows[name]) for name in ("ours", "kair"))
        print(f"decoder of the peer: {'OpenCV' if cv2 is not None else 'Pillow'}")
        print(f"lockstep, {WORKERS} threads            {a:8.2f} samples/s  {[round(x, 2) for x in rows['ours']]}")
        print(f"as KAIR, DataLoader, {WORKERS} workers {b:8.2f} samples/s  {[round(x, 2) for x in rows['kair']]}")
        print(f"ratio {a / b:.2f}")


if __name__ == "__main__":
    main()
