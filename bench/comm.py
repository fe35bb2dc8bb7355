#!/usr/bin/env python3
"""All-reduce over host memory against torch.distributed's Gloo: two processes, one thread each, in turns in one go.

    python bench/comm.py [--rounds 5] [--seconds 0.5] [--ranks 2] [--json]

Each figure is the median over the rounds of the p50 (and p99) of a round. Ratios count, not times: machines are shared.
"staged": the data lies in ordinary memory. "in place": in a buffer of Communicator::Allocate.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from peers import Peer, figures
from rows import in_turns, median

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "build/release"
GOALS = {(4 << 10, "staged"): 50, (20 << 20, "staged"): 5, (20 << 20, "in place"): 15}


SIZES = {4 << 10, 200 << 10, 4 << 20, 20 << 20}


def lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {row["bytes"]: row for row in map(json.loads, done.stdout.splitlines())}


def peer_lines(ranks, seconds):
    found = {row["bytes"]: row for row in figures("Gloo", [sys.executable, ROOT / "bench/comm_peer.py", ranks, seconds])}
    if found.keys() != SIZES:
        raise RuntimeError(f"figures of {len(found)} of {len(SIZES)} sizes")
    return found


def rows(rounds, seconds, ranks):
    """One dict per size and kind: bytes, kind, ours, ours_p99, peer, peer_p99 (seconds), ratio, goal, met."""
    ours, peer = in_turns(rounds, lambda: lines([TREE / "bench/comm_bench", str(ranks), str(seconds)]),
                          Peer("Gloo", lambda: peer_lines(ranks, seconds)))

    def typical(results, size, key):
        return median(result[size][key] for result in results)

    found = []
    for size in sorted(ours[0]):
        for kind in ("staged", "in place"):
            prefix = kind.replace(" ", "_")
            row = {"bytes": size, "kind": kind, "ours": typical(ours, size, prefix + "_p50"),
                   "ours_p99": typical(ours, size, prefix + "_p99"), "peer": typical(peer, size, "p50"),
                   "peer_p99": typical(peer, size, "p99"), "goal": GOALS.get((size, kind))}
            row["ratio"] = row["peer"] and row["peer"] / row["ours"]
            row["met"] = row["goal"] is None or row["ratio"] is None or row["ratio"] >= row["goal"]
            found.append(row)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    if not (TREE / "bench/comm_bench").exists():
        subprocess.run(["ninja", "--quiet", "-C", TREE, "comm_bench"], check=True)
    found = rows(flags.rounds, flags.seconds, flags.ranks)
    if flags.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'all-reduce':>10} {'':9} {'ours p50':>10} {'p99':>10} {'Gloo p50':>10} {'p99':>10} {'ratio':>8}  goal")
    for row in found:
        times = " ".join(f"{(row[key] or 0) * 1e6:8.1f}us" for key in ("ours", "ours_p99", "peer", "peer_p99"))
        goal = "" if row["goal"] is None else f">= {row['goal']}x {'met' if row['met'] else 'MISSED'}"
        print(f"{row['bytes'] >> 10:>7} KB {row['kind']:9} {times} {row['ratio'] or 0:7.1f}x  {goal}")


if __name__ == "__main__":
    main()
