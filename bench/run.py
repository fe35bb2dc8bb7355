#!/usr/bin/env python3
"""All benchmarks, ours and the peer in turns in one go; prints a table and writes it into docs/benchmarks.md.

    bench/run.py                      everything (about 25 minutes on two cores)
    bench/run.py --only start,crash   some of it
    bench/run.py --dry                print, leave docs/benchmarks.md alone
    bench/run.py --ahead              before other processes of this machine, both sides alike (as root; they must wait)

Elsewhere, without a build tree: LOCKSTEP_PROGRAM, LOCKSTEP_RENDEZVOUS_BENCH and LOCKSTEP_BENCH_PROGRAMS (a folder) name the programs.
The launcher's benchmarks are here, the engine's in train_rows.py and zero_rows.py.

Ratios count, not times: machines are shared. Each figure is a median over interleaved repetitions.

A peer that crashes is tried again, then left out and named at the end; the other rows go on. The exit code is 1 when a
program of ours failed; the section of that benchmark in docs/benchmarks.md then stays as it was.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import peers
import sampling
import train_rows
import watch
import zero_rows
from peers import Peer
from rows import beside, in_turns, median, missing, row, times_faster

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCKSTEP = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/bin/lockstep"))
RENDEZVOUS = os.environ.get("LOCKSTEP_RENDEZVOUS_BENCH")  # built here when not given
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
PAGE = ROOT / "docs/benchmarks.md"


def quiet(command, check=True, **more):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=check, **more)


def bench_start(folder, repeat):
    def timed(command):
        start = time.monotonic()
        quiet(command, cwd=folder)
        return time.monotonic() - start
    ours, peer = in_turns(repeat, lambda: timed([LOCKSTEP, "run", "--nproc-per-node", "2", "--no-python", "/bin/true"]),
                          Peer("torchrun", lambda: timed([*TORCHRUN, "--nproc-per-node", "2", "--no-python", "/bin/true"])))
    return [times_faster("start and end of `true` on 2 ranks", median(ours), median(peer), "torchrun", 50)]


def bench_crash(folder, repeat):
    """Rank 1 notes the time and dies; rank 0 would sleep for ten minutes."""
    script = folder / "crash.sh"
    script.write_text('#!/bin/sh\nif [ "$RANK" = 1 ]; then sleep 0.5; date +%s.%N > "$1"; exit 3; fi\nexec sleep 600\n')
    script.chmod(0o755)
    stamp = folder / "stamp"

    def from_crash_to_end(command):
        stamp.unlink(missing_ok=True)
        quiet([*command, str(script), str(stamp)], check=False, cwd=folder)
        return time.time() - float(stamp.read_text())
    ours, peer = in_turns(repeat, lambda: from_crash_to_end([LOCKSTEP, "run", "--nproc-per-node", "2", "--no-python"]),
                          Peer("torchrun", lambda: from_crash_to_end([*TORCHRUN, "--nproc-per-node", "2", "--no-python"])))
    return [times_faster("crash of one rank to the end of the job, 2 ranks", median(ours), median(peer), "torchrun", 0)]


def bench_rendezvous(folder, repeat):
    program = RENDEZVOUS or ROOT / "build/release/bench/rendezvous_bench"
    if not RENDEZVOUS:
        subprocess.run(["ninja", "--quiet", "-C", str(ROOT / "build/release"), "bench_programs"], check=True)
    times = in_turns(repeat, lambda: json.loads(subprocess.run([str(program), "1024"], check=True, capture_output=True,
                                                               cwd=folder).stdout)["seconds"])[0]
    seconds = statistics.median(times)
    return [row("1,024 authenticated clients through one rendezvous, first connect to last go", seconds * 1e3, None, None,
                "ms", "< 1 s", seconds < 1, None, None)]


class Namespace:
    """A network namespace with one address that is not loopback, so that several launchers look like several nodes."""

    def __init__(self):
        self.name = f"lockstep-bench-{os.getpid()}"
        self.address = "10.77.0.1"

    def __enter__(self):
        for command in (["ip", "netns", "add", self.name], ["ip", "-n", self.name, "link", "set", "lo", "up"],
                        ["ip", "-n", self.name, "addr", "add", self.address + "/32", "dev", "lo"]):
            subprocess.run(command, check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=False)

    def run(self, *command):
        return ["ip", "netns", "exec", self.name, *command]


def bench_gang(folder, repeat, size=16):
    port = [23000]
    with Namespace() as net:
        def gang(command_of):
            port[0] += 3
            start = time.monotonic()
            processes = [subprocess.Popen(net.run(*command_of(i, port[0])), cwd=folder, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.PIPE, text=True) for i in range(size)]
            errors = [p.communicate()[1] for p in processes]
            bad = [e for p, e in zip(processes, errors) if p.returncode != 0]
            if bad:
                raise RuntimeError(bad[0][-2000:])
            return time.monotonic() - start
        ours, peer = in_turns(
            repeat,
            lambda: gang(lambda i, p: [LOCKSTEP, "run", "--nnodes", str(size), "--node-rank", str(i), "--nproc-per-node", "1",
                                       "--master-addr", net.address, "--master-port", str(p), "--no-python", "/bin/true"]),
            Peer("torchrun (c10d rendezvous)", lambda: gang(
                lambda i, p: [*TORCHRUN, "--nnodes", str(size), "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                              f"{net.address}:{p}", "--rdzv-id", "bench", "--rdzv-conf", f"is_host={int(i == 0)}", "--no-python", "/bin/true"])))
    return [times_faster(f"{size} launchers, one rank of `true` each, first start to last end", median(ours), median(peer),
                         "torchrun (c10d rendezvous)", 0)]


def resident(pid):
    """RSS of a process in MiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def children(pid):
    return [int(p) for t in pathlib.Path(f"/proc/{pid}/task").iterdir() for p in (t / "children").read_text().split()]


