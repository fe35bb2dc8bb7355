"""Cases by name, and the launchers they are run with. A case is a function that gets a Stage, causes the failure and
leaves the logs, as a user would have them, in stage.work/"log"."""

import dataclasses
import shutil
import subprocess
import sys

from stage import LOCKSTEP, PYTHON, TRAIN, quote

USER = ["no", "after-fix"]  # the same again brings the same: code, data or settings must change
AGAIN = ["yes"]  # nothing to repair
ELSEWHERE = ["yes", "after-fix"]  # again on another node, or after the node's repair
ANY = ["yes", "no", "after-fix"]


@dataclasses.dataclass
class Case:
    name: str
    make: object
    label: dict
    slow: bool = False  # waits more than it computes: may run beside others
    bed: str = ""  # "slurm": in the bed that all of these share


CASES = {}


def case(name, launcher, signature, names, restart, what, rank=None, node=None, made="real", bed="", verdict="failure"):
    """signature: accepted ids. names: words of which one must stand in cause or evidence. rank: a number, a list of
    equally right ones, or None when nobody can know."""

    def keep(make):
        if name in CASES:
            raise ValueError(f"two cases named {name}")
        signatures = [signature] if isinstance(signature, str) else list(signature)
        label = {"verdict": verdict, "signature": signatures, "names": list(names), "what": what, "rank": rank,
                 "node": node, "restart": list(restart), "made": made, "launcher": launcher,
                 "how": " ".join((make.__doc__ or "").split())}
        CASES[name] = Case(name, make, label, bed=bed)
        return make

    return keep


def healthy(name, launcher, what, made="real", bed=""):
    return case("healthy/" + name, launcher, [], [], [], what, made=made, bed=bed, verdict="healthy")


# --- launchers -------------------------------------------------------------------------------------------------------


def log_folder(stage):
    folder = stage.work / "log"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    return folder


def torchrun(stage, ranks, *program, flags=("--standalone",), env=None, extra="", pids=True, before="", log="train.log",
             timeout=150, log_dir=False):
    """One merged log, or with log_dir torchelastic's folder besides the launcher's own output."""
    log_folder(stage)
    flags = list(flags)
    if log_dir:
        flags += ["--log-dir", "log", "--redirects", "3"]
    command = quote([PYTHON, "-m", "torch.distributed.run", *flags, "--nproc-per-node", ranks, *(program or ["train.py"])])
    stage.run(f"{before}\n{command} >log/{log} 2>&1\nexit 0", env=env, extra=extra, pids=pids, timeout=timeout)


def lockstep(stage, ranks, *program, flags=(), env=None, extra="", pids=True, before="", timeout=150):
    """The run directory."""
    command = quote([LOCKSTEP, "run", "--nproc-per-node", ranks, "--grace", "5s", "--name", "train", *flags, *(program or ["train.py"])])
    stage.run(f"{before}\n{command} >console.txt 2>&1\nexit 0", env=env, extra=extra, pids=pids, timeout=timeout)
    take_run(stage)


def take_run(stage, name="train"):
    found = sorted((stage.work / "runs").glob("*"))
    if len(found) != 1:
        raise RuntimeError(f"{stage.name}: run directories {found}: {(stage.work / 'console.txt').read_text()}")
    shutil.rmtree(stage.work / "log", ignore_errors=True)
    shutil.copytree(found[0], stage.work / "log", symlinks=True)
    for path in (stage.work / "log").rglob("*"):
        if path.is_symlink() or path.is_socket():
            path.unlink()


def one_file_per_rank(stage, world, script="train.py", ranks=None, env=None, per_rank=None, extra="", before="", timeout=150):
    """As started by hand or by a scheduler that gives every rank its own file."""
    log_folder(stage)
    lines = [before]
    for rank in ranks if ranks is not None else range(world):
        settings = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
        settings.update(env or {})
        settings.update((per_rank or {}).get(rank, {}))
        lines.append(" ".join(f"{k}={v}" for k, v in settings.items()) +
                     f" {PYTHON} {script} >log/rank_{rank}.log 2>&1 & pids=\"$pids $!\"")
    lines.append("for pid in $pids; do wait $pid; done\nexit 0")
    stage.run("\n".join(lines), extra=extra, timeout=timeout)


def plain(stage, shell, env=None, extra="", log="train.log", timeout=120, pids=True, before=""):
    """A shell script of a user; its output in one file."""
    log_folder(stage)
    stage.write("run.sh", shell)
    stage.run(f"{before}\nbash run.sh >log/{log} 2>&1\nexit 0", env=env, extra=extra, timeout=timeout, pids=pids)


def cc(stage, name, source, *flags, compiler="gcc"):
    """Compiles a small shared library into the program's folder."""
    stage.write(name + ".src", source)
    subprocess.run([compiler, "-x", "c++" if compiler == "g++" else "c", "-shared", "-fPIC", "-g", "-O0", "-o",
                    str(stage.work / name), str(stage.work / (name + ".src")), *flags], check=True, cwd=stage.work)
    (stage.work / (name + ".src")).unlink()


def dmesg_mark():
    return subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace").stdout.count("\n")


def dmesg_since(mark):
    lines = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace").stdout.split("\n")
    return [line for line in lines[max(0, mark - 1):] if line]


_ = (sys, TRAIN)
