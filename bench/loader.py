#!/usr/bin/env python3
"""Images a second of the loader against torch's DataLoader with Pillow, and against spdl: JPEG files of 1280x720 from
disk, a random square crop, resized to 224x224, normalised to floats, in batches of 32.

    LOCKSTEP_DATA_PYTHON=DIR/bin/python python3 bench/loader.py [--images 200] [--seconds 5] [--rounds 5]

bench/data_python.py says how to make DIR. Rows, all sides in turns in every round, the best of each printed:
  exact   whole decoding and Pillow's bicubic: the same floats as DataLoader's (checked first); spdl's decoder and
          resizing are FFmpeg's, whose pixels differ a little
  scaled  JPEG reduced while it is decoded: our data.decode: scaled against Image.draft under DataLoader
All sides have two workers: our threads, DataLoader's processes, spdl's threads."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from data_python import go_on, versions

SIDE, WORKERS, BATCH = 224, 2, 32
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photographs(folder, count):
    """Pictures with the spectrum of photographs: noise of several sizes added up, in colour."""
    import numpy as np
    from PIL import Image
    random = np.random.default_rng(5)
    for number in range(count):
        picture = np.zeros((720, 1280, 3))
        for size in (6, 12, 24, 48, 96, 180, 360, 720):
            noise = random.normal(size=(size, size * 16 // 9, 3)) * (720 / size) ** 0.9
            planes = [np.asarray(Image.fromarray(noise[..., c].astype(np.float32)).resize((1280, 720), Image.BICUBIC)) for c in range(3)]
            picture += np.stack(planes, -1)
        picture = 128 + 45 * picture / picture.std()
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / f"{number:04d}.jpg", quality=90)


GOLDEN, ALL = 0x9E3779B97F4A7C15, (1 << 64) - 1


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & ALL
    return x ^ (x >> 31)


def crop_box(epoch, index, width=1280, height=720, seed=0):
    """The crop that src/data/clip_transform.cc draws: the largest square times U(.8, 1), anywhere."""
    key = 0
    for value in (seed, epoch, index, 4):
        key = mix((key + GOLDEN & ALL) ^ mix(value + GOLDEN & ALL))
    draws = iter(mix(key + GOLDEN * n & ALL) for n in range(1, 100))
    scale = min(width, height) / SIDE * (0.8 + (1.0 - 0.8) * ((next(draws) >> 11) * 2.0**-53))
    side = max(SIDE, int(SIDE * scale + 1e-6))

    def below(n):
        return next(x for x in draws if x >= (1 << 64) % n) % n

    return below(width - side + 1), below(height - side + 1), side


def normalise(pixels):
    import torch
    mean, deviation = torch.tensor(MEAN)[:, None, None], torch.tensor(DEVIATION)[:, None, None]
    return (pixels.float() / 255 - mean) / deviation


class Files:
    """A data set for DataLoader: picture `index % files` of epoch `index // files`."""

    def __init__(self, folder, scaled):
        self.paths = sorted(folder.glob("*.jpg"))
        self.scaled = scaled

    def __len__(self):
        return 1 << 30

    def pixels(self, index):
        import numpy as np
        import torch
        from PIL import Image
        epoch, index = divmod(index, len(self.paths))
        image = Image.open(self.paths[index])
        x, y, side = crop_box(epoch, index, *image.size)
        whole = image.width
        if self.scaled:  # as far as the crop stays as large as the target
            image.draft("RGB", (SIDE * image.width // side, SIDE * image.height // side))
            reduction = whole // image.width
            x, y, side = x // reduction, y // reduction, side // reduction
        image = image.convert("RGB").crop((x, y, x + side, y + side)).resize((SIDE, SIDE), Image.BICUBIC)
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)

    def __getitem__(self, index):
        return normalise(self.pixels(index))


def data_loader(folder, scaled):
    import torch
    torch.set_num_threads(1)
    return iter(torch.utils.data.DataLoader(Files(folder, scaled), batch_size=BATCH, num_workers=WORKERS))


def spdl_load(task):
    import spdl.io
    path, (x, y, side) = task
    return spdl.io.decode_packets(spdl.io.demux_image(str(path)),
                                  filter_desc=f"crop={side}:{side}:{x}:{y},scale={SIDE}:{SIDE}:flags=bicubic,format=rgb24")


def spdl_batch(frames):
    import spdl.io
    return normalise(spdl.io.to_torch(spdl.io.convert_frames(frames)).permute(0, 3, 1, 2))


def spdl_loader(folder, _scaled):
    import torch
    from spdl.pipeline import PipelineBuilder
    torch.set_num_threads(1)
    paths = sorted(folder.glob("*.jpg"))

    def tasks():
        for index in range(1 << 30):
            epoch, number = divmod(index, len(paths))
            yield paths[number], crop_box(epoch, number)

    pipeline = PipelineBuilder().add_source(tasks()).pipe(spdl_load, concurrency=WORKERS).aggregate(BATCH).pipe(spdl_batch).add_sink(2)
    pipeline = pipeline.build(num_threads=WORKERS)
    pipeline.start()
    return iter(pipeline)


PEERS = {"DataLoader": data_loader, "spdl": spdl_loader}


def peer_rate(name, folder, scaled, seconds):
    batches, count = PEERS[name](folder, scaled), 0
    for _ in range(2 * WORKERS):  # workers are up, files are in memory
        next(batches)
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        count += len(next(batches))
    return count / (time.monotonic() - start)


def peer_alone(name, folder, scaled, seconds):
    """In a process of its own, without a trace of the other peer."""
    done = subprocess.run([sys.executable, __file__, "--peer", name, "--folder", str(folder), "--seconds", str(seconds)]
                          + ["--scaled"] * scaled, capture_output=True, text=True, check=True, timeout=60 + 10 * seconds)
    return float(done.stdout.split()[-1])


def ours(program, folder, scaled, seconds):
    done = subprocess.run([program, "data", "bench", folder, "--kind", "images", "--resize", "pillow_bicubic", "--augment", "--crop-only",
                           "--normalise", "--decode", "scaled" if scaled else "exact", "--threads", str(WORKERS), "--batch", str(BATCH),
                           "--seconds", str(seconds), "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def compare_pixels(program, folder, count=8):
    """(the same pixels as Pillow's?, mean difference to spdl's in levels), by our contact sheet of the first pictures."""
    import numpy as np
    from PIL import Image
    sheet = folder.parent / "sheet.png"
    subprocess.run([program, "data", "show", folder, "--kind", "images", "--resize", "pillow_bicubic", "--augment", "--crop-only",
                    "--samples", str(count), "--columns", str(count), "--out", sheet], capture_output=True, check=True)
    pixels = np.asarray(Image.open(sheet))
    mine = [pixels[:, n * (SIDE + 2) : n * (SIDE + 2) + SIDE] for n in range(count)]
    files = Files(folder, scaled=False)
    same = all(np.array_equal(mine[n], files.pixels(n).permute(1, 2, 0).numpy()) for n in range(count))
    try:
        import spdl.io
        theirs = [spdl.io.to_numpy(spdl.io.convert_frames(spdl_load((files.paths[n], crop_box(0, n))))) for n in range(count)]
    except (ImportError, RuntimeError) as error:  # the latter: without the FFmpeg it wants
        print(f"- spdl: not measured: {str(error)[:200]}")
        return same, None
    return same, np.mean([np.abs(a.astype(int) - b.astype(int)).mean() for a, b in zip(mine, theirs)])


def main():
    go_on()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="with pictures of an earlier run, or where to put them")
    parser.add_argument("--peer", choices=PEERS, help="this one alone")
    parser.add_argument("--scaled", action="store_true", help="of --peer: Image.draft")
    args = parser.parse_args()
    if args.peer:
        print(peer_rate(args.peer, args.folder, args.scaled, args.seconds), flush=True)
        os._exit(0)  # without waiting for the peer's threads
    program = os.environ.get("LOCKSTEP_PROGRAM", "build/bin/lockstep")
    print(versions("torch", "pillow", "spdl"), f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as place:
        folder = args.folder or pathlib.Path(place, "images")
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            photographs(folder, args.images)
        sizes = [path.stat().st_size for path in folder.iterdir()]
        same, difference = compare_pixels(program, folder)
        print(f"{len(sizes)} images, {sum(sizes) / len(sizes) / 1000:.0f} KB each; pixels as Pillow's: {same}; "
              f"mean difference to spdl's: {difference if difference is None else round(difference, 2)} levels")
        for name, scaled, goals in (("exact", False, {"DataLoader": 1.5, "spdl": 1}), ("scaled", True, {"DataLoader": 2})):
            if difference is None:
                goals.pop("spdl", None)
            found = {side: [] for side in ["Lockstep", *goals]}
            for _ in range(args.rounds):
                got = ours(program, folder, scaled, args.seconds)
                found["Lockstep"].append(got["samples_per_second"])
                for peer in goals:
                    found[peer].append(peer_alone(peer, folder, scaled, args.seconds))
            print(f"{name}: " + "; ".join(f"{side} " + ", ".join(f"{rate:.0f}" for rate in rates) for side, rates in found.items()))
            mine = max(found["Lockstep"])
            for peer, goal in goals.items():
                ratio = mine / max(found[peer])
                print(f"{name}: Lockstep {mine:.1f} images/s, {peer} {max(found[peer]):.1f}, ratio {ratio:.2f}x, goal >= {goal}x: "
                      f"{'met' if ratio >= goal else 'missed'}; {got['bottleneck']}")


if __name__ == "__main__":
    main()
