"""Trainings with a delay injected into one rank, for the tests of findings: real `lockstep train` on four CPU ranks, the delay at a
random rank from a random step on, and what `lockstep watch` says of it while it runs."""

import json
import subprocess
import time

import harness
from beds import train

RANKS = 4
KINDS = ("data", "compute", "network")
STAGES = {"data": ("data",), "compute": ("forward", "backward", "compute"), "network": ("network",)}
# Data and compute are slowed in the engine itself (LOCKSTEP_TEST_DELAY, src/engine/stage_clock.h), the network by a library that
# holds back what a rank sends over TCP; each rank then is a node of its own.
DELAYS = {"data": 150, "compute": 150, "network": 25}
SETS = {"train.steps": 1000000, "checkpoint.every": 0, "track.samples": None, "track.tensorboard": "false"}


def slow_sends(folder):
    """The library that delays sends, built."""
    library = folder / "slow_sends.so"
    if not library.exists():
        source = harness.ROOT / "tests" / "beds" / "programs" / "slow_sends.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


class Training:
    """A training without end beside the test, healthy or with a delay of one kind at `rank` from `step` on."""

    def __init__(self, folder, name, kind=None, rank=0, step=0):
        self.folder, self.name, self.kind, self.rank, self.step = folder, name, kind, rank, step
        self.trigger = folder / f"{name}.slow"
        self.began = None
        env = dict(train.ONE_THREAD)
        words = train.command(ranks=RANKS, name=name, sets=SETS)
        if kind in ("data", "compute"):
            env["LOCKSTEP_TEST_DELAY"] = f"{rank}:{'data' if kind == 'data' else 'forward'}:{step}:{DELAYS[kind]}"
        if kind == "network":
            env.update(LD_PRELOAD=str(slow_sends(folder)), SLOW_SENDS=f"{rank}:{DELAYS[kind]}:{self.trigger}")
            engine = f'LOCKSTEP_NODE=rank-$RANK exec {train.ENGINE} "$@"'
            words = ["run", "--nproc-per-node", str(RANKS), "--name", name, "--no-python", "sh", "-c", engine, "sh",
                     "train", "taehv", *train.settings(SETS)]
        self.process = harness.Process([harness.PROGRAM, *words], env=env, cwd=folder)
        self.run = folder / "runs" / name

    def steps(self):
        """The last step that rank 0 has written."""
        try:
            with open(self.run / "metrics" / "rank-0.jsonl", "rb") as lines:
                lines.seek(max(0, lines.seek(0, 2) - 8192))
                whole = lines.read().split(b"\n")[-2]
            return json.loads(whole)["step"]
        except (OSError, IndexError, ValueError):
            return 0

    def wait_step(self, step, seconds=120):
        def reached():
            if not self.process.alive():
                raise AssertionError(f"ended before step {step}\n{self.process.output}")
            return self.steps() >= step
        harness.wait_until(reached, seconds, f"step {step} of {self.name}")

    def begin_delay(self):
        """Waits for the step at which the delay begins; the network's begins then."""
        self.wait_step(self.step)
        if self.kind == "network":
            self.trigger.touch()
        self.began = time.monotonic()

    def accusations(self):
        """(rank, stage) that `lockstep watch` names now."""
        shown = harness.lockstep("watch", self.name, "--once", "--json", cwd=self.folder)
        if shown.returncode != 0:
            raise AssertionError(shown.stderr)
        found = json.loads(shown.stdout)["findings"]
        return [(one["rank"], one["stage"], one["text"]) for one in found if one["rank"] is not None and one["rank"] >= 0]

    def right(self, accused):
        return bool(accused) and all(rank == self.rank and stage in STAGES[self.kind] for rank, stage, _ in accused)

    def seconds_until_named(self, limit):
        """Seconds from the begin of the delay until the rank and its stage are named; None when they are not within the limit."""
        self.begin_delay()
        while time.monotonic() - self.began < limit:
            if self.right(self.accusations()):
                return time.monotonic() - self.began
            time.sleep(0.2)
        return None

    def stop(self):
        self.process.send_signal(15)
        self.process.wait(60)
