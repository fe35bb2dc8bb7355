#!/usr/bin/env python3
"""Clips a second of the loader against PyAV and OpenCV under torch's DataLoader: H.264 videos of 1280x720, a random clip of
16 consecutive frames, a random crop, resized to 224x224, as bytes [16, 3, 224, 224].

    LOCKSTEP_DATA_PYTHON=DIR/bin/python python3 bench/video.py [--videos 8] [--seconds 8] [--rounds 3]

bench/data_python.py says how to make DIR. All sides have two workers: our threads, DataLoader's processes; measured in
turns, the best of each printed. Ours resizes with torch's antialiased bilinear filter, the peers with cv2.resize
(INTER_AREA)."""

import argparse
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from data_python import go_on, versions

SIDE, FRAMES, WORKERS, BATCH, GOAL = 224, 16, 2, 8, 2


def make_videos(folder, count, seconds=10, rate=30):
    """A picture with the spectrum of photographs under a moving camera, with a key frame every two seconds."""
    import av
    import cv2
    import numpy as np
    for number in range(count):
        noise = np.random.default_rng(number)
        scene = np.zeros((900, 1600, 3), np.float32)
        for size in (9, 18, 36, 75, 150, 300, 900):
            scene += cv2.resize(noise.normal(size=(size, size * 16 // 9, 3)).astype(np.float32), (1600, 900)) * (900 / size) ** 0.9
        scene = np.clip(128 + 45 * scene / scene.std(), 0, 255).astype(np.uint8)
        with av.open(str(folder / f"{number}.mp4"), "w") as out:
            stream = out.add_stream("libx264", rate=rate, options={"g": str(2 * rate), "crf": "23", "preset": "fast"})
            stream.width, stream.height, stream.pix_fmt = 1280, 720, "yuv420p"
            for i in range(seconds * rate):
                x, y = int(160 + 150 * np.sin(i / 40 + number)), int(90 + 80 * np.cos(i / 55))
                out.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(scene[y : y + 720, x : x + 1280]))))
            out.mux(stream.encode())


def read_av(path, start, rate=30):
    import av
    frames = []
    with av.open(str(path)) as video:
        stream = video.streams.video[0]
        stream.codec_context.thread_count = 1
        first = round(start / rate / stream.time_base)
        video.seek(first, stream=stream)
        for frame in video.decode(stream):
            if frame.pts < first:
                continue
            frames.append(frame.to_ndarray(format="rgb24"))
            if len(frames) == FRAMES:
                return frames
    raise AssertionError(f"{path} ends early")


def read_cv(path, start):
    import cv2
    video = cv2.VideoCapture(str(path))
    video.set(cv2.CAP_PROP_POS_FRAMES, start)
    frames = [video.read()[1][:, :, ::-1] for _ in range(FRAMES)]
    video.release()
    return frames


class Clips:
    """Random clips for DataLoader."""

    def __init__(self, folder, read, length=300):
        self.paths, self.read, self.starts = sorted(folder.iterdir()), read, length - FRAMES + 1

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        import cv2
        import numpy as np
        import torch
        cv2.setNumThreads(1)
        draw = random.Random(index)
        frames = self.read(self.paths[index % len(self.paths)], draw.randrange(self.starts))
        side = int(720 * draw.uniform(0.8, 1))
        x, y = draw.randrange(1280 - side + 1), draw.randrange(720 - side + 1)
        small = [cv2.resize(frame[y : y + side, x : x + side], (SIDE, SIDE), interpolation=cv2.INTER_AREA) for frame in frames]
        return torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).contiguous()


def peer(folder, read, seconds):
    import torch
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Clips(folder, read), batch_size=BATCH, num_workers=WORKERS)
    batches, count = iter(loader), 0
    for _ in range(WORKERS):  # workers are up, files are in memory
        next(batches)
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        count += len(next(batches))
    return count / (time.monotonic() - start)


def peer_alone(name, folder, seconds):
    """In a process of its own: OpenCV's threads do not survive the fork of DataLoader's workers."""
    done = subprocess.run([sys.executable, __file__, "--peer", name, "--folder", str(folder), "--seconds", str(seconds)],
                          capture_output=True, text=True, check=True, timeout=60 + 10 * seconds)
    return float(done.stdout.split()[-1])


def ours(program, folder, seconds):
    done = subprocess.run([program, "data", "bench", folder, "--kind", "videos", "--frames", str(FRAMES), "--augment", "--crop-only",
                           "--threads", str(WORKERS), "--batch", str(BATCH), "--seconds", str(seconds), "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


PEERS = {"PyAV": ("av", read_av), "OpenCV": ("cv2", read_cv)}


def find_peers():
    for name, (module, _) in PEERS.items():
        if importlib.util.find_spec(module):
            yield name
        else:
            print(f"- {name}: not measured: no module named {module}")


def main():
    go_on()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path, help="with videos of an earlier run, or where to put them")
    parser.add_argument("--peer", choices=PEERS, help="this one alone")
    args = parser.parse_args()
    if args.peer:
        print(peer(args.folder, PEERS[args.peer][1], args.seconds))
        return
    program = os.environ.get("LOCKSTEP_PROGRAM", "build/bin/lockstep")
    print(versions("torch", "av", "opencv-python-headless"), f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as place:
        folder = args.folder or pathlib.Path(place, "videos")
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            make_videos(folder, args.videos)
        peers = list(find_peers())
        found = {"Lockstep": []} | {name: [] for name in peers}
        for _ in range(args.rounds):
            got = ours(program, folder, args.seconds)
            found["Lockstep"].append(got["samples_per_second"])
            for name in peers:
                found[name].append(peer_alone(name, folder, args.seconds))
        print("; ".join(f"{side} " + ", ".join(f"{rate:.2f}" for rate in rates) for side, rates in found.items()))
        mine = max(found["Lockstep"])
        print(f"Lockstep {mine:.2f} clips/s; {got['bottleneck']}")
        for name in peers:
            rate = max(found[name])
            print(f"{name} under DataLoader {rate:.2f} clips/s, ratio {mine / rate:.2f}x, goal >= {GOAL}x: "
                  f"{'met' if mine >= GOAL * rate else 'missed'}")


if __name__ == "__main__":
    main()
