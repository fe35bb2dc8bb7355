"""The neutral machine on which failures are caused: own mounts, host name, network and process ids.

The program folder is /home/user/train, the interpreter /opt/venv/bin/python, lockstep /opt/lockstep/lockstep, whatever
they are called on the machine that runs this. Nothing of it is seen outside, and nothing survives. Needs root.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRAIN = "/home/user/train"
PYTHON = "/opt/venv/bin/python"
LOCKSTEP = "/opt/lockstep/lockstep"
HOST = "gpu-07"
BASE = os.path.dirname(os.path.dirname(os.path.realpath(ROOT / ".venv/bin/python")))  # the interpreter behind the venv
CGROUPS = "/sys/fs/cgroup"


def mounts(work, host=HOST, extra=""):
    """The shell lines that turn a fresh mount namespace into the neutral machine."""
    config = pathlib.Path(work).parent / "pyvenv.cfg"
    config.write_text("home = /opt/python/bin\ninclude-system-site-packages = false\nversion = 3.11\n")
    hosts = pathlib.Path(work).parent / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {host}\n::1 localhost\n")
    resolv = pathlib.Path(work).parent / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    return f"""
mount --make-rprivate /
mount -t tmpfs none /home; mkdir -p {TRAIN}; mount --bind {work} {TRAIN}
mount -t tmpfs none /opt; mkdir -p /opt/venv /opt/lockstep /opt/python
mount --bind {ROOT}/.venv /opt/venv; mount --bind {ROOT}/build/bin /opt/lockstep; mount --bind {BASE} /opt/python
mount --bind {config} /opt/venv/pyvenv.cfg
""" + (f"mount --bind {hosts} /etc/hosts; mount --bind {resolv} /etc/resolv.conf\n" if host else "") + extra


def environment(extra=None):
    env = {"PATH": "/opt/venv/bin:/opt/lockstep:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home/user",
           "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "TERM": "dumb", "USER": "user", "PYTHONUNBUFFERED": "1"}
    env.update(extra or {})
    return {k: v for k, v in env.items() if v is not None}


class Stage:
    """One case: write files, run commands, take the logs."""

    def __init__(self, name):
        self.name = name
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="stage-"))
        self.work = self.top / "train"
        self.work.mkdir()
        self.work.chmod(0o755)
        self.top.chmod(0o755)
        self._groups = []

    def write(self, name, text, mode=0o644):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        path.chmod(mode)
        return path

    def group(self, controller, **settings):
        """A control group of version 1 with these settings; commands enter it with `echo $$ > group/cgroup.procs`."""
        path = f"{CGROUPS}/{controller}/stage-{os.path.basename(self.top)[6:]}-{len(self._groups)}"
        os.mkdir(path)
        self._groups.append(path)
        for key, value in settings.items():
            with open(f"{path}/{key.replace('__', '.')}", "w") as out:
                out.write(str(value))
        return path

    def command(self, shell, extra="", host=HOST, pids=True):
        script = self.top / f"stage-{len(os.listdir(self.top))}.sh"
        script.write_text("set -e\n" + mounts(self.work, host, extra) +
                          f"hostname {host}\nip link set lo up\ncd {TRAIN}\nset +e\n" + shell + "\n")
        flags = ["--pid", "--fork", "--kill-child", "--mount-proc"] if pids else []
        return ["unshare", "--mount", "--uts", "--net", *flags, "bash", str(script)]

    def run(self, shell, env=None, extra="", host=HOST, timeout=150, pids=True):
        """Runs shell lines on the neutral machine; returns the exit code. They write their own output."""
        done = subprocess.run(self.command(shell, extra, host, pids), env=environment(env), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=timeout)
        if done.stderr.strip() or done.stdout.strip():
            print(f"[{self.name}] stage: {done.stdout}{done.stderr}", file=sys.stderr)
        return done.returncode

    def close(self):
        for group in self._groups:
            for _ in range(50):
                try:
                    os.rmdir(group)
                    break
                except OSError:
                    subprocess.run(["sleep", "0.1"])
        shutil.rmtree(self.top, ignore_errors=True)


def quote(words):
    return " ".join(shlex.quote(str(w)) for w in words)
