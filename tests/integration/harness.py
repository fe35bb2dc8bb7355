"""What every integration test stands on: start `lockstep`, wait for events, ask for components, look for leaks.

One test method runs in one process of its own (run_one.py), so module state here is state of one test. Every process a
test starts inherits LOCKSTEP_TEST_ID; by that mark leftovers are found, wherever they moved (new session, double fork,
network namespace). run_one.py fails a test that leaves any behind, then ends them.

    class Start(harness.Case):
        TIMEOUT = 60          # seconds of a quiet machine, default 120; see PATIENCE
        SERIAL = "slurm"      # tests with the same word never run at the same time; "all": runs alone

        def test_true_on_two_ranks(self):
            done = harness.lockstep("run", "--nproc-per-node", "2", "--no-python", "true")
            self.assertEqual(done.returncode, 0, done.stderr)
"""

import atexit
import functools
import importlib.util
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin")).resolve()
# Not resolved: a virtual environment is recognised by the path its interpreter was started with.
PYTHON = os.path.abspath(os.environ.get("LOCKSTEP_PYTHON", str(ROOT / ".venv" / "bin" / "python")))
TEST_ID = os.environ.setdefault("LOCKSTEP_TEST_ID", f"{os.getpid()}-{time.time_ns()}")
PROGRAM = str(BIN / "lockstep")
# Times every limit a test names. A limit only ends what would hang for ever; a shared machine may give a test a small
# part of a core, and being slow is no failure.
PATIENCE = 4
SETTLE = 10  # seconds in which the processes of a passed test must be gone
DEMO = str(BIN / "lockstep-demo")

# Names that say who a process is. A test starts from none of them, whatever the machine it runs on has set.
_IDENTITY_PREFIXES = ("SLURM_", "SLURMD_", "OMPI_", "PMI_", "PMIX_", "PET_", "TORCHELASTIC_", "LOCKSTEP_", "KUBERNETES_",
                      "JOB_COMPLETION_", "MLP_", "ACCELERATE_")
_IDENTITY_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "NNODES",
                   "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE"}
_KEPT = {"LOCKSTEP_TEST_ID", "LOCKSTEP_BIN", "LOCKSTEP_PYTHON"}


class MissingComponent(AssertionError):
    """A component the test needs is not on this machine and nobody allowed to do without it."""


class AllowedSkip(unittest.SkipTest):
    """A component is missing and LOCKSTEP_ALLOW_SKIP names it."""


class Case(unittest.TestCase):
    """A test with a temporary directory of its own (self.tmp) and full differences in messages."""

    TIMEOUT = 120
    SERIAL = None
    TOGETHER = False
    maxDiff = None
    _ran = False

    def run(self, result=None):
        if Case._ran:  # another method of this process
            tmp_dir.cache_clear()
        Case._ran = True
        return super().run(result)

    @property
    def tmp(self):
        return tmp_dir()


