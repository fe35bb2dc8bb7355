#!/usr/bin/env python3
"""How long a look at the machine takes: `lockstep doctor hardware --json` as a process, beside the commands a person would type (lscpu, ip,
findmnt, prlimit) and beside `python -m torch.utils.collect_env`; and the scan alone on the trees of tests/place, without NVML.

    python3 bench/hardware_scan.py [--lockstep build/bin/lockstep] [--python .venv/bin/python] [--repeat 5]
"""

import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from rows import in_turns

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPED = [["lscpu", "-J"], ["ip", "-j", "addr"], ["ip", "-j", "route"], ["findmnt", "-J"], ["prlimit"]]
GOAL_MS = 100

sys.path.append(str(ROOT / "tests/integration"))


def seconds(*commands):
    start = time.monotonic()
    for command in commands:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.monotonic() - start


def scan(lockstep, *flags):
    """(first, median of nine) in milliseconds, of the scan inside a running process."""
    said = subprocess.run([lockstep, "doctor", "hardware", "--json", "--no-gpus", "--time", *flags], capture_output=True, text=True,
                          check=True).stderr
    first, median = re.search(r"without NVML: first ([\d.]+) ms, then ([\d.]+) ms", said).groups()
    return float(first), float(median)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build/bin/lockstep"))
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    from test_doctor_hardware import unpack  # one reader of trees is enough

    typed = [command for command in TYPED if shutil.which(command[0])]
    ours, peer, torch = (statistics.median(times) for times in in_turns(
        arguments.repeat, lambda: seconds([arguments.lockstep, "doctor", "hardware", "--json", "--no-gpus"]), lambda: seconds(*typed),
        lambda: seconds([arguments.python, "-m", "torch.utils.collect_env"])))
    print(f"doctor hardware --json: {ours * 1e3:.1f} ms; {', '.join(c[0] for c in typed)}: {peer * 1e3:.1f} ms "
          f"({peer / ours:.1f}x); torch.utils.collect_env: {torch * 1e3:.0f} ms ({torch / ours:.0f}x)")
    worst = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-scan-", dir="/dev/shm") as folder:
        for tree in [None, *sorted((ROOT / "tests/hardware/trees").glob("*.tree"))]:
            flags = ["--root", str(unpack(tree.stem, pathlib.Path(folder) / tree.stem))] if tree else []
            first, median = scan(arguments.lockstep, *flags)
            worst = max(worst, first)
            print(f"{tree.stem if tree else 'this machine':<20} first {first:6.1f} ms   then {median:6.1f} ms")
    print(f"slowest {worst:.1f} ms, goal < {GOAL_MS} ms: {'met' if worst < GOAL_MS else 'MISSED'}")
    return 0 if worst < GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
