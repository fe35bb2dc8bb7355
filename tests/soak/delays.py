"""Delays injected into one rank of four, at a random rank from a random step on: is the rank named, with its stage, and how soon? And
healthy trainings: is anybody accused? Prints one line for each run and the counts at the end.

    delays.py [--each 20] [--healthy 20] [--seed 1]
"""

import argparse
import os
import pathlib
import random
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests")]
import harness  # noqa: E402
from beds import delays  # noqa: E402

LIMIT = 10  # seconds
HEALTHY_STEPS = range(10, 61, 5)  # at which a healthy training is looked at


def injected(folder, kind, turn, rng):
    """Seconds until the rank was named, or None."""
    training = delays.Training(folder, f"{kind}-{turn}", kind, rng.randrange(delays.RANKS), rng.randrange(8, 40))
    try:
        seconds = training.seconds_until_named(LIMIT)
        last = training.accusations() if seconds is None else []
    finally:
        training.stop()
    print(f"{kind} {turn}: rank {training.rank} from step {training.step}: "
          f"{'not named: ' + str(last) if seconds is None else f'named after {seconds:.1f} s'} (load {os.getloadavg()[0]:.1f})", flush=True)
    return seconds


def healthy(folder, turn):
    """What was said against anybody."""
    training = delays.Training(folder, f"healthy-{turn}")
    accused = []
    try:
        for step in HEALTHY_STEPS:
            training.wait_step(step)
            accused += training.accusations()
    finally:
        training.stop()
    print(f"healthy {turn}: {accused or 'nobody accused'} (load {os.getloadavg()[0]:.1f})", flush=True)
    return accused


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=delays.KINDS)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    failed = False
    with tempfile.TemporaryDirectory(prefix="lockstep-delays-") as name:
        folder = pathlib.Path(name)
        for kind in asked.kinds:
            times = [injected(folder, kind, turn, rng) for turn in range(asked.each)]
            named = sorted(t for t in times if t is not None)
            if named:
                print(f"{kind}: {len(named)} of {len(times)} named within {LIMIT} s, median {named[len(named) // 2]:.1f} s, last {named[-1]:.1f} s")
            failed |= len(named) < 0.95 * len(times)
        accused = [healthy(folder, turn) for turn in range(asked.healthy)]
        if accused:
            print(f"healthy: {sum(map(bool, accused))} of {len(accused)} with an accusation")
        failed |= any(accused)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
