#!/usr/bin/env python3
"""VRT learns to deblur generated scenes, and spikes help: trains with RGB and spikes and with RGB alone, one run after the other, and
prints the PSNR on scenes that were never trained on beside that of the blurred frames.

    vrt_proof.py --lockstep build/bin/lockstep [--config examples/vrt-small.yaml] [--seeds 0,1,2] [--only spike] [--keep DIR]
    vrt_proof.py --config examples/vrt-gpu.yaml --minutes 6 --seeds 0         as many steps as fit, found by a short run before

Each run prints a JSON row; the end says whether RGB and spikes are 2 dB above the blurred frames and 0.5 dB above RGB alone.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
ABOVE_INPUT, ABOVE_RGB = 2.0, 0.5  # dB


def train(args, folder, name, keys):
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    begin = time.perf_counter()
    done = subprocess.run([str(args.lockstep), "train", "vrt", "--config", str(args.config), "--nproc-per-node", "1", "--name", name, *words],
                          cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{name}: exit code {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    with open(folder / "runs" / name / "metrics" / "rank-0.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file], time.perf_counter() - begin


def seconds_per_step(rows):
    times = [(row["step"], row["t"]) for row in rows if "loss" in row["scalars"]]
    half = times[len(times) // 2:]
    return (half[-1][1] - half[0][1]) / (half[-1][0] - half[0][0])


def last(rows, key):
    return [row["scalars"][key] for row in rows if key in row["scalars"]][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", type=pathlib.Path, default=ROOT / "build" / "bin" / "lockstep")
    parser.add_argument("--config", type=pathlib.Path, default=ROOT / "examples" / "vrt-small.yaml")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", choices=("spike", "rgb"))
    parser.add_argument("--minutes", type=float, help="of each training; unset: the steps of the configuration")
    parser.add_argument("--set", action="append", default=[], help="further keys of both")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the runs; kept")
    args = parser.parse_args()
    args.lockstep, args.config = args.lockstep.resolve(), args.config.resolve()
    extra = dict(pair.split("=", 1) for pair in args.set)
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.keep or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if args.minutes:
            rows, _ = train(args, folder, f"speed-{time.time_ns()}", {"train.steps": 40, "track.every": 1, "data.validation.fraction": 0,
                                                                      "data.clips": 200, **extra})
            extra["train.steps"] = int(60 * args.minutes / seconds_per_step(rows))
            print(f"{seconds_per_step(rows):.3f} s a step: {extra['train.steps']} steps in {args.minutes} minutes", flush=True)
        for seed in args.seeds.split(","):
            for kind in [args.only] if args.only else ["spike", "rgb"]:
                keys = {"run.seed": seed, "data.spikes.use": "true" if kind == "spike" else "false", **extra}
                rows, seconds = train(args, folder, f"{kind}-{seed}-{time.time_ns()}", keys)
                row = {"input": kind, "seed": int(seed), "steps": max(r["step"] for r in rows), "seconds": round(seconds),
                       "psnr": round(last(rows, "val/psnr"), 2), "psnr_input": round(last(rows, "val/psnr_input"), 2)}
                found[kind, seed] = row
                print(json.dumps(row), flush=True)
    for (kind, seed), row in found.items():
        text = f"{kind} seed {seed}: {row['psnr'] - row['psnr_input']:+.2f} dB above the blurred frames"
        if kind == "spike":
            text += f" (expected {ABOVE_INPUT})"
            if ("rgb", seed) in found:
                text += f", {row['psnr'] - found['rgb', seed]['psnr']:+.2f} dB above RGB alone (expected {ABOVE_RGB})"
        print(text)


if __name__ == "__main__":
    main()
