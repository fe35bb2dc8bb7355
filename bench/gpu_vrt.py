#!/usr/bin/env python3
"""VRT on one GPU: Lockstep and PyTorch in one go; milliseconds a training step, peak memory, restored frames/s, and the ratios.

    LOCKSTEP_UPSTREAM_VRT=.../models/network_vrt.py python3 bench/gpu_vrt.py --lockstep build/bin/lockstep
    ... [--parts ours-1,ours-4,upstream-1,upstream-4,best-1,best-4,restore] [--set train.graph=false] [--json rows.jsonl]

Training: 006 with one spike channel, 6 x 224 x 224, batch 1 and 4, bf16, Charbonnier in float32, Adam, recomputation as the option file lists it; all
parameters train. Ours is `lockstep train vrt --opt` over generated scenes on disk, timed by its metric rows (the first half, the last two and profiled
steps are left out). The peers are gpu_vrt_peer.py's, with random clips in memory: upstream's module, and the best of several variants of the same
function in PyTorch. With one variant, all batches are compiled at once at the start, before anything is timed, and timed one after the other; with
several, batch 4 runs the one that was fastest at batch 1. Restoration: 12 frames of 1280 x 720 with S-VRT's tiles, 006 for RGB, bf16.
Each part has a time limit; one that fails prints a line, and the others go on. --keep keeps data and runs.
"""

import argparse
import json
import os
import pathlib
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
PEER = HERE / "gpu_vrt_peer.py"
PARTS = "best-1,ours-1,best-4,ours-4,upstream-1,upstream-4,restore"
VARIANTS = "sdpa+default+graph"  # further: math+default+graph, flex+default+graph, sdpa+max-autotune-no-cudagraphs+graph, sdpa+none+graph, sdpa+default
LIMIT = {"ours": 90, "upstream": 75, "best": 420, "restore": 90, "data": 60}  # seconds


def option_file(batch, steps):
    """006 of S-VRT over the generated scenes; freeze and EMA off, so that all sides do the same."""
    sets = {split: {f"dataroot_{key}": "scenes/" + path.format(split) for key, path in
                    {"gt": "GOPRO_Large/{}_GT", "lq": "GOPRO_Large/{}_GT_blurred", "spike": "GOPRO_Large_spike_seq/{}"}.items()} for split in ("train",)}
    sets["train"] |= {"name": "train_dataset", "dataset_type": "VideoRecurrentTrainDatasetRGBSpike", "spike_h": 128, "spike_w": 128, "spike_channels": 1,
                      "spike_flipud": True, "filename_tmpl": "06d", "filename_ext": "png", "io_backend": {"type": "disk"}, "num_frame": 6, "gt_size": 224,
                      "interval_list": [1], "random_reverse": False, "use_hflip": True, "use_rot": True, "dataloader_shuffle": True,
                      "dataloader_batch_size": batch}
    return {"task": "bench", "model": "vrt", "scale": 1, "n_channels": 3, "datasets": sets,
            "netG": {"net_type": "vrt", "in_chans": 4, "upscale": 1, "img_size": [6, 224, 224], "window_size": [6, 8, 8], "depths": [8] * 7 + [4] * 4,
                     "indep_reconsts": [9, 10], "embed_dims": [96] * 7 + [120] * 4, "num_heads": [6] * 11, "spynet_path": None, "pa_frames": 2,
                     "deformable_groups": 16, "nonblind_denoising": False, "use_checkpoint_attn": True, "use_checkpoint_ffn": True,
                     "no_checkpoint_attn_blocks": [2, 3, 4], "no_checkpoint_ffn_blocks": [1, 2, 3, 4, 5, 9], "init_type": "default"},
            "train": {"G_lossfn_type": "charbonnier", "G_lossfn_weight": 1.0, "G_charbonnier_eps": 1e-9, "E_decay": 0, "G_optimizer_type": "adam",
                      "G_optimizer_lr": 4e-4, "G_optimizer_betas": [0.9, 0.99], "G_optimizer_wd": 0, "total_iter": steps,
                      "G_scheduler_type": "CosineAnnealingWarmRestarts", "G_scheduler_periods": steps, "G_scheduler_eta_min": 1e-7,
                      "checkpoint_test": 10**6, "checkpoint_save": 10**6, "checkpoint_print": 1, "manual_seed": 0,
                      "amp": {"enable": True, "dtype": "bfloat16"}},
            "val": {"num_frame_testing": 18, "num_frame_overlapping": 2, "size_patch_testing": 224}}


