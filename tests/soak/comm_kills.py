"""kill -9 of ranks in the middle of collectives: the survivors name the dead, and nothing of shared memory or sockets stays."""

import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time

PROBE = pathlib.Path(__file__).resolve().parents[2] / "build/release/tests/comm_probe"


def leftovers():
    """Names a dead job could leave: files in shared memory, unix sockets of ours, connections of a port."""
    shm = {name for name in os.listdir("/dev/shm") if "lockstep" in name}  # not those of programs beside us
    unix = {line.split()[-1] for line in open("/proc/net/unix") if "lockstep" in line}
    return shm | unix


def listening(port):
    pattern = re.compile(r"^\s*\d+: \S+:%04X \S+ 0A " % port)
    return any(pattern.match(line) for name in ("/proc/net/tcp", "/proc/net/tcp6") for line in open(name))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(rounds=100, world=3, seed=1):
    """Returns what happened: rounds, survivors that named a rank, rounds that left something."""
    draw = random.Random(seed)
    before = leftovers()
    named = survivors = dirty = late = 0
    for turn in range(rounds):
        port = free_port()
        env = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PATH": "/bin"}
        ranks = [subprocess.Popen([PROBE, "2", "1000000"], env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True) for r in range(world)]
        time.sleep(draw.uniform(0.05, 0.5))
        all_at_once = turn % 4 == 3
        victim = draw.randrange(world)
        for r in range(world) if all_at_once else [victim]:
            ranks[r].send_signal(signal.SIGKILL)
        for r, rank in enumerate(ranks):
            try:
                # Killed before all had met, a rank is missed at the others' own deadline of 30 s.
                text = rank.communicate(timeout=120)[1]
            except subprocess.TimeoutExpired:
                late += 1
                rank.kill()
                text = rank.communicate()[1]
            if not all_at_once and r != victim:
                survivors += 1
                named += f"rank {victim}" in text
        dirty += bool(leftovers() - before) or listening(port)
    return {"rounds": rounds, "survivors": survivors, "survivors that named the dead rank": named, "survivors that hung": late,
            "rounds that left something": dirty}


if __name__ == "__main__":
    if "COMM_KILLS_ALONE" not in os.environ:  # sockets of other jobs must not be counted: a network namespace of its own
        os.environ["COMM_KILLS_ALONE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"', sys.executable, __file__, *sys.argv[1:]])
    outcome = run(rounds=int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    print(outcome)
    good = outcome["survivors that named the dead rank"] == outcome["survivors"] and not outcome["survivors that hung"]
    sys.exit(0 if good and not outcome["rounds that left something"] else 1)
