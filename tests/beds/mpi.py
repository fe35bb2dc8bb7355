"""Real Open MPI: the command line that starts N processes with mpirun on this machine, whatever user and core count."""

import os
import shutil
import subprocess


def missing():
    """Why no mpirun can be used here; empty when it can."""
    if shutil.which("mpirun") is None:
        return "Open MPI needs the program 'mpirun' (Debian: openmpi-bin)"
    done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True)
    return "" if "Open MPI" in done.stdout else f"mpirun is not Open MPI's: {done.stdout.strip()!r}"


def command(processes, argv, forward=()):
    """argv started `processes` times; `forward` names the variables the processes shall get."""
    exported = [flag for name in forward for flag in ("-x", name)]
    return ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "--bind-to", "none",
            # Loopback only: nothing of these tests may reach another machine.
            "--mca", "oob_tcp_if_include", "lo", "--mca", "btl", "self,vader", "--mca", "plm", "isolated",
            *exported, "-np", str(processes), *argv]
