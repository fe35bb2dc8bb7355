#!/usr/bin/env python3
"""What saving 512 MB costs training: our background save against torch.save of the same state, in turns.

    bench/checkpoint.py [--folder FOLDER] [--mib 512] [--rounds 3]

Added: wall time of the steps that overlap a save beyond that of steps without. Blocked: the part for which the training
thread stood still. torch.save stands still for all of its time; it does not sync to disk, our save does.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from peers import Peer
from rows import in_turns, median

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("LOCKSTEP_CHECKPOINT_BENCH", str(ROOT / "build/release/bench/checkpoint_bench"))


def torch_save(folder, mib):
    """Seconds of torch.save, median of three in one process, state and imports ready."""
    script = ("import sys, time, torch, statistics\n"
              "state = {f'layer.{i}': torch.full((1 << 20,), float(i)) for i in range(int(sys.argv[2]) // 4)}\n"
              "times = []\n"
              "for i in range(3):\n"
              "    start = time.monotonic(); torch.save(state, f'{sys.argv[1]}/peer-{i % 2}.pt'); times.append(time.monotonic() - start)\n"
              "print(statistics.median(times))\n")
    done = subprocess.run([sys.executable, "-c", script, folder, str(mib)], check=True, capture_output=True, text=True)
    for name in ("peer-0.pt", "peer-1.pt"):
        os.unlink(os.path.join(folder, name))
    return float(done.stdout)


def measure(folder, mib, rounds):
    """{"peer": s, "added": s, "blocked": s, ...}: medians over rounds of both in turns."""
    def background_save():
        done = subprocess.run([PROGRAM, os.path.join(folder, "checkpoints"), str(mib)], check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)
    peers, ours = in_turns(rounds, Peer("torch.save", lambda: torch_save(folder, mib)), background_save)
    return {**{key: median(o[key] for o in ours) for key in ours[0]}, "peer_seconds": median(peers)}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", default=None, help="where to write; default: a temporary folder beside the build tree")
    options.add_argument("--mib", type=int, default=512)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = options.parse_args()
    if "LOCKSTEP_CHECKPOINT_BENCH" not in os.environ:
        subprocess.run(["ninja", "--quiet", "-C", str(ROOT / "build/release"), "checkpoint_bench"], check=True)
    with tempfile.TemporaryDirectory(dir=given.folder or ROOT / "build") as folder:
        result = measure(folder, given.mib, given.rounds)
    if given.json:
        print(json.dumps(result))
        return 0
    if result["peer_seconds"] is None:
        print(f"torch.save crashed; ours: {result}")
        return 0
    added, blocked = result["added_seconds"] / result["peer_seconds"], result["blocked_seconds"] / result["peer_seconds"]
    print(f"{given.mib} MiB fp32, {result['threads']:.0f} compute threads, step {result['step_seconds'] * 1e3:.0f} ms, "
          f"{result['overlapped_steps']:.0f} steps overlap a save ({result['write_seconds']:.2f} s in the background, synced)")
    print(f"torch.save            {result['peer_seconds'] * 1e3:7.0f} ms")
    print(f"added to training     {result['added_seconds'] * 1e3:7.0f} ms  {added:6.1%} of torch.save  (goal < 25 %: {'met' if added < 0.25 else 'missed'})")
    print(f"training blocked      {result['blocked_seconds'] * 1e3:7.0f} ms  {blocked:6.1%} of torch.save  (goal < 5 %: {'met' if blocked < 0.05 else 'missed'})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
