"""CPU threads of a rank: how many where nobody said, and that they sleep while they wait, whoever started the rank."""

import os
import pathlib
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

FREE = {"train.threads": None, "train.steps": 100000}  # nothing said; goes on until it is stopped


def environment(pid):
    text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)


class Threads(harness.Case):
    TIMEOUT = 60

    def stopped(self, *processes):
        for process in processes:
            process.send_signal(signal.SIGTERM)
        self.assertEqual([p.wait() for p in processes], [75] * len(processes), processes[0].output)

    def test_ranks_of_a_foreign_launcher_help_themselves(self):
        # As srun and mpirun start them: who is who, and nothing about threads.
        who = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": harness.free_port()}
        ranks = [harness.spawn(train.ENGINE, "train", "taehv", "--name", "run", *train.settings(FREE),
                               env={**who, "RANK": rank, "LOCAL_RANK": rank}) for rank in range(2)]
        train.wait_step(train.run_path(), 1, ranks[0])
        for rank in ranks:
            self.assertEqual(environment(rank.pid).get("OMP_WAIT_POLICY"), "PASSIVE")
        part = max(1, len(os.sched_getaffinity(0)) // 2)
        self.assertIn(f"2 ranks on CPU, {part} thread", ranks[0].output)
        self.stopped(*ranks)

    def test_the_launcher_says_it_for_its_ranks(self):
        launcher = harness.spawn_lockstep(*train.command(ranks=1, sets=FREE))
        train.wait_step(train.run_path(), 1, launcher)
        engines = [pid for pid, line in harness.leftovers().items() if line.startswith(train.ENGINE)]
        self.assertEqual(len(engines), 1, harness.leftovers())
        env = environment(engines[0])
        self.assertEqual((env.get("OMP_WAIT_POLICY"), int(env["OMP_NUM_THREADS"]) <= len(os.sched_getaffinity(0))),
                         ("PASSIVE", True))
        self.stopped(launcher)
