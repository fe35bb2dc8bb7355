"""grandchild.py FOLDER [STAYS|LEAVES]: starts a daemon in the classic way (fork, new session, fork), deaf to SIGHUP and
SIGTERM and with its output closed; its process id is in FOLDER/daemon.<rank>. The rank itself then waits, or leaves with 0."""

import os
import signal
import sys
import time

import ready

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        ready.mark(sys.argv[1], "daemon")
        time.sleep(600)
    os._exit(0)
os.wait()
ready.wait_for_all(sys.argv[1], "daemon")
ready.mark(sys.argv[1])
if sys.argv[2:] != ["LEAVES"]:
    time.sleep(600)