# --- files and environment -------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def tmp_dir():
    """This test's temporary directory; removed at the end, kept for reading when LOCKSTEP_KEEP_TMP is set."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-it-"))
    owner = os.getpid()

    def remove():
        # A forked child that leaves through sys.exit runs the same hook; only the owner may clean up.
        if os.getpid() == owner and not os.environ.get("LOCKSTEP_KEEP_TMP"):
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return path


def clean_env(extra=None, base=None):
    """The environment without any placement variables, plus `extra` (a value of None removes a name)."""
    env = {}
    for key, value in (os.environ if base is None else base).items():
        if key in _KEPT or not (key in _IDENTITY_NAMES or key.startswith(_IDENTITY_PREFIXES)):
            env[key] = value
    env["LOCKSTEP_TEST_ID"] = TEST_ID
    for key, value in (extra or {}).items():
        if value is None:
            env.pop(key, None)
        else:
            env[key] = str(value)
    return env


def write(name, text, mode=0o644):
    """Writes a file below the temporary directory and returns its path."""
    path = tmp_dir() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def read_jsonl(path):
    """All complete lines of a JSON-lines file; a torn last line is ignored."""
    text = pathlib.Path(path).read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line.strip()]


def free_port(host="127.0.0.1"):
    """A TCP port nobody listens on now. Outside the ephemeral range, so that no outgoing connection takes it meanwhile."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    span = range(10000, max(low, 12000))
    start = (os.getpid() * 7919 + time.time_ns() // 1000) % len(span)
    for i in range(len(span)):
        port = span[(start + i) % len(span)]
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
                return port
            except OSError:
                continue
    raise AssertionError("no free TCP port")


# --- programs --------------------------------------------------------------------------------------------------------


def run(argv, env=None, cwd=None, timeout=60, stdin=subprocess.DEVNULL, whole_env=None, **kwargs):
    """Runs a program to its end and returns a CompletedProcess with text output. `env` is laid over clean_env();
    `whole_env` replaces it."""
    return subprocess.run([str(a) for a in argv], env=clean_env(env) if whole_env is None else whole_env,
                          cwd=str(cwd or tmp_dir()), timeout=timeout * PATIENCE, stdin=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace", **kwargs)


def lockstep(*args, env=None, cwd=None, timeout=60, **kwargs):
    """`lockstep args...` to its end. The working directory is the temporary one: runs/ lands there."""
    return run([PROGRAM, *args], env=env, cwd=cwd, timeout=timeout, **kwargs)


@functools.lru_cache(maxsize=None)
def _engine_forks():
    server = subprocess.Popen([str(BIN.parent / "tests" / "engine_forks")], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env=clean_env({"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}))

    def close():
        server.stdin.close()
        server.wait()
        server.stdout.close()

    unittest.addModuleCleanup(close)
    return server


def engine(*args, env=None, cwd=None):
    """`lockstep args...` for a command of lockstep-train, to its end, as lockstep() does, with one thread. All calls of a test
    are forks of one process that has loaded LibTorch (tests/beds/engine_forks.cc): a tenth of the time of a start."""
    server, argv = _engine_forks(), [str(a) for a in args]
    with tempfile.TemporaryDirectory(prefix="lockstep-engine-") as folder:
        out, err = pathlib.Path(folder, "out"), pathlib.Path(folder, "err")
        asked = {"args": argv, "env": {key: str(value) for key, value in (env or {}).items()}, "cwd": str(cwd or tmp_dir()),
                 "stdout": str(out), "stderr": str(err)}
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = server.stdout.readline()
        if not code:
            raise AssertionError(f"engine_forks ended with {server.wait()} at {argv}")
        return subprocess.CompletedProcess(argv, int(code), out.read_text(errors="replace"), err.read_text(errors="replace"))


class Process:
    """A program running beside the test. Its output goes to files, so that it never waits for us."""

    _count = 0

    def __init__(self, argv, env=None, cwd=None, whole_env=None, **kwargs):
        Process._count += 1
        stem = tmp_dir() / f"proc-{Process._count}"
        self.argv = [str(a) for a in argv]
        self.out_path, self.err_path = pathlib.Path(f"{stem}.out"), pathlib.Path(f"{stem}.err")
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            kwargs.setdefault("stdout", out)
            kwargs.setdefault("stderr", err)
            self.popen = subprocess.Popen(self.argv, env=clean_env(env) if whole_env is None else whole_env,
                                          cwd=str(cwd or tmp_dir()), **kwargs)

    @property
    def pid(self):
        return self.popen.pid

    @property
    def returncode(self):
        return self.popen.poll()

    @property
    def stdout(self):
        return self.out_path.read_text(errors="replace")

    @property
    def stderr(self):
        return self.err_path.read_text(errors="replace")

    @property
    def output(self):
        return self.stdout + self.stderr

    def alive(self):
        return self.popen.poll() is None

    def send_signal(self, number):
        self.popen.send_signal(number)

    def kill(self):
        self.popen.kill()

    def wait(self, timeout=60):
        """The exit code; AssertionError with all output when it does not come."""
        try:
            return self.popen.wait(timeout * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout * PATIENCE} s: {' '.join(self.argv)}\n{self.output}") from None

    def wait_for(self, text, timeout=60):
        """Waits until `text` is in the output; AssertionError when the program ends or the deadline comes first."""

        def seen():
            ended = not self.alive()
            if text in self.output:
                return True
            if ended:
                raise AssertionError(f"ended with {self.returncode} before {text!r}: {' '.join(self.argv)}\n{self.output}")
            return False

        try:
            wait_until(seen, timeout, text)
        except TimeoutError:
            raise AssertionError(f"no {text!r} within {timeout * PATIENCE} s: {' '.join(self.argv)}\n{self.output}") from None
        return self.output


def spawn(*argv, **kwargs):
    """Starts any program; see Process."""
    return Process(argv, **kwargs)


def spawn_lockstep(*args, **kwargs):
    """Starts `lockstep args...`; see Process."""
    return Process([PROGRAM, *args], **kwargs)


class DeadlineError(AssertionError, TimeoutError):
    """An awaited event did not come."""


def wait_until(predicate, deadline=30, what="the event"):
    """Polls until predicate() is true and returns its value. `deadline` is only how long a broken program is given:
    it is no measurement, choose it generously."""
    end = time.monotonic() + deadline * PATIENCE
    pause = select.poll()
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise DeadlineError(f"{what}: not seen within {deadline * PATIENCE} s")
        pause.poll(10)


# --- components ------------------------------------------------------------------------------------------------------


def _have(*programs):
    return all(shutil.which(p, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") for p in programs)


def _have_netns():
    if os.geteuid() != 0 or not _have("ip"):
        return False
    name = f"lsprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return False
    return subprocess.run(["ip", "netns", "del", name], capture_output=True).returncode == 0


def _have_module(name):
    if os.path.abspath(sys.executable) == PYTHON:
        return importlib.util.find_spec(name) is not None
    probe = f"import importlib.util,sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return os.path.exists(PYTHON) and subprocess.run([PYTHON, "-c", probe], capture_output=True).returncode == 0


_COMPONENTS = {
    "netns": (_have_netns, "root and iproute2"),
    "slurm": (lambda: os.geteuid() == 0 and _have("slurmctld", "slurmd", "srun", "sbatch", "munged"),
              "root, slurmctld, slurmd, slurm-client and munge"),
    "mpirun": (lambda: _have("mpirun"), "openmpi-bin"),
    "torch": (lambda: _have_module("torch"), "torch in the virtual environment (make setup-test)"),
    "accelerate": (lambda: _have_module("accelerate"), "accelerate in the virtual environment (make setup-test)"),
    "tmux": (lambda: _have("tmux"), "tmux"),
    "kubectl": (lambda: _have("kubectl"), "kubernetes-client"),
    "sshd": (lambda: os.geteuid() == 0 and _have("sshd", "ssh", "ssh-keygen"), "root, openssh-server and openssh-client"),
    "nft": (lambda: os.geteuid() == 0 and _have("nft"), "root and nftables"),
    "chromium": (lambda: shutil.which("chromium") is not None, "Debian's chromium"),
    "promtool": (lambda: shutil.which("promtool") is not None, "promtool of Debian's prometheus"),
}


def require(*components):
    """Fails the test when a component is missing; skips it (exit code 77) when LOCKSTEP_ALLOW_SKIP names it."""
    allowed = {word.strip() for word in os.environ.get("LOCKSTEP_ALLOW_SKIP", "").split(",") if word.strip()}
    for name in components:
        present, needs = _COMPONENTS[name]
        if present():
            continue
        if name in allowed:
            raise AllowedSkip(f"{name} is missing")
        raise MissingComponent(f"{name} is missing: this test needs {needs}. "
                               f"Install it, or allow to do without: LOCKSTEP_ALLOW_SKIP={name} make test")


def glibc_version():
    """(2, 36) for the C library of this machine."""
    return tuple(int(part) for part in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))


# --- leaks -----------------------------------------------------------------------------------------------------------


def _mark():
    return f"LOCKSTEP_TEST_ID={TEST_ID}".encode()


def leftovers(test_id=None):
    """{pid: command line} of living processes that carry this test's mark, without ourselves."""
    mark = _mark() if test_id is None else f"LOCKSTEP_TEST_ID={test_id}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                found[int(entry)] = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # gone meanwhile, or a kernel thread
    return found


def kill_leftovers():
    """Ends every marked process; returns what had to be ended."""
    ended = {}
    for _ in range(50):
        now = leftovers()
        if not now:
            break
        ended.update({pid: line for pid, line in now.items() if line or pid not in ended})  # one that ends has none
        for pid in now:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        select.poll().poll(10)
    return ended


def reap():
    """Collects ended children, so that none stays a zombie."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def assert_no_processes_left(deadline=SETTLE):
    """Waits for all marked processes to go; AssertionError naming those that stay."""
    try:
        wait_until(lambda: not leftovers(), deadline)
    except DeadlineError:
        lines = "\n".join(f"  {pid}: {command}" for pid, command in leftovers().items())
        raise AssertionError(f"processes left behind:\n{lines}") from None


def open_fds(pid="self"):
    """{fd: target} of a process."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
    return found


def listening_ports(pid="self"):
    """TCP ports that a process listens on."""
    inodes = {t[8:-1] for t in open_fds(pid).values() if t.startswith("socket:[")}
    ports = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            field = row.split()
            if field[3] == "0A" and field[9] in inodes:
                ports.add(int(field[1].rsplit(":", 1)[1], 16))
    return ports


def port_is_listening(port, host="127.0.0.1"):
    """True when somebody in this network namespace accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, port)) == 0
