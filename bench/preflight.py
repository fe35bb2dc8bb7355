#!/usr/bin/env python3
"""Wall time of a preflight of several nodes, against the list that guides give to be run by hand on every node.

    bench/preflight.py                 2 and 4 nodes, 7 rounds in turns (about a minute)
    bench/preflight.py --nodes 2 --repeat 3 --json

Nodes are network namespaces on this machine, so two nodes share its cores. Ours is `lockstep doctor preflight` on all
nodes at once, with a program, its interpreter and a data folder: every check of docs/preflight.md. The peer is a shell
script with the commands of the usual checklists (versions by importing torch, nvidia-smi and ibstat where they are,
limits, df, names, a TCP connection to the master and to every other node), started on all nodes at once: one pass,
without comparing the nodes, measuring rates or packets, or reading the answers. The peer without the import of torch is
shown too.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]
from beds import netns  # noqa: E402

PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PYTHON", str(ROOT / ".venv/bin/python"))

BY_HAND = """
hostname; date +%s.%N
{torch}
command -v nvidia-smi >/dev/null && nvidia-smi -q >/dev/null
command -v ibstat >/dev/null && ibstat
ls /sys/class/infiniband 2>/dev/null
ulimit -l; ulimit -n; ulimit -u
df -h /dev/shm /tmp . {data}; df -i . /tmp
free -g; cat /sys/fs/cgroup/memory.max 2>/dev/null
ip -brief address; ip route get {master}
touch .probe && rm .probe
test -r {data}; find {data} -type f | wc -l
md5sum {program}
for name in {names}; do getent hosts $name; done
for name in {names}; do timeout 2 bash -c "</dev/tcp/$name/{port}" || true; done
env | grep -E '^(NCCL|GLOO|TORCH|CUDA)_'
true
"""


def listeners(net, port):
    """Something to connect to on every node, as the checklist assumes."""
    code = f"import socket;s=socket.create_server(('',{port}),backlog=64);print('up',flush=True)\nwhile True:s.accept()[0].close()"
    running = [host.popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for host in net]
    for process in running:
        process.stdout.readline()
    return running


def wall(commands):
    start = time.perf_counter()
    running = [host.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) for host, argv, env in commands]
    outputs = [process.communicate()[0].decode(errors="replace") for process in running]
    seconds = time.perf_counter() - start
    for process, output in zip(running, outputs):
        if process.returncode != 0:
            raise SystemExit(f"exit code {process.returncode}:\n{output}")
    return seconds


def measure(count, repeat, folder):
    names = [f"n{i}" for i in range(count)]
    program, data = folder / "train.py", folder / "data"
    program.write_text("import torch\n")
    data.mkdir(exist_ok=True)
    for i in range(1000):
        (data / f"clip-{i:04}.bin").write_bytes(b"x" * 64)
    env = {**os.environ, "PATH": os.path.dirname(PYTHON) + ":" + os.environ["PATH"]}
    env.pop("VIRTUAL_ENV", None)
    with netns.Net(names) as net:
        serving = listeners(net, 29600)
        try:
            def ours():
                return wall([(net[name], [PROGRAM, "doctor", "preflight", f"--nnodes={count}", f"--node-rank={rank}",
                                          f"--master-addr={names[0]}", "--nproc-per-node=1", f"--data={data}",
                                          str(program)], env) for rank, name in enumerate(names)])

            def by_hand(torch):
                text = BY_HAND.format(data=data, program=program, names=" ".join(names), port=29600, master="10.77.0.1",
                                      torch=f"{PYTHON} -c 'import torch; print(torch.__version__, torch.cuda.is_available())'"
                                      if torch else f"{PYTHON} -V")
                return wall([(net[name], ["bash", "-c", text], env) for name in names])

            ours(), by_hand(True)  # files into memory
            times = {"ours": [], "by hand": [], "by hand, without import torch": []}
            for _ in range(repeat):
                times["ours"].append(ours())
                times["by hand"].append(by_hand(True))
                times["by hand, without import torch"].append(by_hand(False))
        finally:
            for process in serving:
                process.kill()
                process.wait()
    return {name: {"median": statistics.median(t), "least": min(t), "most": max(t)} for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="2,4")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if why := netns.missing():
        raise SystemExit(why)
    results = {}
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        for count in map(int, options.nodes.split(",")):
            results[count] = measure(count, options.repeat, pathlib.Path(folder))
    if options.json:
        print(json.dumps({"cores": len(os.sched_getaffinity(0)), "repeat": options.repeat, "seconds": results}, indent=2))
        return
    print(f"{len(os.sched_getaffinity(0))} cores shared by all nodes, {options.repeat} rounds; wall seconds")
    for count, rows in results.items():
        for name, t in rows.items():
            ratio = t["median"] / rows["ours"]["median"]
            print(f"{count} nodes  {name:<32} median {t['median']:.2f}  ({t['least']:.2f} - {t['most']:.2f})  {ratio:.1f}x")


if __name__ == "__main__":
    main()
