#!/usr/bin/env python3
"""What watching costs: CPU and memory of `lockstep watch` on a terminal, at one refresh a second.

- A job of 1,000 ranks on 125 nodes, written live: a metric line of every rank with all names of the engine, and a sample
  of every node, each second; on a terminal, and as a page (`--http`) that one client reads.
- A log of 10 million progress lines (1.1 GB): `watch LOG --json` until its answer.
- On a machine with NVIDIA GPUs, beside nvitop: `watch LOG`, which shows the GPUs of the machine, and `nvitop` with the same interval,
  in terminals of the same size, in turns.

    python3 bench/watch.py [--lockstep build/bin/lockstep] [--seconds 20] [--ranks 1000] [--lines 10000000] [--repeat 3] [--json]

nvitop is taken from this Python, or from .peers/nvitop: pip install --target .peers/nvitop nvitop==1.7.2
"""

import argparse
import fcntl
import json
import os
import pathlib
import pty
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

from rows import in_turns, median, missing, row, times_faster

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/integration"))
import fake_runs  # noqa: E402

NVITOP = ROOT / ".peers" / "nvitop"


def watched(command, cwd, seconds, env=None, size=(40, 120)):
    """Runs a program on a terminal for a while after its start; returns seconds of CPU a second and its memory in MiB."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    shown = bytearray()

    def read_until(deadline):
        while (left := deadline - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                try:
                    shown.extend(os.read(terminal, 1 << 16))
                except OSError:
                    raise SystemExit(f"{command[0]} ended: {bytes(shown[-500:])!r}") from None

    def used():
        # In nanoseconds, of each thread; the ticks of stat are too coarse for a program that hardly runs.
        return sum(int(task.read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    read_until(time.monotonic() + 4)
    before, start = used(), time.monotonic()
    read_until(start + seconds)
    cpu = (used() - before) / (time.monotonic() - start)
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    memory = int(status.split("VmRSS:")[1].split()[0]) / 1024
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG)[0] == 0:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                os.read(terminal, 1 << 16)
            except OSError:
                pass
    os.close(terminal)
    return cpu, memory


def read_page(port, stop):
    """A client of the page: takes what the server sends of the run, once it is there."""
    while not stop.is_set():
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as client:
                client.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                while not stop.is_set() and client.recv(1 << 20):
                    pass
        except OSError:
            stop.wait(0.1)


def many_ranks(lockstep, folder, ranks, seconds, page=False):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = fake_runs.FakeRun(pathlib.Path(folder) / "runs", "many", world=ranks, nodes=max(1, ranks // 8), steps=100000, owner=os.getpid())
    for step in range(1, 4):
        run.step(step, engine=True)
    run.sample(step=3)
    stop = threading.Event()

    def write():
        step = 4
        while not stop.is_set():
            began = time.monotonic()
            run.step(step, engine=True)
            run.sample(step=step)
            step += 1
            stop.wait(max(0.0, 1 - (time.monotonic() - began)))
    threads = [threading.Thread(target=write)] + ([threading.Thread(target=read_page, args=(port, stop))] if page else [])
    for thread in threads:
        thread.start()
    try:
        return watched([lockstep, "watch", "many", "--interval", "1s", *(["--http", f"127.0.0.1:{port}"] if page else [])], folder, seconds)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def long_log_rows(lockstep, folder, lines, repeat):
    log = pathlib.Path(folder) / "long.log"
    line = "26-11-18 10:00:00.123 : <epoch: 12, iter:%9.0f, lr:2.000e-04> G_loss: 1.234e-02 G_grad: 7.310e-01 time: 0.52 s/it"
    with open(log, "w") as file:
        subprocess.run(["seq", "-f", line, "1", str(lines)], stdout=file, check=True)
    size = log.stat().st_size / 1e9

    def look():
        process = subprocess.Popen([lockstep, "watch", str(log), "--json"], stdout=subprocess.PIPE)
        step = json.load(process.stdout)["step"]
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if (process.returncode, step) != (0, lines):
            raise SystemExit(f"watch {log}: exit code {process.returncode}, step {step} of {lines}")
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    found = [look() for _ in range(repeat)]
    log.unlink()
    memory = max(m for _, m in found)
    return [row(f"CPU time of one look at a log of {lines:,} lines ({size:.1f} GB)", median(cpu for cpu, _ in found), None, None, "s",
                "", None, None, None),
            row("memory of it, most", memory, None, None, "MiB", "< 64 MiB", memory < 64, None, None)]


def gpu_rows(lockstep, folder, seconds, repeat):
    name = "a refresh with the GPUs of the machine, at 1 Hz"
    if not pathlib.Path("/dev/nvidiactl").exists():
        return [missing(name, "no NVIDIA GPU")]
    env = {"PYTHONPATH": str(NVITOP)} if NVITOP.exists() else {}
    if subprocess.run([sys.executable, "-c", "import nvitop"], env={**os.environ, **env}, capture_output=True).returncode != 0:
        return [missing(name, "nvitop is not installed")]
    log = pathlib.Path(folder) / "any.log"
    log.write_text("".join(f"step {step}/1000 | loss {1 / step:.4f} | 0.5 s/it\n" for step in range(1, 500)))
    ours, peer = in_turns(repeat, lambda: watched([lockstep, "watch", str(log), "--interval", "1s"], folder, seconds),
                          lambda: watched([sys.executable, "-m", "nvitop", "-m", "full", "--interval", "1"], folder, seconds, env))
    return [times_faster(name + ", CPU time", median(cpu for cpu, _ in ours), median(cpu for cpu, _ in peer), "nvitop"),
            row("resident memory of it", median(m for _, m in ours), median(m for _, m in peer), "nvitop", "MiB", "", None,
                median(m for _, m in peer) / median(m for _, m in ours), "smaller")]


def bench(lockstep, folder, ranks=1000, seconds=20, repeat=3, lines=10_000_000):
    ranked = []
    for page, name in ((False, "CPU of `watch`"), (True, "CPU of its page with one client")):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            cpu, memory = many_ranks(lockstep, own, ranks, seconds, page)
        ranked += [row(f"{name} at {ranks:,} ranks, 1 Hz", 100 * cpu, None, None, "% of a core", "< 3 %", cpu < 0.03, None, None),
                   row("resident memory of it", memory, None, None, "MiB", "", None, None, None)]
    return [*ranked,
            *long_log_rows(lockstep, folder, lines, repeat),
            *gpu_rows(lockstep, folder, seconds, repeat)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build/bin/lockstep"))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        found = bench(os.path.abspath(args.lockstep), folder, args.ranks, args.seconds, args.repeat, args.lines)
    for one in found:
        print(json.dumps(one) if args.json else f"{one['name']}: {one['ours']} {one['unit']}"
              + (f", {one['peer_name']} {one['peer']}" if one["peer"] is not None else ""))


if __name__ == "__main__":
    main()