def call(command, limit, folder=None):
    """Exit code (None: the time was up) and both outputs; a child that is stopped takes its own children with it."""
    with subprocess.Popen([str(word) for word in command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as child:
        try:
            out, err = child.communicate(timeout=limit)
            return child.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            return None, out, err


def failed(what, code, out, err):
    lines = [line for line in (err + out).strip().splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if "Error" in line), " | ".join(lines[-3:]))
    print(f"{what}: {'time limit' if code is None else f'exit code {code}'}: {said[:500]}", flush=True)


def scenes(engine, folder, size):
    if (folder / "scenes").exists():
        return
    code, out, err = call([engine, "data", "prepare", "generated-spike", "scenes", "--clips", 8, "--frames", 8, "--height", size, "--width", size],
                          LIMIT["data"], folder)
    if code != 0:
        sys.exit(f"data prepare: {code}\n{out[-1000:]}\n{err[-1000:]}")


def times_of(rows, profile_start=None):
    """Seconds a step from metric rows. Those of the last two steps come as soon as the GPU is done, the others up to two steps later."""
    rows = [row for row in rows if "loss" in row["scalars"]]  # others are of checkpoints
    memory = max(row["scalars"].get("rank/memory/device", 0) for row in rows) / 2**30
    times = [row["t"] for row in rows][:profile_start if profile_start is not None else -2]
    first = len(times) // 2
    return (times[-1] - times[first]) / (len(times) - 1 - first), memory


def ours(lockstep, batch, steps, folder, extra, limit, shape=None):
    options = option_file(batch, steps)
    for section, values in (shape or {}).items():
        (options["datasets"]["train"] if section == "data" else options[section]).update(values)
    (folder / f"opt-{batch}.json").write_text("// 006 with one spike channel\n" + json.dumps(options, indent=1))
    keys = {"track.tensorboard": "false", "checkpoint.every": 0, "data.validation.fraction": 0}
    keys |= dict(pair.split("=", 1) for pair in extra)
    name = f"ours-{batch}-{time.time_ns()}"
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    code, out, err = call([lockstep, "train", "vrt", "--opt", f"opt-{batch}.json", "--nproc-per-node", 1, "--name", name, *words], limit, folder)
    metrics = folder / "runs" / name / "metrics" / "rank-0.jsonl"
    if code != 0:
        failed(f"ours-{batch}", code, out, err)
        if not metrics.exists():
            return None
    rows = [json.loads(line) for line in metrics.read_text().splitlines() if line.endswith("}")]
    if len(rows) < 6:
        print(f"ours-{batch}: {len(rows)} metric rows, too few", flush=True)
        return None
    start = keys.get("track.profile.start")
    seconds, memory = times_of(rows, int(start) if start and "track.profile.steps" in keys else None)
    scalars = [row["scalars"] for row in rows if "loss" in row["scalars"]]
    row = {"way": "ours", "batch": batch, "ms": round(1e3 * seconds, 2), "peak_gib": round(memory, 2), "steps": len(scalars),
           "data_ms": round(1e3 * sorted(s.get("rank/time/data", 0) for s in scalars)[len(scalars) // 2], 2),
           "replayed": round(sum(s.get("rank/graph_replayed", s.get("rank/recorded", 0)) for s in scalars) / len(scalars), 3), "loss": scalars[-1]["loss"]}
    for line in (out + err).splitlines():
        if "profile:" in line or "graph" in line.lower():
            print("  " + line.strip()[:200], flush=True)
    return row


def peer(words, limit, what):
    code, out, err = call([sys.executable, PEER, *words], limit)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if code != 0 or not lines:
        failed(what, code, out, err)
        return None
    return json.loads(lines[-1])


def best_words(batch, variant, extra):
    attention, compiled, *graph = variant.split("+")
    return ["best", "--batch", batch, "--attention", attention, "--compile", compiled, *(["--graph"] if graph else []), *extra]


class CompiledPeer:
    """A peer that compiles now and times its steps when it is asked."""

    def __init__(self, batch, variant, extra):
        self.what, self.variant, self.errors = f"best-{batch} {variant}", variant, tempfile.TemporaryFile("w+")
        words = [sys.executable, PEER, *best_words(batch, variant, extra), "--wait"]
        self.child = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                      start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self, start, until):
        """The next line that begins so; None: the peer ended, or the time was up and it was killed."""
        try:
            while (line := self.lines.get(timeout=max(0, until - time.monotonic()))) is not None:
                if line.startswith(start):
                    return line
        except queue.Empty:
            os.killpg(self.child.pid, signal.SIGKILL)
        code = self.child.wait()
        self.errors.seek(0)
        failed(self.what, None if code == -signal.SIGKILL else code, "", self.errors.read())
        return None

    def ready(self, until):
        self.is_ready = self.line("ready", until) is not None

    def row(self, limit):
        if not self.is_ready:
            return None
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        line = self.line("{", time.monotonic() + limit)
        self.child.wait()
        return {**json.loads(line), "asked": self.variant} if line else None


def best(batch, variants, limit, extra):
    rows = []
    for variant in variants:
        row = peer(best_words(batch, variant, extra), limit, f"best-{batch} {variant}")
        if row:
            rows.append({**row, "asked": variant})
            print(json.dumps(rows[-1]), flush=True)
    return min(rows, key=lambda row: row["ms"]) if rows else None


def write_png(path, height, width, seed):
    """A picture with smooth parts and edges."""
    import numpy as np
    y, x = np.mgrid[:height, :width].astype(np.float32)
    planes = [127 + 80 * np.sin((x + 3 * seed) / (17 + 9 * c) + y / (23 + 5 * c)) + 40 * ((x // 40 + y // 40 + seed) % 2) for c in range(3)]
    pixels = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8).reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), pixels], 1).tobytes()

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(raw, 1))
                     + chunk(b"IEND", b""))


