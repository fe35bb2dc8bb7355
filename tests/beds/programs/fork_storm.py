"""fork_storm.py FOLDER: never stops making daemons (fork, new session, fork), each deaf to SIGTERM and asleep. With
FOLDER/go.<rank> it fails in the midst of that."""

import os
import signal
import sys
import time

import ready

signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready.mark(sys.argv[1])
end = time.monotonic() + 20
count = 0
while time.monotonic() < end and count < 400:
    count += 1
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(300)
            time.sleep(300)
        os._exit(0)
    os.wait()
    if count > 20 and os.path.exists(os.path.join(sys.argv[1], f"go.{ready.RANK}")):
        os._exit(1)
time.sleep(300)
