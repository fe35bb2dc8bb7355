#!/usr/bin/env python3
"""Long runs with faults: after each of them nothing of the job may be left. `make soak` runs it and prints the fault table
of docs/reliability.md; tests/integration/test_soak.py runs the short form.

    tests/soak/run.py [--cycles 1000] [--kills 200] [--storms 60] [--cuts 24] [--disks 20] [--restarts 200]
                      [--train-kills 50] [--seed 1] [--only NAME]

Every scenario lives on hosts of its own (network namespaces), so "left" is exact: any process in that namespace, any
listening port of it, any file in its shared memory or temporary folder, any lock or half-written file in a run
directory. Exit code 0 when nothing was ever left and every job ended as it should.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests"), str(ROOT / "tests" / "soak")]
import harness  # noqa: E402
import train_kills  # noqa: E402
from beds import jobs, netns  # noqa: E402

EMPTY_WITHIN = 15  # seconds for a broken launcher to be called one; the measured times are in the table


class Row:
    """One line of the table."""

    def __init__(self, fault, expected):
        self.fault, self.expected = fault, expected
        self.times = self.good = 0
        self.slowest = 0.0
        self.problems = []
        self.notes = ""

    def add(self, problem, seconds=0.0):
        self.times += 1
        self.slowest = max(self.slowest, seconds)
        if problem:
            self.problems.append(problem)
        else:
            self.good += 1

    def text(self):
        slowest = f"{self.slowest:.2f} s" if self.slowest else ""
        return f"| {self.fault} | {self.times} | {self.expected} | {self.good} of {self.times}{self.notes} | {slowest} |"


HEADER = "| what was done | times | expected | as expected | slowest end |\n|---|---|---|---|---|"


def private_places(host):
    """Gives the host shared memory of its own and its commands a temporary folder of their own; both start empty."""
    folder = os.path.join(host.folder, "tmp")
    os.mkdir(folder)
    host.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
    return folder


def left_outside(host, folder):
    """What runs left outside their directories: names in shared memory and in the temporary folder."""
    return host.run(["ls", "-A", "/dev/shm"]).stdout.split() + os.listdir(folder)


def listening(host):
    rows = []
    for table in ("tcp", "tcp6"):
        done = host.run(["cat", f"/proc/self/net/{table}"])
        rows += [line for line in done.stdout.splitlines()[1:] if line.split()[3] == "0A"]
    return rows


def left_on(host):
    """What is left on a host after its job: words, empty when nothing."""
    deadline = time.monotonic() + EMPTY_WITHIN
    while host.processes() and time.monotonic() < deadline:
        time.sleep(0.005)
    left = host.processes()
    if left:
        words = []
        for pid in left:
            try:
                words.append(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if words:
            return f"processes left: {words}"
    ports = listening(host)
    return f"ports left: {ports}" if ports else ""


def torn_files(folder):
    """Locks and half-written files in the run directories below a folder."""
    found = []
    for path, _, files in os.walk(os.path.join(folder, "runs")):
        found += [os.path.join(path, f) for f in files if f == "lock" or ".tmp" in f or f.startswith(".")]
    return found


def launch(host, *args, **kwargs):
    kwargs.setdefault("stdout", subprocess.DEVNULL)
    kwargs.setdefault("stderr", subprocess.DEVNULL)
    kwargs.setdefault("env", harness.clean_env())
    return host.popen([harness.PROGRAM, "run", *map(str, args)], **kwargs)


def start_stop(cycles, rng):
    """Starts and ends jobs in turn: `true` to its end, and a running job by SIGTERM."""
    row = Row("start and stop of a job of 2 ranks, half of them by SIGTERM",
              "exit code 0 or 143; no process, port, lock or file left")
    with netns.Net(["a"]) as net:
        host = net["a"]
        folder = private_places(host)
        for cycle in range(cycles):
            marks = os.path.join(host.folder, "marks")
            by_signal = cycle % 2
            program = ["--no-python", "sleep", "600"] if by_signal else ["--no-python", "true"]
            job = launch(host, "--name", f"job-{cycle}", "--nproc-per-node", 2, "--grace", "5s", *program,
                         env=harness.clean_env({"TMPDIR": folder}))
            if by_signal:
                # Any moment is right: while starting, while running.
                time.sleep(rng.uniform(0, 0.05))
                job.terminate()
            started = time.monotonic()
            try:
                code = job.wait(60)
            except subprocess.TimeoutExpired:
                job.kill()
                code = f"none within 60 s (job {cycle})"
            took = time.monotonic() - started
            allowed = (143, -signal.SIGTERM) if by_signal else (0,)
            problem = left_on(host) or ("" if code in allowed else f"exit code {code}")
            torn = torn_files(host.folder)
            row.add(problem or (f"left in the run directory: {torn}" if torn else ""), took)
            shutil.rmtree(marks, ignore_errors=True)
            shutil.rmtree(os.path.join(host.folder, "runs"), ignore_errors=True)
        left = left_outside(host, folder)
        if left:
            row.problems.append(f"left outside the run directory: {left}")
            row.good -= 1
    return row


def descriptors(restarts, rng):
    """One launcher over many restarts: its descriptors, threads and memory may not grow."""
    del rng
    row = Row("restarts within one launcher", "no more descriptors or threads in the last attempts than in the first")
    with netns.Net(["a"]) as net:
        host = net["a"]
        folder = pathlib.Path(host.folder)
        script = folder / "step.sh"
        # A metric line is progress, so that the same failure may be restarted again and again.
        script.write_text("#!/bin/sh\n[ $RANK = 0 ] && exec sleep 600\necho '{\"step\": 1, \"scalars\": {}}' >> $LOCKSTEP_METRICS\n"
                          "ls /proc/$PPID/fd | wc -l >> fds.$RANK\nls /proc/$PPID/task | wc -l >> tasks.$RANK\n"
                          "grep VmRSS /proc/$PPID/status >> rss.$RANK\nexit 1\n")
        script.chmod(0o755)
        job = launch(host, "--nproc-per-node", 2, "--max-restarts", restarts, "--backoff", "0s", "--no-python", script)
        code = job.wait(600)
        counts = [int(n) for n in (folder / "fds.1").read_text().split()]
        tasks = [int(n) for n in (folder / "tasks.1").read_text().split()]
        rss = [int(line.split()[1]) for line in (folder / "rss.1").read_text().splitlines()]
        problem = ""
        if code != 5:
            problem = f"exit code {code}"
        elif len(counts) != restarts + 1:
            problem = f"{len(counts)} attempts"
        # The number at one moment depends on whether pipes of the attempt are closed yet; a leak only ever rises.
        elif min(counts[-5:]) > max(counts[:5]) or min(tasks[-5:]) > max(tasks[:5]):
            problem = f"descriptors {counts[:5]} -> {counts[-5:]}, threads {tasks[:5]} -> {tasks[-5:]}"
        row.add(problem or left_on(host))
        row.times, row.good = restarts, 0 if row.problems else restarts
        if not row.problems:
            row.notes = f" (descriptors {min(counts[:5])} -> {min(counts[-5:])}, resident {rss[1] / 1024:.1f} -> {rss[-1] / 1024:.1f} MiB)"
    return row


def find_launcher(host, guardian):
    """The launcher proper: the other process of our program, if it is there already."""
    for pid in host.processes():
        try:
            if pid != guardian and os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(harness.PROGRAM):
                return pid
        except OSError:
            continue
    return None


def kills(times, rng, victim):
    """kill -9 of one process of a job at a random moment; ranks have daemons in sessions of their own."""
    expected = {"worker": "exit code 5, nothing left", "launcher": "nothing left", "guardian": "nothing left",
                "launcher of one of two nodes": "the other ends with 6, nothing left on either"}[victim]
    row = Row(f"kill -9 of the {victim} at a random moment", expected)
    two = victim.endswith("nodes")
    with netns.Net(["a", "b"] if two else ["a"]) as net:
        for number in range(times):
            marks = os.path.join(net.folder, f"marks-{victim[:1]}-{number}")
            program = jobs.program("grandchild.py", marks)
            flags = ["--nproc-per-node", 1 if two else 2, "--grace", "1s", "--name", f"job-{number}"]
            if two:
                flags += ["--nnodes", 2, "--master-addr", "a", "--master-port", 29500, "--join-timeout", "5s"]
                launchers = [launch(net[n], *flags, "--node-rank", i, *program) for i, n in enumerate("ab")]
            else:
                launchers = [launch(net["a"], *flags, *program)]
            target = rng.choice(launchers) if two else launchers[0]
            # Half of the kills come while the job starts, half while it runs.
            if number % 2 or victim == "worker":
                deadline = time.monotonic() + 30
                while not (os.path.exists(f"{marks}/ready.0") and os.path.exists(f"{marks}/ready.1")):
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.002)
                time.sleep(rng.uniform(0, 0.05))
            else:
                time.sleep(rng.uniform(0, 0.25))
            pid = target.pid
            if victim == "worker":
                pid = int(pathlib.Path(f"{marks}/ready.{rng.randrange(2)}").read_text())
            elif victim.startswith("launcher"):
                pid = find_launcher(net["ab"[launchers.index(target)]], target.pid) or target.pid
            started = time.monotonic()
            if pid is not None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            problem = ""
            for job in launchers:
                try:
                    code = job.wait(60)
                except subprocess.TimeoutExpired:
                    job.kill()
                    job.wait()
                    problem = "a launcher did not end within 60 s"
                    continue
                if victim == "worker" and code != 5:
                    problem = f"exit code {code}"
                # Killed before the nodes had met, the other one waits for a newcomer until its deadline: 4. So early that
                # only the guardian was there: its launcher stops the job in good order, 143.
                early = (4, 6, 143) if pid == target.pid else (4, 6)
                if two and job is not target and code not in ((6,) if number % 2 else early):
                    problem = f"the other node's exit code {code}"
            problem = problem or "".join(left_on(host) for host in net)
            row.add(problem and f"#{number}: {problem}", time.monotonic() - started)
            shutil.rmtree(marks, ignore_errors=True)
            for host in net:
                shutil.rmtree(os.path.join(host.folder, "runs"), ignore_errors=True)
    return row


def storms(times, rng):
    """Ranks that fork daemons without end, while one of them fails or the launcher or the guardian is killed."""
    row = Row("rank failed, launcher or guardian killed while ranks fork daemons without end", "nothing left")
    with netns.Net(["a"]) as net:
        host = net["a"]
        for number in range(times):
            marks = pathlib.Path(net.folder, f"marks-{number}")
            job = launch(host, "--nproc-per-node", 2, "--grace", "1s", *jobs.program("fork_storm.py", marks))
            deadline = time.monotonic() + 30
            while not (marks / "ready.0").exists() and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(rng.uniform(0.02, 0.1))
            started = time.monotonic()
            if number % 3 == 0:
                (marks / "go.0").touch()
            else:
                os.kill(job.pid if number % 3 == 1 else find_launcher(host, job.pid) or job.pid, signal.SIGKILL)
            try:
                job.wait(60)
                problem = ""
            except subprocess.TimeoutExpired:
                job.kill()
                problem = "did not end within 60 s"
            row.add(problem or left_on(host), time.monotonic() - started)
            shutil.rmtree(marks, ignore_errors=True)
            shutil.rmtree(os.path.join(host.folder, "runs"), ignore_errors=True)
    return row


def cuts(times, rng, stopped):
    """One of two hosts loses the network, in every way and at either node in turn, at a random moment of a running job.
    `stopped`: both launchers are asked to stop a moment later, long before either would call the other lost."""
    ways = ", ".join(netns.Host.CUTS)
    row = Row(f"network of either of two nodes lost ({ways}), then SIGTERM at both launchers" if stopped else
              f"network of either of two nodes lost ({ways}), `--node-timeout 8s`",
              f"both nodes end with {143 if stopped else 6}, nothing left")
    combinations = [(name, at) for name in netns.Host.CUTS for at in "ab"]
    with netns.Net(["a", "b"]) as net:
        for number in range(times):
            marks = os.path.join(net.folder, f"marks-{number}")
            launchers = [launch(net[n], "--nproc-per-node", 1, "--grace", "1s", "--name", f"job-{number}", "--nnodes", 2,
                                "--node-timeout", "1h" if stopped else "8s", "--master-addr", "a", "--master-port", 29500,
                                "--node-rank", i, *jobs.program("grandchild.py", marks)) for i, n in enumerate("ab")]
            deadline = time.monotonic() + 30
            while not all(os.path.exists(f"{marks}/ready.{r}") for r in range(2)) and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 1.0))
            name, at = combinations[number % len(combinations)]
            netns.Host.CUTS[name](net[at])
            started = time.monotonic()
            if stopped:
                time.sleep(rng.uniform(0, 3.0))
                started = time.monotonic()
                for job in launchers:
                    job.terminate()
            codes = []
            for job in launchers:
                try:
                    codes.append(job.wait(90))
                except subprocess.TimeoutExpired:
                    job.kill()
                    codes.append("none within 90 s")
            took = time.monotonic() - started
            net[at].restore()
            problem = "".join(left_on(host) for host in net)
            expected = [143, 143] if stopped else [6, 6]
            row.add(problem or ("" if codes == expected else f"{name} at {at}: exit codes {codes}"), took)
            for host in net:
                shutil.rmtree(os.path.join(host.folder, "runs"), ignore_errors=True)
    return row


def full_disks(times, rng):
    """The disk under the logs is full before, or becomes full during the job; ranks write more than it holds."""
    row = Row("disk under the log folder full while 2 ranks write 2 MiB each", "exit code 0, the loss is said, nothing left")
    with netns.Net(["a"]) as net:
        host = net["a"]
        disk = os.path.join(host.folder, "disk")
        os.mkdir(disk)
        for number in range(times):
            size = rng.choice((256, 512, 1024))
            marks = os.path.join(net.folder, f"marks-{number}")
            command = " ".join(jobs.program("spew.py", marks, 2 << 20))
            script = (f"mount -t tmpfs -o size={size}k tmpfs {disk}; {harness.PROGRAM} run --nproc-per-node 2 "
                      f"--log-dir {disk} {command}; code=$?; umount -l {disk}; exit $code")
            started = time.monotonic()
            done = host.run(["sh", "-c", script], env=harness.clean_env())
            took = time.monotonic() - started
            written = all(os.path.exists(f"{marks}/done.{r}") for r in range(2))
            said = "space" in done.stderr or "full" in done.stderr
            problem = left_on(host) or ("" if done.returncode == 0 and written and said else
                                        f"exit code {done.returncode}, ranks done {written}, said {said}")
            row.add(problem, took)
            shutil.rmtree(marks, ignore_errors=True)
    return row


def training(times, rng):
    """Trainings whose ranks are killed; without an engine beside the launcher there is nothing to kill."""
    return train_kills.kills(times, rng, Row("kill -9 of a random rank of a training (2 or 3 ranks, 5 kills a run) at a random step",
                                             "weights bit-identical to an untouched run, every sample once"), left_on)


def scenarios(options):
    rng = random.Random(options.seed)
    return {
        "start-stop": lambda: start_stop(options.cycles, rng),
        "restarts": lambda: descriptors(options.restarts, rng),
        "kill-worker": lambda: kills(options.kills, rng, "worker"),
        "kill-launcher": lambda: kills(options.kills, rng, "launcher"),
        "kill-guardian": lambda: kills(options.kills, rng, "guardian"),
        "kill-node": lambda: kills(options.kills, rng, "launcher of one of two nodes"),
        "fork-storm": lambda: storms(options.storms, rng),
        "cut": lambda: cuts(options.cuts, rng, stopped=False),
        "stop-cut": lambda: cuts(options.cuts, rng, stopped=True),
        "full-disk": lambda: full_disks(options.disks, rng),
        "train-kill": lambda: training(options.train_kills, rng),
    }


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawTextHelpFormatter)
    for name, value in (("cycles", 1000), ("kills", 200), ("storms", 60), ("cuts", 24), ("disks", 20), ("restarts", 200),
                        ("train-kills", 50), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", action="append", default=[], help="names of scenarios; default: all")
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    reason = netns.missing()
    if reason:
        print(f"soak: {reason}", file=sys.stderr)
        return 1
    table = scenarios(options)
    unknown = set(options.only) - set(table)
    if unknown:
        print(f"soak: no scenario {sorted(unknown)}; there are {sorted(table)}", file=sys.stderr)
        return 2
    rows = []
    for name, scenario in table.items():
        if options.only and name not in options.only:
            continue
        started = time.monotonic()
        row = scenario()
        rows.append(row)
        print(f"{name} ({time.monotonic() - started:.0f} s): {row.text()}", file=sys.stderr, flush=True)
        for problem in row.problems[:10]:
            print(f"  {problem}", file=sys.stderr, flush=True)
    print(HEADER)
    for row in rows:
        print(row.text())
    return 1 if any(row.problems for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