def used_mib():
    try:
        out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True).stdout
        return int(out.split()[0])
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


def restore(engine, folder, frames, height, width, tile_batch, limit, peer_words):
    theirs = peer(["restore", "--frames", frames, "--height", height, "--width", width, "--weights", folder / "006.pth", *peer_words], limit, "restore upstream")
    if theirs:
        print(json.dumps(theirs), flush=True)
    if not (folder / "006.pth").exists():
        return [theirs] if theirs else []
    given = folder / "blurred"
    given.mkdir(exist_ok=True)
    for i in range(2 * frames):
        if not (given / f"{i:06}.png").exists():
            write_png(given / f"{i:06}.png", height, width, i)
    seconds = {}
    held, stop, before = [0], threading.Event(), used_mib()

    def watch():
        while not stop.wait(0.2):
            held[0] = max(held[0], used_mib() - before)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for count in (frames, 2 * frames):  # the difference is free of what happens once
            code, out, err = call([engine, "restore", "--weights", folder / "006.pth", "--variant", "006", given, folder / f"sharp-{count}", "--max-frames", count,
                                   "--frames", frames, "--frame-overlap", 0, "--tile-batch", tile_batch, "--overwrite", "--json"], limit, folder)
            if code != 0:
                failed("restore ours", code, out, err)
                return [theirs] if theirs else []
            seconds[count] = json.loads(out[out.index("{"):])["seconds"]
    finally:
        stop.set()
        watcher.join()
    steady = max(seconds[2 * frames] - seconds[frames], 1e-6)
    row = {"way": "ours restore", "frames": frames, "size": [width, height], "tile_batch": tile_batch, "seconds": round(steady, 3),
           "frames_per_s": round(frames / steady, 3), "first_s": round(seconds[frames], 3), "process_gib": round(held[0] / 1024, 2)}
    print(json.dumps(row), flush=True)
    return [row] + ([theirs] if theirs else [])


