"""The benchmarks of the training engine, each beside its peer; bench/run.py calls them and prints their rows.

Programs: build/release/bench (LOCKSTEP_BENCH_PROGRAMS names another folder), build/bin/lockstep (LOCKSTEP_PROGRAM).
"""

import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

import comm
import peers
from peers import Peer
from rows import in_turns, median, median_of, row, share_of, times_faster

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCKSTEP = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/bin/lockstep"))
ENGINE = str(pathlib.Path(LOCKSTEP).with_name("lockstep-train"))
PROGRAMS = pathlib.Path(os.environ.get("LOCKSTEP_BENCH_PROGRAMS", ROOT / "build/release/bench"))
PEER = str(ROOT / "bench/train_peer.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# One thread per rank on both sides.
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def built(*targets):
    if "LOCKSTEP_BENCH_PROGRAMS" not in os.environ:
        subprocess.run(["ninja", "--quiet", "-C", str(ROOT / "build/release"), *targets], check=True)


def lines_of(command, **more):
    """The JSON lines a program prints."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True, **more)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def peer(name, *words):
    """The PyTorch side as a work of in_turns."""
    return Peer(name, lambda: peers.figures(name, [sys.executable, PEER, *words])[-1])


# --- data parallelism ---
def bench_ddp(folder, repeat):
    built("train_ddp_bench")
    for width, layers, batch in ((256, 8, 64), (512, 8, 64)):
        shape = (width, layers, batch, 30, 12)
        ours, other = in_turns(max(2, repeat // 2), lambda: lines_of([PROGRAMS / "train_ddp_bench", *shape])[-1],
                               peer("DDP on Gloo", "ddp", *shape))

        def added(results, mode):
            """Median over all pairs of neighbouring blocks: with the others, less alone."""
            return median(b - a for r in results for a, b in zip(r["alone"], r[mode]))
        name = f"{ours[0]['parameters'] / 1e6:.1f} M parameters, {layers} layers of {width}, batch {batch}"
        alone, other_alone = (median(a for r in results for a in r["alone"]) for results in (ours, other))
        mine, c10d = added(ours, "ours"), added(ours, "reducer")
        print(f"  {name}: alone {alone * 1e3:.3f} ms (PyTorch {(other_alone or 0) * 1e3:.3f}), "
              f"added {mine * 1e3:.3f}, of which exposed {median_of(ours, 'exposed') * 1e3:.3f}", file=sys.stderr)
        yield share_of(f"added to a step of {alone * 1e3:.1f} ms by a second rank: {name}", mine, added(other, "ddp"), "DDP on Gloo", 0.15)
        yield share_of("the same, DDP with gradient_as_bucket_view and static_graph", mine, added(other, "ddp_view"), "DDP on Gloo")
        yield share_of("the same, c10d's Reducer over our communicator", mine, c10d, "Reducer")


# --- start ---
def until_first_step(command, folder):
    """Seconds from exec until the line of the first step has come; the job then ends by itself."""
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ONE_THREAD)
    seconds = None
    heard = []
    for line in process.stdout:
        heard.append(line)
        if seconds is None and "step 1" in line and "loss" in line:
            seconds = time.monotonic() - start
    if process.wait() != 0 or seconds is None:
        raise RuntimeError(f"{command}: ended with {process.returncode}\n" + "".join(heard[-20:]))
    return seconds


def small(*settings):
    words = ["recipe.model=taehv-small", "train.threads=1", "data.clips=64", "data.threads=1", "data.validation.fraction=0",
             "checkpoint.every=0", "train.schedule.warmup=0", *settings]
    return [part for word in words for part in ("--set", word)]


def bench_first_step(folder, repeat):
    ours = [LOCKSTEP, "train", "taehv", "--nproc-per-node", "2", *small("train.steps=1", "train.batch=2", "data.height=32", "data.width=32")]
    theirs = [*TORCHRUN, "--nproc-per-node", "2", PEER, "first-step"]
    mine, other = in_turns(repeat, lambda: until_first_step(ours, folder), Peer("torchrun, PyTorch DDP", lambda: until_first_step(theirs, folder)))
    return [times_faster("start to the first step of a small TAEHV on 2 ranks", median(mine), median(other), "torchrun, PyTorch DDP", 3)]


# --- steps ---
def trained(folder, ranks, steps, *settings):
    """Median seconds of a step of the real trainer, and of what it waited for data; the first three are for warming up.
    Ranks are started here, without a launcher, so that they run under the same conditions as the peer."""
    run = pathlib.Path(folder) / f"run-{time.monotonic_ns()}"
    (run / "metrics").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(ranks):
        env = {**ONE_THREAD, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCKSTEP_RUN_DIR": str(run),
               "LOCKSTEP_METRICS": str(run / f"metrics/rank-{rank}.jsonl")}
        processes.append(subprocess.Popen([ENGINE, "train", "taehv", *small(f"train.steps={steps}", *settings)], cwd=folder, env=env,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("\n".join(text[-2000:] for text in said))
    lines = (run / "metrics/rank-0.jsonl").read_text().splitlines()
    scalars = [json.loads(line)["scalars"] for line in lines if '"rank/time/step"' in line]
    return {"step": statistics.median(s["rank/time/step"] for s in scalars[3:]),
            "data": statistics.median(s["rank/time/data"] for s in scalars[3:])}


def bench_step(folder, repeat):
    batch, frames, size, steps = 4, 12, 64, 13
    settings = (f"train.batch={batch}", f"data.frames={frames}", f"data.height={size}", f"data.width={size}")
    mine, other = in_turns(max(2, repeat // 2), lambda: trained(folder, 1, steps, *settings),
                           peer("PyTorch eager", "step", batch, frames, size, steps, 1))
    ours = statistics.median(m["step"] - m["data"] for m in mine)
    return [times_faster(f"one training step, small TAEHV, {batch} clips of {frames} x {size} x {size}, AdamW, clipping, 1 thread", ours,
                         median_of(other, "step"), "PyTorch eager", 1)]


def bench_reproducible(folder, repeat):
    for ranks in (1, 2):
        def run(flag, ranks=ranks):
            return trained(folder, ranks, 9, "train.batch=8", f"train.reproducible={flag}")["step"]
        off, on = in_turns(max(2, repeat // 2), lambda: run("false"), lambda: run("true"))
        off, on = statistics.median(off), statistics.median(on)
        yield row(f"a step with `reproducible: true`, {ranks} rank{'s' * (ranks > 1)}, small TAEHV, batch 8", on * 1e3, off * 1e3,
                  "Lockstep without", "ms", "", None, on / off, "its time")


def bench_optimizer(folder, repeat):
    built("train_optimizer_bench")
    for threads in (1, 2):
        mine, other = in_turns(max(2, repeat // 2), lambda: lines_of([PROGRAMS / "train_optimizer_bench", 20, threads, 11])[-1],
                               peer("torch.optim", "optimizer", 20, threads, 11))
        words = f"{threads} thread{'s' * (threads > 1)}"
        for kind, text in (("step", "AdamW, 20 M parameters"), ("clip_and_step", "clipping and AdamW, 20 M parameters")):
            ours = median_of(mine, kind)
            for which in ("fused", "default"):
                yield times_faster(f"{text}, {words}", ours, median(o[which][kind] for o in other), f"torch.optim, {which}",
                                   1 if which == "fused" else None)


# --- what belongs to other parts: all-reduce, checkpoints, metrics ---
def bench_all_reduce(folder, repeat):
    built("comm_bench")
    for found in comm.rows(max(3, repeat // 2), 0.5, 2):
        size = found["bytes"]
        text = f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"
        yield times_faster(f"all-reduce of {text}, 2 ranks, {found['kind']}", found["ours"], found["peer"], "Gloo", found["goal"], "us", 1e6)


def bench_checkpoint(folder, repeat):
    built("checkpoint_bench")
    got = lines_of([sys.executable, ROOT / "bench/checkpoint.py", "--json", "--rounds", max(2, repeat // 2)])[-1]
    return [share_of("a 512 MiB save: time added to training", got["added_seconds"], got["peer_seconds"], "torch.save", 0.25),
            share_of("a 512 MiB save: training stands still", got["blocked_seconds"], got["peer_seconds"], "torch.save", 0.05)]


def bench_metric(folder, repeat):
    """Two seconds of each side a round: 20,000 calls."""
    built("metric_bench")
    names = {"wandb": "wandb offline", "tensorboard": "torch's SummaryWriter"}

    def theirs(which):
        return Peer(names[which], lambda: peers.figures(names[which], [sys.executable, ROOT / "bench/metric_peer.py", which, 2])[-1])
    mine, *others = in_turns(max(3, repeat // 2), lambda: lines_of([PROGRAMS / "metric_bench", 2], cwd=folder)[-1], *map(theirs, names))
    p50, calls = median_of(mine, "p50_ns"), sum(m["calls"] for m in mine)
    for name, goal in (("p50", 200), ("p99", 2000)):
        ours = median_of(mine, f"{name}_ns")
        yield row(f"one metric call, {mine[0]['scalars_per_step']} scalars a step at 1 kHz: {name}", ours, None, None, "ns", f"< {goal} ns",
                  ours < goal, None, None)
    for found, (which, name) in zip(others, names.items()):
        version = f" ({which} {found[0]['version']})" if found else ""
        yield times_faster(f"one metric call: p50, beside {name}{version}", max(1.0, p50), median_of(found, "p50_ns"), name, 100, "ns", 1)
    dropped = sum(m["dropped"] for m in mine)
    yield row(f"values dropped of {calls:,}", dropped, None, None, "", "0", dropped == 0, None, None)


BENCHES = {"ddp": bench_ddp, "first-step": bench_first_step, "step": bench_step, "reproducible": bench_reproducible,
           "optimizer": bench_optimizer, "all-reduce": bench_all_reduce, "checkpoint": bench_checkpoint, "metric": bench_metric}
