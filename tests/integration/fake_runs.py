"""Run directories as launchers and ranks leave them, of any size, without any of them: for tests and benchmarks of readers."""

import json
import os
import pathlib
import socket
import time


def metric_line(rank, step, attempt=0, t=None, **scalars):
    return json.dumps({"t": time.time() if t is None else t, "attempt": attempt, "rank": rank, "step": step,
                       "scalars": scalars}) + "\n"


class FakeRun:
    """A job of `world` ranks on `nodes` nodes with one GPU per rank; alive while the process `owner` is."""

    def __init__(self, root, name="fake", world=2, nodes=1, steps=1000, owner=None):
        self.path = pathlib.Path(root) / name
        self.world, self.nodes, self.steps = world, nodes, steps
        self.samples = 0
        self.start = time.time() - 60
        for folder in ("metrics", "telemetry"):
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        self.write("run.json", {"format": 1, "name": name, "world_size": world, "nnodes": nodes, "started": self.start})
        (self.path / "config.yaml").write_text(f"train:\n  steps: {steps}\n")
        if owner is not None:
            self.hold(owner)
        self.event("run_started", name=name, nnodes=nodes, world_size=world)
        self.event("attempt_started", attempt=0, nnodes=nodes, world_size=world)
        for rank in range(world):
            self.event("rank_started", attempt=0, rank=rank, node=self.node_of(rank))

    def write(self, name, document):
        (self.path / name).write_text(json.dumps(document))

    def node_of(self, rank):
        return rank * self.nodes // self.world

    def hold(self, pid):
        """The lock of a launcher that lives."""
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        self.write("lock", {"pid": pid, "host": socket.gethostname(), "since": self.start,
                            "boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
                            "pid_ns": os.readlink(f"/proc/{pid}/ns/pid"), "start_time": int(fields[19])})

    def event(self, kind, **fields):
        with open(self.path / "events.jsonl", "a") as file:
            file.write(json.dumps({"t": time.time(), "type": kind, **fields}) + "\n")

    def log(self, rank, text, attempt=0):
        folder = self.path / "logs" / f"attempt-{attempt}" / f"node-{self.node_of(rank)}"
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"rank-{rank}.log", "a") as file:
            file.write(text)

    def step(self, step, ranks=None, seconds=0.5, slow=None, engine=False):
        """One metric line of each rank. `slow`: the rank for which the others wait. `engine`: with every name of its lines."""
        for rank in range(self.world) if ranks is None else ranks:
            wait = 0.02 if rank == slow else 0.2 * seconds if slow is not None else 0.05 * seconds
            scalars = {"rank/loss": 2.0 / (step + 1), "rank/time/step": seconds, "rank/time/data": 0.01 * seconds,
                       "rank/time/comm_exposed": wait, "rank/memory/host": 2 << 30, "rank/memory/device": 20 << 30}
            if engine:
                parts = {"collective": wait / seconds, "forward": 0.3, "backward": 0.5, "optimizer": 0.05, "checkpoint": 0, "save": 0}
                scalars |= {f"rank/time/{stage}": seconds * part * 1.0000001 ** (step + rank) for stage, part in parts.items()}
                scalars |= {"rank/wait/peer": (rank + 1) % self.world, "rank/wait/seconds": wait / 2, "rank/graph_replayed": 1,
                            "rank/memory/device_reserved": 30 << 30, "rank/comm/shm_bytes": 123456789, "rank/comm/tcp_bytes": 0,
                            "rank/data/read": 1.25e-4, "rank/data/decode": 0.0310522, "rank/data/transform": 0.00712,
                            "rank/data/stall": 0.01, "rank/data/ready": 4, "rank/data/threads": 6, "rank/data/memory": 1 << 28}
            if rank == 0:
                scalars |= {"loss": 2.0 / (step + 1), "lr": 1e-4, "grad_norm": 0.7, "samples_per_second": 61.5}
            with open(self.path / f"metrics/rank-{rank}.jsonl", "a") as file:
                file.write(metric_line(rank, step, **scalars))

    def sample(self, hot=None, step=None, seconds=0.5):
        """One sample of each node. `hot`: the rank whose GPU is slowed by heat. `step`: what the ranks are at."""
        self.samples += 1
        done = {} if step is None else {
            "step": step, "step_t": time.time(), "loss": 2.0 / (step + 1), "steps": 1, "wait_seconds": 0.025 * seconds,
            "seconds": {"step": seconds, "data": 0.01 * seconds, "forward": 0.3 * seconds, "backward": 0.5 * seconds,
                        "collective": 0.05 * seconds, "optimizer": 0.05 * seconds, "checkpoint": 0}}
        for node in range(self.nodes):
            ranks = [rank for rank in range(self.world) if self.node_of(rank) == node]
            gpus = [{"gpu": i, "uuid": f"GPU-{rank}", "name": "NVIDIA H200", "util": 90 + rank % 10, "memory_used": 80e9,
                     "memory_total": 150e9, "temperature": 93 if rank == hot else 55 + rank % 8, "power": 500.0 + rank % 90,
                     "power_limit": 700, "sm_clock": 1200 if rank == hot else 1755, "sm_clock_max": 1980,
                     "memory_clock": 3201, **({"throttle": ["hw thermal slowdown"]} if rank == hot else {})}
                    for i, rank in enumerate(ranks)]
            line = {"t": time.time(), "attempt": 0, "node": node, "host": f"gpu-{node}", "launcher": 3000 + node,
                    "n": self.samples, "dropped": 0,
                    "cpu": {"percent": 812.5, "cores": 64, "load": 9.31}, "memory": {"used": 51e9, "total": 540e9}, "gpus": gpus,
                    "ranks": [{"rank": rank, "pid": 4000 + rank, "cpu": 101.5, "rss": 6.4e9, "gpu": i, **done}
                              for i, rank in enumerate(ranks)],
                    "links": [{"name": "mlx5_0:1", "kind": "infiniband", "speed": 400, "in": 1.2e9, "out": 1.1e9,
                               "bytes_in": 88e9, "bytes_out": 87e9, "errors": 0},
                              {"name": "eth0", "kind": "ethernet", "speed": 25, "in": 1.2e5, "out": 1.1e6,
                               "bytes_in": 88e6, "bytes_out": 87e6, "errors": 0}]}
            with open(self.path / f"telemetry/node-{node}.jsonl", "a") as file:
                file.write(json.dumps(line) + "\n")
