"""Cold random reads of features: the feature cache (verified) against LMDB, HDF5 and .pt files (not verified), on one disk in one run.

    python bench/feature_cache.py [--folder DIR] [--peers DIR] [--repeat N] [--gigabytes N]

Files leave the page cache before every measurement. LMDB and HDF5 are measured where their Python packages are
installed or lie in --peers (pip install --target DIR lmdb h5py); what is missing is said. Peers read with one process and with two.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "build/release/bench/feature_cache_bench"
SIZES = [(302592, "300 KB"), (5627904, "5.6 MB")]  # ViT-B/16, one layer of VGGT
PART = 8  # one of so many records is read: what readahead brings along must not be of use later


def forget(folder):
    """Takes all files of the folder out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ours(what, folder, records, size):
    done = subprocess.run([PROGRAM, what, folder, str(records), str(size), str(records // PART)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


class Lmdb:
    name = "LMDB"

    def __init__(self, folder):
        import lmdb
        self.lmdb, self.path = lmdb, str(folder / "lmdb")

    def write(self, records, value):
        with self.lmdb.open(self.path, map_size=records * len(value) * 2 + (1 << 26)) as env:
            for first in range(0, records, 100):
                with env.begin(write=True) as txn:
                    for i in range(first, min(records, first + 100)):
                        txn.put(b"%08d" % i, value(i))

    def read(self, order, size):
        with self.lmdb.open(self.path, readonly=True, lock=False) as env, env.begin() as txn:
            for i in order:
                yield i, txn.get(b"%08d" % i)


class Hdf5:
    name = "HDF5"

    def __init__(self, folder):
        import h5py
        self.h5py, self.path = h5py, str(folder / "features.h5")

    def write(self, records, value):
        import numpy
        with self.h5py.File(self.path, "w") as file:
            rows = file.create_dataset("features", (records, len(value)), dtype="u1")
            for i in range(records):
                rows[i] = numpy.frombuffer(value(i), "u1")

    def read(self, order, size):
        with self.h5py.File(self.path, "r") as file:
            rows = file["features"]
            for i in order:
                yield i, rows[i]


class PtFiles:
    name = ".pt files"

    def __init__(self, folder):
        import torch
        self.torch, self.folder = torch, folder / "pt"

    def write(self, records, value):
        import numpy
        self.folder.mkdir()
        for i in range(records):
            self.torch.save(self.torch.from_numpy(numpy.frombuffer(value(i), "u1").copy()), self.folder / f"{i}.pt")

    def read(self, order, size):
        for i in order:
            yield i, self.torch.load(self.folder / f"{i}.pt")


class Value:
    """Content of record i: noise that begins with the number."""

    def __init__(self, size):
        self.noise = random.Random(1).randbytes(size)

    def __len__(self):
        return len(self.noise)

    def __call__(self, i):
        return i.to_bytes(8, "little") + self.noise[8:]


def read_part(peer, order, size, start, done):
    start.wait()
    for i, value in peer.read(order, size):
        if int.from_bytes(bytes(value[:8]), "little") != i or len(value) != size:
            raise AssertionError(f"{peer.name}: record {i} is another one")
    done.put(1)


def peer_seconds(peer, folder, records, size, workers):
    """Processes are started before the clock, their imports done."""
    order = list(range(records))
    random.Random(7).shuffle(order)
    order = order[:records // PART]
    context = multiprocessing.get_context("fork")
    start, done = context.Event(), context.Queue()
    parts = [context.Process(target=read_part, args=(peer, order[w::workers], size, start, done)) for w in range(workers)]
    for part in parts:
        part.start()
    forget(folder)
    began = time.monotonic()
    start.set()
    for _ in parts:
        done.get(timeout=600)
    seconds = time.monotonic() - began
    for part in parts:
        part.join()
    return seconds


def measure(folder, repeat, stored):
    for size, title in SIZES:
        records = stored // size
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        value = Value(size)
        written = ours("write", folder / "cache", records, size)["seconds"]
        print(f"{title} x {records}: the feature cache writes {records / written:.0f} records/s "
              f"({records * size / written / 1e9:.2f} GB/s), checksums and fsync included")
        peers = []
        for kind in (Lmdb, Hdf5, PtFiles):
            try:
                peer = kind(folder)
            except ImportError as error:
                print(f"  {kind.name}: not measured: {error}")
                continue
            began = time.monotonic()
            peer.write(records, value)
            os.sync()
            print(f"  {peer.name} writes {records / (time.monotonic() - began):.0f} records/s")
            peers.append(peer)
        found = {}
        for _ in range(repeat):  # in turns: a disk's speed changes
            for what in ("read", "raw"):
                forget(folder)
                found.setdefault((what, 1), []).append(ours(what, folder / "cache", records, size)["seconds"])
            for peer in peers:
                for workers in (1, 2):
                    found.setdefault((peer.name, workers), []).append(peer_seconds(peer, folder, records, size, workers))
        rate = {key: records // PART / statistics.median(seconds) for key, seconds in found.items()}
        for (name, workers), per_second in sorted(rate.items(), key=lambda item: -item[1]):
            label = {"read": "feature cache, verified", "raw": "raw O_DIRECT, depth 8, not verified"}.get(name, f"{name}, {workers} process(es)")
            print(f"  {label:<40} {per_second:8.0f} records/s  {per_second * size / 1e9:6.2f} GB/s")
        for workers in (1, 2):
            best = max((r for (name, w), r in rate.items() if w == workers and name not in ("read", "raw")), default=None)
            if best:
                print(f"  against the best peer with {workers} process(es): {rate[('read', 1)] / best:.1f}x")
        print(f"  against raw O_DIRECT: {100 * rate[('read', 1)] / rate[('raw', 1)]:.0f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("feature-cache-bench"), help="scratch, removed afterwards")
    parser.add_argument("--peers", type=pathlib.Path, help="folder with further Python packages")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=4, help="of each store; four of them are on the disk at once")
    asked = parser.parse_args()
    if asked.peers:
        sys.path.append(str(asked.peers))
    try:
        measure(asked.folder.resolve(), asked.repeat, int(asked.gigabytes * 1e9))
    finally:
        shutil.rmtree(asked.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