def bench_memory(folder, repeat, ranks=8):
    def peak(command, launcher_processes):
        process = subprocess.Popen([*command, "sh", "-c", "echo ready; exec sleep 60"], cwd=folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        for _ in range(ranks):
            process.stdout.readline()
        own = [process.pid] + (children(process.pid) if launcher_processes == 2 else [])
        sizes = [resident(pid) for pid in own]
        process.send_signal(signal.SIGTERM)
        process.wait()
        return max(sizes), sum(sizes)
    flags = ["--nproc-per-node", str(ranks), "--no-python"]
    ours = [peak([LOCKSTEP, "run", *flags], 2) for _ in range(repeat)]
    peer = in_turns(max(1, repeat // 3), Peer("torchrun", lambda: peak([*TORCHRUN, *flags], 1)))[0]
    launcher, both, other = median(o[0] for o in ours), median(o[1] for o in ours), median(p[0] for p in peer)
    return [beside(f"resident memory of the launcher with {ranks} ranks", launcher, other, "torchrun", "MiB", "< 15 MiB",
                   lambda a, b: a < 15, lambda a, b: b / a, "smaller"),
            beside(f"launcher and guardian together (shared pages counted twice), {ranks} ranks", both, other, "torchrun", "MiB", "",
                   lambda a, b: None, lambda a, b: b / a, "smaller")]


def bench_logs(folder, repeat):
    done = subprocess.run([sys.executable, str(ROOT / "bench/log_throughput.py"), "--lockstep", LOCKSTEP, "--python",
                           sys.executable, "--repeat", str(max(3, repeat // 2)), "--json"], stdout=subprocess.PIPE, text=True, check=True,
                          cwd=folder)
    return log_rows(json.loads(done.stdout))


def log_rows(report):
    """Writer x peer: delivery to the console against --tee 3, writing time of the ranks against --redirects 3."""
    words = {"print": "Python's print", "write": "one write() per line", "block": "8 KiB per write()"}
    rows = []
    for writer, rates in report["rates"].items():
        for mode, measure, goal in (("--tee 3", "delivery", 3), ("--redirects 3", "writing", 0.8)):
            ours, peer = (rates.get(f"{who} {mode}", {}).get(measure) for who in ("lockstep", "torchrun"))
            rows.append(beside(f"log of 2 ranks, {words[writer]}: {measure}", ours / 1e3, peer and peer / 1e3, f"torchrun {mode}",
                               "1,000 lines/s", f">= {goal}x", lambda a, b, g=goal: a / b >= g, lambda a, b: a / b, "as fast"))
    return rows


def bench_sampling(folder, repeat):
    return sampling.bench(LOCKSTEP, folder, repeat=min(repeat, 3))


def bench_watch(folder, repeat):
    return watch.bench(LOCKSTEP, folder, repeat=min(repeat, 3))


BENCHES = {"start": bench_start, "crash": bench_crash, "rendezvous": bench_rendezvous, "gang": bench_gang, "memory": bench_memory,
           "logs": bench_logs, "watch": bench_watch, "sampling": bench_sampling, **train_rows.BENCHES, **zero_rows.BENCHES}


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:,.3g}"


def table(rows):
    lines = ["| what | Lockstep | peer | unit | ratio | goal | met |", "|---|---|---|---|---|---|---|"]
    for r in rows:
        peer = f"{number(r['peer'])} ({r['peer_name']})" if r["peer"] is not None else r["peer_name"] or ""
        share = r["better"] == "of it"
        ratio = "" if r["ratio"] is None else f"**{r['ratio']:.1%}** of it" if share else f"**{r['ratio']:.2f}x** {r['better']}"
        met = {True: "yes", False: "no", None: ""}[r["met"]]
        lines.append(f"| {r['name']} | {number(r['ours'])} | {peer} | {r['unit']} | {ratio} | {r['goal']} | {met} |")
    return "\n".join(lines)


def versions():
    out = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True)
    lockstep = subprocess.run([LOCKSTEP, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return (f"{datetime.date.today()}, {lockstep}, torch {out.stdout.strip()}, Python {platform.python_version()}, "
            f"Linux {platform.release()}, {os.cpu_count()} cores, load at its start {os.getloadavg()[0]:.1f}")


def publish(text):
    """Each bench has a section of its own between markers, so that one can be run again alone."""
    page = PAGE.read_text()
    for name, body in text.items():
        pattern = re.compile(f"(<!-- bench:{name} -->\n).*?(<!-- end -->)", re.S)
        if not pattern.search(page):
            raise SystemExit(f"{PAGE}: no section <!-- bench:{name} -->")
        page = pattern.sub(lambda m, b=body: m.group(1) + b + "\n" + m.group(2), page)
    PAGE.write_text(page)


def go_ahead():
    """A priority above others'. It counts within a scheduling group, so the group gets it as well; every session is one of its own."""
    if os.getpid() != os.getsid(0):
        if os.fork() != 0:  # the leader of a group of processes cannot start a session
            _, status = os.wait()
            os._exit(os.waitstatus_to_exitcode(status))
        os.setsid()
    group = pathlib.Path("/proc/self/autogroup")
    if group.exists():
        group.write_text("-15")
    os.nice(-15)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(BENCHES))
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    unknown = [name for name in args.only.split(",") if name not in BENCHES]
    if unknown:
        raise SystemExit(f"unknown bench {unknown[0]!r}; known: {', '.join(BENCHES)}")
    if args.ahead:
        go_ahead()
    results, failed = {}, {}
    for name in args.only.split(","):
        print(f"{name} ...", file=sys.stderr)
        header = versions() + ", ahead of other processes" * args.ahead
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
        results[name] = []
        try:
            for found in BENCHES[name](folder, args.repeat):
                results[name].append(found)
        except Exception as error:  # a program of ours: the other benchmarks go on, the exit code says it
            failed[name] = peers.one_line(error)
            results[name].append(missing(name, failed[name]))
            traceback.print_exc()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not args.dry and name not in failed:
            publish({name: f"{header}\n\n{table(results[name])}"})
    if args.json:
        print(json.dumps({"header": header, "results": results, "failed": failed, "crashed_peers": peers.crashes}, indent=2))
    else:
        print(header + "\n" + table([r for rows in results.values() for r in rows]))
    for name, ends in peers.crashes.items():
        print(f"peer {name}: crashed {len(ends)} time{'s' * (len(ends) > 1)}, last: {ends[-1]}", file=sys.stderr)
    for name, why in failed.items():
        print(f"bench/run.py: {name} failed: {why}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
