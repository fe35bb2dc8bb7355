#!/usr/bin/env python3
"""TAEHV on a GPU, Lockstep beside PyTorch, in one go: gpu.py [--rounds 3] [--only small,large,distill,reconstruct] [--out FILE.json].

Ours is `lockstep train taehv` as a user runs it (its clips stay in memory, so that no decoder is measured): the mean time of a step between
two metric lines. The peers are gpu_peer.py and gpu_distill_peer.py. Rounds alternate; the table shows medians and the ratio of the fastest peer.
LOCKSTEP names the program (default: build/bin/lockstep)."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LOCKSTEP = os.environ.get("LOCKSTEP", str(HERE.parent / "build" / "bin" / "lockstep"))
WARM = 20

SIZES = {  # clips, frames, height and width, steps
    "small": (16, 12, 64, 300),
    "large": (2, 12, 480, 80),
}


def train(folder, name, steps, sets):
    """Milliseconds a step, peak memory in GiB (used, reserved), share of steps that were replayed."""
    base = {
        "data.augment": "false", "data.cache": "2GiB", "data.validation.fraction": 0, "data.threads": 4, "data.prefetch": 4,
        "checkpoint.every": 0, "train.steps": steps, "track.tensorboard": "false",
    }
    words = [word for key, value in {**base, **sets}.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run([LOCKSTEP, "train", "taehv", "--nproc-per-node", "1", "--name", name, *words], cwd=folder, capture_output=True,
                          text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{name}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in open(pathlib.Path(folder) / "runs" / name / "metrics" / "rank-0.jsonl", encoding="utf-8")]
    lines = [line for line in lines if "time/step" in line["scalars"]]
    first, last = lines[WARM + 10], lines[-1]
    scalars = [line["scalars"] for line in lines]
    return {
        "ms": round(1e3 * (last["t"] - first["t"]) / (last["step"] - first["step"]), 2),
        "gib": round(max(s["rank/memory/device"] for s in scalars) / 2**30, 2),
        "reserved": round(max(s["rank/memory/device_reserved"] for s in scalars) / 2**30, 2),
        "replayed": round(sum(s["rank/recorded"] for s in scalars) / len(scalars), 3),
    }


def ours_joint(folder, size, number, **more):
    clips, frames, side, steps = SIZES[size]
    sets = {"train.batch": clips, "data.frames": frames, "data.height": side, "data.width": side, "data.clips": 4 * clips,
            "train.precision": "bf16", "train.schedule.warmup": WARM, **more}
    return train(folder, f"{size}-{number}" + "".join(f"-{v}" for v in more.values()), steps, sets)


def ours_distill(folder, number, teacher):
    sets = {"recipe.mode": "distill", "recipe.teacher.kind": "torchscript", "recipe.teacher.path": teacher, "recipe.teacher.range": "[-1, 1]",
            "recipe.teacher.precision": "bf16", "data.clips": 64}
    return train(folder, f"distill-{number}", 200, sets)


def peer(*words):
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=500, check=False)
    if done.returncode != 0:
        sys.exit(f"{words}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(title, rounds):
    """rounds: one dict of name -> result a round; ours first."""
    print(f"\n### {title}\n\n| | ms per step | ours is faster by | peak memory, GiB |\n|---|---|---|---|")
    for name in rounds[0]:
        ms = [r[name]["ms"] for r in rounds]
        ratios = [r[name]["ms"] / r["ours"]["ms"] for r in rounds]
        spread = "" if len(ms) == 1 else f" ({min(ms)} to {max(ms)})"
        ratio = "" if name == "ours" else f"{statistics.median(ratios):.2f}x"
        print(f"| {name} | {statistics.median(ms)}{spread} | {ratio} | {rounds[0][name]['gib']} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="small,large,distill,reconstruct")
    parser.add_argument("--out")
    options = parser.parse_args()
    wanted = options.only.split(",")
    folder = tempfile.mkdtemp(prefix="lockstep-gpu-")
    results = {}
    for size in ("small", "large"):
        if size not in wanted:
            continue
        clips, frames, side, _ = SIZES[size]
        rounds = []
        for n in range(options.rounds):
            row = {"ours": ours_joint(folder, size, n)}
            if n == 0:
                row_off = ours_joint(folder, size, n, **{"train.graph": "off"})
                row_reference = ours_joint(folder, size, n, **{"recipe.execution": "reference"})
                print(f"{size}: ours without recording {row_off}, with upstream's operations {row_reference}", flush=True)
            row.update(peer(HERE / "gpu_peer.py", "step", clips, frames, side))
            rounds.append(row)
        results[size] = rounds
        table(f"joint step, bf16, {clips} x {frames} x {side} px", rounds)
    if "distill" in wanted:
        teacher = os.path.join(folder, "teacher.pt")
        subprocess.run([sys.executable, str(HERE / "teacher.py"), teacher, "cuda"], check=True)
        rounds = [{"ours": ours_distill(folder, n, teacher), **peer(HERE / "gpu_distill_peer.py", teacher)} for n in range(options.rounds)]
        results["distill"] = rounds
        table("distillation step (teacher, Seraena), fp16, 16 x 12 x 64 px", rounds)
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(results, indent=1), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
