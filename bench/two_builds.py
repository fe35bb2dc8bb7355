#!/usr/bin/env python3
"""The same work by two builds of this project, in turns: did a change cost anything?

    bench/two_builds.py BEFORE AFTER [--rounds 5] [--only start,step]      BEFORE and AFTER: build trees with bin/ and bench/

Prints one Markdown row for each measurement: median before, median after, after/before. Below 1 is faster.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import train_rows
from rows import in_turns, median


def out(command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **more)
    return done.stdout


def seconds_of(command, folder, code=0):
    start = time.monotonic()
    done = subprocess.run([str(word) for word in command], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode != code:
        raise RuntimeError(f"{command}: exit code {done.returncode}, expected {code}")
    return time.monotonic() - start


# Each measurement: (build tree, folder to work in) -> {name: seconds}.
def start(tree, folder):
    return {"start and end of `true` on 2 ranks":
            seconds_of([tree / "bin/lockstep", "run", "--nproc-per-node", "2", "--no-python", "/bin/true"], folder)}


def crash(tree, folder):
    script, stamp = folder / "crash.sh", folder / "stamp"
    script.write_text('#!/bin/sh\nif [ "$RANK" = 1 ]; then sleep 0.3; date +%s.%N > "$1"; exit 3; fi\nexec sleep 600\n')
    script.chmod(0o755)
    seconds_of([tree / "bin/lockstep", "run", "--nproc-per-node", "2", "--no-python", script, stamp], folder, code=5)
    return {"crash of one rank to the end of the job": time.time() - float(stamp.read_text())}


def first_step(tree, folder):
    command = [str(tree / "bin/lockstep"), "train", "taehv", "--nproc-per-node", "2",
               *train_rows.small("train.steps=1", "train.batch=2", "data.height=32", "data.width=32")]
    return {"start to the first step of a small TAEHV, 2 ranks": train_rows.until_first_step(command, folder)}


def step(tree, folder):
    train_rows.ENGINE = str(tree / "bin/lockstep-train")
    found = {}
    for ranks in (1, 2):
        one = train_rows.trained(folder, ranks, 13, "train.batch=4", "data.frames=12", "data.height=64", "data.width=64")
        found[f"a training step of a small TAEHV, {ranks} rank{'s' * (ranks > 1)}"] = one["step"] - one["data"]
    return found


def ddp(tree, folder):
    got = train_rows.lines_of([tree / "bench/train_ddp_bench", 256, 8, 64, 30, 12])[-1]
    return {"added to a step by a second rank, 0.5 M parameters": median(b - a for a, b in zip(got["alone"], got["ours"]))}


def optimizer(tree, folder):
    got = train_rows.lines_of([tree / "bench/train_optimizer_bench", 20, 1, 11])[-1]
    return {"AdamW, 20 M parameters, 1 thread": got["step"], "clipping and AdamW, the same": got["clip_and_step"]}


def checkpoint(tree, folder):
    got = json.loads(out([tree / "bench/checkpoint_bench", folder / "checkpoints", 512], check=True))
    return {"a 512 MiB save: time added to training": got["added_seconds"],
            "a 512 MiB save: training stands still": got["blocked_seconds"]}


def all_reduce(tree, folder):
    rows = [json.loads(line) for line in out([tree / "bench/comm_bench", 2, 0.4], check=True).splitlines()]
    return {f"all-reduce of {row['bytes'] >> 10} KB, 2 ranks, {kind.replace('_', ' ')}": row[kind + "_p50"]
            for row in rows for kind in ("staged", "in_place")}


MEASURES = {f.__name__.replace("_", "-"): f for f in (start, crash, first_step, step, ddp, optimizer, checkpoint, all_reduce)}


def text(seconds):
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("before", type=lambda p: pathlib.Path(p).resolve())
    options.add_argument("after", type=lambda p: pathlib.Path(p).resolve())
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", default=",".join(MEASURES), help="of " + ", ".join(MEASURES))
    given = options.parse_args()
    for name in given.only.split(","):
        if name not in MEASURES:
            sys.exit(f"--only {name}: expected one of {', '.join(MEASURES)}")
    print("| measured | before | after | after/before |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=given.after) as work:
        folder = pathlib.Path(work)
        for name in given.only.split(","):
            before, after = in_turns(given.rounds, lambda: MEASURES[name](given.before, folder),
                                     lambda: MEASURES[name](given.after, folder))
            for key in before[0]:
                a, b = (statistics.median(one[key] for one in side) for side in (before, after))
                print(f"| {key} | {text(a)} | {text(b)} | {b / a:.2f} |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
