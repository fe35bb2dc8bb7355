"""show_env.py FOLDER: writes the environment, arguments and working directory of this rank as FOLDER/env.<rank> (JSON)."""

import json
import os
import sys

import ready

ready.mark(sys.argv[1], "env", json.dumps(
    {"env": dict(os.environ), "argv": sys.argv, "cwd": os.getcwd(), "python": sys.executable,
     "unbuffered": sys.stdout.write_through or bool(sys.flags.unbuffered), "ppid": os.getppid(),
     "affinity": sorted(os.sched_getaffinity(0)), "stdin": os.readlink("/proc/self/fd/0"),
     "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}"))}))
