"""eat_memory.py FOLDER CGROUP: moves itself into the memory control group CGROUP and takes memory until it is killed."""

import os
import sys

import ready

ready.mark(sys.argv[1])
with open(os.path.join(sys.argv[2], "cgroup.procs"), "w") as procs:
    procs.write(str(os.getpid()))
held = []
while True:
    held.append(bytearray(os.urandom(1) * (4 << 20)))
