"""exit75.py FOLDER [RANK]: on SIGTERM writes FOLDER/state.<rank> and exits with 75, "resume me"; rank RANK (if given)
cannot save and exits with 1."""

import signal
import sys
import time

import ready

broken = int(sys.argv[2]) if len(sys.argv) > 2 else None


def save(*_):
    if ready.RANK == broken:
        sys.exit(1)
    ready.mark(sys.argv[1], "state", "saved")
    sys.exit(75)


signal.signal(signal.SIGTERM, save)
ready.mark(sys.argv[1])
time.sleep(600)
