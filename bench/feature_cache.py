"""Random reads of features that are in no cache: the feature cache (every record verified) against LMDB, HDF5, MDS and .pt
files (not verified), on one disk in one run; and how fast each of them is written.

    LOCKSTEP_DATA_PYTHON=DIR/bin/python python3 bench/feature_cache.py [--folder DIR] [--repeat N] [--gigabytes N]

bench/data_python.py says how to make DIR; a peer that is missing is said. Files leave the page cache before every
measurement. Ours is one process; peers read with one process and with two. Raw O_DIRECT reads of the same places, with
1, 8 and 32 requests under way, show what the disk can do: where all three are alike, it serves one request at a
time, and no reader can be faster. A disk in memory, with O_DIRECT (as root):

    truncate -s 9G /dev/shm/disk && mkfs.ext4 -q /dev/shm/disk && losetup --direct-io=on /dev/loop7 /dev/shm/disk
    mount /dev/loop7 DIR
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
from unittest import mock

from data_python import go_on, versions

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "build/release/bench/feature_cache_bench"
SIZES = [(302592, "300 KB", 4, 2), (5627904, "5.6 MB", 2, None)]  # ViT-B/16, one layer of VGGT; goals with 1 and 2 processes
PART = 8  # one of so many records is read: what readahead brings along must not be of use later
DEPTHS = (1, 8, 32)


def forget(folder):
    """Takes all files of the folder out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ours(what, folder, records, size, depth=8):
    done = subprocess.run([PROGRAM, what, folder, str(records), str(size), str(records // PART), str(depth)], check=True,
                          capture_output=True, text=True)
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

    def open(self):
        self.txn = self.lmdb.open(self.path, readonly=True, lock=False).begin()

    def read(self, i):
        return self.txn.get(b"%08d" % i)


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

    def open(self):
        self.rows = self.h5py.File(self.path, "r")["features"]

    def read(self, i):
        return self.rows[i]


class Mds:
    name = "MDS"

    def __init__(self, folder):
        # Its data sets for pictures and text want torchvision and transformers, and are not used here.
        for part in ("vision", "text", "multimodal"):
            sys.modules[f"streaming.{part}"] = mock.MagicMock()
        import streaming
        self.streaming, self.path = streaming, str(folder / "mds")

    def write(self, records, value):
        with self.streaming.MDSWriter(out=self.path, columns={"features": "bytes"}) as writer:
            for i in range(records):
                writer.write({"features": value(i)})

    def open(self):
        self.rows = self.streaming.LocalDataset(self.path)

    def read(self, i):
        return self.rows[i]["features"]


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

    def open(self):
        pass

    def read(self, i):
        return self.torch.load(self.folder / f"{i}.pt")


class Value:
    """Content of record i: noise that begins with the number."""

    def __init__(self, size):
        self.noise = random.Random(1).randbytes(size)

    def __len__(self):
        return len(self.noise)

    def __call__(self, i):
        return i.to_bytes(8, "little") + self.noise[8:]


def read_part(peer, order, size, ready, start, done):
    peer.open()
    ready.put(1)
    start.wait()
    for i in order:
        value = peer.read(i)
        if int.from_bytes(bytes(value[:8]), "little") != i or len(value) != size:
            raise AssertionError(f"{peer.name}: record {i} is another one")
    done.put(1)


def peer_seconds(peer, folder, records, size, workers):
    """Processes are started and their stores opened before the clock, as ours is."""
    order = list(range(records))
    random.Random(7).shuffle(order)
    order = order[:records // PART]
    context = multiprocessing.get_context("fork")
    ready, start, done = context.Queue(), context.Event(), context.Queue()
    parts = [context.Process(target=read_part, args=(peer, order[w::workers], size, ready, start, done)) for w in range(workers)]
    for part in parts:
        part.start()
    for _ in parts:
        ready.get(timeout=600)
    forget(folder)
    began = time.monotonic()
    start.set()
    for _ in parts:
        done.get(timeout=600)
    seconds = time.monotonic() - began
    for part in parts:
        part.join()
    return seconds


def find_peers(folder):
    for kind in (Lmdb, Hdf5, Mds, PtFiles):
        try:
            yield kind(folder)
        except ImportError as error:
            print(f"- {kind.name}: not measured: {error}")


def written(peers, folder, records, size, value):
    """Seconds of each; what a peer leaves in the page cache counts until it is on the disk."""
    seconds = {"feature cache": ours("write", folder / "cache", records, size)["seconds"]}
    for peer in peers:
        os.sync()
        began = time.monotonic()
        peer.write(records, value)
        os.sync()
        seconds[peer.name] = time.monotonic() - began
    return seconds


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def measure(folder, repeat, stored):
    for size, title, goal_one, goal_two in SIZES:
        records = stored // size
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        value = Value(size)
        peers = list(find_peers(folder))
        writing = written(peers, folder, records, size, value)
        found = {}
        for _ in range(repeat):  # in turns: a disk's speed changes
            for what, depth in [("feature cache", 8)] + [("raw", depth) for depth in DEPTHS]:
                forget(folder)
                got = ours("read" if what != "raw" else "raw", folder / "cache", records, size, depth)
                found.setdefault((what, depth if what == "raw" else 1), []).append(got["seconds"])
            for peer in peers:
                for workers in (1, 2):
                    found.setdefault((peer.name, workers), []).append(peer_seconds(peer, folder, records, size, workers))
        rate = {key: (records // PART) * size / statistics.median(seconds) / 1e9 for key, seconds in found.items()}
        mine = rate[("feature cache", 1)]
        print(f"\n{title} x {records}, {records // PART} of them read, {repeat} rounds\n")
        row("store", "read, GB/s: one process", "two", "ours against it", "", "written, GB/s", "ours against it")
        row(*["---"] * 7)
        write = {name: records * size / seconds / 1e9 for name, seconds in writing.items()}
        row("feature cache, verified", f"{mine:.2f}", "", "", "", f"{write['feature cache']:.2f}", "")
        for peer in peers:
            one, two = rate[(peer.name, 1)], rate[(peer.name, 2)]
            row(peer.name, f"{one:.2f}", f"{two:.2f}", f"{mine / one:.1f}x", f"{mine / two:.1f}x", f"{write[peer.name]:.2f}",
                f"{write['feature cache'] / write[peer.name]:.1f}x")
        for depth in DEPTHS:
            raw = rate[("raw", depth)]
            row(f"raw O_DIRECT, depth {depth}", f"{raw:.2f}", "", f"{100 * mine / raw:.0f} %", "", "", "")
        for workers, goal in ((1, goal_one), (2, goal_two)):
            best = max((rate[(peer.name, workers)] for peer in peers), default=None)
            if best:
                asked = f", goal >= {goal}x: {'met' if mine >= goal * best else 'missed'}" if goal else ""
                print(f"\nagainst the best peer with {workers} process{'es' * (workers > 1)}: {mine / best:.1f}x{asked}")


def main():
    go_on()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("feature-cache-bench"), help="scratch, removed afterwards")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=4, help="of each store; five of them are on the disk at once")
    asked = parser.parse_args()
    print(versions("torch", "lmdb", "h5py", "mosaicml-streaming"))
    try:
        measure(asked.folder.resolve(), asked.repeat, int(asked.gigabytes * 1e9))
    finally:
        shutil.rmtree(asked.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
