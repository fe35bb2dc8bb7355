#!/usr/bin/env python3
"""Images a second of the loader against torch's DataLoader with Pillow: JPEG files of 1280x720 from disk, the largest
centred square, resized to 224x224, as bytes [3, 224, 224].

    LOCKSTEP_PROGRAM=build/bin/lockstep .venv/bin/python bench/loader.py [--images 200] [--seconds 5] [--rounds 3]

Rows, each measured in turn in every round, medians printed:
  exact   the same pixels on both sides (checked first): whole decoding, Pillow's bicubic
  scaled  JPEG reduced while it is decoded: our data.decode: scaled against Image.draft
Both sides have two workers: our threads, DataLoader's processes. The peer stops at bytes as we do; with --normalise it
also makes normalised floats, which our engine does on the device."""

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
from PIL import Image

SIDE, WORKERS, BATCH = 224, 2, 32


def photographs(folder, count):
    """Pictures with the spectrum of photographs: noise of several sizes added up, in colour."""
    random = np.random.default_rng(5)
    for number in range(count):
        picture = np.zeros((720, 1280, 3))
        for size in (6, 12, 24, 48, 96, 180, 360, 720):
            noise = random.normal(size=(size, size * 16 // 9, 3)) * (720 / size) ** 0.9
            planes = [np.asarray(Image.fromarray(noise[..., c].astype(np.float32)).resize((1280, 720), Image.BICUBIC)) for c in range(3)]
            picture += np.stack(planes, -1)
        picture = 128 + 45 * picture / picture.std()
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / f"{number:04d}.jpg", quality=90)


class Files(torch.utils.data.Dataset):
    def __init__(self, folder, scaled, normalise):
        self.paths = sorted(folder.glob("*.jpg"))
        self.scaled, self.normalise = scaled, normalise

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = Image.open(self.paths[index])
        if self.scaled:
            image.draft("RGB", (SIDE * image.width // image.height, SIDE))
        image = image.convert("RGB")
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.BICUBIC)
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
        if not self.normalise:
            return pixels.contiguous()
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        return (pixels.float() / 255 - mean[:, None, None]) / std[:, None, None]


def peer(folder, scaled, seconds, normalise):
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Files(folder, scaled, normalise), batch_size=BATCH, num_workers=WORKERS,
                                         persistent_workers=True)
    for _ in loader:  # workers are up, files are in memory
        pass
    count, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        for batch in loader:
            count += len(batch)
    return count / (time.monotonic() - start)


def ours(program, folder, scaled, seconds):
    done = subprocess.run([program, "data", "bench", folder, "--kind", "images", "--resize", "pillow_bicubic", "--decode",
                           "scaled" if scaled else "exact", "--threads", str(WORKERS), "--batch", str(BATCH), "--seconds",
                           str(seconds), "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def same_pixels(program, folder):
    """The contact sheet of the first pictures against the peer's."""
    sheet = folder.parent / "sheet.png"
    subprocess.run([program, "data", "show", folder, "--kind", "images", "--resize", "pillow_bicubic", "--samples", "8",
                    "--columns", "8", "--out", sheet], capture_output=True, check=True)
    pixels = np.asarray(Image.open(sheet))
    files = Files(folder, scaled=False, normalise=False)
    return all(np.array_equal(pixels[:, n * (SIDE + 2) : n * (SIDE + 2) + SIDE], files[n].permute(1, 2, 0).numpy()) for n in range(8))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--normalise", action="store_true")
    args = parser.parse_args()
    program = os.environ.get("LOCKSTEP_PROGRAM", "build/bin/lockstep")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "images")
        folder.mkdir()
        photographs(folder, args.images)
        size = sum(path.stat().st_size for path in folder.iterdir()) / args.images
        print(f"{args.images} images, {size / 1000:.0f} KB each; pixels alike: {same_pixels(program, folder)}")
        for name, scaled in (("exact", False), ("scaled", True)):
            mine, theirs = [], []
            for _ in range(args.rounds):
                mine.append(ours(program, folder, scaled, args.seconds))
                theirs.append(peer(folder, scaled, args.seconds, args.normalise))
            rate, other = statistics.median(m["samples_per_second"] for m in mine), statistics.median(theirs)
            print(f"{name:7} ours {rate:7.1f} images/s, DataLoader {other:7.1f}, ratio {rate / other:.2f}; {mine[-1]['bottleneck']}")


if __name__ == "__main__":
    main()
