"""How the launcher's tests speak of a job: start it on this machine or on hosts of a bed, wait for its ranks, read what
it left. Stands on tests/integration/harness.py."""

import json
import os
import pathlib

import harness

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
PYTHON3 = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else harness.sys.executable


def program(name, *args):
    """Command line tail that runs a torch-free program of programs/ under the plain interpreter."""
    return ["--no-python", PYTHON3, "-u", str(PROGRAMS / name), *map(str, args)]


def torch_env(extra=None):
    """The environment in which `python` is the one that has torch."""
    return {"PATH": os.path.dirname(harness.PYTHON) + ":" + os.environ["PATH"], **(extra or {})}


def on(host, *args, env=None, **kwargs):
    """Starts `lockstep args...` on a host of a bed, in that host's folder."""
    return harness.Process(host.command([harness.PROGRAM, *map(str, args)]), cwd=host.folder, env=env, **kwargs)


def over(net, names, args, program, per_host=None, env=None):
    """Starts one node-level job over hosts: returns {name: Process}. per_host(name, node_rank) gives further flags."""
    launchers = {}
    for rank, name in enumerate(names):
        extra = per_host(name, rank) if per_host else []
        launchers[name] = on(net[name], "run", f"--nnodes={len(names)}", f"--node-rank={rank}",
                             f"--master-addr={names[0]}", "--master-port=29500", *args, *extra, *program, env=env)
    return launchers


def marked(folder, word="ready", rank=0):
    """The content of a rank's mark, or None."""
    try:
        return (pathlib.Path(folder) / f"{word}.{rank}").read_text()
    except FileNotFoundError:
        return None


def wait_marks(folder, ranks, word="ready", seconds=60, launcher=None):
    """Waits until all ranks have made their mark; returns the contents. A launcher that ends first fails the test."""

    def all_there():
        ended = launcher is not None and not launcher.alive()
        found = [marked(folder, word, rank) for rank in range(ranks)]
        if None not in found:
            return found
        if ended:
            raise AssertionError(f"launcher ended with {launcher.returncode} before all marks {word!r}\n{launcher.output}")
        return None

    return harness.wait_until(all_there, seconds, f"marks {word!r} of {ranks} ranks")


def run_path(folder):
    """The one run directory below folder/runs."""
    runs = [p for p in (pathlib.Path(folder) / "runs").iterdir() if p.is_dir()]
    if len(runs) != 1:
        raise AssertionError(f"expected one run, found {runs}")
    return runs[0]


def report(folder):
    path = pathlib.Path(folder)
    path = path if (path / "report.json").exists() else run_path(folder)
    return json.loads((path / "report.json").read_text())


def events(folder, kind=None):
    """Events so far, perhaps none yet."""
    files = list((pathlib.Path(folder) / "runs").glob("*/events.jsonl"))
    return [e for file in files for e in harness.read_jsonl(file) if kind in (None, e["type"])]


def logs(folder, rank, node=0, attempt=0):
    path = run_path(folder) / "logs" / f"attempt-{attempt}" / f"node-{node}" / f"rank-{rank}.log"
    return path.read_text(errors="replace")


def alive(pid):
    """A process that runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{int(pid)}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def launcher_pid(started):
    """The launcher proper of a `lockstep run` that was started with process id `started`: that one is its guardian."""

    def child():
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    stat = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                    if int(stat[1]) == started and stat[0] not in "ZX" and \
                            os.path.realpath(f"/proc/{entry}/exe") == os.path.realpath(harness.PROGRAM):
                        return int(entry)
                except OSError:
                    continue
        return None

    return harness.wait_until(child, 20, f"the launcher under pid {started}")


def wait_gone(pids, seconds=20):
    harness.wait_until(lambda: not any(alive(p) for p in pids), seconds, f"the end of {list(pids)}")
