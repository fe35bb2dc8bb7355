"""Stage times of ranks on GPUs, with one rank slowed down on its GPU in one stage: the time shows in that stage of that
rank, in the collectives of the other, and `lockstep watch` names both, although every step is a replayed CUDA graph. Two NCCL
ranks share one GPU. Run by `make test-gpu`."""

import json
import signal
import statistics
import subprocess
import time
import unittest

import test_nccl_ranks as nccl

DELAY = 0.060  # seconds of each step
BEGINS = 30    # step
SLOW, OTHER = 1, 0
SETS = {"train.steps": 1000000, "checkpoint.every": 0, "data.validation.every": 0, "data.height": 32, "data.width": 32,
        "data.threads": 2, "comm.backend": "nccl", "track.tensorboard": "false"}


def tearDownModule():
    nccl.tearDownModule()


class Slowed:
    """A training without end whose rank 1 is slow in `stage`."""

    def __init__(self, stage, sets):
        self.name = f"slow-{stage}-{len(sets)}"
        flags = [word for key, value in {**SETS, **sets}.items() for word in ("--set", f"{key}={value}")]
        env = nccl.environment(LOCKSTEP_TEST_DELAY=f"{SLOW}:{stage}:{BEGINS}:{round(1000 * DELAY)}")
        self.log = open(nccl.SCRATCH / f"{self.name}.log", "w+")
        self.process = subprocess.Popen(
            [str(nccl.launcher_of_hosts()), "train", "taehv", "--config", str(nccl.ROOT / "examples" / "taehv-small.yaml"),
             "--nproc-per-node", "2", "--name", self.name, *flags],
            cwd=nccl.SCRATCH, env=env, stdout=self.log, stderr=subprocess.STDOUT, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def steps(self, rank):
        """[(step, scalars)] written so far."""
        path = nccl.SCRATCH / "runs" / self.name / "metrics" / f"rank-{rank}.jsonl"
        whole = path.read_text().split("\n")[:-1] if path.exists() else []
        return [(line["step"], line["scalars"]) for line in map(json.loads, whole) if "rank/time/step" in line.get("scalars", {})]

    def wait(self, what, condition, seconds=90):
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            found = condition()
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        self.log.seek(0)
        raise AssertionError(f"{self.name}: {what}: did not happen\n{self.log.read()[-4000:]}")

    def medians(self, rank, first, last):
        """{stage: its median in those steps}"""
        lines = [scalars for step, scalars in self.steps(rank) if first <= step <= last]
        names = ("data", "forward", "backward", "collective", "optimizer", "checkpoint", "step")
        return {name: statistics.median(line[f"rank/time/{name}"] for line in lines) for name in names}

    def stragglers(self):
        """[(rank, stage)] that `lockstep watch` names now."""
        shown = nccl.lockstep("watch", self.name, "--once", "--json")
        return [(one["rank"], one["stage"]) for one in json.loads(shown.stdout)["findings"] if one["kind"] == "straggler"]


class Stages(unittest.TestCase):
    def slowed(self, stage, replayed, sets):
        with Slowed(stage, sets) as run:
            run.wait("steps", lambda: all(run.steps(rank) and run.steps(rank)[-1][0] >= BEGINS + 30 for rank in (0, 1)))
            named = run.wait("a straggler", run.stragglers)
            self.assertEqual(set(named), {(SLOW, stage)})
            before = {rank: run.medians(rank, 10, BEGINS - 1) for rank in (0, 1)}
            after = {rank: run.medians(rank, BEGINS + 5, BEGINS + 30) for rank in (0, 1)}
            print(stage, sets, json.dumps({"before": before, "after": after}), flush=True)
            more = {rank: {name: after[rank][name] - before[rank][name] for name in after[rank]} for rank in (0, 1)}
            self.assertGreater(more[SLOW][stage], 0.8 * DELAY, more)
            self.assertGreater(more[OTHER]["collective"], 0.6 * DELAY, more)
            for name in ("data", "forward", "backward", "optimizer", "checkpoint"):
                if name != stage:
                    self.assertLess(more[SLOW][name], 0.5 * DELAY, (name, more))
                self.assertLess(more[OTHER][name], 0.5 * DELAY, (name, more))
            for rank in (0, 1):  # the stages are the step: nothing is counted twice, little is in none
                parts = sum(seconds for name, seconds in after[rank].items() if name != "step")
                self.assertLess(abs(parts - after[rank]["step"]), 0.3 * after[rank]["step"], after)
                lines = dict(run.steps(rank))
                self.assertEqual(lines[BEGINS + 20].get("rank/graph_replayed", 0), replayed)

    def test_a_rank_that_is_slow_in_a_stage_is_named_with_it(self):
        sharded = {"train.zero.stage": 3}  # waits for shards in the middle of a pass
        for stage, replayed, sets in (("forward", 1, {}), ("backward", 1, {}), ("optimizer", 1, {}), ("forward", 0, sharded)):
            with self.subTest(stage=stage, sets=sets):
                self.slowed(stage, replayed, sets)


if __name__ == "__main__":
    unittest.main(verbosity=2)
