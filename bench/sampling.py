"""What the launcher's samples cost: its CPU time with them and without (--sample-every off), 8 ranks that write 20 metric lines a
second each, and 8 GPUs that a library with NVML's interface plays (tests/hardware/fake_nvml.cc)."""

import os
import pathlib
import subprocess
import sys
import time

from rows import in_turns, median, missing, row

ROOT = pathlib.Path(__file__).resolve().parent.parent
NVML = ROOT / "build/release/tests/libfake_nvml.so"
PROGRAM = ROOT / "tests/beds/programs/metric_lines.py"


def _stat(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def _launcher(guardian, lockstep):
    """The launcher proper: a child of the process that was started."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(_stat(name)[1]) == guardian and os.path.samefile(f"/proc/{name}/exe", lockstep):
                return int(name)
        except OSError:
            continue
    return None


def used(lockstep, folder, every, seconds):
    """Percent of a core that the launcher uses."""
    stop = pathlib.Path(folder) / f"stop-{every}-{time.monotonic_ns()}"
    gpus = {"LOCKSTEP_NVML": str(NVML), "LOCKSTEP_FAKE_NVML": ",".join(f"GPU-{i}" for i in range(8))} if NVML.exists() else {}
    job = subprocess.Popen([lockstep, "run", "--nproc-per-node=8", f"--sample-every={every}", "--no-python", sys.executable, str(PROGRAM), str(stop)],
                           cwd=folder, env={**os.environ, **gpus}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(3)
        pid = _launcher(job.pid, lockstep)

        def cpu():
            return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")
        before, start = cpu(), time.monotonic()
        time.sleep(seconds)
        return 100 * (cpu() - before) / (time.monotonic() - start)
    finally:
        stop.touch()
        job.wait()


def bench(lockstep, folder, seconds=20, repeat=3):
    name = "CPU of the launcher for samples of 8 ranks and 8 GPUs, 1 Hz"
    if not NVML.exists():
        return [missing(name, "tests/hardware/fake_nvml.cc is not built")]
    on, off = in_turns(repeat, lambda: used(lockstep, folder, "1s", seconds), lambda: used(lockstep, folder, "off", seconds))
    cost = max(0.0, median(on) - median(off))
    return [row(name, cost, median(off), "the launcher without samples", "% of a core", "< 0.5 %", cost < 0.5, None, None)]
