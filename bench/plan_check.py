#!/usr/bin/env python3
"""What `lockstep plan` predicts beside what `lockstep train` measures, for a list of configurations.

    python3 bench/plan_check.py --cpu                                     # on any machine: bytes that the engine owns
    python3 bench/plan_check.py --lockstep build/bin/lockstep --limit 300 # on a GPU: allocator's peak and time of a step
    python3 bench/plan_check.py --only lm-124m --json

Each case is a recipe with keys and a number of ranks. On a CPU the bytes of the flat buffers, the optimizer's state,
buckets and gathered units (`rank/memory/owned`) of every rank are compared with the plan's, component by component; on a
GPU the peak of torch's allocator (`rank/memory/device`) of the rank that had most, and the time of a step. Several ranks
share the one GPU there, as if each were a host of its own (NCCL_HOSTID): their memory is right, their times are not, and
are left out. The last column is DeepSpeed's own estimator on the same model (its formulas, in bf16 with an Adam in
float32; without activations): deepspeed.runtime.zero.stage_1_and_2 and stage3.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

LM = {"recipe.vocabulary": 50257, "recipe.model": "124m", "data.length": 1024, "train.precision": "bf16"}
SMALL_LM = {"recipe.model": "tiny", "data.length": 64}
SMALL_TAEHV = {"recipe.model": "taehv-small", "data.height": 32, "data.width": 32, "data.frames": 4}
BF16 = {"train.parameters": "bf16"}
OFFLOAD = {"train.offload.optimizer": "true", "train.threads": os.cpu_count()}
AGAIN = {"train.recompute": "true"}


def stage(n):
    return {"train.zero.stage": n}


# name, recipe, ranks, keys. `late`: chosen after the formulas were committed.
CPU = [
    ("taehv-small, stage 0", "taehv", 1, SMALL_TAEHV),
    ("taehv-small, stage 0, EMA", "taehv", 2, SMALL_TAEHV | {"train.ema.decay": 0.99}),
    ("taehv-small, stage 1", "taehv", 2, SMALL_TAEHV | stage(1)),
    ("taehv-small, stage 2", "taehv", 2, SMALL_TAEHV | stage(2)),
    ("taehv-small, stage 3, recomputing", "taehv", 2, SMALL_TAEHV | stage(3) | AGAIN | {"train.zero.persistent": 1000}),
    ("lm tiny, stage 0, offload has no effect", "lm", 1, SMALL_LM | OFFLOAD),
    ("lm tiny, stage 1", "lm", 4, SMALL_LM | stage(1)),
    ("lm tiny, stage 2, small buckets", "lm", 4, SMALL_LM | stage(2) | {"train.bucket": "256KiB", "train.first_bucket": "64KiB"}),
    ("lm tiny, stage 3", "lm", 2, SMALL_LM | stage(3)),
    ("lm tiny, stage 3, prefetch 1, persistent 0", "lm", 4,
     SMALL_LM | stage(3) | {"train.zero.prefetch": 1, "train.zero.persistent": 0}),
    ("lm tiny, bf16 parameters, stage 1", "lm", 2, SMALL_LM | BF16 | stage(1)),
    ("lm tiny, bf16 parameters, stage 3, recomputing", "lm", 2, SMALL_LM | BF16 | stage(3) | AGAIN),
]
CPU_LATE = [
    ("lm tiny, untied, stage 3, EMA", "lm", 4,
     SMALL_LM | stage(3) | {"recipe.tied": "false", "recipe.layers": 3, "train.ema.decay": 0.99, "train.zero.persistent": 5000}),
    ("lm tiny, stage 2, whole gradients, SGD", "lm", 3,
     SMALL_LM | stage(2) | {"train.zero.exchange_once": "true", "train.optimizer.kind": "sgd", "train.optimizer.momentum": 0.9}),
    ("taehv-small, bf16 parameters, stage 2", "taehv", 4, SMALL_TAEHV | BF16 | stage(2) | {"train.bucket": "512KiB"}),
    ("taehv-small, stage 3, prefetch 50,000", "taehv", 3,
     SMALL_TAEHV | stage(3) | {"train.zero.persistent": 0, "train.zero.prefetch": 50000}),
]

GPU = [
    ("lm 124 M, 16 x 1,024", "lm", 1, LM | {"train.batch": 16}),
    ("lm 124 M, 64 x 512, recomputing", "lm", 1, LM | {"train.batch": 64, "data.length": 512} | AGAIN),
    ("lm 124 M, bf16 parameters, 16 x 1,024", "lm", 1, LM | BF16 | {"train.batch": 16}),
    ("lm 124 M, optimizer offloaded", "lm", 1, LM | BF16 | OFFLOAD | {"train.batch": 16}),
    ("lm 0.5 B, 8 x 1,024", "lm", 1,
     LM | {"recipe.model": "qwen2.5-0.5b", "recipe.vocabulary": 151936, "train.batch": 8}),
    ("taehv, 8 x 12 x 128 px", "taehv", 1, {"train.batch": 8, "data.height": 128, "data.width": 128}),
    ("taehv, 2 x 12 x 384 px", "taehv", 1, {"train.batch": 2, "data.height": 384, "data.width": 384}),
    ("taehv, 2 x 12 x 384 px, recomputing", "taehv", 1, {"train.batch": 2, "data.height": 384, "data.width": 384} | AGAIN),
    ("lm 124 M, stage 1, 2 ranks", "lm", 2, LM | stage(1) | {"train.batch": 16}),
    ("lm 124 M, stage 2, 2 ranks", "lm", 2, LM | stage(2) | {"train.batch": 16}),
    ("lm 124 M, stage 3, 2 ranks", "lm", 2, LM | stage(3) | {"train.batch": 16}),
    ("taehv, stage 2, 2 ranks", "taehv", 2, stage(2) | {"train.batch": 8, "data.height": 128, "data.width": 128}),
]
GPU_LATE = [
    ("lm 0.4 B, 24 layers of 1,024, 4 x 2,048", "lm", 1,
     LM | {"recipe.width": 1024, "recipe.layers": 24, "recipe.heads": 16, "recipe.kv_heads": 8, "recipe.mlp": 4096,
           "data.length": 2048, "train.batch": 4}),
    ("lm 124 M, 2 passes of 8 x 1,024", "lm", 1, LM | {"train.batch": 16, "train.micro_batch": 8}),
    ("taehv, 4 x 16 x 256 px", "taehv", 1, {"train.batch": 4, "data.frames": 16, "data.height": 256, "data.width": 256}),
    ("lm 124 M, bf16 parameters, stage 3, recomputing, 2 ranks", "lm", 2, LM | BF16 | stage(3) | AGAIN | {"train.batch": 16}),
]

STATE = ("parameters", "gradients", "master", "optimizer", "ema", "frozen", "gathered", "buckets")


def sets(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def planned(lockstep, recipe, ranks, keys, cpu):
    words = [lockstep, "plan", recipe, "--gpus", str(ranks), "--json", *sets(keys)]
    words += ["--cpu"] if cpu else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    return json.loads(done.stdout)


def launcher_of_hosts(lockstep, folder):
    """A launcher beside which `lockstep-train` starts each rank as a host of its own."""
    programs = pathlib.Path(folder, "bin")
    if not programs.exists():
        programs.mkdir()
        shutil.copy(lockstep, programs)
        engine = pathlib.Path(lockstep).parent / "lockstep-train"
        wrapper = programs / "lockstep-train"
        wrapper.write_text(f'#!/bin/sh\nexport NCCL_HOSTID="rank-$RANK"\nexec "{engine}" "$@"\n')
        wrapper.chmod(0o755)
    return str(programs / "lockstep")


def trained(lockstep, folder, recipe, ranks, keys, cpu, steps, limit):
    """Rows of metrics of each rank."""
    name = f"case-{time.time_ns()}"
    words = [lockstep, "train", recipe, "--name", name, "--nproc-per-node", str(ranks), *sets(keys)]
    environment = dict(os.environ)
    if not cpu and ranks > 1:
        words[0] = launcher_of_hosts(lockstep, folder)
        words += ["--set", "comm.backend=nccl"]
        environment |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "0"}
    child = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    timer = threading.Timer(limit, child.kill)
    timer.start()
    try:
        for line in child.stdout:
            lines.append(line)
            if not cpu and f"step {steps}/{steps}" in line:
                time.sleep(0.5)  # the last rows of the metrics
                break
    finally:
        timer.cancel()
        child.kill()  # the last checkpoint of a large model is not what is measured
        try:
            lines += child.communicate(timeout=30)[0].splitlines(True)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
    rows = []
    for rank in range(ranks):
        file = pathlib.Path(folder, "runs", name, "metrics", f"rank-{rank}.jsonl")
        found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        rows.append([row for row in found if "rank/time/step" in row["scalars"]])
    if not all(rows):
        raise RuntimeError("".join(lines[-15:]))
    return rows


def step_seconds(rows):
    """Of single steps the host is ahead, or behind: differences of the times of rows, the last two left out, less the wait
    for data."""
    rows = rows[:-2]
    half = len(rows) // 2
    if len(rows) < half + 2:
        return None
    waited = sum(row["scalars"]["rank/time/data"] for row in rows[half + 1:])
    return (rows[-1]["t"] - rows[half]["t"] - waited) / (len(rows) - 1 - half)


def deepspeed(parameters, largest, ranks, n, offload):
    """GPU bytes of one rank by DeepSpeed's estimators, or None: it has none for this stage. As the functions say them
    (deepspeed 0.19.8); an installed DeepSpeed is asked itself."""
    try:
        from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as three
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as two
        if n == 2:
            return two(parameters, num_gpus_per_node=ranks, cpu_offload=offload)[1]
        if n == 3:
            return three(parameters, largest, num_gpus_per_node=ranks, cpu_offload=offload, cpu_offload_params=False)[1]
    except ImportError:
        if n == 2:
            return 2 * parameters + (0 if offload else 18 * parameters // ranks)
        if n == 3:
            return 4 * largest + (2 if offload else 18) * parameters // ranks
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/bin/lockstep")
    parser.add_argument("--cpu", action="store_true", help="ranks on CPUs: bytes that the engine owns")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--limit", type=float, default=300, help="seconds for all cases; those that are left are named")
    parser.add_argument("--json", action="store_true", help="one JSON line for each case")
    arguments = parser.parse_args()
    lockstep = str(pathlib.Path(arguments.lockstep).resolve())
    cases = [(*case, False) for case in (CPU if arguments.cpu else GPU)]
    cases += [(*case, True) for case in (CPU_LATE if arguments.cpu else GPU_LATE)]
    steps = arguments.steps or (3 if arguments.cpu else 24)
    common = {"train.steps": steps, "train.schedule.warmup": 0, "data.validation.fraction": 0.05, "data.validation.every": 0,
              "checkpoint.every": 0, "track.tensorboard": "false"}
    if not arguments.json:
        print("| case | ranks | predicted | measured | memory | predicted step | measured step | time | DeepSpeed's estimate |")
        print("|---|---|---|---|---|---|---|---|---|")
    begin, worst, slowest = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text.txt")
        text.write_text("the quick brown fox jumps over the lazy dog " * (20_000 if arguments.cpu else 200_000))
        for name, recipe, ranks, keys, late in cases:
            if arguments.only not in name:
                continue
            if time.monotonic() - begin > arguments.limit:
                print(f"not run, the limit of {arguments.limit:.0f} s is reached: {name}", file=sys.stderr)
                continue
            keys = common | {"train.batch": 2 * ranks if arguments.cpu else 8} | keys
            # One document: rows without boundaries, for which attention has its fastest kernels.
            keys |= {"data.kind": "text", "data.path": str(text), "data.validation.fraction": 0} if recipe == "lm" else {
                "data.clips": max(16, 4 * int(keys["train.batch"])), "data.augment": "false", "data.cache": "4GiB"}
            plan = planned(lockstep, recipe, ranks, keys, arguments.cpu)
            line = plan["configured"]
            try:
                rows = trained(lockstep, folder, recipe, ranks, keys, arguments.cpu, steps, 60)
            except RuntimeError as error:
                print(f"{name}: failed\n{error}", file=sys.stderr)
                continue
            row = {"case": name, "ranks": ranks, "late": late}
            if arguments.cpu:
                owned = [{c: r[-1]["scalars"].get(f"rank/memory/owned/{c}", 0) for c in STATE} for r in rows]
                most = max(owned, key=lambda one: sum(one.values()))
                row["predicted"] = sum(line["device"][c] for c in STATE)
                row["measured"] = sum(most.values())
                row["components"] = {c: [line["device"][c], most[c]] for c in STATE if line["device"][c] != most[c]}
            else:
                row["predicted"] = line["allocator_peak_bytes"]
                row["measured"] = max(max(one["scalars"]["rank/memory/device"] for one in r) for r in rows)
                if ranks == 1:
                    row["predicted_seconds"] = line["seconds"]["step"]
                    row["seconds"] = step_seconds(rows[0])
                    row["data_seconds"] = statistics.median(one["scalars"]["rank/time/data"] for one in rows[0])
                row["moment"] = line["peak_moment"]
            row["memory_error"] = row["predicted"] / row["measured"] - 1
            worst = max(worst, abs(row["memory_error"]))
            if row.get("seconds"):
                row["time_error"] = row["predicted_seconds"] / row["seconds"] - 1
                slowest = max(slowest, abs(row["time_error"]))
            parameters = plan["workload"]["parameters"]
            row["deepspeed"] = deepspeed(parameters, plan["workload"]["largest_unit"], ranks, line["stage"],
                                         line["offload"] != "none")
            if arguments.json:
                print(json.dumps(row), flush=True)
                continue
            unit, divisor = ("KiB", 2**10) if arguments.cpu else ("GiB", 2**30)
            size = lambda value: "-" if value is None else f"{value / divisor:,.{0 if arguments.cpu else 2}f} {unit}"  # noqa: E731
            milliseconds = lambda value: "-" if value is None else f"{value * 1e3:.1f} ms"  # noqa: E731
            part = f"{row['time_error']:+.1%}" if "time_error" in row else "-"
            print(f"| {name}{' (chosen afterwards)' if late else ''} | {ranks} | {size(row['predicted'])} | {size(row['measured'])} "
                  f"| {row['memory_error']:+.2%} | {milliseconds(row.get('predicted_seconds'))} | {milliseconds(row.get('seconds'))} "
                  f"| {part} | {size(row['deepspeed'])} |", flush=True)
            if row.get("components"):
                print(f"  {name}: predicted and found differ: {row['components']}", file=sys.stderr)
    print(f"memory: at most {worst:.2%} off" + ("" if arguments.cpu else f"; time: at most {slowest:.1%} off"))


if __name__ == "__main__":
    main()