def ratios(rows):
    by = {(row["way"], row.get("batch")): row for row in rows}
    for batch in (1, 4):
        own = by.get(("ours", batch))
        for way in ("upstream", "best"):
            other = by.get((way, batch))
            if own and other:
                print(f"batch {batch}: {other['ms'] / own['ms']:.2f}x as fast as {way} ({own['ms']} against {other['ms']} ms), "
                      f"{own['peak_gib'] / other['peak_gib']:.2f}x its memory ({own['peak_gib']} against {other['peak_gib']} GiB)")
    own, other = by.get(("ours restore", None)), by.get(("upstream restore", None))
    if own and other:
        print(f"restore: {own['frames_per_s'] / other['frames_per_s']:.2f}x upstream's frames/s ({own['frames_per_s']} against {other['frames_per_s']}), "
              f"process {own['process_gib']} GiB against {other['peak_gib']} GiB of its allocator")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/bin/lockstep")
    parser.add_argument("--parts", default=PARTS)
    parser.add_argument("--variants", default=VARIANTS, help="of best: attention+compile mode[+graph]")
    parser.add_argument("--steps", type=int, default=40, help="of ours")
    parser.add_argument("--frames", type=int, default=12, help="of restore")
    parser.add_argument("--tile-batch", type=int, default=4, help="of ours in restore")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"), help="of upstream in restore")
    parser.add_argument("--set", action="append", default=[], help="further keys of ours")
    parser.add_argument("--limit", type=int, help="seconds of one part, instead of its own")
    parser.add_argument("--keep", help="folder for data and runs; kept")
    parser.add_argument("--json", help="file that gets the rows")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try this script on a CPU")
    args = parser.parse_args()
    if "LOCKSTEP_UPSTREAM_VRT" not in os.environ and (HERE.parent / ".peers" / "network_vrt.py").exists():
        os.environ["LOCKSTEP_UPSTREAM_VRT"] = str(HERE.parent / ".peers" / "network_vrt.py")
    lockstep = pathlib.Path(args.lockstep).resolve()
    engine = lockstep.with_name("lockstep-train")
    limits = {key: args.limit or value for key, value in LIMIT.items()}
    tiny = ["--tiny"] if args.tiny else []
    few = ["--warm", 1, "--steps", 2] if args.tiny else []
    shape = {"data": {"num_frame": 2, "gt_size": 64, "spike_h": 32, "spike_w": 32},
             "netG": {"img_size": [2, 64, 64], "window_size": [2, 8, 8], "depths": [2] * 8, "indep_reconsts": [], "embed_dims": [8] * 8, "num_heads": [2] * 8,
                      "deformable_groups": 4, "no_checkpoint_ffn_blocks": [1]}} if args.tiny else None
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        variants, compiled = args.variants.split(","), {}
        if len(variants) == 1:
            compiled = {part: CompiledPeer(part[5:], variants[0], [*few, *tiny]) for part in args.parts.split(",") if part.startswith("best-")}
            until = time.monotonic() + limits["best"]
            for one in compiled.values():
                one.ready(until)
        for part in args.parts.split(","):
            way, _, batch = part.partition("-")
            begin = time.perf_counter()
            row = None
            if way == "ours":
                scenes(engine, folder, 64 if args.tiny else 256)
                row = ours(lockstep, int(batch), args.steps, folder, args.set, limits["ours"], shape)
            elif way == "upstream":
                row = peer(["upstream", "--batch", batch, *(few or ["--warm", 2, "--steps", 3]), *tiny], limits["upstream"], part)
            elif part in compiled:
                row = compiled[part].row(limits["upstream"])
            elif way == "best":
                known = [r for r in rows if r["way"] == "best"]
                row = best(int(batch), [known[0]["asked"]] if known else variants, limits["best"], [*few, *tiny])
            elif way == "restore":
                rows += restore(engine, folder, args.frames, *((128, 192) if args.tiny else (720, 1280)), args.tile_batch, limits["restore"],
                                ["--precision", args.precision])
            else:
                sys.exit(f"--parts: expected some of {PARTS}, found '{part}'")
            if row:
                rows.append(row)
                if way != "best" or part in compiled:
                    print(json.dumps(row), flush=True)
            print(f"  {part} took {time.perf_counter() - begin:.0f} s", flush=True)
    ratios(rows)
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
