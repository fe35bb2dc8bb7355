#!/usr/bin/env python3
"""TAEHV's distillation with a teacher of a reference VAE's size on one GPU: encoded live in every step, and read from the
feature cache; and how long building the cache takes. All in one go.

    python3 bench/gpu_cache.py --lockstep build/bin/lockstep [--sizes 16x64,4x256]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import gpu_train

HERE = pathlib.Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--sizes", default="16x64,4x256", help="clips in a batch x height and width")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", action="append", default=[], help="further keys")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        teacher = str(pathlib.Path(folder) / "teacher.pt")
        subprocess.run([sys.executable, str(HERE / "teacher.py"), teacher, options.device], check=True, stdout=subprocess.DEVNULL)
        for size in options.sizes.split(","):
            batch, side = map(int, size.split("x"))
            root = str(pathlib.Path(folder) / f"cache-{size}")
            keys = {"recipe.mode": "distill", "recipe.teacher.kind": "torchscript", "recipe.teacher.path": teacher,
                    "recipe.teacher.range": "[-1, 1]", "recipe.teacher.precision": "bf16", "data.clips": 8 * batch,
                    "data.frames": 12, "data.height": side, "data.width": side, "train.batch": batch,
                    "data.augment": "false", "data.validation.fraction": 0, **dict(pair.split("=", 1) for pair in options.set)}
            cached = {**keys, "recipe.teacher.cache.root": root}
            words = [word for key, value in cached.items() for word in ("--set", f"{key}={value}")]
            start = time.monotonic()
            done = subprocess.run([options.lockstep, "cache", "build", "taehv", "--nproc-per-node", "1", *words], cwd=folder,
                                  capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
            built = time.monotonic() - start
            live = gpu_train.train(options.lockstep, options.steps, keys, "live")
            for way, sets in {"live": None, "read": {"recipe.teacher.cache.policy": "require"}, "auto": {}}.items():
                row = live if sets is None else gpu_train.train(options.lockstep, options.steps, {**cached, **sets}, way)
                print(json.dumps({"what": "teacher", "batch": batch, "side": side, "way": way, "ms": round(row["ms"], 2),
                                  "ratio": round(live["ms"] / row["ms"], 2), "peak_gib": round(row["peak_gib"], 2),
                                  "replayed": round(row["replayed"], 3), "build_s": round(built, 1)}), flush=True)


if __name__ == "__main__":
    main()
