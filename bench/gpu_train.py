#!/usr/bin/env python3
"""Trainings on a GPU as users start them, timed by their own metric lines: the mean time of a step between two of them. Clips stay in memory, so
that no decoder is measured.

    python3 bench/gpu_train.py --lockstep build/bin/lockstep [--rounds 3]

runs the whole distillation (teacher of a reference VAE's size, encoder, decoder, Seraena with replay) beside PyTorch (gpu_distill_peer.py)."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 30  # steps: the first are not recorded yet


def train(lockstep, steps, sets, name="run"):
    """Milliseconds a step, peak memory in GiB (used and reserved), and the share of steps that were replayed."""
    base = {
        "data.augment": "false", "data.cache": "2GiB", "data.validation.fraction": 0, "data.threads": 4, "data.prefetch": 4,
        "checkpoint.every": 0, "train.steps": steps, "track.tensorboard": "false",
    }
    words = [word for key, value in {**base, **sets}.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-") as folder:
        done = subprocess.run([lockstep, "train", "taehv", "--nproc-per-node", "1", "--name", name, *words], cwd=folder, capture_output=True,
                              text=True, timeout=300, check=False)
        if done.returncode != 0:
            sys.exit(f"{name}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        with open(pathlib.Path(folder) / "runs" / name / "metrics" / "rank-0.jsonl", encoding="utf-8") as file:
            lines = [line for line in map(json.loads, file) if "time/step" in line["scalars"]]
    first, last = lines[SKIPPED], lines[-1]
    scalars = [line["scalars"] for line in lines]
    seconds = (last["t"] - first["t"]) / (last["step"] - first["step"])
    return {
        "ms": 1e3 * seconds,
        "clips_per_s": scalars[-1]["samples_per_second"],
        "peak_gib": max(s["rank/memory/device"] for s in scalars) / 2**30,
        "reserved_gib": max(s["rank/memory/device_reserved"] for s in scalars) / 2**30,
        "replayed": sum(s.get("rank/graph_replayed", s.get("rank/recorded", 0)) for s in scalars) / len(scalars),
        "kernels": "without its own kernels" not in done.stdout + done.stderr,
    }


def joint(lockstep, shape, precision, name, **sets):
    clips, frames, _, height, width = shape
    steps = 300 if height < 256 else 90
    got = train(lockstep, steps, {"train.batch": clips, "data.frames": frames, "data.height": height, "data.width": width, "data.clips": 4 * clips,
                                  "train.precision": precision, "train.schedule.warmup": 20, **sets}, name)
    return {**got, "frames_per_s": 1e3 * clips * frames / got["ms"]}


def distill(lockstep, teacher, name, **sets):
    return train(lockstep, 200, {"recipe.mode": "distill", "recipe.teacher.kind": "torchscript", "recipe.teacher.path": teacher,
                                 "recipe.teacher.range": "[-1, 1]", "recipe.teacher.precision": "bf16", "data.clips": 64, **sets}, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        teacher = str(pathlib.Path(folder) / "teacher.pt")
        subprocess.run([sys.executable, str(HERE / "teacher.py"), teacher, "cuda"], check=True)
        rows = {}
        for turn in range(options.rounds):
            peers = subprocess.run([sys.executable, str(HERE / "gpu_distill_peer.py"), teacher], check=True, capture_output=True, text=True)
            for way, row in {**json.loads(peers.stdout), "lockstep train": distill(options.lockstep, teacher, f"distill-{turn}")}.items():
                rows.setdefault(way, []).append(row)
                print(way, {key: round(value, 3) for key, value in row.items()}, flush=True)
        for way, got in rows.items():
            ms = [row["ms"] for row in got]
            memory = max(row["peak_gib"] for row in got)
            print(json.dumps({"what": "distill", "way": way, "ms": round(statistics.median(ms), 2), "from": round(min(ms), 2), "to": round(max(ms), 2),
                              "peak_gib": round(memory, 2), "replayed": round(got[0].get("replayed", 0), 3)}))


if __name__ == "__main__":
    main()
